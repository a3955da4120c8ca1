# SPDX-License-Identifier: Apache-2.0
"""Keeps the results of frames until records are made of them for viewers.

The preview's thread only notes what a record needs, without pixels. The JSON of all frames of a turn is made at once:
this costs less than frame by frame between other work, as code and data stay in the processor's caches.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass

from streamkit.core.data import Batch, Detections, Frame
from streamkit.core.detections import LazyColumns
from streamkit.core.errors import describe
from streamkit.core.logs import LogOnce
from streamkit.core.records import as_json, batch_lines, frame_record
from streamkit.runtime.preview.live import LiveReceiver

logger = logging.getLogger(__name__)

_MAX_FRAMES = 2000


class RecordQueue:
    """The frames of the preview whose records are wanted.

    Args:
        live: makes records of them on its own thread, by `make_records`.
    """

    def __init__(self, live: LiveReceiver) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._waiting: deque[_LiveResults] = deque()
        self._frames = self._lost = 0
        self._warn = LogOnce(logger.warning)
        live.attach_records(self)

    def put(self, batch: Batch) -> None:
        """Note the results of the frames whose sources have viewers. An error never affects a frame."""
        heard = self._live.heard()
        rows = [row for row, frame in enumerate(batch.frames) if frame.source in heard] if heard else []
        failed = [frame for frame in batch.failed if frame.source in heard]
        if not rows and not failed:
            if self._waiting:  # as the last listener has left
                with self._lock:
                    self._waiting = deque()
                    self._frames = 0
            return
        try:
            results = _LiveResults.of(batch, rows, failed)
        except Exception as error:
            self._report(error)
            with self._lock:
                self._lost += len(rows) + len(failed)
            return
        with self._lock:
            self._waiting.append(results)
            self._frames += len(results)
            while self._frames > _MAX_FRAMES:
                dropped = len(self._waiting.popleft())
                self._frames -= dropped
                self._lost += dropped

    def make_records(self) -> tuple[list[tuple[str, bytes]], int]:
        """See `ResultQueue.make_records`. Any thread may call it."""
        with self._lock:
            waiting = self._waiting
            self._waiting = deque()
            self._frames = 0
            lost = self._lost
            self._lost = 0
        records: list[tuple[str, bytes]] = []
        for results in waiting:
            try:
                records += results.records()
            except Exception as error:
                self._report(error)
                lost += len(results)
        return records, lost

    def _report(self, error: Exception) -> None:
        self._warn(f"preview: a record for the web page cannot be made: {describe(error)}")


@dataclass(frozen=True, slots=True)
class _LiveResults:
    """What the records of some frames of a batch are made of, on the host and without pixels.

    Attributes:
        batch: the frames and their tables.
        failed: frames of `Batch.failed`; their records have no objects.
    """

    batch: Batch
    failed: list[Frame]

    @classmethod
    def of(cls, batch: Batch, rows: list[int], failed: list[Frame]) -> _LiveResults:
        """Those of the frames in `rows` and of `failed`."""
        tables = {name: _drawable(batch.table(name)) for name in batch.tables}
        selected = Batch(batch.frames, tables=dict(tables))
        selected = selected if len(rows) == len(batch.frames) else selected.take(rows)
        selected.frames = [_without_pixels(frame) for frame in selected.frames]
        return cls(selected, [_without_pixels(frame) for frame in failed])

    def __len__(self) -> int:
        return len(self.batch.frames) + len(self.failed)

    def records(self) -> list[tuple[str, bytes]]:
        """Records as JSON, each with its source.

        They have `shapes`, the lines and zones shown on the frame, and `skipped`, the detectors that did not search it:
        their objects of the frame before are still the latest.
        """
        frames = self.batch.frames
        lines = [(frame, text[:-1]) for frame, text in zip(frames, batch_lines(self.batch), strict=True)]
        lines += [(frame, as_json(frame_record(frame, []))) for frame in self.failed]
        return [(frame.source, _with_shapes(frame, text)) for frame, text in lines]


def _without_pixels(frame: Frame) -> Frame:
    """What a record needs of a frame. The image and the packet, which have memory of their own, are left out."""
    without_pixels = Frame(
        frame.source,
        frame.index,
        frame.pts_s,
        frame.width,
        frame.height,
        time_s=frame.time_s,
        events=frame.events,
        facts=frame.facts,
        shown=frame.shown,
        error=frame.error,
        damaged=frame.damaged,
    )
    without_pixels._state.skipped_detectors = frame._state.skipped_detectors
    return without_pixels


def _drawable(table: Detections) -> Detections:
    """The table with the columns of its records. They are read, as lazy ones hold memory of the device.

    Embeddings are left out: they are long, and cannot be drawn.
    """
    private = table.private | {"embedding"}
    if not isinstance(table.extra, LazyColumns) and private.isdisjoint(table.extra):
        return table
    extra = {name: table.extra[name] for name in table.extra if name not in private}
    return Detections(
        table.xyxy,
        table.score,
        table.class_id,
        table.batch_row,
        table.track_id,
        table.labels,
        extra,
        table.row_id,
        skeleton=table.skeleton,
    )


def _with_shapes(frame: Frame, text: bytes) -> bytes:
    """The JSON of a frame's record with `shapes` and `skipped`."""
    shapes = [
        {"name": name, "text": shape.text, "closed": shape.closed, "units": shape.units, "points": shape.points}
        for name, shape in frame.shown.items()
        if shape.class_id is None
    ]
    skipped = sorted(frame._state.skipped_detectors)
    return b"%b,%b" % (text[:-1], as_json({"shapes": shapes, "skipped": skipped})[1:])
