"""How much of a video was looked at: told by the packets that were read, for headers promise what is not there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from streamkit.data import Frame
from streamkit.media.thinning import numbers
from streamkit.stages.source import VideoSource

LOOKED = "looked_s"
"""The fact by which a source says it."""

_RATE = 25.0
_SLACK_S = 1e-6


class LookedSource(VideoSource):
    """A video that says at its end, or where it breaks off, how many seconds of it were gone through."""

    def frames(self) -> Iterator[Frame]:
        """See `VideoSource.frames`."""
        span = Span(self.start, self.end)
        self.context = replace(self.context, on_packet=span)
        try:
            yield from super().frames()
        finally:
            self.context.facts[LOOKED] = span.seconds


class Span:
    """The part of a video that its packets cover. To be called with each `av.Packet` that is read.

    It reaches from the first picture of the part that is asked for to the end of the last one that was read, be they
    taken or passed over.

    Args:
        start_s: where the part begins, in seconds after the video's first picture.
        end_s: where it ends, likewise; None for the video's end.
    """

    def __init__(self, start_s: float, end_s: float | None) -> None:
        self._start_s, self._end_s = start_s, end_s
        self._base: Any = None
        self._zero = self._begin = self._usual = self._lasts = 0  # ticks; `lasts` is how long the last one is shown
        self._until = math.inf
        self._first: int | None = None
        self._last = 0
        self._rate, self._untimed = _RATE, 0

    def __call__(self, packet: Any) -> None:
        """Note a packet's picture: some ten thousand a second may come."""
        if self._base is None:
            self._open(packet)
        ticks = packet.dts if packet.pts is None else packet.pts
        if packet.is_discard:
            return
        if ticks is None:
            self._untimed += 1
        elif self._begin <= ticks < self._until:
            if self._first is None:
                self._first = self._last = ticks
            self._first = min(self._first, ticks)
            if ticks >= self._last:
                self._last, self._lasts = ticks, packet.duration or self._usual

    @property
    def seconds(self) -> float:
        """How long it is so far; 0 where nothing of the part was read."""
        if self._first is None:  # a bare stream, whose pictures have no times
            return len(numbers(self._untimed, self._rate, self._start_s, self._end_s)) / self._rate
        end = self._last + self._lasts
        if self._end_s is not None:
            end = min(end, self._zero + round(self._end_s / self._base))
        return float((end - self._first) * self._base)

    def _open(self, packet: Any) -> None:
        stream = packet.stream
        self._base, self._zero = packet.time_base, stream.start_time or 0
        self._rate = float(stream.average_rate or _RATE)
        self._usual = round(1 / self._rate / self._base)
        self._begin = self._zero + math.ceil((self._start_s - _SLACK_S) / self._base)
        if self._end_s is not None:
            self._until = self._zero + math.ceil((self._end_s - _SLACK_S) / self._base)
