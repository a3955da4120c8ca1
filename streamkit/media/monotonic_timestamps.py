# SPDX-License-Identifier: Apache-2.0
"""Maps the timestamps of all packets of a source to one clock that only rises.

A container's times restart with each loop and connection, and a sender's clock may be set while it sends. From then on
FFmpeg reports presentation times as decoding times, which fall back at each B frame; this module then derives decoding
times from the order in which frames are shown.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from fractions import Fraction

from streamkit.media.encode import TIME_BASE

TICKS_PER_S = TIME_BASE.denominator
_GLITCH = TICKS_PER_S
"""Ticks: a smaller step back is a fault of the camera; after a larger one the clock was restarted."""
_LONGEST_STEP_S = 60.0
_MIN_STEP = TICKS_PER_S // 1000
"""Minimum ticks between two packets: Matroska, which counts milliseconds, would merge closer ones."""
_DEEPEST = 16
"""Maximum number of frames decoded before a frame that is shown first, in any codec."""


class MonotonicTimestamps:
    """Timestamps of packets in the order they arrive, in ticks of `TIME_BASE`.

    Attributes:
        step: duration of a frame in ticks, from the stream's rate.
        base: a tick of the stream in ticks of `TIME_BASE`.
    """

    def __init__(self) -> None:
        self.base = Fraction(1)
        self.step = 0
        self._numerator = self._denominator = 1  # of `base`; fractions would cost more than the muxing
        self._live = False
        self._restarted = True
        self._shift = 0
        self._dts: int | None = None
        self._arrived_s = 0.0
        self._highest: list[int] = []  # presentation times since the clock was set, preceded by invented ones
        self._depth = 0  # the most of them that exceeded a packet's own time
        self._derives_dts = False  # whether decoding times are derived here

    def begin(self, base: Fraction, rate: Fraction | None, *, live: bool) -> None:
        """Start a stream that has been opened, with its own times.

        Args:
            base: seconds per tick of the stream.
            rate: frames per second, if known.
            live: whether the time between two openings counts as time of the video.
        """
        self.base = base / TIME_BASE
        self.step = round(TICKS_PER_S / rate) if rate else TICKS_PER_S // 25
        self._numerator, self._denominator = self.base.as_integer_ratio()
        self._live = live
        self._restarted = True
        self._derives_dts = False
        self._depth = 0

    @property
    def restarted(self) -> bool:
        """Whether no packet has arrived since the stream was opened."""
        return self._restarted

    def times(self, pts: int | None, dts: int | None, *, keyframe: bool, now_s: float | None = None) -> tuple[int, int]:
        """Presentation and decoding time of the next packet; decoding times rise and never exceed presentation times.

        Args:
            pts: presentation time from the container, in the stream's ticks.
            dts: decoding time, likewise.
            keyframe: whether decoding can start with the packet.
            now_s: monotonic time of its arrival in seconds; None for now.
        """
        now_s = time.monotonic() if now_s is None else now_s
        shown = None if pts is None else self._ticks(pts)
        decoded = None if dts is None else self._ticks(dts)
        self._derives_dts |= decoded is None
        here = shown if self._derives_dts else decoded
        if here is None:
            here = self.step - self._shift + (self._dts or 0)
        jumps = not self._restarted and self._jumps(here + self._shift, now_s)
        if keyframe and shown is not None and self._highest:  # later frames are shown after all earlier ones
            jumps |= not self._restarted and shown + self._shift < self._highest[-1]
        if self._restarted or jumps:
            self._derives_dts |= jumps
            self._restart_clock(here if shown is None else shown, None if self._derives_dts else decoded, now_s)
        at = self._decoded(shown, decoded)
        if self._dts is not None:
            at = max(at, self._dts + _MIN_STEP)
        self._dts = at
        self._arrived_s = now_s
        return at if shown is None else max(at, shown + self._shift), at

    def _ticks(self, of_stream: int) -> int:
        """A time of the stream in ticks of `TIME_BASE`, rounded."""
        return (of_stream * self._numerator + self._denominator // 2) // self._denominator

    def _decoded(self, shown: int | None, decoded: int | None) -> int:
        """The decoding time: that of the container, as long as it rises."""
        if shown is None:
            at = decoded if decoded is not None and not self._derives_dts else None
            return self.step + (self._dts or 0) if at is None else at + self._shift
        shown += self._shift
        self._depth = min(_DEEPEST, max(self._depth, len(self._highest) - bisect_right(self._highest, shown)))
        insort(self._highest, shown)
        del self._highest[0]
        if decoded is not None and not self._derives_dts:
            at = decoded + self._shift
            if self._dts is None or at > self._dts:
                return at
            self._derives_dts = True
        # skip as many later times as there may be frames decoded ahead of presentation order
        return self._highest[-1 - self._depth]

    def _restart_clock(self, shown: int, decoded: int | None, now_s: float) -> None:
        """Restart the stream's clock at this packet, so that the output clock continues."""
        first = shown - self._depth * self.step if decoded is None else decoded
        if self._dts is None:
            self._shift = -first
        else:
            gap = round((now_s - self._arrived_s) * TICKS_PER_S) if self._live else 0
            on = self._dts + max(gap, self.step) - first
            self._shift = max(on, self._highest[-1] + self.step - shown)  # after all earlier frames
        shown += self._shift
        self._highest = [shown - place * self.step for place in range(_DEEPEST + 1, 0, -1)]
        self._restarted = False

    def _jumps(self, to: int, now_s: float) -> bool:
        """Whether the stream's clock was set: it falls back, or leaps ahead of real time on a live stream."""
        if self._dts is None:
            return False
        step = to - self._dts
        ahead_s = step / TICKS_PER_S - (now_s - self._arrived_s)
        return step < -_GLITCH or (self._live and ahead_s > _LONGEST_STEP_S)
