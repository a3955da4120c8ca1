# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of a pipeline with its graph; each problem has its place in the YAML's text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from streamkit.analytics.per_source_steps import PositionOptions
from streamkit.analytics.shapes import by_name
from streamkit.config.checks.objects import detected_classes
from streamkit.config.plan import Graph, Node, stages_above
from streamkit.core.errors import MissingPackage, Problem
from streamkit.core.text import did_you_mean
from streamkit.core.yaml_tree import within
from streamkit.rules.language import NUMBER, Fact, RuleField
from streamkit.rules.rule import OptionError, Rule, check_syntax, make_rule
from streamkit.rules.scope import DirectionScope, Facts, Scope, ZoneScope
from streamkit.rules.syntax import Literal, Op, walk

_SIDES = {"up": (0.0, -1.0), "right": (1.0, 0.0), "down": (0.0, 1.0), "left": (-1.0, 0.0)}
_STANDARD_COLUMNS = {
    "pixels",
    "tensor",
    "outputs",
    "detections",
    "track_id",
    "events",
    "attributes",
    "embedding",
    "results",
}


def above(graph: Graph, node: Node) -> Scope:
    """The scope of a rule in a stage: what the stages above it provide."""
    scope = Scope(tracked=False, folder=graph.config.folder)
    labels: dict[str, None] | None = {}
    columns: set[str] = set()
    seen = stages_above(graph.nodes, node)
    for stage in (graph.nodes[id_] for id_ in graph.nodes if id_ in seen):  # each after its inputs
        scope.stages = tuple(dict.fromkeys([*scope.stages, stage.table]))
        writes = set(stage.writes)
        columns |= writes - _STANDARD_COLUMNS
        scope.tracked |= "track_id" in writes
        if "events" in writes:
            scope.events[stage.id] = stage.type.spec.emits
        if "detections" in writes:
            scope.detectors = (*scope.detectors, stage.table)
            classes = detected_classes(stage)
            labels = None if classes is None or labels is None else labels | dict.fromkeys(classes)
        if "attributes" in writes:
            _add_attributes(scope, stage)
        kinds = {"entered", "wrong_way"} & set(stage.type.spec.emits)
        # with the defaults of options that are not set
        stage_options: Any = stage.type(**stage.options) if kinds else None
        if "entered" in kinds and hasattr(stage_options, "polygon"):
            view = PositionOptions(stage_options.units, stage_options.anchor, stage_options.predicted)
            areas = by_name(stage_options.polygon)
            scope.zones[stage.id] = ZoneScope(
                areas,
                tuple(stage_options.labels),
                view,
                stage_options.margin,
                stage_options.debounce,
                stage_options.track_ttl,
            )
        if "wrong_way" in kinds and hasattr(stage_options, "directions"):
            arrows = {name: (a[-1][0] - a[0][0], a[-1][1] - a[0][1]) for name, a in stage_options.directions.items()}
            scope.ways = DirectionScope(
                arrows or _SIDES, bool(arrows) and stage_options.units == "share", stage_options.tolerance
            )
    scope.labels = None if labels is None else tuple(labels)
    scope.columns = frozenset(columns)
    return scope


def _add_attributes(scope: Scope, node: Node) -> None:
    """Add the attributes that a stage writes: one of a classifier, or those that the stage names itself."""
    fields: Callable[[Any], dict[str, RuleField]] | None = getattr(node.type, "attribute_fields", None)
    if fields is None:
        card = node.options.get("model")
        name = node.options.get("attribute") or node.table
        into = scope.attributes if "of" in node.options else scope.facts
        names = (name,) if card is None else card.attributes(name)
        scope.numbers |= set(names) - {name}
        values = None if card is None or card.task == "read" or name not in names else tuple(card.labels)
        into.update(dict.fromkeys(names, values))
        return
    into = scope.facts if node.options.get("capture") == "frame" else scope.attributes
    for name, field in fields(node.options).items():
        into[name] = field.values
        scope.numbers |= {name} if field.kind == NUMBER else set()


def check_rules(graph: Graph, problems: list[Problem]) -> None:
    """Give the stages with rules their scope, and refuse rules that cannot be used.

    Where something above a stage cannot be read, only the syntax of its rules is checked: names cannot be resolved
    then.
    """
    for node in graph.nodes.values():
        if not node.type.spec.has_rules:
            continue
        certain = node.id not in graph.uncertain
        seen = above(graph, node) if certain else Scope()
        if certain:
            node.options["above"] = seen
        stage: Any = node.type(**node.options)
        facts = Facts()
        for name, options, path in stage.named():
            try:
                if certain:
                    _warn(graph, node, make_rule(name, options, seen, facts), path)
                else:
                    check_syntax(options)
            except OptionError as error:
                problems.extend(_problems(node, name, path, error))
            except MissingPackage as error:
                problems.append(node.problem(f"{node.id}: {error}"))


def _problems(node: Node, name: str, path: tuple[str, ...], error: OptionError) -> Iterator[Problem]:
    """The problems of a rule, each at its place in the text."""
    for option, wrong in error.errors:
        what = ".".join(filter(None, (node.id, name, option)))
        yield _problem(node, (*path, option), wrong.offset, f"{what}: {wrong}")


def moved_zones(graph: Graph) -> Iterator[tuple[Node, Scope]]:
    """Yield each stage with rules above which areas have changed since its scope was made, with its new scope."""
    for node in graph.nodes.values():
        scope = node.options.get("above")
        if isinstance(scope, Scope) and (zones := above(graph, node).zones) != scope.zones:
            yield node, replace(scope, zones=zones)


def broken_rules(graph: Graph) -> list[str]:
    """What is wrong with the rules of a graph whose areas have changed, such as a name of an area that is gone."""
    problems: list[str] = []
    for node, scope in moved_zones(graph):
        stage: Any = node.type(**node.options)
        for name, options, _ in stage.named():
            try:
                make_rule(name, options, replace(scope, labels=None), Facts())
            except OptionError as error:
                rule = ".".join(filter(None, (node.id, name)))
                problems.extend(f"the rule {rule} cannot follow: {wrong}" for _, wrong in error.errors)
    return problems


def _problem(node: Node, path: tuple[str, ...], offset: int, text: str) -> Problem:
    """A problem at a character of an option's text."""
    place, _ = node.place.follow(path)
    return Problem(place.file, *within(place, offset), text)


def _warn(graph: Graph, node: Node, rule: Rule, path: tuple[str, ...]) -> None:
    """Warn of a source in a rule that the YAML does not have; it may be added later."""
    ids = [source.id for source in graph.sources]
    for option, tree in (("when", rule.when), ("clear", rule.clear)):
        for comparison in walk(tree):
            if not isinstance(comparison, Op) or comparison.op not in ("==", "!=", "in"):
                continue
            if not any(isinstance(arg, Fact) and arg.key == "source" for arg in comparison.args):
                continue
            for literal in walk(comparison):
                if isinstance(literal, Literal) and not graph.config.may_have_source(str(literal.value)):
                    near = did_you_mean(str(literal.value), ids, all_if_few=True)
                    text = f"{node.id}: there is no source {literal.value!r}{near}"
                    graph.config.warnings.append(_problem(node, (*path, option), literal.at, text))
