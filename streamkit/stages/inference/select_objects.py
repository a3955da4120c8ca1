# SPDX-License-Identifier: Apache-2.0
"""Selection of what a network with `of:` runs on: objects of another stage, or whole frames; and when again.

These are the first parts of the chain described in `streamkit/core/crops.py`; the last ones are in `apply_results.py`.
On a tracked object the network runs when the track is new, then at intervals, and for a better view; without a tracker
it runs on every object of every frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamkit.core.crops import Crops
from streamkit.core.data import Batch, Detections
from streamkit.core.stage import StreamStage
from streamkit.core.units import Of, Pixels, Score, Seconds
from streamkit.ops.boxes import crop_rects, views_around

INFERRED = "objects inferred"
TOO_SMALL = "objects skipped: too small"
UNTRACKED = "objects skipped: no track"
WHOLE_FRAME = -1
"""The `row_id` of a crop that is a whole frame, or a region of one."""


def members(table: Detections, of: Of) -> np.ndarray:
    """Return (n,) bool: the rows of a detector's table that `of:` selects."""
    if not of.labels:
        return np.ones(len(table), bool)
    return np.isin(table.class_id, [i for i, name in enumerate(table.labels) if name in of.labels])


def track_ids(table: Detections) -> list[int]:
    """Return the track of each row, -1 for none."""
    return [-1] * len(table) if table.track_id is None else table.track_id.tolist()


def visible_sides(table: Detections, sizes_wh: np.ndarray) -> np.ndarray:
    """Return (n, 2): width and height of the part of each box that is in its frame; below 0 if none is."""
    return np.asarray(np.minimum(table.xyxy[:, 2:], sizes_wh) - np.maximum(table.xyxy[:, :2], 0))


def frame_sizes(batch: Batch, table: Detections) -> np.ndarray:
    """Return (n, 2) int32: width and height of the frame of each row."""
    return np.array([(frame.width, frame.height) for frame in batch.frames], np.int32).reshape(-1, 2)[table.batch_row]


@dataclass(slots=True)
class QueriedTrack:
    """A track that the network ran on.

    Attributes:
        queried_s: when the network last ran on it, in the source's time.
        quality: area x score of its best view so far.
        seen_s: when it was last seen.
    """

    queried_s: float
    quality: float
    seen_s: float


@dataclass(slots=True)
class TrackCache:
    """The tracks of one source: any values with `seen_s`. Those not seen for `track_ttl` seconds are dropped."""

    by_track: dict[int, Any] = field(default_factory=dict)
    swept_s: float = -np.inf

    def get(self, track_id: int, now_s: float, track_ttl: float) -> Any:
        """Return the state of a track, or None, and mark the track as seen now."""
        state = self.by_track.get(track_id)
        if state is None or abs(now_s - state.seen_s) > track_ttl:
            return None
        state.seen_s = now_s
        return state

    def sweep(self, now_s: float, track_ttl: float) -> None:
        """Drop tracks not seen for long; most calls do nothing."""
        if abs(now_s - self.swept_s) >= track_ttl:
            self.swept_s = now_s
            self.by_track = {
                key: state for key, state in self.by_track.items() if abs(now_s - state.seen_s) <= track_ttl
            }


class TrackCaches(StreamStage):
    """Base of the parts that keep a `TrackCache` for each source."""

    def new_state(self, source: str) -> TrackCache:
        """Return a source's tracks; none yet."""
        return TrackCache()

    @staticmethod
    def in_order(
        batch: Batch, states: Mapping[str, Any], batch_row: np.ndarray, track_ttl: float
    ) -> Iterator[tuple[int, float, TrackCache]]:
        """Yield the rows of a table frame by frame, each with the time and the tracks of its source.

        Args:
            batch: the batch.
            states: the cache of each source.
            batch_row: (n,) the frame of each row.
            track_ttl: seconds after which an unseen track is dropped.
        """
        rows = batch_row.tolist()
        last = -1
        for i in np.argsort(batch_row, kind="stable").tolist():
            if rows[i] != last:
                last = rows[i]
                now_s = batch.frames[last].pts_s
                state = states[batch.frames[last].source]
                state.sweep(now_s, track_ttl)
            yield i, now_s, state


@dataclass(eq=False)
class SelectObjects(
    TrackCaches,
    name="select",
    reads=("pixels", "detections"),
    writes=("crops",),
    changeable=("every", "track_ttl", "pad", "min_size", "requery_ratio", "untracked"),
    device_copy="the rectangles to cut go from host to device, one small copy a batch",
):
    """Choose the objects that the network runs on, and the crop rectangle of each; see the module.

    Attributes:
        of: which objects.
        every: seconds after which the network runs on a track again.
        track_ttl: seconds without a track after which it is a new one.
        pad: share of the box that is added on each side of the crop.
        min_size: skip objects whose shorter side is below this, in source pixels.
        requery_ratio: run again on a track if area x score is more than so many times that of the best view.
        untracked: below a tracker, also run on objects without a track, on every frame.
        fills: width and height of the input that each crop fills, in its aspect ratio; None to crop the box alone.
    """

    of: Of
    every: Seconds = 1.0
    track_ttl: Seconds = 10.0
    pad: Score = 0.0
    min_size: Pixels = 0.0
    requery_ratio: float = 2.0
    untracked: bool = True
    fills: tuple[int, int] | None = None

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Set `batch.crops` and `batch.rows`."""
        table = batch.table(self.of.stage)
        table = table[members(table, self.of)]
        sizes = frame_sizes(batch, table)
        sides = visible_sides(table, sizes)
        views = None if self.fills is None else views_around(table.xyxy, self.pad, self.fills)
        rects = crop_rects(table.xyxy, sizes, self.pad) if views is None else crop_rects(views, sizes)
        large = (sides.min(axis=1) >= self.min_size) & (rects[:, 2] > 0)
        seen = large if "predicted" not in table.extra else large & ~np.asarray(table.extra["predicted"], bool)
        if table.track_id is not None and not self.untracked:
            self._count(UNTRACKED, int((seen & (table.track_id < 0)).sum()))
            seen = seen & (table.track_id >= 0)
        quality = np.where(seen, self.quality(batch, table, rects, sides, seen), -1.0)
        self._count(TOO_SMALL, len(table) - int(large.sum()))

        chosen = self._chosen(batch, states, table, quality)
        self._count(INFERRED, len(chosen))
        batch.crops = Crops(rects[chosen], table.row_id[chosen], views=None if views is None else views[chosen])
        batch.rows = np.asarray(table.batch_row[chosen], np.int32)
        return batch

    def quality(
        self, batch: Batch, table: Detections, rects: np.ndarray, sides: np.ndarray, seen: np.ndarray
    ) -> np.ndarray:
        """Return (n,) how good a view of its object each row is: here area x score.

        Args:
            batch: the batch.
            table: the objects.
            rects: (n, 4) their crops.
            sides: (n, 2) width and height of their boxes within the frame.
            seen: (n,) bool, the rows whose quality matters.
        """
        return np.asarray(np.prod(np.maximum(sides, 0), axis=1) * table.score)

    def _chosen(
        self, batch: Batch, states: Mapping[str, Any], table: Detections, quality: np.ndarray
    ) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the rows to run on, frame by frame. A quality below 0 marks a row that is not eligible."""
        views = quality.tolist()
        tracks = track_ids(table)
        chosen: list[int] = []
        for i, now_s, state in self.in_order(batch, states, table.batch_row, self.track_ttl):
            query = state.get(tracks[i], now_s, self.track_ttl) if tracks[i] >= 0 else None
            if views[i] < 0:
                continue
            if query is not None:
                if not self.is_due(state, tracks[i], query, now_s, views[i]):
                    continue
            elif tracks[i] >= 0:
                state.by_track[tracks[i]] = self.first_query(now_s, views[i])
            chosen.append(i)
        return np.array(chosen, np.intp)

    def first_query(self, now_s: float, quality: float) -> Any:
        """Return the state of a track that the network runs on for the first time."""
        return QueriedTrack(now_s, quality, now_s)

    def is_due(self, state: TrackCache, track: int, query: Any, now_s: float, quality: float) -> bool:
        """Whether the network runs on a known track again, which is then noted in its state."""
        if 0 <= now_s - query.queried_s < self.every and quality <= self.requery_ratio * query.quality:
            return False
        query.queried_s = now_s
        query.quality = max(query.quality, quality)
        return True

    def _count(self, what: str, n: int) -> None:
        if n:
            self.context.counters.add(what, n)


@dataclass(eq=False)
class SelectFrames(StreamStage, name="select", reads=("pixels",), writes=("crops",), changeable=("every",)):
    """Choose the frames that the network runs on: whole frames, at intervals in the time of each source.

    Attributes:
        every: seconds after which the network runs on a source again; 0 is every frame.
    """

    every: Seconds = 0.0

    def new_state(self, source: str) -> list[float]:
        """Return when the network last ran on the source, as a mutable list."""
        return [-np.inf]

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Set `batch.crops` and `batch.rows`."""
        chosen = []
        for row, frame in enumerate(batch.frames):
            queried = states[frame.source]
            if not 0 <= frame.pts_s - queried[0] < self.every:
                queried[0] = frame.pts_s
                chosen.append(row)
        rects = [(0, 0, batch.frames[row].width, batch.frames[row].height) for row in chosen]
        batch.crops = Crops(np.array(rects, np.int32).reshape(-1, 4), np.full(len(chosen), WHOLE_FRAME, np.int32))
        batch.rows = np.array(chosen, np.int32)
        return batch
