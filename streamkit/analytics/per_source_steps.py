# SPDX-License-Identifier: Apache-2.0
"""A batch split into steps: one frame per source at a time, with all their tracked objects in common arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.analytics.shapes import Anchor, Units
from streamkit.analytics.track_store import Columns, TrackStore
from streamkit.core.data import Batch, Detections, Frame

_HALF = 0.5  # anchors are clipped to the centers of the outermost pixels, so that a zone up to the edge contains them
_MARGIN = 0.01  # of the frame's height


class Labels:
    """Class names as numbers that are stable across batches and tables."""

    def __init__(self, only: Sequence[str] = ()) -> None:
        self.names: list[str] = []
        self._only = frozenset(only)
        self._numbers: dict[str, int] = {}
        self._tables: dict[tuple[str, ...], np.ndarray] = {}

    def __getitem__(self, number: int) -> str:
        return self.names[number]

    def of(self, table: Detections) -> np.ndarray:
        """Return (n,) int64: each row's class; -1 for classes that are not selected."""
        if table.labels not in self._tables:
            self._tables[table.labels] = np.array([self.number(name) for name in table.labels], np.int64)
        numbers = self._tables[table.labels]
        ids = table.class_id
        if len(ids) and (ids.min() < 0 or ids.max() >= len(numbers)):
            return np.array([self.number(name) for name in table.label], np.int64)
        return numbers[ids]

    def number(self, name: str) -> int:
        """Return the number of a class; -1 if it is not selected."""
        if self._only and name not in self._only:
            return -1
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]


class Clocks(Columns):
    """The time of each source, to detect jumps back, as in a file that was concatenated from several."""

    def __init__(self) -> None:
        super().__init__(pts_s=np.float64(-np.inf))

    def step(self, slot: np.ndarray, pts_s: np.ndarray) -> np.ndarray:
        """Return (f,) bool: whether each frame is earlier than the previous one of its source.

        Args:
            slot: (f,) int64, each frame's source, without repeats.
            pts_s: (f,) float64, in seconds.
        """
        self.reserve(int(slot.max(initial=-1)) + 1)
        last = self["pts_s"]
        back = np.asarray(pts_s < last[slot])
        last[slot] = pts_s
        return back


@dataclass(frozen=True, slots=True)
class PositionOptions:
    """How a batch is evaluated.

    Attributes:
        units: of coordinates.
        anchor: the point of the box that counts.
        predicted: count rows that a tracker predicted as seen.
    """

    units: Units = "pixels"
    anchor: Anchor = "foot"
    predicted: bool = True


@dataclass(slots=True)
class SourceStep:
    """One frame of each of several sources: f frames, n tracked objects.

    Attributes:
        frames: the frames.
        slot: (f,) int64, slot number of each frame's source.
        pts_s: (f,) float64.
        back: (f,) bool, the source's time has just jumped back, which ends all earlier state.
        height: (f,) float64, the frame's height in the view's units: 1 for shares.
        aspect: (f,) float64, length of a unit of x in units of y: width / height for shares, else 1.
        frame: (n,) int64, the frame of each object, ascending.
        track: (n,) int64, unique within a frame.
        label: (n,) int64, a number of `Labels`.
        xy: (n, 2) float64, the anchors in the view's units.
        row: (n,) int64, each object's row in the concatenation of the batch's tables.
    """

    frames: list[Frame]
    slot: np.ndarray
    pts_s: np.ndarray
    back: np.ndarray
    height: np.ndarray
    aspect: np.ndarray
    frame: np.ndarray
    track: np.ndarray
    label: np.ndarray
    xy: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.track)

    def margin(self, length: float | None) -> np.ndarray:
        """Return (f,) float64: a length in the view's units; 1 % of the frame's height by default."""
        return _MARGIN * self.height if length is None else np.full(len(self.frames), length)

    def unseen(self, tracks: TrackStore, track_ttl_s: float) -> np.ndarray:
        """Return the rows of these sources' tracks that were not seen for longer than `track_ttl_s`."""
        return tracks.unseen(self.slot, self.pts_s, self.back, track_ttl_s)


def turns(frames: Sequence[Frame], slots: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each frame's number among its source's frames, its slot, and its time in seconds, (f,) each."""
    seen: dict[str, int] = {}
    turn = np.empty(len(frames), np.int64)
    for i, frame in enumerate(frames):
        turn[i] = seen[frame.source] = seen.get(frame.source, -1) + 1
    slot = np.array([slots[frame.source] for frame in frames], np.int64)
    return turn, slot, np.array([frame.pts_s for frame in frames], np.float64)


class BatchTables:
    """All tables of a batch, one below the other: n objects.

    Attributes:
        tables: the tables, by name.
        frame: (n,) int64, each object's frame in the batch.
        xyxy: (n, 4) float64.
        track: (n,) int64, -1 for none.
    """

    def __init__(self, batch: Batch) -> None:
        self.tables = {name: batch.table(name) for name in batch.tables}
        self.frame = self.column(lambda table: table.batch_row).astype(np.int64)
        self.xyxy = self.column(lambda table: table.xyxy).astype(np.float64).reshape(-1, 4)
        self.track = self.column(
            lambda table: np.full(len(table), -1, np.int64) if table.track_id is None else table.track_id
        ).astype(np.int64)

    def column(self, make: Callable[[Detections], Any]) -> np.ndarray:
        """Return the values that `make` returns for each table, concatenated."""
        return np.concatenate([make(table) for table in self.tables.values()]) if self.tables else np.zeros(0)

    def extra(self, name: str, make: Callable[[Any], np.ndarray], unknown: Any) -> np.ndarray:
        """Return a further column, with `unknown` for tables without it."""
        return self.column(
            lambda table: make(table.extra[name]) if name in table.extra else np.full(len(table), unknown, np.float64)
        )

    @property
    def predicted(self) -> np.ndarray:
        """(n,) bool: whether a tracker predicted the object."""
        return np.asarray(self.extra("predicted", lambda values: np.asarray(values) == 1, False) == 1)

    def label(self, labels: Labels) -> np.ndarray:
        """Return (n,) int64, numbers of `labels`."""
        return self.column(labels.of).astype(np.int64)


def shape_scales(frames: Sequence[Frame]) -> np.ndarray:
    """Return (f, 2) float64: `Frame.shape_scale` of each frame."""
    return np.array([frame.shape_scale for frame in frames], np.float64).reshape(-1, 2)


def source_steps(
    batch: Batch, slots: Mapping[str, int], view: PositionOptions, labels: Labels, clocks: Clocks
) -> Iterator[SourceStep]:
    """Split a batch into steps, in the order of each source's frames.

    Args:
        batch: with tables on the host. Rows without a track, of other classes or with NaN in their box are skipped,
            and so is a second row of the same track on one frame.
        slots: slot number of each source.
        view: units, anchor and predicted objects.
        labels: the classes.
        clocks: the sources' times, which this call updates.
    """
    frames = batch.frames
    turn, slot, pts_s = turns(frames, slots)
    size = np.array([(frame.width, frame.height) for frame in frames], np.float64).reshape(-1, 2)
    share = view.units == "share"
    unit = size if share else shape_scales(frames)  # of the view, in pixels
    height = size[:, 1] / unit[:, 1]
    aspect = size[:, 0] / size[:, 1] if share else np.ones(len(frames))
    owner, track, label, xyxy, row = _objects(batch, view, labels)
    same = len(size) and (size == size[0]).all() and (unit == unit[0]).all()
    sizes, units = (size[:1], unit[:1]) if same else (size[owner], unit[owner])
    xy = anchors(xyxy, sizes, view.anchor) / units
    several = bool(len(turn)) and int(turn.max()) > 0
    for number in range(int(turn.max()) + 1 if len(turn) else 0):
        places = np.flatnonzero(turn == number) if several else np.arange(len(frames))
        new = np.full(len(frames), -1)
        new[places] = np.arange(len(places))
        rows: Any = np.flatnonzero(new[owner] >= 0) if several else slice(None)
        yield SourceStep(
            [frames[i] for i in places.tolist()],
            slot[places],
            pts_s[places],
            clocks.step(slot[places], pts_s[places]),
            height[places],
            aspect[places],
            new[owner[rows]],
            track[rows],
            label[rows],
            xy[rows],
            row[rows],
        )


def _objects(batch: Batch, view: PositionOptions, labels: Labels) -> tuple[np.ndarray, ...]:
    """Return frame, track, class, box and row of the objects that count, by frame and in table order."""
    tables = BatchTables(batch)
    owner = tables.frame
    track = tables.track
    label = tables.label(labels)
    xyxy = tables.xyxy
    counts = (track >= 0) & (label >= 0) & ~np.isnan(xyxy.sum(axis=1))
    if not view.predicted:
        counts &= ~tables.predicted
    rows = np.flatnonzero(counts)
    by_frame = owner[rows]
    if len(rows) > 1 and (by_frame[1:] < by_frame[:-1]).any():
        rows = rows[np.argsort(by_frame, kind="stable")]
    keys = np.sort((owner[rows] << 48) | (track[rows] & (2**48 - 1)))
    if (keys[1:] == keys[:-1]).any():  # a track twice on a frame: the first row counts
        _, first = np.unique(np.stack([owner[rows], track[rows]]), axis=1, return_index=True)
        rows = rows[np.sort(first)]
    return owner[rows], track[rows], label[rows], xyxy[rows], rows


def anchors(xyxy: np.ndarray, size: np.ndarray, anchor: Anchor) -> np.ndarray:
    """Return (n, 2) float64 pixels: the anchor of each box, clipped to the frame as in records.

    Args:
        xyxy: (n, 4) float64 pixels.
        size: (n, 2) float64, the frame's width and height; or (1, 2).
        anchor: which point of the box.
    """
    x1, x2 = (np.clip(xyxy[:, i], 0, size[:, 0]) for i in (0, 2))
    y1, y2 = (np.clip(xyxy[:, i], 0, size[:, 1]) for i in (1, 3))
    x = {"left": x1, "right": x2}.get(anchor, (x1 + x2) * 0.5)
    y = {"foot": y2, "top": y1}.get(anchor, (y1 + y2) * 0.5)
    return np.asarray(np.clip(np.stack([x, y], axis=1), _HALF, size - _HALF))
