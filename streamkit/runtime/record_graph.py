# SPDX-License-Identifier: Apache-2.0
"""The part of a pipeline that produces records, with other sinks in place of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from streamkit.config.graph import with_nodes
from streamkit.config.plan import DECODE, Graph, Node
from streamkit.core.stage import Sink
from streamkit.stages.sinks.csv import CsvSink
from streamkit.stages.sinks.jsonl import JsonlSink


def record_inputs(graph: Graph) -> list[str]:
    """The stages whose tables become records: those that the record sinks read, or else the last ones."""
    nodes = list(graph.nodes.values())
    if recorders := [node for node in nodes if issubclass(node.type, (JsonlSink, CsvSink))]:
        return list(dict.fromkeys(name for node in recorders for name in _past(graph, node, _passes)))
    stages = [node for node in nodes if not _passes(node)]
    read = {name for node in stages for name in _past(graph, node, _passes)}
    return [node.id for node in stages if node.id not in read] or [DECODE]


def with_sinks(graph: Graph, inputs: list[str], added: list[Node]) -> Graph:
    """The stages that `inputs` and the added stages need, without the pipeline's own sinks, and the added stages."""
    wanted = [*inputs, *(name for node in added for name in node.inputs)]
    needed: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in graph.nodes and name not in needed:
            needed.add(name)
            wanted += past_sinks(graph, graph.nodes[name])
    before = [node for node in graph.nodes.values() if node.id in needed]
    return with_nodes(graph, [*(replace(node, inputs=past_sinks(graph, node)) for node in before), *added])


def _passes(node: Node) -> bool:
    """Whether a stage passes detections on unchanged: a sink, or a stage that only draws."""
    return issubclass(node.type, Sink) or node.type.spec.writes == ("pixels",)


def past_sinks(graph: Graph, node: Node) -> list[str]:
    """A stage's inputs, with sinks replaced by their inputs, because sinks pass frames on unchanged."""
    return _past(graph, node, lambda stage: issubclass(stage.type, Sink))


def _past(graph: Graph, node: Node, passed: Callable[[Node], bool]) -> list[str]:
    """A stage's inputs, with passed stages replaced by their inputs."""
    inputs = list[str]()
    seen = set[str]()
    todo = node.inputs[::-1]
    while todo:
        name = todo.pop()
        if name == DECODE or not passed(graph.nodes[name]):
            inputs.append(name)
        elif name not in seen:
            seen.add(name)
            todo += graph.nodes[name].inputs[::-1]
    return list(dict.fromkeys(inputs))
