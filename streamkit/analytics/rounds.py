"""A batch as rounds: one frame of each source at a time, with all their tracked objects in common arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.analytics.memory import Columns
from streamkit.analytics.shapes import Anchor, Units
from streamkit.data import Batch, Detections, Frame

_HALF = 0.5  # an anchor stays in the middle of the outermost pixels, so that a zone up to the picture's side holds it
_MARGIN = 0.01  # of the picture's height


class Labels:
    """Class names as numbers that stay the same over batches, whatever table they come from."""

    def __init__(self, only: Sequence[str] = ()) -> None:
        self.names: list[str] = []
        self._only = frozenset(only)
        self._numbers: dict[str, int] = {}
        self._tables: dict[tuple[str, ...], np.ndarray] = {}

    def __getitem__(self, number: int) -> str:
        return self.names[number]

    def of(self, table: Detections) -> np.ndarray:
        """(n,) int64: each row's class; -1 for one that is not asked for."""
        if table.labels not in self._tables:
            self._tables[table.labels] = np.array([self._number(name) for name in table.labels], np.int64)
        numbers, ids = self._tables[table.labels], table.class_id
        if len(ids) and (ids.min() < 0 or ids.max() >= len(numbers)):
            return np.array([self._number(name) for name in table.label], np.int64)
        return numbers[ids]

    def _number(self, name: str) -> int:
        if self._only and name not in self._only:
            return -1
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]


class Clocks:
    """The time of each source, which shows where it goes back, as in a file that was joined of several."""

    def __init__(self) -> None:
        self._last = Columns(pts_s=np.float64(-np.inf))

    def begin(self, slot: int) -> None:
        """A source begins."""
        self._last.reserve(slot + 1)
        self._last.reset(slot)

    def step(self, slot: np.ndarray, pts_s: np.ndarray) -> np.ndarray:
        """(f,) bool: whether each frame is earlier than the one before it of its source.

        Args:
            slot: (f,) int64, each frame's source, none twice.
            pts_s: (f,) float64, in seconds.
        """
        self._last.reserve(int(slot.max(initial=-1)) + 1)
        last = self._last["pts_s"]
        back = np.asarray(pts_s < last[slot])
        last[slot] = pts_s
        return back


@dataclass(frozen=True, slots=True)
class View:
    """How a batch is looked at.

    Attributes:
        units: what coordinates are in.
        anchor: the point of the box that counts.
        predicted: rows that a tracker predicted count as seen.
    """

    units: Units = "pixels"
    anchor: Anchor = "foot"
    predicted: bool = True


@dataclass(slots=True)
class Round:
    """One frame of each of several sources: f frames, n tracked objects.

    Attributes:
        frames: the frames.
        slot: (f,) int64, each frame's source as a small number.
        pts_s: (f,) float64.
        back: (f,) bool, the source's time went back just now: what was before is over.
        height: (f,) float64, the picture's height in the view's units: 1 for shares.
        aspect: (f,) float64, how many units of y a unit of x is long: width / height for shares, else 1.
        frame: (n,) int64, the frame that each object is on; rising.
        track: (n,) int64, no number twice on a frame.
        label: (n,) int64, a number of `Labels`.
        xy: (n, 2) float64, the anchors in the view's units.
        row: (n,) int64, each object's row in the batch's tables, one below the other.
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

    def times(self, slots: int) -> np.ndarray:
        """(slots,) float64: the time of each source's frame, as `times` has it."""
        return times(self.slot, self.pts_s, self.back, slots)

    def margin(self, given: float | None) -> np.ndarray:
        """(f,) float64: a length in the view's units; 1 % of the picture's height where none is given."""
        return _MARGIN * self.height if given is None else np.full(len(self.frames), given)


def times(slot: np.ndarray, pts_s: np.ndarray, back: np.ndarray, slots: int) -> np.ndarray:
    """(slots,) float64: how late it is for each source, to tell what was not seen for too long.

    NaN for sources that have no frame here; infinity for those whose time went back, so that all of before is over.

    Args:
        slot: (f,) int64, each frame's source.
        pts_s: (f,) float64.
        back: (f,) bool.
        slots: how many sources there are.
    """
    now_s = np.full(slots, np.nan)
    now_s[slot] = np.where(back, np.inf, pts_s) if back.any() else pts_s
    return now_s


def rounds(batch: Batch, slots: Mapping[str, int], view: View, labels: Labels, clocks: Clocks) -> Iterator[Round]:
    """Take a batch apart into rounds, in the order in which each source's frames came.

    Args:
        batch: with tables on the host. Rows without a track, of other classes or with NaN in their box are left out,
            and so is a second row of the same track on one frame.
        slots: the small number of each source.
        view: how to look at it.
        labels: the classes.
        clocks: the sources' times; those of this batch are noted.
    """
    frames = batch.frames
    seen: dict[str, int] = {}
    turn = np.empty(len(frames), np.int64)  # a frame's number among its source's own in this batch
    for i, frame in enumerate(frames):
        turn[i] = seen[frame.source] = seen.get(frame.source, -1) + 1
    slot = np.array([slots[frame.source] for frame in frames], np.int64)
    pts_s = np.array([frame.pts_s for frame in frames], np.float64)
    size = np.array([(frame.width, frame.height) for frame in frames], np.float64).reshape(-1, 2)
    share = view.units == "share"
    height = np.ones(len(frames)) if share else size[:, 1]
    aspect = size[:, 0] / size[:, 1] if share else np.ones(len(frames))
    owner, track, label, xyxy, row = _objects(batch, view, labels)
    sizes = size[:1] if len(size) and (size == size[0]).all() else size[owner]
    xy = anchors(xyxy, sizes, view.anchor)
    xy = xy / sizes if share else xy
    several = bool(len(turn)) and int(turn.max()) > 0
    for number in range(int(turn.max()) + 1 if len(turn) else 0):
        mine = np.flatnonzero(turn == number) if several else np.arange(len(frames))
        new = np.full(len(frames), -1)
        new[mine] = np.arange(len(mine))
        rows: Any = np.flatnonzero(new[owner] >= 0) if several else slice(None)
        yield Round(
            [frames[i] for i in mine.tolist()], slot[mine], pts_s[mine], clocks.step(slot[mine], pts_s[mine]),
            height[mine], aspect[mine], new[owner[rows]], track[rows], label[rows], xy[rows], row[rows],
        )  # fmt: skip


def _objects(batch: Batch, view: View, labels: Labels) -> tuple[np.ndarray, ...]:
    """Frame, track, class, box and row of the objects that count; by frame, and as the tables have them."""
    tables = [batch.table(name) for name in batch.tables]
    if not tables:
        none = np.zeros(0, np.int64)
        return none, none, none, np.zeros((0, 4)), none
    owner = np.concatenate([t.batch_row for t in tables]).astype(np.int64)
    nobody = [np.full(len(t), -1, np.int64) if t.track_id is None else t.track_id for t in tables]
    track = np.concatenate(nobody)
    label = np.concatenate([labels.of(t) for t in tables])
    xyxy = np.concatenate([t.xyxy for t in tables]).astype(np.float64)
    counts = (track >= 0) & (label >= 0) & ~np.isnan(xyxy.sum(axis=1))
    if not view.predicted and any("predicted" in t.extra for t in tables):
        guessed = [np.asarray(t.extra.get("predicted", np.zeros(len(t), bool))) == 1 for t in tables]
        counts &= ~np.concatenate(guessed)
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
    """(n, 2) float64 pixels: the anchor of each box, cut off at the picture's sides as its record has it.

    Args:
        xyxy: (n, 4) float64 pixels.
        size: (n, 2) float64, the picture's width and height; or (1, 2).
        anchor: which point of the box.
    """
    x1, x2 = (np.clip(xyxy[:, i], 0, size[:, 0]) for i in (0, 2))
    y1, y2 = (np.clip(xyxy[:, i], 0, size[:, 1]) for i in (1, 3))
    x = {"left": x1, "right": x2}.get(anchor, (x1 + x2) * 0.5)
    y = {"foot": y2, "top": y1}.get(anchor, (y1 + y2) * 0.5)
    return np.asarray(np.clip(np.stack([x, y], axis=1), _HALF, size - _HALF))
