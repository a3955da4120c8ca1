# SPDX-License-Identifier: Apache-2.0
"""Makes a checked graph from a configuration: which stage reads from which, in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from streamkit.config.checks.collecting import check_collect
from streamkit.config.checks.hiding import check_hidden
from streamkit.config.checks.objects import check_gaps, check_labels, check_of, check_overwritten
from streamkit.config.checks.parts import parts_before, parts_of
from streamkit.config.checks.rules import check_rules
from streamkit.config.checks.shape_sources import check_named_sources, check_shape_sources
from streamkit.config.checks.stages import check_events, check_inputs, check_outputs, check_words
from streamkit.config.plan import DECODE, Config, Graph, Node, SourceConfig, StageConfig, Unread
from streamkit.core.errors import ConfigError, Problem
from streamkit.core.stage import Composite, Sink, ships
from streamkit.core.text import did_you_mean


def build(config: Config) -> Graph:
    """Make the graph of a configuration.

    Raises:
        ConfigError: with every problem of the configuration and of the graph.
    """
    graph, problems = assemble(config)
    if problems:
        raise ConfigError(problems)
    return graph


def assemble(config: Config) -> tuple[Graph, list[Problem]]:
    """Make the graph of a configuration, and check it as far as its stages and sources can be read.

    Returns:
        The graph, which can run only if there are no problems; and the problems of the configuration and of the graph.
    """
    problems = config.problems
    nodes, aliases = _expand(config, problems)
    _check_parts(config, nodes, problems)
    nodes, uncertain = _order(nodes, problems)
    graph = replace(_wired(config, nodes, aliases), uncertain=uncertain)
    check_words(graph, problems)
    check_inputs(graph, problems)
    check_outputs(graph, problems)
    check_events(graph, problems)
    check_of(graph, problems)
    check_labels(graph, problems)
    check_overwritten(graph, problems)
    check_gaps(graph)
    check_shape_sources(graph)
    check_named_sources(graph, problems)
    check_hidden(graph, problems)
    check_collect(graph, problems)
    for node in graph.certain:
        node.in_place = node.type.spec.draws_in_place and _sole_reader(graph, node)
    check_rules(graph, problems)
    return graph, list(dict.fromkeys(problems))


def with_nodes(graph: Graph, nodes: Iterable[Node]) -> Graph:
    """The pipeline with these nodes instead, each after its inputs; for added sinks and removed nodes."""
    copies = {node.id: replace(node, inputs=list(node.inputs), readers=[]) for node in nodes}
    return _wired(graph.config, copies, {name: last for name, last in graph.aliases.items() if last in copies})


def _wired(config: Config, nodes: dict[str, Node], aliases: dict[str, str]) -> Graph:
    """The graph of ordered nodes, with the readers of each."""
    graph = Graph(config, config.sources, nodes, [], aliases)
    for node in nodes.values():
        for name in node.inputs:
            (graph.outputs if name == DECODE else nodes[name].readers).append(node.id)
    return graph


def with_source(graph: Graph, source: SourceConfig) -> list[SourceConfig]:
    """The graph's sources and one more, checked as in `build`: stages can read it, and its outputs are distinct.

    Raises:
        ConfigError: with every problem.
    """
    problems: list[Problem] = []
    more = replace(graph, sources=[*graph.sources, source])
    if not set(source.type.spec.writes) >= {word for name in graph.outputs for word in graph.nodes[name].reads}:
        check_words(more, problems)
    check_outputs(more, problems)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return more.sources


def _expand(config: Config, problems: list[Problem]) -> tuple[dict[str, Node], dict[str, str]]:
    """Replace composites by their parts and insert stages between them."""
    nodes: dict[str, Node] = {}
    aliases: dict[str, str] = {}
    for stage in config.stages:
        inputs = stage.inputs
        if not issubclass(stage.type, Composite):
            for part in parts_before(stage.type, stage.options):
                id_ = f"{stage.id}.{part.name}"
                nodes[id_] = Node(id_, part.type, part.options, inputs, stage.run, stage.node)
                inputs = [id_]
            nodes[stage.id] = Node(stage.id, stage.type, stage.options, inputs, stage.run, stage.node)
            continue
        parts = list(_parts(stage, problems))
        if not parts:
            nodes[stage.id] = Node(stage.id, Unread, {}, inputs, stage.run, stage.node)
        for name, kind, options in parts:
            id_ = f"{stage.id}.{name}"
            nodes[id_] = Node(id_, kind, options, inputs, stage.run, stage.node)
            inputs = [id_]
            aliases[stage.id] = id_
    for node in nodes.values():
        node.inputs = [aliases.get(name, name) for name in node.inputs]
    return nodes, aliases


def _parts(stage: StageConfig, problems: list[Problem]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The name, class and options of each part and inserted stage; a second `blur` becomes `blur_2`."""
    parts = parts_of(stage, problems)
    left = list(stage.insert)
    names = [part.name for part in parts]
    taken = set(names)
    for part in parts:
        yield part.name, part.type, part.options
        for insert in [i for i in left if i.after == part.name]:
            left.remove(insert)
            numbered = (f"{insert.type.name}_{number}" for number in itertools.count(2))
            name = next(
                free_name for free_name in itertools.chain([insert.type.name], numbered) if free_name not in taken
            )
            taken.add(name)
            yield name, insert.type, insert.options
    for insert in left if parts else ():
        near = did_you_mean(insert.after, names)
        text = f"{stage.id} has no part {insert.after!r}{near}; its parts: {', '.join(names)}"
        problems.append(insert.node.problem(text))


def _check_parts(config: Config, nodes: dict[str, Node], problems: list[Problem]) -> None:
    """Refuse a `from` that names a part that its composite does not have."""
    names = {DECODE, *nodes}
    standing = {id_.split(".", 1)[0] for id_, node in nodes.items() if node.type is not Unread}
    for node in list(nodes.values()):
        for name in node.inputs:
            if name not in names and "." in name and name.split(".")[0] in standing:
                text = f"{node.id}.from: there is no stage {name!r}{did_you_mean(name, names)}"
                problems.append(node.problem(text))


def _order(nodes: dict[str, Node], problems: list[Problem]) -> tuple[dict[str, Node], frozenset[str]]:
    """Sort so that each node comes after its inputs; report a cycle with its whole path.

    Returns:
        The nodes, without inputs that do not exist; and the ids of those for which it is not certain what is above
        them: a stage that cannot be read, an input that does not exist, or a cycle.
    """
    ordered: dict[str, Node] = {}
    path: list[str] = []
    reported: set[frozenset[str]] = set()
    uncertain: set[str] = set()

    def visit(name: str) -> None:
        if name in ordered or name not in nodes:
            return
        if name in path:
            cycle = [*path[path.index(name) :], name]
            uncertain.update(cycle)
            if frozenset(cycle) not in reported:
                reported.add(frozenset(cycle))
                text = f"the stages read from each other in a circle: {' -> '.join(reversed(cycle))}"
                problems.append(nodes[name].problem(text))
            return
        path.append(name)
        for source in nodes[name].inputs:
            visit(source)
        path.pop()
        ordered[name] = nodes[name]

    for name in nodes:
        visit(name)
    for node in ordered.values():
        missing = [name for name in node.inputs if name != DECODE and name not in ordered]
        if missing or not node.inputs or node.type is Unread or uncertain.intersection(node.inputs):
            uncertain.add(node.id)
        node.inputs = [name for name in node.inputs if name not in missing]
    return ordered, frozenset(uncertain)


def _sole_reader(graph: Graph, node: Node) -> bool:
    """Whether no other branch reads the surfaces that come to `node`, and no stage above keeps them."""
    while node.inputs != [DECODE]:
        if len(node.inputs) > 1:
            return False
        above = graph.nodes[node.inputs[0]]
        keeps = issubclass(above.type, Sink) or above.type.spec.late_results
        if len(above.readers) > 1 or keeps:
            return False
        if "pixels" in above.type.spec.writes and not ships(above.type):
            return False  # a plugin may give several frames the same surface
        node = above
    return len(graph.outputs) == 1
