# SPDX-License-Identifier: Apache-2.0
"""The graphs of a batch run: a pipeline's stages without sources, with the data set's sinks in place of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkit.batch.coco import CocoPart
from streamkit.batch.dataset import DataSet
from streamkit.batch.formats import CsvPart, JsonlPart, MotPart
from streamkit.batch.job import BatchSettings, FrameSelection
from streamkit.batch.parts import FORMATS, check_formats
from streamkit.batch.tables import tables_of
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.config.plan import Graph, Node, RunOptions
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Sink
from streamkit.core.yaml_tree import YamlNode
from streamkit.io.parquet_file import arrow
from streamkit.runtime.record_graph import past_sinks, record_inputs, with_sinks
from streamkit.stages.analytics.identify import Identify
from streamkit.stages.sinks.csv import CsvSink
from streamkit.stages.video.draw import Draw
from streamkit.stages.video.video import Video

PREFIX = "dataset"
"""The ids of added stages begin with it and a dot, which no id in a YAML contains."""

_SINKS: dict[str, type[Sink]] = {
    "parquet": DataSet,
    "jsonl": JsonlPart,
    "csv": CsvPart,
    "mot": MotPart,
    "coco": CocoPart,
}


def source_options(selection: FrameSelection) -> dict[str, Any]:
    """The options of a source that selects these frames."""
    return {
        "start": selection.start_s,
        "end": selection.end_s,
        "every": selection.every,
        "fps": selection.fps,
        "keyframes": selection.keyframes,
    }


def check_selection(selection: FrameSelection) -> None:
    """Refuse options that no source supports. Raises ConfigError."""
    from streamkit.stages.sources.source import VideoSource

    try:
        VideoSource(uri="video.mp4", **source_options(selection))
    except ValueError as error:
        raise ConfigError(f"--start, --end, --every, --fps, --keyframes: {error}") from None


def config_for(settings: BatchSettings, device: str | None = None) -> Graph:
    """The pipeline's own graph, without sources.

    Raises:
        ConfigError: with every problem of the YAML.
    """
    instead = {**dict(settings.overrides), "sources": "{}"}
    config = read(settings.pipeline, set_=instead, device=device, may_be_empty=True)
    config.state = None
    return build(config)


def graph_for(settings: BatchSettings, device: str | None = None, names: Mapping[str, str] | None = None) -> Graph:
    """The graph that a worker runs, with the data set's sinks.

    Args:
        settings: the pipeline and the output formats.
        device: replaces the YAML's.
        names: the name of each file by its job's key; read when a file starts.

    Raises:
        ConfigError: with every problem.
    """
    return attach(config_for(settings, device), settings, names)


def attach(graph: Graph, settings: BatchSettings, names: Mapping[str, str] | None = None) -> Graph:
    """The pipeline with the data set's sinks in place of its own; stages that nothing reads are removed.

    The sinks read where the YAML's record sinks (`jsonl`, `csv`) read, or else at its last stages. A source's id must
    be its job's key.

    Args:
        graph: the pipeline.
        settings: the output folder and formats.
        names: the name of each file by its key, for the column `source`; the worker fills it. A missing key is its own
            name.

    Raises:
        ConfigError: a format does not exist.
        MissingPackage: `parquet` needs pyarrow.
    """
    for node in graph.nodes.values():
        if issubclass(node.type, Identify):  # a file's results do not depend on the others
            node.options = {**node.options, "per_source": True}
    formats = check_formats(settings.formats)
    tables = tables_of(graph)
    inputs = record_inputs(graph)
    tracked = any(column.name == "track_id" for column in tables.columns)
    escape = any(node.options.get("escape_formulas") for node in graph.nodes.values() if issubclass(node.type, CsvSink))
    more: dict[str, dict[str, Any]] = {
        "parquet": {"tables": tables},
        "csv": {"escape_formulas": True} if escape else {},
        "coco": {"labels": tables.labels},
        "mot": {"tracked": tracked},
    }
    if "parquet" in formats:
        arrow()
    added = []
    for name in formats:
        if name != "video":
            folder, suffix = next(iter(FORMATS[name].items()))
            options = {
                "path": str(settings.out / folder / f"{{source}}{suffix}"),
                "names": {} if names is None else names,
            }
            added.append(_node(graph, f"{PREFIX}.{name}", _SINKS[name], options | more.get(name, {}), inputs))
    if "video" in formats:
        added += _video(graph, str(settings.out / "video"), inputs)
    return with_sinks(graph, inputs, added)


def recorded(graph: Graph) -> Graph:
    """The part of a pipeline that produces records, without its sinks and what only they read."""
    return with_sinks(graph, record_inputs(graph), [])


def ignored(graph: Graph) -> str:
    """A message about the YAML's own sinks and alarms, which batch ignores; "" if it has none."""
    names = [node.id for node in graph.nodes.values() if issubclass(node.type, Sink)]
    actions = [f"writes the data set in place of the sink{'s' * (len(names) > 1)} {', '.join(names)}"] if names else []
    actions += ["ignores the alarms"] if graph.config.alarms else []
    return f"batch {' and '.join(actions)}" if actions else ""


def _video(graph: Graph, folder: str, inputs: list[str]) -> list[Node]:
    """The sink of annotated videos, with `draw` before it if the YAML draws nothing."""
    writers = [node for node in graph.nodes.values() if issubclass(node.type, Video)]
    if writers and writers[0].options.get("encoder") in ("copy", "none"):
        raise ConfigError(
            f"the format video needs encoded frames, but {writers[0].id} has "
            f"encoder: {writers[0].options['encoder']}; set encoder: auto, or omit the format"
        )
    options = {"path": f"{folder}/{{source}}.mp4"}
    drawing = list[Node]()
    if writers:
        ending = ".mkv" if str(writers[0].options.get("path", "")).endswith(".mkv") else ".mp4"
        options = {**writers[0].options, "path": f"{folder}/{{source}}{ending}", "if_exists": "overwrite"}
        inputs = past_sinks(graph, writers[0])
    elif drawn := [node.id for node in graph.nodes.values() if "pixels" in node.type.spec.writes]:
        inputs = drawn[-1:]
    else:
        drawing = [_node(graph, f"{PREFIX}.draw", Draw, {}, inputs)]
        inputs = [drawing[0].id]
    return [*drawing, _node(graph, f"{PREFIX}.video", Video, options, inputs)]


def _node(graph: Graph, id_: str, kind: type, options: dict[str, Any], inputs: list[str]) -> Node:
    above = [graph.nodes[name] for name in inputs if name in graph.nodes]
    available = frozenset({"pixels"}).union(*(node.available for node in above))
    place = YamlNode({}, graph.config.file, 0, 0)
    return Node(id_, kind, options, list(inputs), RunOptions(), place, available=available)
