# SPDX-License-Identifier: Apache-2.0
"""Converts presentation times from a stream's ticks to seconds, also for streams without times."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer

_DEFAULT_RATE = 25.0
_MAX_WAITING = 128
"""Packets in a decoder: 16 for reordering, and one for each thread."""


class Timing:
    """Converts the ticks of one stream's frames, in presentation order, to seconds.

    A frame without ticks gets the earliest decoding time of the packets sent to the decoder, if these have no other
    (`Demuxer.decode_times`): as many frames are shown as packets are decoded, so the n-th frame has the n-th time.
    Without any times (a bare H.264 file) it follows the previous frame by one frame duration.
    """

    def __init__(self, demuxer: Demuxer) -> None:
        base = demuxer.stream.time_base
        self._numerator = base.numerator
        self._denominator = base.denominator
        self.step_s = 1.0 / (demuxer.info.average_rate or _DEFAULT_RATE)
        self._last: float | None = None
        self._by_order = demuxer.decode_times
        self._sent: list[int] = []  # a heap of decoding times

    def sent(self, packet: Any) -> None:
        """Note that a packet (an `av.Packet`) is sent to the decoder."""
        if self._by_order and packet.pts is None and packet.dts is not None:
            heapq.heappush(self._sent, packet.dts)
            if len(self._sent) > _MAX_WAITING:  # frames that never came
                heapq.heappop(self._sent)

    def lost(self, packet: Any | None = None) -> None:
        """Note that a sent packet yields no frame; None for all packets whose frame was not returned."""
        if packet is None:
            self._sent.clear()
        elif packet.dts in self._sent:
            self._sent.remove(packet.dts)
            heapq.heapify(self._sent)

    def seconds(self, ticks: int) -> float:
        """Convert ticks to seconds."""
        return float(ticks * self._numerator / self._denominator)

    def __call__(self, ticks: int | None) -> float:
        """The time of the next frame in presentation order, in seconds."""
        if ticks is None and self._sent:
            ticks = heapq.heappop(self._sent)
        if ticks is not None:
            self._last = self.seconds(ticks)
        else:
            self._last = 0.0 if self._last is None else self._last + self.step_s
        return self._last
