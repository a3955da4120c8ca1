"""`speed`: how fast tracks go over the ground."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

import numpy as np

from streamkit.analytics.motion import Motion
from streamkit.analytics.plane import FourPoints, Plane
from streamkit.analytics.rounds import Round
from streamkit.stage import Seconds, stage
from streamkit.stages.watching import Watching
from streamkit.units import Unit

_KMH = 3.6  # in a metre a second
_SLACK = 0.9  # of the limit: below it a track no longer speeds

Kmh = Annotated[float, Unit("km/h", minimum=0)]


@stage("speed", reads="track_id", writes=("speed_kmh", "events"))
class Speed(Watching):
    """Measure how fast tracks go over the ground, from four points whose places are known in metres.

    Each object gets a column `speed_kmh`, where its track is known for long enough. `speeding` comes when a track goes
    faster than the limit, `slowed` when it is below nine tenths of it again, both with `speed_kmh`, `limit_kmh` and
    `label`. docs/analytics.md says how the four points are found, and how exact it is.

    Options:
        points: four points of the picture, in order around an area of flat ground.
        ground: the same four on the ground, in metres, as in [[0, 0], [3.5, 0], [3.5, 20], [0, 20]].
        over: the time that the speed is taken over; longer is steadier, and later.
        limit_kmh: emit events for tracks that go faster.
        hold: how long a track must be faster, or slower again, before it is told.
    """

    emits = ("speeding", "slowed")
    column = "speed_kmh"

    points: FourPoints
    ground: FourPoints
    over: Seconds = field(default=1.0, kw_only=True)
    limit_kmh: Kmh | None = field(default=None, kw_only=True)
    hold: Seconds = field(default=0.5, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse points that the units cannot mean, or that do not fit each other."""
        self.check([self.points])
        check_over(self.over)
        self._plane = Plane(self.points, self.ground)

    def open(self) -> None:
        """Get ready for the first source."""
        super().open()
        self._motion = Motion(self.over, self.max_gap)

    def watch(self, given: Round) -> np.ndarray:
        """Look at one frame of each of several sources; return speeds in km/h."""
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
        """Forget the source's tracks."""
        self._motion.end(slot)

    def _tell(self, given: Round, at: int, kind: str, speed_kmh: float) -> None:
        label = self._names[int(given.label[at])]
        self.count(f"{kind}: {label}")
        facts = {"label": label, "speed_kmh": round(speed_kmh, 2), "limit_kmh": self.limit_kmh}
        given.frames[int(given.frame[at])].emit(kind, int(given.track[at]), **facts)


def check_over(over_s: float) -> None:
    """Refuse to measure over no time; raise ValueError."""
    if not over_s > 0:
        raise ValueError(f"over must be longer than 0s, got {over_s:g}s")
