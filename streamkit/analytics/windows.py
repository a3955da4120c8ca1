"""Windows of time that follow each other in each source: when one is over. docs/analytics.md says it in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamkit.analytics.memory import Columns
from streamkit.analytics.rounds import Round

_MOST = 10  # windows that pass between two frames: of more nobody knows anything


@dataclass(frozen=True, slots=True)
class Span:
    """A window that is over.

    Attributes:
        frame: which frame of the round says so.
        slot: that frame's source.
        from_s: when it began, in the source's time.
        to_s: when it ended.
        next_s: when the next one begins; `to_s` but after a gap or where time went back.
    """

    frame: int
    slot: int
    from_s: float
    to_s: float
    next_s: float


class Spans:
    """Windows of `length_s` seconds, the first from a source's first frame on.

    A window that is cut short because time goes back ends with the frame before. The next one begins with the frame
    then, and so it does after more windows than can be told without having seen anything of them.
    """

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._sources = Columns(from_s=np.float64(np.nan), last_s=np.float64(np.nan))

    def begin(self, slot: int) -> None:
        """A source begins."""
        self._sources.reserve(slot + 1)
        self._sources.reset(slot)

    def over(self, given: Round) -> Iterator[Span]:
        """The windows that are over by a round's frames, those of a source in order; each source has begun."""
        from_s, last_s = self._sources["from_s"], self._sources["last_s"]
        slot, now_s = given.slot, given.pts_s
        first = np.isnan(from_s[slot])
        from_s[slot[first]] = now_s[first]
        for frame in np.flatnonzero(given.back | (now_s >= from_s[slot] + self._length_s)).tolist():
            yield from self._over(frame, int(slot[frame]), float(now_s[frame]), back=bool(given.back[frame]))
        last_s[slot] = now_s

    def _over(self, frame: int, slot: int, now_s: float, *, back: bool) -> Iterator[Span]:
        begun_s = float(self._sources["from_s"][slot])
        if back:
            yield Span(frame, slot, begun_s, float(self._sources["last_s"][slot]), now_s)
            begun_s = now_s
        elif now_s - begun_s > _MOST * self._length_s:
            yield Span(frame, slot, begun_s, begun_s + self._length_s, now_s)
            begun_s = now_s
        while now_s >= (end_s := begun_s + self._length_s):
            yield Span(frame, slot, begun_s, end_s, end_s)
            begun_s = end_s
        self._sources["from_s"][slot] = begun_s
