"""`speed`: the speed of tracks over the ground."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from streamkit.analytics.motion import Motion
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.plane import FourPoints, Plane
from streamkit.core.stage import Seconds, stage
from streamkit.core.units import Unit
from streamkit.stages.analytics.track_analytics import TrackAnalytics

_KMH = 3.6  # in a metre a second
_SLACK = 0.9  # of the limit: below it a track no longer speeds

Kmh = Annotated[float, Unit("km/h", minimum=0)]


@stage(
    "speed",
    reads="track_id",
    writes=("speed_kmh", "events"),
    columns={"speed_kmh": "float"},
    emits=("speeding", "slowed"),
)
class Speed(TrackAnalytics):
    """Measure the speed of tracks over the ground, from four points with known positions in metres.

    Each object gets a column `speed_kmh` once its track is known for long enough. `speeding` is emitted when a track
    is faster than the limit, `slowed` when it falls below 90 % of the limit again; both have `speed_kmh`, `limit_kmh`
    and `label`. docs/motion.md explains how to choose the four points, and the accuracy.
    """

    points: Annotated[FourPoints, "four points of the frame, in order around an area of flat ground."]
    ground: Annotated[
        FourPoints, "the same four points on the ground, in metres, as in [[0, 0], [3.5, 0], [3.5, 20], [0, 20]]."
    ]
    over: Annotated[
        Seconds, "the time over which the speed is measured; a longer time is steadier but reacts later."
    ] = 1.0
    limit_kmh: Annotated[Kmh | None, "emit events for faster tracks."] = None
    hold: Annotated[Seconds, "how long a track must be faster, or slower again, before it is reported."] = 0.5

    def __post_init__(self) -> None:
        """Check the points against the units and against each other."""
        self.check([self.points])
        check_over(self.over)
        self._plane = Plane(self.points, self.ground)

    def open(self) -> None:
        """Reset all state."""
        super().open()
        self._motion = Motion(self.over, self.max_gap)

    def watch(self, given: SourceStep) -> np.ndarray:
        """Process one frame of each of several sources; return (n,) speeds in km/h, NaN while unknown."""
        rows, velocity = self._motion.step(given, self._plane.metres(given.xy), self._most)
        speed = np.hypot(velocity[:, 0], velocity[:, 1]) * _KMH
        if self.limit_kmh is not None:
            before = self._motion.tracks["state"][rows]
            with np.errstate(invalid="ignore"):
                now = np.where(speed > self.limit_kmh, 1, np.where(speed < _SLACK * self.limit_kmh, 0, before))
            for at in np.flatnonzero(self._motion.turned(rows, now, given.pts_s[given.frame], self.hold)).tolist():
                if now[at] == 1 or before[at] == 1:
                    self._tell(given, at, "speeding" if now[at] == 1 else "slowed", float(speed[at]))
        return np.asarray(speed)

    def finish(self, slot: int) -> None:
        """Drop the source's tracks."""
        self._motion.end(slot)

    def _tell(self, given: SourceStep, at: int, kind: str, speed_kmh: float) -> None:
        label = self._names[int(given.label[at])]
        self.count(f"{kind}: {label}")
        facts = {"label": label, "speed_kmh": round(speed_kmh, 2), "limit_kmh": self.limit_kmh}
        given.frames[int(given.frame[at])].emit(kind, int(given.track[at]), **facts)


def check_over(over_s: float) -> None:
    """Check that `over` is longer than 0; raise ValueError."""
    if not over_s > 0:
        raise ValueError(f"over must be longer than 0s, got {over_s:g}s")
