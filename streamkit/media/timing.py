"""Presentation times: from a stream's ticks to seconds, also where the stream has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer

_DEFAULT_RATE = 25.0


class Timing:
    """Turns the ticks of one stream's pictures, in the order shown, into seconds.

    A picture without ticks (a bare H.264 file has none) comes one frame time after the one before it.
    """

    def __init__(self, demuxer: Demuxer) -> None:
        base = demuxer.stream.time_base
        self._numerator, self._denominator = base.numerator, base.denominator
        self.step_s = 1.0 / (demuxer.info.average_rate or _DEFAULT_RATE)
        self._last: float | None = None

    def seconds(self, ticks: int) -> float:
        """Ticks in seconds."""
        return float(ticks * self._numerator / self._denominator)

    def __call__(self, ticks: int | None) -> float:
        """The time of the next picture shown."""
        if ticks is not None:
            self._last = self.seconds(ticks)
        else:
            self._last = 0.0 if self._last is None else self._last + self.step_s
        return self._last
