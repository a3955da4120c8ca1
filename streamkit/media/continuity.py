# SPDX-License-Identifier: Apache-2.0
"""Gaps in an MPEG transport stream, and the frames that they damage.

FFmpeg marks a packet as corrupt where the continuity counter jumps. The flag alone does not mean damage:

- The counter also jumps where two complete recordings are joined (`cat a.ts b.ts`).
- FFmpeg's parser delays packets by one, so the flag is on the packet *before* the one at the gap.
- Decoders miss some damage: FFmpeg's HEVC decoder reports nothing about a truncated slice, and no decoder reports a
  missing frame.

So the packets around each flag are compared, and the flag moves to the packet that is really damaged:

    flagged   at the gap   after it
    P37*      P38          P41        frames are missing: P41 refers to them
    P38*      P39 (cut)    P40        P39 is truncated
    b99*      P98          I0         the time jumps to a keyframe: a join, nothing is missing
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamkit.media.stream_info import StreamInfo

CONTAINERS = frozenset({"mpegts", "hls"})
_MISS_TRUNCATION = frozenset({"hevc", "vvc"})
"""Codecs whose decoders in FFmpeg do not notice a truncated slice."""
_JOIN_S = 1.0  # a longer gap that ends at a keyframe is the time between two recordings
_SYNC = 0x47
_PAYLOAD = 0x10
_ADAPTATION = 0x20
_PACKET = 188
_SIZES = 188, 192, 204  # as broadcast, with a leading timestamp (M2TS), with trailing parity


class ContinuityFilter:
    """Moves the corrupt flag of a transport stream's packets to the damaged frame, or removes it.

    Args:
        read: reads bytes of the file again at a gap, from a position to before another; None for a live stream.
        info: stream information from the container.
        pid: the stream's packet identifier.
        tick_s: length of a tick in seconds.

    Attributes:
        lost: gaps that no packet can carry: the next frame is a keyframe and needs none of the missing data.
    """

    def __init__(self, read: Callable[[int, int], bytes] | None, info: StreamInfo, pid: int, tick_s: float) -> None:
        self._read = read
        self._codec = info.codec
        self._pid = pid
        self._tick_s = tick_s
        self._step_s = 1.0 / (info.average_rate or 25.0)
        self._at_gap: Any = None  # waits for the next packet
        self._flagged = False  # whether the packet before was
        self._last_dts: int | None = None
        self.lost = 0

    def filter(self, packet: Any) -> list[Any]:
        """Process an `av.Packet`; return the packets whose flags are final: usually this one.

        A packet at a gap waits for the next one.
        """
        flagged = packet.is_corrupt
        packet.is_corrupt = False
        if self._at_gap is None and not self._flagged:
            self._measure(packet)
        self._last_dts = packet.dts
        ready = []
        if self._at_gap is not None:
            self._mark_damaged(self._at_gap, packet)
            ready.append(self._at_gap)
            self._at_gap = None
        if self._flagged:
            self._at_gap = packet
        else:
            ready.append(packet)
        self._flagged = flagged
        return ready

    def flush(self) -> list[Any]:
        """Settle the packet that still waits at the end of the stream."""
        left = self._at_gap
        self._at_gap = None
        if left is not None:
            left.is_corrupt = True
        else:
            self.lost += self._flagged
        self._flagged = False
        return [] if left is None else [left]

    def _mark_damaged(self, at_gap: Any, following: Any) -> None:
        missing_s = self._missing_s(at_gap, following)
        if not following.is_keyframe:
            (following if missing_s > 0 else at_gap).is_corrupt = True
        elif 0 < missing_s <= _JOIN_S:
            self.lost += 1
        elif self._codec in _MISS_TRUNCATION:
            at_gap.is_corrupt = self._is_truncated(at_gap, following)

    def _measure(self, packet: Any) -> None:
        """Measure the frame duration: the rate in a header may be wrong."""
        if packet.dts is not None and self._last_dts is not None:
            step_s = (packet.dts - self._last_dts) * self._tick_s
            if 0 < step_s < _JOIN_S:
                self._step_s = step_s

    def _missing_s(self, at_gap: Any, following: Any) -> float:
        """Seconds without a frame between two packets; 0 if there is no gap, or if the time goes back."""
        if at_gap.dts is None or following.dts is None:
            return 0.0
        between_s = float((following.dts - at_gap.dts) * self._tick_s)
        return between_s - self._step_s if between_s > 1.5 * self._step_s else 0.0

    def _is_truncated(self, packet: Any, following: Any) -> bool:
        """Whether the end of a frame in a file is missing.

        A frame begins in a new transport packet, so stuffing fills the last transport packet of the previous frame. A
        frame whose last transport packet has no stuffing, or that contains a counter jump, is truncated. One complete
        frame in 184 needs no stuffing and is wrongly taken for truncated.
        """
        if self._read is None or packet.pos is None or following.pos is None or not 0 <= packet.pos < following.pos:
            return False
        data = self._read(packet.pos, following.pos)
        size = next((size for size in _SIZES if data[size : size + 1] == bytes([_SYNC])), None)
        if size is None:
            return False
        heads = [data[at : at + _PACKET] for at in range(0, len(data) - _PACKET + 1, size)]
        stream_heads = [head for head in heads if head[0] == _SYNC and (head[1] & 0x1F) << 8 | head[2] == self._pid]
        stream_heads = [head for head in stream_heads if head[3] & _PAYLOAD]
        jumps = any((a[3] + 1) & 0xF != b[3] & 0xF for a, b in itertools.pairwise(stream_heads))
        return bool(stream_heads) and (jumps or not stream_heads[-1][3] & _ADAPTATION)
