# SPDX-License-Identifier: Apache-2.0
"""Runs a pipeline once for its evaluation: as it is configured, with branches that keep what its thresholds remove."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamkit.config.plan import DECODE, Graph, Node, RunOptions, stages_above
from streamkit.core.data import Detections, Event
from streamkit.core.errors import ConfigError, StageError, StreamkitError
from streamkit.core.stage import Stage
from streamkit.evaluate.boxes import EvaluatedFrame, FlatBoxes
from streamkit.evaluate.stages import BoxCandidates, CollectBoxes, CollectedFrame, CollectEvents, TruthBoxes
from streamkit.evaluate.truth import Truth
from streamkit.media.source_resolver import image_files
from streamkit.runtime.execution.device import choose
from streamkit.runtime.ingest.sources import is_unbounded
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.record_graph import record_inputs, with_sinks
from streamkit.runtime.run import RunConfig
from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.stages.analytics.zone import Zone
from streamkit.stages.inference.detections import DetectionsFromFile
from streamkit.stages.inference.postprocess import Postprocess
from streamkit.stages.sources.images import ImageSource

LOW_SCORE = 0.001
"""Minimum score of the boxes of average precision, which is the area under a whole curve."""

EVALUATE_ID = "evaluate."
"""Start of the ids of the stages that evaluation adds; no id in a YAML contains a dot."""

_TRUTH = f"{EVALUATE_ID}truth_of."
_ALL = 3000  # boxes of a frame without non-max suppression
_ANY = {"labels": None, "min_size": 0.0, "max_size": None}
_RUN = RunOptions(on_error="stop")

Watching = Callable[[Any], AbstractContextManager[None]]
"""Shows the progress of a run."""


@dataclass(slots=True, eq=False)
class Observations:
    """What the pipeline did, and what the truth is.

    Attributes:
        frames: the evaluated frames, source by source, in order.
        names: names of the classes; the first `classes` are evaluated.
        classes: their number.
        truth: the truth.
        detections: the pipeline's boxes.
        low: boxes of the detectors above `LOW_SCORE`, after non-max suppression, before other filters.
        raw: boxes of the detectors above their own `min_score`, before non-max suppression and other filters.
        inferred: the frames on which a detector ran, as indices.
        has_low: whether `low` has candidates: a detector of a plugin has only what it outputs.
        detectors: the detectors' nodes.
        graph: the graph of the pipeline.
        events: the events of lines and zones of the pipeline.
        truth_events: those of the same stages on the truth.
        failed: number of frames on which a stage failed.
        report: the report of the run.
        notes: what the reader must know.
    """

    frames: list[EvaluatedFrame]
    names: tuple[str, ...]
    classes: int
    truth: FlatBoxes
    detections: FlatBoxes
    low: FlatBoxes
    raw: FlatBoxes
    inferred: np.ndarray
    has_low: bool
    detectors: list[Node]
    graph: Graph
    events: list[Event]
    truth_events: list[Event]
    failed: int
    report: dict[str, Any]
    notes: list[str]


def detectors_of(graph: Graph) -> list[Node]:
    """The stages that detect: their tables are the candidates. Raises ConfigError if there are none."""
    detecting = [node for node in graph.nodes.values() if "detections" in node.writes]
    networks = [node for node in detecting if issubclass(node.type, (Postprocess, DetectionsFromFile))]
    ids = {node.id for node in detecting}
    roots = networks or [node for node in detecting if stages_above(graph.nodes, node).keys().isdisjoint(ids)]
    if not roots:
        raise ConfigError(f"{graph.config.file} has no stage that detects objects; add one, such as detect")
    return roots


def known_classes(detectors: Sequence[Node]) -> tuple[list[str], set[str]]:
    """The classes that the detectors output, [] if they are unknown, and those that an option `labels` removes."""
    every = [node.labels for node in detectors]
    if not all(every):
        return [], set()
    output_by_detector = [_output_labels(node) for node in detectors]
    names = list(dict.fromkeys(name for labels in output_by_detector for name in labels))
    return names, {name for labels in every for name in labels} - set(names)


def _output_labels(node: Node) -> Sequence[str]:
    wanted = node.options.get("labels") if issubclass(node.type, Postprocess) else None
    return [name for name in node.labels if wanted is None or name in wanted]


def images_of(graph: Graph) -> dict[str, list[str]]:
    """The files of the sources of images, in order. Raises SourceError if one has none."""
    stills = [source for source in graph.sources if issubclass(source.type, ImageSource)]
    return {source.id: image_files(source.options["uri"]) for source in stills}


def check_sources(graph: Graph) -> None:
    """Refuse cameras, and sources that repeat. Raises ConfigError."""
    for source in graph.sources:
        if is_unbounded(source) or source.options.get("loop"):
            raise ConfigError(
                f"source {source.id} is a camera, or has pace or loop: its frames have no fixed numbers. Evaluate a "
                "recording of it, without pace and loop"
            )


class _Added:
    """The stages that evaluation adds, and what they collect."""

    def __init__(self, graph: Graph, truth: Truth, detectors: Sequence[Node]) -> None:
        self.nodes: list[Node] = []
        self.collected: list[CollectedFrame] = []
        self.low: list[list[CollectedFrame]] = []
        self.raw: list[list[CollectedFrame]] = []
        self.events: list[Event] = []
        self.truth_events: list[Event] = []
        self.has_low = True
        self._graph = graph
        self.inputs = record_inputs(graph)
        self._add("found", CollectBoxes, {"into": self.collected}, self.inputs)
        for node in detectors:
            self._candidates(node)
        lines = [node for node in graph.nodes.values() if issubclass(node.type, (LineCounter, Zone))]
        if lines:
            self._counts(lines, truth)

    def _add(self, name: str, kind: type[Stage], options: dict[str, Any], inputs: list[str]) -> str:
        place = next(iter(self._graph.nodes.values())).place
        self.nodes.append(Node(f"{EVALUATE_ID}{name}", kind, options, inputs, _RUN, place))
        return self.nodes[-1].id

    def _candidates(self, node: Node) -> None:
        low: list[CollectedFrame] = []
        self.low.append(low)
        if issubclass(node.type, Postprocess):
            top = max(node.options.get("top_k", 300), 300)
            loose_options = {**node.options, **_ANY, "min_score": LOW_SCORE, "top_k": top}
            self._branch(node, "low", BoxCandidates, loose_options, low)
            raw: list[CollectedFrame] = []
            self.raw.append(raw)
            self._branch(node, "raw", BoxCandidates, {**node.options, **_ANY, "iou": 1.0, "top_k": _ALL}, raw)
        elif issubclass(node.type, DetectionsFromFile):
            self._branch(node, "low", node.type, {**node.options, "min_score": 0.0, "keep_ids": False}, low)
        else:
            self.has_low = False
            self._add(f"low_of.{node.id}", CollectBoxes, {"into": low, "table": node.table}, [node.id])

    def _branch(
        self, node: Node, name: str, kind: type[Stage], options: dict[str, Any], into: list[CollectedFrame]
    ) -> None:
        """Run the stage a second time with other options. The part of its id before the dot names its table."""
        branch = replace(
            node, id=f"{node.table}.{EVALUATE_ID}{name}", type=kind, options=options, readers=[], in_place=False
        )
        self.nodes.append(branch)
        table = node.table if issubclass(kind, Postprocess) else branch.id
        self._add(f"{name}_of.{node.id}", CollectBoxes, {"into": into, "table": table}, [branch.id])

    def _counts(self, lines: Sequence[Node], truth: Truth) -> None:
        self._add("events", CollectEvents, {"into": self.events}, [node.id for node in lines])
        if not truth.tracked:
            return
        self._add("truth", TruthBoxes, {"truth": truth}, [DECODE])
        twins = [replace(node, id=f"{_TRUTH}{node.id}", inputs=[f"{EVALUATE_ID}truth"], readers=[]) for node in lines]
        self.nodes += twins
        self._add("truth_events", CollectEvents, {"into": self.truth_events}, [node.id for node in twins])


def evaluation_graph(graph: Graph, truth: Truth) -> tuple[Graph, _Added]:
    """The pipeline without its sinks and alarms, with branches that collect candidates, results and counts."""
    added = _Added(graph, truth, detectors_of(graph))
    config = replace(graph.config, alarms=[], state=None)
    return with_sinks(replace(graph, config=config), added.inputs, added.nodes), added


def observe(graph: Graph, truth: Truth, watching: Watching, *, limit: int | None = None) -> Observations:
    """Run a pipeline to the end of its sources.

    The pipeline runs once, as it is configured. A second postprocessing of the same network outputs keeps the boxes
    above `LOW_SCORE` for average precision, and a third those that non-max suppression removes. So tracks and counts
    are those of the configured thresholds, and the network runs once.

    Args:
        graph: the checked pipeline.
        truth: the truth.
        watching: shows the progress.
        limit: maximum number of frames per source.

    Raises:
        StreamkitError: the run or a source failed, or the truth does not fit the video.
        KeyboardInterrupt: the run was stopped.
    """
    wanted = graph.config.device if isinstance(graph.config.device, str) else graph.config.device[0]
    whole, added = evaluation_graph(graph, truth)
    running = PipelineRun(whole, choose(wanted), RunConfig(limit=limit))
    with watching(running):
        try:
            code = running.run()
        except StageError as error:
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from None
            raise
    report = running.report(code)
    broken = {name: source["error"] for name, source in report["sources"].items() if "error" in source}
    if broken:
        name, reason = next(iter(broken.items()))
        raise StreamkitError(f"source {name} failed, so nothing is measured: {reason}")
    if code == 130:
        raise KeyboardInterrupt  # a part of the video measures nothing
    return _gather(graph, truth, added, report, whole=limit is None)


def _gather(graph: Graph, truth: Truth, added: _Added, report: dict[str, Any], *, whole: bool) -> Observations:
    rest = sorted(
        (frame for frame in added.collected if not frame.failed), key=lambda frame: (frame.source, frame.index)
    )
    seen = [
        EvaluatedFrame(frame.source, frame.index, frame.pts_s, frame.width, frame.height, frame.shape_scale)
        for frame in rest
    ]
    cut = any(source.options.get("end") is not None for source in graph.sources)
    truth.check_frames(seen, whole and not cut)
    frames = [frame for frame in seen if truth.is_labeled(frame.source, frame.index)]
    if not frames:
        raise ConfigError(f"{truth.options.path} has no box on a frame that the pipeline read; is it of this video?")
    place = {(frame.source, frame.index): number for number, frame in enumerate(frames)}
    names = dict.fromkeys(truth.classes)
    for frame in itertools.chain(added.collected, *added.low, *added.raw):
        names.update(dict.fromkeys(frame.table.labels))
    numbers = {name: number for number, name in enumerate(names)}
    ran = {(frame.source, frame.index) for part in added.low for frame in part if not frame.skipped}
    inferred = [number for key, number in place.items() if key in ran]
    notes = list(truth.notes)
    if len(frames) < len(seen):
        notes.append(f"{len(seen) - len(frames):,} frames are not in the truth and are left out")
    if len(inferred) < len(frames):
        text = f"average precision is measured on the {len(inferred):,} frames on which the network ran"
        notes.append(f"{text}; between them, the pipeline has no candidates")
    if not added.has_low:
        notes.append("a detector of a plugin outputs boxes above its own threshold only: its AP lacks weaker boxes")
    return Observations(
        frames,
        tuple(names),
        len(truth.classes),
        _truth_boxes(truth, frames),
        _flat(added.collected, place, numbers),
        _flat(itertools.chain(*added.low), place, numbers),
        _flat(itertools.chain(*added.raw), place, numbers),
        np.array(inferred, np.int64),
        added.has_low,
        detectors_of(graph),
        graph,
        added.events,
        [replace(event, stage=event.stage.removeprefix(_TRUTH)) for event in added.truth_events],
        sum(frame.failed for frame in added.collected),
        report,
        notes,
    )


def _truth_boxes(truth: Truth, frames: Sequence[EvaluatedFrame]) -> FlatBoxes:
    parts = []
    areas = [np.zeros(0)]
    for number, frame in enumerate(frames):
        rows = truth.of(frame.source, frame.index, frame.width, frame.height)
        ones = np.ones(len(rows.xyxy))
        parts.append((number, rows.xyxy, ones, rows.class_id, rows.track_id, rows.ignore))
        areas.append(rows.area)
    return replace(FlatBoxes.of(parts), area=np.concatenate(areas))


def _flat(frames: Any, place: dict[tuple[str, int], int], numbers: dict[str, int]) -> FlatBoxes:
    parts = []
    for frame in frames:
        number = place.get((frame.source, frame.index))
        if number is None or not len(frame.table):
            continue
        table: Detections = frame.table
        evaluation_class = np.array([*(numbers[name] for name in table.labels), -1], np.int64)
        tracks = np.full(len(table), -1) if table.track_id is None else table.track_id
        class_id = evaluation_class[np.clip(table.class_id, -1, len(table.labels))]
        parts.append((number, table.xyxy, table.score, class_id, tracks, np.zeros(len(table), bool)))
    return FlatBoxes.of(parts)
