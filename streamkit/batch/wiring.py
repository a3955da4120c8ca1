"""Where in a pipeline the data set is made: its sinks in place of the YAML's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from streamkit.batch.formats import CsvPart
from streamkit.errors import ConfigError
from streamkit.graph import with_nodes
from streamkit.plan import DECODE, Graph, Node, RunOptions
from streamkit.stage import Sink
from streamkit.stages.draw import Draw
from streamkit.stages.emit_csv import Csv
from streamkit.stages.jsonl import Jsonl
from streamkit.stages.video import Video
from streamkit.yamlfile import Node as YamlNode

PREFIX = "dataset"
"""The ids of what is put in begin with it, and have a dot as no id of a YAML's has."""


@dataclass(frozen=True, slots=True)
class Place:
    """A sink to be put where records are made: its id, its class and what that takes."""

    id: str
    type: type[Sink]
    options: dict[str, Any]


def replaced(graph: Graph) -> str:
    """What is to be said of the YAML's own sinks and alarms: one sentence, "" where it has none."""
    names = [node.id for node in graph.nodes.values() if issubclass(node.type, Sink)]
    told = [f"writes the data set in place of the sink{'s' * (len(names) > 1)} {', '.join(names)}"] if names else []
    told += ["looks at no alarms"] if graph.config.alarms else []
    return f"batch {' and '.join(told)}" if told else ""


def places(graph: Graph) -> Graph:
    """The part of a pipeline that records are made of: its sinks, and what only they read, left out."""
    return wire(graph, [], video=None)


def wire(graph: Graph, sinks: list[Place], *, video: str | None) -> Graph:
    """The pipeline with these sinks in place of its own.

    They read where its record sinks read from, or else its last stages; what nobody reads then is left out.

    Args:
        graph: the pipeline.
        sinks: the new ones.
        video: the folder for annotated videos, None for none. They are those of the YAML's first sink `video`, or else
            `draw` with its defaults, put behind the rest.
    """
    inputs = _inputs(graph)
    guard = any(node.options.get("escape_formulas") for node in graph.nodes.values() if issubclass(node.type, Csv))
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
    """The options of a sink; one that writes CSV guards against formulas where the YAML's own does."""
    return {**sink.options, "escape_formulas": True} if guard and issubclass(sink.type, CsvPart) else sink.options


def _inputs(graph: Graph) -> list[str]:
    """The stages whose tables are the records."""
    recorders = [node for node in graph.nodes.values() if issubclass(node.type, (Jsonl, Csv))]
    if recorders:
        return _once(name for node in recorders for name in _above(graph, node))
    return _ends(graph) or [DECODE]


def _ends(graph: Graph) -> list[str]:
    """The last stages but for sinks and those that only draw."""
    read = {name for node in graph.nodes.values() if not _passes(node) for name in _above(graph, node)}
    return [node.id for node in graph.nodes.values() if not _passes(node) and node.id not in read]


def _passes(node: Node) -> bool:
    """Whether a stage hands on what was found as it was given it."""
    return issubclass(node.type, Sink) or node.type.writes == ("pixels",)


def _above(graph: Graph, node: Node) -> list[str]:
    """What a stage gets its records from: sinks and stages that draw are gone past."""
    return _past(graph, node, _passes)


def _past_sinks(graph: Graph, node: Node) -> list[str]:
    """A stage's inputs without sinks, which hand on what they were given."""
    return _past(graph, node, lambda one: issubclass(one.type, Sink))


def _past(graph: Graph, node: Node, passed: Callable[[Node], bool]) -> list[str]:
    """A stage's inputs, and in place of those that are gone past, theirs."""
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
    """The sink of annotated videos; with `draw`, where the YAML draws nothing."""
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
    drawn = [node.id for node in graph.nodes.values() if "pixels" in node.type.writes]
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
