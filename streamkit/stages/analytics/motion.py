# SPDX-License-Identifier: Apache-2.0
"""Stages that measure the motion of tracks: `speed` over the ground, and `direction`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from streamkit.analytics.geometry import FourPoints, Plane
from streamkit.analytics.motion import Motion
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import Polyline
from streamkit.core.stage import Seconds, stage
from streamkit.core.text import did_you_mean
from streamkit.core.units import Unit
from streamkit.stages.analytics.track_analytics import FRAME_POINTS, GROUND_POINTS, TrackAnalytics

_KMH = 3.6  # km/h in a meter per second
_SLACK = 0.9  # of the limit: below it a track no longer speeds
_WIDEST = 4.0  # frame heights: almost no frame is wider
_SLOWEST = 0.02  # frame heights per second: a slower track does not move
_SIDES = {
    "up": ((0.0, 1.0), (0.0, 0.0)),
    "right": ((0.0, 0.0), (1.0, 0.0)),
    "down": ((0.0, 0.0), (0.0, 1.0)),
    "left": ((1.0, 0.0), (0.0, 0.0)),
}

Kmh = Annotated[float, Unit("km/h", minimum=0)]
SpeedInFrame = Annotated[float, Unit("pixels per second, or with units: share, of the frame's height per second")]
Degrees = Annotated[float, Unit("degrees", minimum=0, maximum=180)]


@dataclass(eq=False, kw_only=True)
class MotionStage(TrackAnalytics):
    """Base of the stages that measure motion."""

    smoothing: Annotated[Seconds, "the time over which motion is measured; longer is steadier but slower to react."] = (
        1.0
    )
    debounce: Annotated[Seconds, "how long a change must last before it is reported."] = 0.5

    def __post_init__(self) -> None:
        if not self.smoothing > 0:
            raise ValueError(f"smoothing must be longer than 0s, got {self.smoothing:g}s")

    def open(self) -> None:
        """Reset all state."""
        super().open()
        self._motion = Motion(self.smoothing, self.track_ttl)

    def finish(self, slot: int) -> None:
        """Drop the source's tracks."""
        self._motion.tracks.end(slot)


@stage(
    "speed",
    reads="track_id",
    writes=("speed_kmh", "events"),
    columns={"speed_kmh": "float"},
    emits=("speeding", "slowed"),
)
class Speed(MotionStage):
    """Measure the speed of tracks over the ground, from four points with known positions in meters.

    Each object gets a column `speed_kmh` once its track is known for long enough. `speeding` is emitted when a track
    is faster than the limit, `slowed` when it falls below 90 % of the limit again; both have `speed_kmh`, `limit_kmh`
    and `label`. docs/motion.md explains how to choose the four points, and the accuracy.
    """

    points: Annotated[FourPoints, f"{FRAME_POINTS}."]
    ground: Annotated[FourPoints, f"{GROUND_POINTS}."]
    limit_kmh: Annotated[Kmh | None, "emit events for faster tracks."] = None

    def __post_init__(self) -> None:
        """Check the points against the units and against each other."""
        super().__post_init__()
        self.check([self.points])
        self._plane = Plane(self.points, self.ground)

    def update(self, step: SourceStep) -> np.ndarray:
        """Process one frame of each of several sources; return (n,) speeds in km/h, NaN while unknown."""
        rows, velocity = self._motion.update(step, self._plane.meters(step.xy))
        speed = np.hypot(velocity[:, 0], velocity[:, 1]) * _KMH
        if self.limit_kmh is not None:
            before = self._motion.tracks["state"][rows]
            with np.errstate(invalid="ignore"):
                now = np.where(speed > self.limit_kmh, 1, np.where(speed < _SLACK * self.limit_kmh, 0, before))
            for at in np.flatnonzero(self._motion.turned(rows, now, step.pts_s[step.frame], self.debounce)).tolist():
                if now[at] == 1 or before[at] == 1:
                    self._emit(step, at, "speeding" if now[at] == 1 else "slowed", float(speed[at]))
        return np.asarray(speed)

    def _emit(self, step: SourceStep, at: int, kind: str, speed_kmh: float) -> None:
        label = self._names[int(step.label[at])]
        self.count(f"{kind}: {label}")
        facts = {"label": label, "speed_kmh": round(speed_kmh, 2), "limit_kmh": self.limit_kmh}
        step.frames[int(step.frame[at])].emit(kind, int(step.track[at]), **facts)


@stage(
    "direction",
    reads="track_id",
    writes=("heading_deg", "events"),
    columns={"heading_deg": "float"},
    emits=("changed", "wrong_way"),
)
class Direction(MotionStage):
    """Report the direction in which tracks move: up, right, down or left, or along your own arrows.

    Each moving object gets a column `heading_deg`: degrees clockwise from the top of the frame. `changed` is emitted
    when a track first moves in one of the directions or changes to another one; `wrong_way` is emitted too if that
    direction is listed in `wrong`. Both carry `direction`, `heading_deg` and `label`, and `before` if the track had
    another direction before.
    """

    directions: Annotated[
        dict[str, Polyline], "arrows by name, {north: [[x, y], [x, y]], ...}, from the first point to the last."
    ] = field(default_factory=dict)
    wrong: Annotated[tuple[str, ...], "names of forbidden directions."] = ()
    tolerance: Annotated[Degrees, "how much a track may deviate from an arrow, in degrees; the nearest counts."] = 45.0
    min_speed: Annotated[
        SpeedInFrame | None,
        "a slower track keeps its direction; 2 % of the frame's height per second by default.",
    ] = None

    def __post_init__(self) -> None:
        """Check the arrows against the units, and the names in `wrong`."""
        super().__post_init__()
        if self.directions:
            self.check(self.directions.values())
        names = list(self.directions or _SIDES)
        for name in self.wrong:
            if name not in names:
                raise ValueError(f"wrong: there is no direction {name!r}{did_you_mean(name, names, all_if_few=True)}")
        if self.min_speed is not None and not self.min_speed >= 0:
            raise ValueError(f"min_speed must be 0 or more, got {self.min_speed:g}")
        if self.min_speed is not None and self.units == "share" and self.min_speed * self.smoothing / 2 > _WIDEST:
            raise ValueError(
                "with units: share, min_speed is in frame heights per second, and no track can move at "
                f"{self.min_speed:g} for half of smoothing; leave units out for pixels"
            )

    def open(self) -> None:
        """Reset all state."""
        super().open()
        arrows = self.directions or _SIDES
        self._names_of = list(arrows)
        self._arrows = np.array([np.subtract(arrow[-1], arrow[0]) for arrow in arrows.values()], np.float64)

    def update(self, step: SourceStep) -> np.ndarray:
        """Process one frame of each of several sources; return (n,) headings in degrees, NaN if not moving."""
        rows, velocity = self._motion.update(step, step.xy)
        aspect = step.aspect[step.frame]
        # in units of y, so that angles are those in the frame
        x = velocity[:, 0] * aspect
        y = velocity[:, 1]
        slowest = _SLOWEST * step.height if self.min_speed is None else np.full(len(step.frames), self.min_speed)
        with np.errstate(invalid="ignore"):
            moves = np.hypot(x, y) > slowest[step.frame]
        course = np.where(moves, heading(x, y), np.nan)
        off = np.abs(
            (course[:, None] - heading(self._arrows[:, 0] * aspect[:, None], self._arrows[:, 1]) + 180) % 360 - 180
        )
        best = np.where(moves[:, None], off, np.inf).argmin(axis=1)
        before = self._motion.tracks["state"][rows]
        with np.errstate(invalid="ignore"):
            now = np.where(off[np.arange(len(best)), best] <= self.tolerance, best, before)
        for at in np.flatnonzero(self._motion.turned(rows, now, step.pts_s[step.frame], self.debounce)).tolist():
            self._emit(step, at, int(now[at]), int(before[at]), float(course[at]))
        return course

    def _emit(self, step: SourceStep, at: int, now: int, before: int, heading_deg: float) -> None:
        name = self._names_of[now]
        label = self._names[int(step.label[at])]
        facts: dict[str, object] = {"direction": name, "heading_deg": round(heading_deg, 1), "label": label}
        if before >= 0:
            facts["before"] = self._names_of[before]
        for kind in ("changed", "wrong_way") if name in self.wrong else ("changed",):
            step.frames[int(step.frame[at])].emit(kind, int(step.track[at]), **facts)
            self.count(f"{kind} {name}: {label}")


def heading(dx: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Headings in degrees clockwise from the top of the frame, in [0, 360), of the same shape as the input."""
    return np.asarray(np.degrees(np.arctan2(dx, -dy)) % 360)
