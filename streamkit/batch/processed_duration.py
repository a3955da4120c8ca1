# SPDX-License-Identifier: Apache-2.0
"""Measures how much of a video was processed, by its packets: headers may promise more than the file has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import IO, Any, cast

from streamkit.batch.remote import RangeFile
from streamkit.core.data import Frame
from streamkit.media.frame_sampling import frame_range
from streamkit.stages.sources.source import VideoSource

PROCESSED_S = "processed_s"
"""The name of the fact in which a source reports it."""

_RATE = 25.0
_SLACK_S = 1e-6


@dataclass(eq=False, kw_only=True)
class MeasuredSource(VideoSource):
    """A video that reports, when it ends or breaks off, how many seconds of it were processed.

    Attributes:
        file: an open remote file to read in place of `uri`, which then is only its name.
    """

    file: RangeFile | None = None

    def frames(self) -> Iterator[Frame]:
        """Measure the packets of the frames; see `VideoSource.frames`."""
        span = ProcessedDuration(self.start, self.end)
        runtime = replace(self.context.runtime, on_packet=span, file=cast("IO[bytes] | None", self.file))
        self.context = replace(self.context, runtime=runtime)
        try:
            with nullcontext() if self.file is None else self.file.checked():
                yield from super().frames()
        finally:
            self.context.runtime.facts[PROCESSED_S] = span.seconds


class ProcessedDuration:
    """The part of a video that its packets cover. To be called with each `av.Packet` that is read.

    It extends from the first frame of the requested part to the end of the last one that was read, whether frames were
    processed or skipped.

    Args:
        start_s: start of the part, in seconds after the video's first frame.
        end_s: end of the part, likewise; None for the video's end.
    """

    def __init__(self, start_s: float, end_s: float | None) -> None:
        self._start_s = start_s
        self._end_s = end_s
        self._base: Any = None
        self._zero = self._begin = self._usual = self._lasts = 0  # ticks; `lasts` is how long the last one is shown
        self._until = math.inf
        self._first: int | None = None
        self._last = 0
        self._rate = _RATE
        self._untimed = 0

    def __call__(self, packet: Any) -> None:
        """Record a packet's time; called up to some ten thousand times a second."""
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
                self._last = ticks
                self._lasts = packet.duration or self._usual

    @property
    def seconds(self) -> float:
        """Seconds so far; 0 if nothing of the part was read."""
        if self._first is None:  # a raw stream without timestamps
            return len(frame_range(self._untimed, self._rate, self._start_s, self._end_s)) / self._rate
        end = self._last + self._lasts
        if self._end_s is not None:
            end = min(end, self._zero + round(self._end_s / self._base))
        return float((end - self._first) * self._base)

    def _open(self, packet: Any) -> None:
        stream = packet.stream
        self._base = packet.time_base
        self._zero = stream.start_time or 0
        self._rate = float(stream.average_rate or _RATE)
        self._usual = round(1 / self._rate / self._base)
        self._begin = self._zero + math.ceil((self._start_s - _SLACK_S) / self._base)
        if self._end_s is not None:
            self._until = self._zero + math.ceil((self._end_s - _SLACK_S) / self._base)
