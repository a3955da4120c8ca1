# SPDX-License-Identifier: Apache-2.0
"""`proximity`: tracks that are close to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamkit.analytics.geometry import FourPoints, Plane
from streamkit.analytics.per_source_steps import Labels, SourceStep
from streamkit.analytics.shapes import check_length, check_units
from streamkit.core.data import Frame
from streamkit.core.stage import Seconds, stage
from streamkit.core.units import Length
from streamkit.stages.analytics.track_analytics import FRAME_POINTS, GROUND_POINTS, TrackAnalytics

_SLACK = 1.1  # of the distance: further away than that, a pair has parted


@dataclass(slots=True)
class Pair:
    """Two tracks close to each other: since when, last seen, their classes, and whether `met` was emitted."""

    since_s: float
    seen_s: float
    labels: list[str]
    reported: bool = False


@stage("proximity", reads="track_id", writes="events", emits=("met", "parted"), classes=("labels", "others"))
class Proximity(TrackAnalytics):
    """Report which tracks are close to each other, and for how long: emits `met` and `parted`.

    `met` has `other` (the other track), `labels` (of both), `distance` (now) and `since_s`; `parted` has `other`,
    `labels` and `together_s`. The event's track is the one with the lower number. A pair is close within `distance`,
    and parts beyond 1.1 times that. It also parts, as of the time it was last seen, if one of its tracks is not seen
    for longer than `track_ttl` or the source's time jumps back.
    """

    distance: Annotated[Length, "how close, between anchors; with `ground`, in meters."]
    near_for: Annotated[Seconds, "how long a pair must be close before `met` is emitted."] = 0.0
    others: Annotated[tuple[str, ...], "report pairs of `labels` and these classes; by default within `labels`."] = ()
    points: Annotated[FourPoints | None, f"{FRAME_POINTS}; distances are then in meters."] = None
    ground: Annotated[FourPoints | None, f"{GROUND_POINTS}."] = None

    def __post_init__(self) -> None:
        """Check the distance, and that `points` and `ground` are given together."""
        if not self.distance > 0:
            raise ValueError(f"distance must be more than 0, got {self.distance:g}")
        if self.points is None:
            check_length("distance", self.distance, self.units)
            if self.units == "pixels" and self.distance < 1:
                way = "write units: share for a share of the frame's height, or points and ground for meters"
                raise ValueError(f"distance must be a pixel or more, got {self.distance:g}; {way}")
        if (self.points is None) != (self.ground is None):
            raise ValueError("points and ground go together: give both, or neither for distances in the frame")
        if self.others and not self.labels:
            raise ValueError("others needs labels: the classes that are near them")
        self._plane = None
        if self.points is not None and self.ground is not None:
            check_units(self.units, [self.points])
            self._plane = Plane(self.points, self.ground)

    def open(self) -> None:
        """Reset all state."""
        super().open()
        self._names = Labels((*self.labels, *self.others))
        self._pairs: dict[int, dict[tuple[int, int], Pair]] = {}

    def begin(self, slot: int) -> None:
        """Start a source without pairs."""
        super().begin(slot)
        self._pairs[slot] = {}

    def update(self, step: SourceStep) -> None:
        """Process one frame of each of several sources."""
        ends = np.searchsorted(step.frame, np.arange(len(step.frames) + 1)).tolist()
        places = step.xy if self._plane is None else self._plane.meters(step.xy)
        if self._plane is None:
            places = places * np.stack([step.aspect, np.ones_like(step.aspect)], axis=1)[step.frame]
        for frame in range(len(step.frames)):
            self._update_frame(step, frame, slice(ends[frame], ends[frame + 1]), places)

    def finish(self, slot: int) -> None:
        """Drop the source's pairs."""
        del self._pairs[slot]

    def _update_frame(self, step: SourceStep, frame: int, rows: slice, places: np.ndarray) -> None:
        """Process one frame: a frame has at most some hundred objects, so all pairs are computed at once."""
        here = places[rows]
        now_s = float(step.pts_s[frame])
        pairs = self._pairs[int(step.slot[frame])]
        tracks = step.track[rows].tolist()
        labels = [self._names[i] for i in step.label[rows].tolist()]
        apart = np.hypot(*(here[:, None] - here[None]).transpose(2, 0, 1))  # NaN beyond the horizon: close to no object
        at = dict(zip(tracks, range(len(tracks)), strict=True))
        for key, pair in list(pairs.items()):
            first, second = (at.get(track) for track in key)
            if step.back[frame]:
                self._part(step.frames[frame], pairs, key, pair.seen_s)
            elif first is None or second is None:
                if now_s - pair.seen_s > self.track_ttl:
                    self._part(step.frames[frame], pairs, key, pair.seen_s)
            elif apart[first, second] <= self.distance * (_SLACK if pair.reported else 1.0):
                pair.seen_s = now_s
            else:
                self._part(step.frames[frame], pairs, key, now_s)
        for i, j in np.argwhere(np.triu(apart <= self.distance, 1)).tolist():
            if self._is_wanted(labels[i], labels[j]):
                i, j = (i, j) if tracks[i] < tracks[j] else (j, i)
                key = tracks[i], tracks[j]
                pair = pairs.setdefault(key, Pair(now_s, now_s, [labels[i], labels[j]]))
                if not pair.reported and now_s - pair.since_s >= self.near_for:
                    pair.reported = True
                    self._emit(step.frames[frame], "met", key, pair, distance=round(float(apart[i, j]), 4))

    def _part(self, frame: Frame, pairs: dict[tuple[int, int], Pair], key: tuple[int, int], at_s: float) -> None:
        pair = pairs.pop(key)
        if pair.reported:
            self._emit(frame, "parted", key, pair, together_s=round(at_s - pair.since_s, 6))

    def _emit(self, frame: Frame, kind: str, key: tuple[int, int], pair: Pair, **facts: float) -> None:
        facts.update({"since_s": round(pair.since_s, 6)} if kind == "met" else {})
        self.count(f"{kind}: {' and '.join(sorted(pair.labels))}")
        frame.emit(kind, key[0], other=key[1], labels=list(pair.labels), **facts)

    def _is_wanted(self, first: str, second: str) -> bool:
        """Whether pairs of these classes are reported; objects of neither class were already filtered out."""
        both = (first, second), (second, first)
        return not self.others or any(
            label in self.labels and other_label in self.others for label, other_label in both
        )
