# SPDX-License-Identifier: Apache-2.0
"""Paces a file in real time, like a camera: no frame is early."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.core.data import Frame

_NAP_S = 0.05
_LONGEST_GAP_S = 10.0


class Pacer:
    """Computes due times of frames, and waits for them.

    Args:
        pace: `realtime` for the video's own times, or frames per second.
        step_s: time between two frames in seconds, for the phase.
        phase: seed of a phase that is the same in every run; None for a random one. It spreads sources that start
            together over the duration of a frame, like cameras.
        source: the source's id; sources with the same `phase` still differ.
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
        """Due time of frame `index` on the monotonic clock, in seconds. The first frame starts the clock."""
        now = index / self._rate if self._rate else pts_s
        if self._begin_s is None or not -_LONGEST_GAP_S < now - self._last_s < _LONGEST_GAP_S:
            self._begin_s = time.monotonic() + self._phase_s
            self._first = now
        self._last_s = now
        self._due_s = self._begin_s + now - self._first
        return self._due_s

    def absorb_delay(self, frame: Frame) -> None:
        """Delay later frames as much as the consumer delayed this one, for example during a pause."""
        if self._begin_s is not None and frame.due_s is not None:
            self._begin_s += frame.due_s - self._due_s

    def wait(self, due_s: float) -> None:
        """Sleep until the due time, or until `stopped` is set."""
        while not self.stopped:
            left = due_s - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _NAP_S))
