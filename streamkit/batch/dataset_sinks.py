"""Wires the data set's sinks into a pipeline, in place of the YAML's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from streamkit.batch.formats import CsvPart
from streamkit.config.graph import with_nodes
from streamkit.config.plan import DECODE, Graph, Node, RunOptions
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Sink
from streamkit.core.yaml_tree import YamlNode
from streamkit.stages.sinks.csv import CsvSink
from streamkit.stages.sinks.jsonl import JsonlSink
from streamkit.stages.video.draw import Draw
from streamkit.stages.video.video import Video

PREFIX = "dataset"
"""The ids of what is put in begin with it, and have a dot as no id of a YAML's has."""


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink to be put where records are made: its id, its class and what that takes."""

    id: str
    type: type[Sink]
    options: dict[str, Any]


def replaced(graph: Graph) -> str:
    """A message about the YAML's own sinks and alarms, which batch ignores; "" if it has none."""
    names = [node.id for node in graph.nodes.values() if issubclass(node.type, Sink)]
    told = [f"writes the data set in place of the sink{'s' * (len(names) > 1)} {', '.join(names)}"] if names else []
    told += ["looks at no alarms"] if graph.config.alarms else []
    return f"batch {' and '.join(told)}" if told else ""


def places(graph: Graph) -> Graph:
    """The part of a pipeline that produces records, without its sinks and what only they read."""
    return wire(graph, [], video=None)


def wire(graph: Graph, sinks: list[SinkSpec], *, video: str | None) -> Graph:
    """The pipeline with these sinks in place of its own.

    They read where its record sinks read, or else from its last stages; stages that nothing reads are removed.

    Args:
        graph: the pipeline.
        sinks: the new sinks.
        video: the folder for annotated videos, None for none. They use the options of the YAML's first sink `video`,
            or else `draw` with its defaults after the last stages.
    """
    inputs = _inputs(graph)
    guard = any(node.options.get("escape_formulas") for node in graph.nodes.values() if issubclass(node.type, CsvSink))
    added = [_node(graph, one.id, one.type, _guarded(one, guard), inputs) for one in sinks]
    if video is not None:
        added += _video(graph, video, inputs)
    wanted = [*inputs, *(name for node in added for name in node.inputs)]
    kept: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in graph.nodes and name not in kept:
            kept.add(name)
            wanted += graph.nodes[name].inputs
    before = [node for node in graph.nodes.values() if node.id in kept]
    return with_nodes(graph, [*(replace(node, inputs=_past_sinks(graph, node)) for node in before), *added])


def _guarded(sink: Any, guard: bool) -> dict[str, Any]:
    """The options of a sink; one that writes CSV escapes formulas if the YAML's own does."""
    return {**sink.options, "escape_formulas": True} if guard and issubclass(sink.type, CsvPart) else sink.options


def _inputs(graph: Graph) -> list[str]:
    """The stages whose tables become records."""
    recorders = [node for node in graph.nodes.values() if issubclass(node.type, (JsonlSink, CsvSink))]
    if recorders:
        return _once(name for node in recorders for name in _above(graph, node))
    return _ends(graph) or [DECODE]


def _ends(graph: Graph) -> list[str]:
    """The last stages, except for sinks and stages that only draw."""
    read = {name for node in graph.nodes.values() if not _passes(node) for name in _above(graph, node)}
    return [node.id for node in graph.nodes.values() if not _passes(node) and node.id not in read]


def _passes(node: Node) -> bool:
    """Whether a stage passes detections on unchanged."""
    return issubclass(node.type, Sink) or node.type.spec.writes == ("pixels",)


def _above(graph: Graph, node: Node) -> list[str]:
    """The stages that a stage gets its records from, skipping sinks and stages that only draw."""
    return _past(graph, node, _passes)


def _past_sinks(graph: Graph, node: Node) -> list[str]:
    """A stage's inputs, with sinks replaced by their inputs, because sinks pass frames on unchanged."""
    return _past(graph, node, lambda one: issubclass(one.type, Sink))


def _past(graph: Graph, node: Node, passed: Callable[[Node], bool]) -> list[str]:
    """A stage's inputs, with passed stages replaced by their inputs."""
    found, seen = list[str](), set[str]()
    todo = node.inputs[::-1]
    while todo:
        name = todo.pop()
        if name == DECODE or not passed(graph.nodes[name]):
            found.append(name)
        elif name not in seen:
            seen.add(name)
            todo += graph.nodes[name].inputs[::-1]
    return _once(found)


def _video(graph: Graph, folder: str, inputs: list[str]) -> list[Node]:
    """The sink of annotated videos, with `draw` before it if the YAML draws nothing."""
    writers = [node for node in graph.nodes.values() if issubclass(node.type, Video)]
    if writers and writers[0].options.get("encoder") in ("copy", "none"):
        raise ConfigError(
            f"the format video needs pictures that are encoded, and {writers[0].id} has "
            f"encoder: {writers[0].options['encoder']}; set encoder: auto, or leave the format out"
        )
    options = {"path": f"{folder}/{{source}}.mp4"}
    if writers:
        ending = ".mkv" if str(writers[0].options.get("path", "")).endswith(".mkv") else ".mp4"
        options = {**writers[0].options, "path": f"{folder}/{{source}}{ending}", "if_exists": "overwrite"}
        return [_node(graph, f"{PREFIX}.video", Video, options, _past_sinks(graph, writers[0]))]
    drawn = [node.id for node in graph.nodes.values() if "pixels" in node.type.spec.writes]
    if drawn:
        return [_node(graph, f"{PREFIX}.video", Video, options, drawn[-1:])]
    draw = _node(graph, f"{PREFIX}.draw", Draw, {}, inputs)
    return [draw, _node(graph, f"{PREFIX}.video", Video, options, [draw.id])]


def _node(graph: Graph, id_: str, kind: type, options: dict[str, Any], inputs: list[str]) -> Node:
    above = [graph.nodes[name] for name in inputs if name in graph.nodes]
    available = frozenset({"pixels"}).union(*(node.available for node in above))
    place = YamlNode({}, graph.config.file, 0, 0)
    return Node(id_, kind, options, list(inputs), RunOptions(), place, available=available)


def _once(names: Any) -> list[str]:
    return list(dict.fromkeys(names))
