"""`direction`: the direction in which tracks move."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

import numpy as np

from streamkit.analytics.motion import Motion
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import Polyline
from streamkit.core.stage import Seconds, stage
from streamkit.core.text import did_you_mean
from streamkit.core.units import Unit
from streamkit.stages.analytics.speed import check_over
from streamkit.stages.analytics.track_analytics import TrackAnalytics

_WIDEST = 4.0  # picture heights: nearly no picture is wider
_SLOWEST = 0.02  # picture heights a second: what is slower goes nowhere
_SIDES = {"up": ((0.0, 1.0), (0.0, 0.0)), "right": ((0.0, 0.0), (1.0, 0.0)),
          "down": ((0.0, 0.0), (0.0, 1.0)), "left": ((1.0, 0.0), (0.0, 0.0))}  # fmt: skip

Degrees = Annotated[float, Unit("degrees", minimum=0, maximum=180)]


@stage(
    "direction",
    reads="track_id",
    writes=("heading_deg", "events"),
    columns={"heading_deg": "float"},
    emits=("headed", "wrong_way"),
)
class Direction(TrackAnalytics):
    """Report the direction in which tracks move: up, right, down or left, or along your own arrows.

    Each moving object gets a column `heading_deg`: degrees clockwise from the top of the frame. `headed` is emitted
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
        float | None,
        "a slower track keeps its direction; in pixels per second, or in shares of the frame's height per second; 2 % "
        "of the height by default.",
    ] = None
    over: Annotated[
        Seconds, "the time over which the direction is measured; a longer time is steadier but reacts later."
    ] = 1.0
    hold: Annotated[Seconds, "how long a track must move in another direction before the change is reported."] = 0.5

    def __post_init__(self) -> None:
        """Check the arrows against the units, and the names in `wrong`."""
        if self.directions:
            self.check(self.directions.values())
        known = list(self.directions or _SIDES)
        for name in self.wrong:
            if name not in known:
                raise ValueError(f"wrong: there is no direction {name!r}{did_you_mean(name, known, all_if_few=True)}")
        if self.min_speed is not None and not self.min_speed >= 0:
            raise ValueError(f"min_speed must be 0 or more, got {self.min_speed:g}")
        check_over(self.over)
        if self.min_speed is not None and self.units == "share" and self.min_speed * self.over / 2 > _WIDEST:
            raise ValueError(
                "with units: share min_speed is in heights of the picture a second, and nothing is seen that goes "
                f"{self.min_speed:g} of them a second for half of over; leave units out for pixels"
            )

    def open(self) -> None:
        """Reset all state."""
        super().open()
        arrows = self.directions or _SIDES
        self._names_of = list(arrows)
        self._arrows = np.array([np.subtract(arrow[-1], arrow[0]) for arrow in arrows.values()], np.float64)
        self._motion = Motion(self.over, self.max_gap)

    def watch(self, given: SourceStep) -> np.ndarray:
        """Process one frame of each of several sources; return (n,) headings in degrees, NaN if not moving."""
        rows, velocity = self._motion.step(given, given.xy, self._most)
        aspect = given.aspect[given.frame]
        x, y = velocity[:, 0] * aspect, velocity[:, 1]  # in units of y, so that angles are those in the picture
        least = _SLOWEST * given.height if self.min_speed is None else np.full(len(given.frames), self.min_speed)
        with np.errstate(invalid="ignore"):
            moves = np.hypot(x, y) > least[given.frame]
        course = np.where(moves, heading(x, y), np.nan)
        off = np.abs(
            (course[:, None] - heading(self._arrows[:, 0] * aspect[:, None], self._arrows[:, 1]) + 180) % 360 - 180
        )
        best = np.where(moves[:, None], off, np.inf).argmin(axis=1)
        before = self._motion.tracks["state"][rows]
        with np.errstate(invalid="ignore"):
            now = np.where(off[np.arange(len(best)), best] <= self.tolerance, best, before)
        for at in np.flatnonzero(self._motion.turned(rows, now, given.pts_s[given.frame], self.hold)).tolist():
            self._tell(given, at, int(now[at]), int(before[at]), float(course[at]))
        return course

    def finish(self, slot: int) -> None:
        """Drop the source's tracks."""
        self._motion.end(slot)

    def _tell(self, given: SourceStep, at: int, now: int, before: int, heading_deg: float) -> None:
        name, label = self._names_of[now], self._names[int(given.label[at])]
        facts: dict[str, object] = {"direction": name, "heading_deg": round(heading_deg, 1), "label": label}
        if before >= 0:
            facts["before"] = self._names_of[before]
        for kind in ("headed", "wrong_way") if name in self.wrong else ("headed",):
            given.frames[int(given.frame[at])].emit(kind, int(given.track[at]), **facts)
            self.count(f"{kind} {name}: {label}")


def heading(dx: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Headings in degrees clockwise from the top of the frame, in [0, 360), of the same shape as the input."""
    return np.asarray(np.degrees(np.arctan2(dx, -dy)) % 360)
