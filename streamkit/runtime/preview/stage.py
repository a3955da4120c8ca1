# SPDX-License-Identifier: Apache-2.0
"""A stage at the graph's outputs that makes small images for viewers and collects events; no cost without viewers.

On a GPU the image is scaled on the device, and only the small one is copied to the host, counted as `previews to host`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from streamkit.config.checks.hiding import frame_ancestors, hiding
from streamkit.config.graph import build
from streamkit.config.plan import DECODE, Config, Graph, Node, RunOptions, StageConfig, stages_above
from streamkit.core.data import Batch, Event, Frame, array_module
from streamkit.core.errors import describe
from streamkit.core.logs import LogOnce
from streamkit.core.stage import BatchStage, Sink
from streamkit.core.tasks import Background
from streamkit.core.yaml_tree import YamlNode
from streamkit.io.still_images import jpeg
from streamkit.runtime.execution.graph_outputs import FrameListener
from streamkit.runtime.execution.lane import blank_batch
from streamkit.runtime.preview.demand import Box, PreviewReceiver
from streamkit.runtime.preview.ordered_delivery import OrderedDelivery, ShownBatch, SmallImages
from streamkit.runtime.preview.record_queue import RecordQueue

logger = logging.getLogger(__name__)

WIDTH = 640
HEIGHT = 480
"""Maximum size of a small image, in pixels."""

_QUALITY = 75
_MAX_BYTES = 200_000
_MAX_WAITING = 2  # batches whose images are not drawn yet
_MAX_IMAGES = 16  # of events of a batch
_CLOSE_S = 2.0
_POLL_S = 0.005
_FAILED = "previews failed"


class Listenable(Protocol):
    """Something whose frames can be listened to, such as `PipelineRun`."""

    def listen(self, seen: FrameListener, /) -> Any:
        """See `GraphOutputs.listen`."""


class ListenableRun(Listenable, Protocol):
    """A run whose frames can be listened to.

    Attributes:
        graph: the graph that runs.
    """

    graph: Graph


class Preview(BatchStage, name="preview"):
    """Make small images of the watched frames, with their detections, and pass all frames on.

    Args:
        gallery: receives images and events.
        draw: the tables whose objects are drawn: those that no stage above has drawn.
        sinks: ids of the sinks that emit events. A stage may be below a sink, so that the sink's events also arrive
            here; `follow_sinks` delivers all of them instead.
    """

    def __init__(self, gallery: PreviewReceiver, draw: tuple[str, ...] = (), sinks: tuple[str, ...] = ()) -> None:
        self.gallery = gallery
        self.draw = draw
        self.sinks = sinks
        self._warn = LogOnce(logger.warning)

    def open(self) -> None:
        """Prepare the images and the records for viewers."""
        from streamkit.ops.glyphs import Atlas

        self._atlas = Atlas()
        self._records = RecordQueue(self.gallery.live)
        self._warm_up()
        self._delivery = OrderedDelivery(self.gallery)
        background = self.context.runtime.background
        self._background: Background[ShownBatch, int] = background(self._show, 1, _MAX_WAITING, self.context.id)

    def _warm_up(self) -> None:
        """Make an image for no viewer, or the first viewer's image loads kernels and letters while cameras run.

        Nothing is counted. An error comes again with the first image, which reports it.
        """
        batch = blank_batch(self.context.device, 1)
        (table,) = batch.tables.values()
        batch.tables = dict.fromkeys(self.draw, table)
        with self.context.uncounted(), suppress(Exception):
            self._encoded(self._images(batch, [0]))

    def process(self, batch: Batch) -> Batch:
        """Pass the batch on unchanged. Images are drawn and encoded in the background: no frame waits for them."""
        self._count_failed()
        now_s = time.monotonic()
        room = len(self._background.unfinished()) < _MAX_WAITING
        shown = ShownBatch(watched=self._watched(batch, now_s) if room else [])
        rows = {row for row, *_ in shown.watched}
        for row, frame in enumerate(batch.frames):
            if frame.events and (events := self._stage_events(frame)):
                boxes = event_boxes(batch, row, events)
                shown.events.append((row, frame.time_s or time.time(), events, boxes))
                if room and len(rows) < _MAX_IMAGES and self.gallery.wants_event(frame.source, now_s):
                    rows.add(row)
                else:
                    self.context.counters.add("event images left out")
        for frame in batch.failed:
            if events := self._stage_events(frame):
                shown.events.append((None, frame.time_s or time.time(), events, []))
        if shown.watched or shown.events:
            self._deliver(shown, batch, sorted(rows))
        else:
            self._delivery.deliver()
        self._records.put(batch)
        return batch

    def close(self) -> None:
        """Deliver the events that still wait, with their images if these are made in time."""
        until_s = time.monotonic() + _CLOSE_S
        while self._background.unfinished() and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        self._delivery.deliver(late_s=0.0)
        self._background.close(max(0.0, until_s - time.monotonic()))
        self._count_failed()

    def _watched(self, batch: Batch, now_s: float) -> list[tuple[int, str, int, float]]:
        """Row, source, index and PTS of the newest frame of each source of which an image is due."""
        if not (requested := self.gallery.requested):
            return []
        newest = {frame.source: row for row, frame in enumerate(batch.frames) if frame.source in requested}
        under_way = self._delivery.under_way
        due = []
        for source, row in newest.items():
            if source not in under_way and self.gallery.wants(source, now_s):
                due.append((row, source, batch.frames[row].index, batch.frames[row].pts_s))
        return due

    def _deliver(self, shown: ShownBatch, batch: Batch, rows: list[int]) -> None:
        """Begin the images of these rows, and deliver the batch when they are made."""
        try:
            shown.images = self._images(batch, rows)
        except Exception as error:
            self._warn_of(error)
            self.context.counters.add(_FAILED)
        if shown.images is None:
            shown.jpegs = {}
        self._delivery.add(shown)
        if shown.images is not None:
            self._background.offer(shown)  # there is room
        self._delivery.deliver()

    def _stage_events(self, frame: Frame) -> list[Event]:
        return [event for event in frame.events if event.stage not in self.sinks]

    def _images(self, batch: Batch, rows: list[int]) -> SmallImages | None:
        """Begin to scale these frames and to copy them to the host; those without pixels are skipped."""
        from streamkit.ops import preprocess
        from streamkit.ops.thumbnail import small_spec
        from streamkit.ops.transfer import fetch

        rows = [row for row in rows if batch.frames[row].surface is not None]
        small = []
        for row in rows:
            frame = batch.frames[row]
            spec = small_spec(frame.width, frame.height, (WIDTH, HEIGHT))
            assert frame.surface is not None
            small.append(preprocess.preprocess([frame.surface], [(frame.width, frame.height)], spec)[0])
        if not small:
            return None
        if array_module(small[0]) is not np:
            self.context.counters.add("previews to host", len(small))
        tables = [table for name in self.draw if name in batch.tables and len(table := batch.table(name))]
        row_tables = [[table[table.batch_row == row] for table in tables] for row in rows]
        sizes = [(batch.frames[row].width, batch.frames[row].height) for row in rows]
        return SmallImages(rows, fetch(small), row_tables, sizes)

    def _show(self, shown: ShownBatch, stopped: Callable[[], bool]) -> int:
        """Make the JPEG files of a batch; return 1 if that failed. This is the background's work."""
        jpegs: dict[int, bytes] = {}
        try:
            jpegs = self._encoded(shown.images)
        except Exception as error:
            self._warn_of(error)
            return 1
        finally:
            shown.jpegs = jpegs
            self._delivery.deliver()
        return 0

    def _encoded(self, images: SmallImages | None) -> dict[int, bytes]:
        """JPEG files by row."""
        from streamkit.ops.thumbnail import draw_small

        if images is None:
            return {}
        each = zip(images.rows, images.read(), images.tables, images.sizes, strict=True)
        return {
            row: jpeg(draw_small(image[0], tables, size, self._atlas), _QUALITY) for row, image, tables, size in each
        }

    def _warn_of(self, error: Exception) -> None:
        self._warn(f"preview: an image for the web page cannot be made: {describe(error)}")

    def _count_failed(self) -> None:
        if failed := sum(self._background.results()):
            self.context.counters.add(_FAILED, failed)


def event_boxes(batch: Batch, row: int, events: Sequence[Event]) -> list[Box | None]:
    """The box of each event's object as shares of the frame; None for events without an object in the frame."""
    frame = batch.frames[row]
    boxes: dict[int, Box] = {}
    wanted = {event.track_id for event in events if event.track_id is not None}
    if wanted:
        size = np.array([frame.width, frame.height] * 2, np.float64)
        for name in batch.tables:
            table = batch.table(name)
            tracks = table.track_id
            if tracks is None:
                continue
            for place in np.flatnonzero((table.batch_row == row) & np.isin(tracks, list(wanted))):
                x1, y1, x2, y2 = np.clip(table.xyxy[place] / size, 0, 1).round(4).tolist()
                boxes.setdefault(int(tracks[place]), (x1, y1, x2, y2))
    return [None if event.track_id is None else boxes.get(event.track_id) for event in events]


def preview_graph(
    config: Config, gallery: PreviewReceiver, part: Callable[[Graph], Graph] = lambda graph: graph
) -> Graph:
    """Add a `Preview` stage to a configuration, and make its graph. Objects that it does not hide are logged.

    Args:
        config: the pipeline's configuration.
        gallery: receives images and events: a `Gallery`, or a `RemoteGallery` in a worker process.
        part: returns the part of the graph at whose outputs the stage is.

    Raises:
        ConfigError: with every problem of the configuration.
    """
    graph = part(build(config))
    if elsewhere := hidden_elsewhere(graph):
        names = ", ".join(elsewhere)
        logger.warning(f"the page shows another branch than {names}: objects hidden there are visible on the page")
    return build(replace(config, stages=[*config.stages, tap(graph, gallery)]))


def tap(graph: Graph, gallery: PreviewReceiver) -> StageConfig:
    """The `Preview` stage to add to a graph's configuration.

    It reads from the last stages that are not sinks, and shows the pixels of the first: a stage with hidden objects
    comes before one that only draws. It draws the tables that none of them has drawn.
    """
    ends = _leaves(graph)
    tables = [node.table for node in graph.nodes.values() if "detections" in node.type.spec.writes]
    drawn = _drawn_tables(graph, ends[0].id) if ends else set()
    names = {*graph.nodes, *graph.aliases}
    id_ = next(name for name in ("preview", *(f"preview-{n}" for n in range(2, 999))) if name not in names)
    draw = tuple(name for name in tables if name not in drawn)
    options = {"gallery": gallery, "draw": draw, "sinks": _sinks_with_events(graph)}
    inputs = [node.id for node in ends] or [DECODE]
    return StageConfig(id_, Preview, options, inputs, RunOptions(instances=1), [], YamlNode({}, "serve", 0, 0))


def _leaves(graph: Graph) -> list[Node]:
    ends = [node for node in graph.nodes.values() if not issubclass(node.type, Sink)]
    ends = [node for node in ends if all(issubclass(graph.nodes[reader].type, Sink) for reader in node.readers)]

    def rank(node: Node) -> tuple[bool, int, bool]:
        return "pixels" not in node.available, len(_not_hidden(graph, node)), not _drawn_tables(graph, node.id)

    return sorted(ends, key=rank)


def _not_hidden(graph: Graph, node: Node) -> list[str]:
    """The stages whose blur or mosaic is missing from a stage's frames."""
    above = {node.id, *frame_ancestors(graph, node)}
    return [stage.id for stage in hiding(graph) if stage.id not in above]


def hidden_elsewhere(graph: Graph) -> list[str]:
    """The stages that hide something which the page shows, because it shows the frames of another branch."""
    ends = _leaves(graph)
    return _not_hidden(graph, ends[0]) if ends else []


def follow_sinks(running: ListenableRun, gallery: PreviewReceiver) -> None:
    """Send the events that sinks emit, such as a finished clip, to the gallery: the preview skips them."""
    follow_stages(running, gallery, _sinks_with_events(running.graph))


def follow_stages(running: Listenable, gallery: PreviewReceiver, stages: Collection[str]) -> None:
    """Send the events of these stages to the gallery. An image that a sink has saved is used as the event's image."""

    def seen(shown: Sequence[tuple[Frame, list[Event]]]) -> None:
        for frame, events in shown:
            for event in events:
                if event.stage in stages:
                    gallery.add_events(frame.time_s or time.time(), [event], _saved(event))

    if stages:
        running.listen(seen)


def _sinks_with_events(graph: Graph) -> tuple[str, ...]:
    return tuple(node.id for node in graph.nodes.values() if issubclass(node.type, Sink) and node.type.spec.writes)


def _saved(event: Event) -> bytes | None:
    """The image that a sink has just saved, unless it is large: images of many events are kept."""
    path = event.data.get("path")
    if event.kind != "saved" or not isinstance(path, str) or not path.endswith((".jpg", ".jpeg")):
        return None
    try:
        return Path(path).read_bytes() if Path(path).stat().st_size <= _MAX_BYTES else None
    except OSError:
        return None


def _drawn_tables(graph: Graph, id_: str) -> set[str]:
    """The tables that are drawn on a stage's output frames."""
    node = graph.nodes.get(id_)
    if node is None:
        return set()
    if "pixels" in node.type.spec.writes:
        return {
            stage.table for stage in stages_above(graph.nodes, node).values() if "detections" in stage.type.spec.writes
        }
    return _drawn_tables(graph, node.inputs[0])
