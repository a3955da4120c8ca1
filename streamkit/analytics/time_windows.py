"""Consecutive time windows of each source. docs/counting.md explains them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.track_store import Columns

_MOST = 10  # windows between two frames: more are reported as unknown


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A window that is over.

    Attributes:
        frame: index of the frame that ended it, in the round.
        slot: that frame's source.
        from_s: its start, in the source's time.
        to_s: its end.
        next_s: start of the next window; `to_s` except after a gap or a jump back in time.
    """

    frame: int
    slot: int
    from_s: float
    to_s: float
    next_s: float


class TimeWindows:
    """Windows of `length_s` seconds, the first from a source's first frame on.

    A window cut short by a jump back in time ends with the previous frame, and the next begins with the present frame.
    The next window also begins with the present frame after a gap of more than 10 windows.
    """

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._sources = Columns(from_s=np.float64(np.nan), last_s=np.float64(np.nan))

    def begin(self, slot: int) -> None:
        """Begin a source."""
        self._sources.reserve(slot + 1)
        self._sources.reset(slot)

    def over(self, given: SourceStep) -> Iterator[TimeWindow]:
        """Yield the windows ended by a round's frames, in order for each source; each source must have begun."""
        from_s, last_s = self._sources["from_s"], self._sources["last_s"]
        slot, now_s = given.slot, given.pts_s
        first = np.isnan(from_s[slot])
        from_s[slot[first]] = now_s[first]
        for frame in np.flatnonzero(given.back | (now_s >= from_s[slot] + self._length_s)).tolist():
            yield from self._over(frame, int(slot[frame]), float(now_s[frame]), back=bool(given.back[frame]))
        last_s[slot] = now_s

    def _over(self, frame: int, slot: int, now_s: float, *, back: bool) -> Iterator[TimeWindow]:
        begun_s = float(self._sources["from_s"][slot])
        if back:
            yield TimeWindow(frame, slot, begun_s, float(self._sources["last_s"][slot]), now_s)
            begun_s = now_s
        elif now_s - begun_s > _MOST * self._length_s:
            yield TimeWindow(frame, slot, begun_s, begun_s + self._length_s, now_s)
            begun_s = now_s
        while now_s >= (end_s := begun_s + self._length_s):
            yield TimeWindow(frame, slot, begun_s, end_s, end_s)
            begun_s = end_s
        self._sources["from_s"][slot] = begun_s
