"""The best view of each object so far, as `snapshot` keeps it; no stage itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamkit.data import Frame
from streamkit.records import numbers_of
from streamkit.stages.objects import members
from streamkit.stills import Part, Still, cut_out, parts_of, still_bytes
from streamkit.units import Of

_SWEEP_EVERY_S = 1.0

Key = tuple[str, int]
"""A source's id, and the number of a track of it."""


@dataclass(slots=True, eq=False)
class View:
    """A sight of an object, or of a frame.

    Attributes:
        pts_s: when, in the source's time.
        frame: the frame's index.
        label: the object's class; `frame` for a frame.
        box: x1, y1, x2, y2 in source pixels; None for a frame.
        part: where it is to be cut out, until that is done.
        bytes: what it takes in memory then.
        still: what was cut out.
        quality: the larger the better: area in pixels x (1 + the variance of the Laplacian).
    """

    pts_s: float
    frame: int
    label: str
    box: list[float] | None
    part: Part | None
    bytes: int
    still: Still | None = None
    quality: float = 0.0

    def better(self, other: View | None) -> bool:
        """Whether it is to be taken in place of another, or of none."""
        return other is None or self.quality > other.quality


def views_of(frame: Frame, of: Of | None, pad: float, max_size: int) -> Iterator[tuple[int, View]]:
    """The tracked objects of a frame that are seen, not only expected: the track and the view, not yet measured.

    Args:
        frame: the frame, with tables of its own.
        of: which objects; where it is None all, and of detectors with equal numbers the first has them.
        pad: share of the box that is added on each side.
        max_size: pixels on the longer side that are wanted.
    """
    taken: set[int] = set()
    for name, table in frame.tables.items():
        if table.track_id is None or (of is not None and of.stage != name):
            continue
        seen = table.track_id >= 0 if of is None else (table.track_id >= 0) & members(table, of)
        if "predicted" in table.extra:
            seen = seen & ~np.asarray(table.extra["predicted"], bool)
        table = table[seen]
        boxes, tracks = numbers_of(table, [frame])[:, :4], table.track_id.tolist()  # type: ignore[union-attr]
        parts = parts_of(frame, boxes, pad)
        for box, track, label, part in zip(boxes.tolist(), tracks, table.label, parts, strict=True):
            if part is not None and track not in taken:
                taken.add(track)
                yield track, View(frame.pts_s, frame.index, label, box, part, still_bytes(part, max_size))


def measure(views: Sequence[View]) -> None:
    """Set the quality of views that are not yet cut out; on a GPU all are measured there, in one launch."""
    from streamkit.ops.sharpness import sharpness

    parts = [view.part for view in views if view.part is not None]
    sharp = sharpness([part.surface for part in parts], [part.size for part in parts], [part.rect for part in parts])
    for view, part, variance in zip(views, parts, sharp.tolist(), strict=True):
        left, top, right, bottom = part.rect
        view.quality = (right - left) * (bottom - top) * (1 + variance)


def cut_views(views: Iterable[View], max_size: int) -> None:
    """Cut out what is not yet, in one launch, so that the frames' pictures can go."""
    new = {id(view): view for view in views if view.part is not None}
    stills = cut_out([view.part for view in new.values() if view.part is not None], max_size)
    for view, still in zip(new.values(), stills, strict=True):
        view.part, view.still = None, still


@dataclass(slots=True)
class Sightings:
    """The best view of each object, no older than `before_s` in the time of its source.

    Attributes:
        before_s: how old a view may be; 0 keeps none.
        best: the views, the oldest first.
    """

    before_s: float
    best: dict[Key, View] = field(default_factory=dict)
    _swept: dict[str, float] = field(default_factory=dict)

    def offer(self, key: Key, view: View) -> None:
        """Keep a view if there is none as good."""
        if self.before_s > 0 and view.better(self.get(key, view.pts_s)):
            self.best.pop(key, None)
            self.best[key] = view

    def get(self, key: Key, now_s: float) -> View | None:
        """The best view of an object, unless it is too old."""
        view = self.best.get(key)
        return view if view is not None and 0 <= now_s - view.pts_s <= self.before_s else None

    def sweep(self, source: str, now_s: float) -> None:
        """Let go of the source's views that are too old; most calls do nothing."""
        if not 0 <= now_s - self._swept.get(source, -np.inf) < _SWEEP_EVERY_S:
            self._swept[source] = now_s
            for key in [key for key in self.best if key[0] == source and self.get(key, now_s) is None]:
                del self.best[key]

    def drop(self) -> None:
        """Let go of the oldest."""
        del self.best[next(iter(self.best))]

    def end(self, source: str) -> None:
        """Let go of all of a source."""
        self._swept.pop(source, None)
        for key in [key for key in self.best if key[0] == source]:
            del self.best[key]
