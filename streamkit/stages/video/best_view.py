# SPDX-License-Identifier: Apache-2.0
"""Best view of each object so far, as `snapshot` keeps it; not a stage itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamkit.core.data import Frame
from streamkit.core.records import numbers_of
from streamkit.core.units import Of
from streamkit.io.still_images import CropRequest, StillImage, cut_out, parts_of, still_bytes
from streamkit.ops.cut import sharpness
from streamkit.stages.inference.select_objects import members

_SWEEP_EVERY_S = 1.0

Key = tuple[str, int]
"""A source's id, and the number of a track of it."""


@dataclass(slots=True, eq=False)
class ObjectView:
    """A view of an object, or of a frame.

    Attributes:
        pts_s: presentation time, in the source's time.
        frame: the frame's index.
        label: the object's class; `frame` for a frame.
        box: x1, y1, x2, y2 in source pixels; None for a frame.
        part: the region to cut out, until it is cut.
        bytes: its size in memory once cut.
        still: the cut-out image.
        quality: area in pixels x (1 + the variance of the Laplacian); larger is better.
    """

    pts_s: float
    frame: int
    label: str
    box: list[float] | None
    part: CropRequest | None
    bytes: int
    still: StillImage | None = None
    quality: float = 0.0

    def better(self, other: ObjectView | None) -> bool:
        """Whether it is better than another one, or there is no other."""
        return other is None or self.quality > other.quality


def views_of(frame: Frame, of: Of | None, pad: float, max_size: int) -> Iterator[tuple[int, ObjectView]]:
    """Yield track and view, not yet measured, of a frame's tracked objects that were seen, not only predicted.

    Args:
        frame: the frame, with its own tables.
        of: which objects; None for all. If two detectors have the same track id, the first detector's object is used.
        pad: share of the box that is added on each side.
        max_size: longer side of the image, in pixels.
    """
    taken: set[int] = set()
    for name, table in frame.tables.items():
        if table.track_id is None or (of is not None and of.stage != name):
            continue
        seen = table.track_id >= 0 if of is None else (table.track_id >= 0) & members(table, of)
        if "predicted" in table.extra:
            seen = seen & ~np.asarray(table.extra["predicted"], bool)
        table = table[seen]
        boxes = numbers_of(table, [frame])[:, :4]
        tracks = table.track_id.tolist()  # type: ignore[union-attr]
        parts = parts_of(frame, boxes, pad)
        for box, track, label, part in zip(boxes.tolist(), tracks, table.label, parts, strict=True):
            if part is not None and track not in taken:
                taken.add(track)
                yield track, ObjectView(frame.pts_s, frame.index, label, box, part, still_bytes(part, max_size))


def measure(views: Sequence[ObjectView]) -> None:
    """Set the quality of views that are not yet cut; on a GPU all are measured there, in one launch."""
    parts = [view.part for view in views if view.part is not None]
    sharp = sharpness([part.surface for part in parts], [part.size for part in parts], [part.rect for part in parts])
    for view, part, variance in zip(views, parts, sharp.tolist(), strict=True):
        left, top, right, bottom = part.rect
        view.quality = (right - left) * (bottom - top) * (1 + variance)


def cut_views(views: Iterable[ObjectView], max_size: int) -> None:
    """Cut all views that are not yet cut, in one launch, so that the frames' surfaces can be released."""
    new = {id(view): view for view in views if view.part is not None}
    stills = cut_out([view.part for view in new.values() if view.part is not None], max_size)
    for view, still in zip(new.values(), stills, strict=True):
        view.part = None
        view.still = still


@dataclass(slots=True)
class BestViews:
    """The best view of each object, no older than `before_s` in the time of its source.

    Attributes:
        before_s: maximum age of a view in seconds; 0 keeps none.
        best: the views, the oldest first.
    """

    before_s: float
    best: dict[Key, ObjectView] = field(default_factory=dict)
    _swept: dict[str, float] = field(default_factory=dict)

    def offer(self, key: Key, view: ObjectView) -> None:
        """Keep a view if it is better than the present one."""
        if self.before_s > 0 and view.better(self.get(key, view.pts_s)):
            self.best.pop(key, None)
            self.best[key] = view

    def get(self, key: Key, now_s: float) -> ObjectView | None:
        """Return the best view of an object, unless it is too old."""
        view = self.best.get(key)
        return view if view is not None and 0 <= now_s - view.pts_s <= self.before_s else None

    def sweep(self, source: str, now_s: float) -> None:
        """Drop the source's views that are too old; most calls do nothing."""
        if not 0 <= now_s - self._swept.get(source, -np.inf) < _SWEEP_EVERY_S:
            self._swept[source] = now_s
            for key in [key for key in self.best if key[0] == source and self.get(key, now_s) is None]:
                del self.best[key]

    def end(self, source: str) -> None:
        """Drop all views of a source."""
        self._swept.pop(source, None)
        for key in [key for key in self.best if key[0] == source]:
            del self.best[key]
