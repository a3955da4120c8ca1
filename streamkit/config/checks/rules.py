"""Checks the rules of a pipeline with its graph; each problem has its place in the YAML's text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.config.checks.rule_scope import above
from streamkit.core.errors import Problem
from streamkit.core.text import did_you_mean
from streamkit.core.yaml_tree import within
from streamkit.rules.ast import Literal, Op, walk
from streamkit.rules.facts import Facts
from streamkit.rules.rule import OptionError, Rule, make_rule
from streamkit.rules.scope import Scope
from streamkit.rules.syntax import RuleError, parse
from streamkit.rules.typecheck import Fact

if TYPE_CHECKING:
    from streamkit.config.plan import Graph, Node


def check_rules(graph: Graph, problems: list[Problem]) -> None:
    """Give the stages with rules their scope, and refuse rules that cannot be used.

    If the graph already has problems, only the syntax of rules is checked: names cannot be resolved then.
    """
    whole = not problems
    for node in graph.nodes.values():
        if not node.type.spec.has_rules:
            continue
        seen = above(graph, node) if whole else Scope()
        if whole:
            node.options["above"] = seen
        made: Any = node.type(**node.options)
        facts = Facts()
        for name, options, path in made.named():
            try:
                if whole:
                    _warn(graph, node, make_rule(name, options, seen, facts), path)
                else:
                    _parse(options)
            except OptionError as error:
                problems.append(_problem(node, path, name, error))


def _parse(options: Any) -> None:
    for option in ("when", "clear"):
        try:
            if options.get(option) is not None:
                parse(options[option])
        except RuleError as error:
            raise OptionError(option, error) from None


def _problem(node: Node, path: tuple[str, ...], name: str, error: OptionError) -> Problem:
    place, _ = node.place.follow([*path, error.option])
    line, column = within(place, error.error.offset)
    what = ".".join(filter(None, (node.id, name, error.option)))
    return Problem(place.file, line, column, f"{what}: {error.error}")


def _warn(graph: Graph, node: Node, rule: Rule, path: tuple[str, ...]) -> None:
    """Warn of a source in a rule that the YAML does not have; it may be added later."""
    known = [source.id for source in graph.sources]
    for option, tree in (("when", rule.when), ("clear", rule.clear)):
        for one in walk(tree):
            if isinstance(one, Op) and one.op in ("==", "!=", "in") and _is_source(one.args):
                for value in walk(one):
                    if isinstance(value, Literal) and value.value not in known:
                        place, _ = node.place.follow([*path, option])
                        near = did_you_mean(str(value.value), known, all_if_few=True)
                        text = f"{node.id}: there is no source {value.value!r}{near}"
                        graph.config.warnings.append(Problem(place.file, *within(place, value.at), text))


def _is_source(args: tuple[Any, ...]) -> bool:
    return any(isinstance(one, Fact) and one.key == "source" for one in args)
