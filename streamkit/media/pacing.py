"""Playing a file as a camera would: every picture at its time, no sooner."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.data import Frame

_NAP_S = 0.05
_LONGEST_GAP_S = 10.0


class Pacer:
    """Says when pictures are due, and waits for them.

    Args:
        pace: `realtime` for the video's own times, or pictures a second.
        step_s: the time between two pictures, for the phase.
        phase: a number for a phase that is the same in every run; None for a random one. Sources that begin together
            are spread over a picture's time by it, as cameras are.
        source: the source's id; sources of the same `phase` still differ.
    """

    def __init__(self, pace: str | float, step_s: float, phase: int | None, source: str) -> None:
        self._rate = None if isinstance(pace, str) else float(pace)
        chance = random.Random(None if phase is None else f"{phase} {source}")
        self._phase_s = chance.random() * (1.0 / self._rate if self._rate else step_s)
        self._begin_s: float | None = None
        self._first = 0.0
        self._last_s = self._due_s = 0.0
        self.stopped = False

    def due_s(self, index: int, pts_s: float) -> float:
        """When picture `index` is due on the monotonic clock, in seconds. The first one sets the clock."""
        now = index / self._rate if self._rate else pts_s
        if self._begin_s is None or not -_LONGEST_GAP_S < now - self._last_s < _LONGEST_GAP_S:
            self._begin_s, self._first = time.monotonic() + self._phase_s, now
        self._last_s = now
        self._due_s = self._begin_s + now - self._first
        return self._due_s

    def follow(self, frame: Frame) -> None:
        """A frame comes back from its reader, who may have made it due later, as a pause does: so are all behind it."""
        if self._begin_s is not None and frame.due_s is not None:
            self._begin_s += frame.due_s - self._due_s

    def wait(self, due_s: float) -> None:
        """Sleep until then, or until `stopped` is set."""
        while not self.stopped:
            left = due_s - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _NAP_S))
