"""Checks the rules of a pipeline with its graph; each problem has its place in the YAML's text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streamkit.analytics.per_source_steps import PositionOptions
from streamkit.analytics.shapes import by_name
from streamkit.config.plan import Graph, Node, stages_above
from streamkit.core.errors import Problem
from streamkit.core.text import did_you_mean
from streamkit.core.yaml_tree import within
from streamkit.rules.language import Fact
from streamkit.rules.rule import OptionError, Rule, make_rule
from streamkit.rules.scope import DirectionScope, Facts, Scope, ZoneScope
from streamkit.rules.syntax import Literal, Op, RuleError, parse, walk

if TYPE_CHECKING:
    from streamkit.config.plan import Graph, Node

_SIDES = {"up": (0.0, -1.0), "right": (1.0, 0.0), "down": (0.0, 1.0), "left": (-1.0, 0.0)}
_OWN = {"pixels", "tensor", "outputs", "detections", "track_id", "events", "attributes", "embedding", "answers"}


def above(graph: Graph, node: Node) -> Scope:
    """The scope of a rule in a stage: what the stages above it provide."""
    found = Scope(tracked=False)
    labels: dict[str, None] | None = {}
    columns: set[str] = set()
    for one in _above(graph, node):
        found.stages = tuple(dict.fromkeys([*found.stages, one.table]))
        writes = set(one.type.spec.writes)
        columns |= writes - _OWN
        found.tracked |= "track_id" in writes
        if "events" in writes:
            found.events[one.id] = one.type.spec.emits
        if "detections" in writes:
            found.detectors = (*found.detectors, one.table)
            card = one.options.get("model")
            if card is None or labels is None:
                labels = None
            else:
                labels |= dict.fromkeys(one.options.get("labels") or card.labels)
        if "attributes" in writes:
            _attributes(one, found)
        tells = {"entered", "headed"} & set(one.type.spec.emits)
        made: Any = one.type(**one.options) if tells else None  # with the defaults of what is left out
        if "entered" in tells and hasattr(made, "polygon"):
            view = PositionOptions(made.units, made.anchor, made.predicted)
            areas = by_name(made.polygon)
            found.zones[one.id] = ZoneScope(areas, tuple(made.labels), view, made.margin, made.hold, made.max_gap)
        if "headed" in tells and hasattr(made, "directions"):
            arrows = {name: (a[-1][0] - a[0][0], a[-1][1] - a[0][1]) for name, a in made.directions.items()}
            found.ways = DirectionScope(arrows or _SIDES, bool(arrows) and made.units == "share", made.tolerance)
    found.labels, found.columns = None if labels is None else tuple(labels), frozenset(columns)
    return found


def _attributes(node: Node, found: Scope) -> None:
    card = node.options.get("model")
    name = node.options.get("attribute") or node.table
    into = found.attributes if "of" in node.options else found.facts
    into[name] = None if card is None else tuple(card.labels)


def _above(graph: Graph, node: Node) -> Iterator[Node]:
    """The stages above, each after its inputs."""
    seen = stages_above(graph.nodes, node)
    yield from (one for id_, one in graph.nodes.items() if id_ in seen)


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
