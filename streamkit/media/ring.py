# SPDX-License-Identifier: Apache-2.0
"""Packet ring buffer for clip recording: the latest packets of a source, as received.

The source adds packets while it decodes. Each of its frames carries the `PacketRef` of its own packet, so a stage that
gets the frame, however late, finds the packets around it. Each reader reports how far back it needs packets; packets
that no reader needs are dropped. So a stage may lag by any time without losing a packet; only the memory limit needs
tuning.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

from streamkit.media.live_clock import MAX_EARLY, fill_times
from streamkit.media.monotonic_timestamps import TICKS_PER_S, MonotonicTimestamps

__all__ = ["TICKS_PER_S", "BufferedPacket", "PacketRef", "PacketRing", "StreamFormat"]


class StreamFormat:
    """What a player must know of a stream before its first packet.

    Args:
        stream: an `av.VideoStream` that is being read; its parameters are copied, so it may be closed.

    Attributes:
        codec: FFmpeg's name of the codec.
        width: width of a frame in pixels, before rotation.
        height: its height.
    """

    def __init__(self, stream: Any) -> None:
        import av

        self._holder: Any = av.open(io.BytesIO(), "w", format="matroska")  # never written to
        self._template: Any = self._holder.add_stream_from_template(stream, opaque=True)
        self._pixel_aspect = stream.sample_aspect_ratio
        context = stream.codec_context
        self.codec = context.codec.canonical_name
        self.width = context.width
        self.height = context.height
        self._key = (self.codec, self.width, self.height, self._pixel_aspect, bytes(context.extradata or b""))

    def add_to(self, container: Any) -> Any:
        """Add a stream with these parameters to an `av.container.OutputContainer`; return the `av.VideoStream`."""
        stream = container.add_stream_from_template(self._template, opaque=True)
        if self._pixel_aspect:  # which only the container may have
            stream.codec_context.sample_aspect_ratio = self._pixel_aspect
        return stream

    def __del__(self) -> None:
        """Close the container, which holds its stream, which holds the container."""
        if hasattr(self, "_holder"):
            self._holder.close()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamFormat) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True, slots=True)
class BufferedPacket:
    """One packet.

    Attributes:
        number: index among the source's packets, from 0.
        data: its bytes, as received.
        pts: presentation time in ticks of `TIME_BASE`, on a clock that only rises over loops and reconnections.
        dts: decoding time, likewise; rises from packet to packet.
        duration: duration of its frame in ticks; 0 if unknown.
        keyframe: whether decoding can start with it.
        stream_format: the stream's parameters.
    """

    number: int
    data: bytes
    pts: int
    dts: int
    duration: int
    keyframe: bool
    stream_format: StreamFormat


@dataclass(slots=True)
class _RawPacket:
    """A packet with the container's times, in the stream's ticks; None if there are none."""

    data: bytes
    pts: int | None
    dts: int | None
    duration: int
    keyframe: bool


class PacketRef(NamedTuple):
    """The packet that a frame was decoded from: `ring` may still have it under `number`."""

    ring: PacketRing
    number: int


class PacketRing:
    """Numbered packets of a source. One thread adds packets, others read them.

    Args:
        readers: names of the readers. No packet is dropped before each has released it with `release`.
        limit_bytes: maximum size; the oldest packets beyond it are dropped and counted in `lost`.
        guard: a lock that is held while packets are added or read.

    Attributes:
        lost: packets dropped before every reader had released them.
    """

    def __init__(
        self, readers: tuple[Hashable, ...], *, limit_bytes: int, guard: AbstractContextManager[Any] | None = None
    ) -> None:
        self._limit = limit_bytes
        self._guard = guard or nullcontext()
        self._needed: dict[Hashable, int] = dict.fromkeys(readers, 0)
        self._packets: deque[BufferedPacket] = deque()
        self._keyframes: deque[tuple[int, int]] = deque()  # number and pts of each kept
        self._numbers: dict[int, int] = {}  # by the pts that the container gives, of the present opening
        self._early: list[_RawPacket] = []
        self._next = self._bytes = self.lost = 0
        self._form: StreamFormat | None = None
        self._clock = MonotonicTimestamps()

    # -------------------------------------------------------------------------------------------------- the source

    def begin(self, stream: Any, *, live: bool = False) -> None:
        """Start a stream: the source has been opened, maybe again.

        Args:
            stream: an `av.VideoStream` being read.
            live: whether the time between two openings counts as time of the video.
        """
        form = StreamFormat(stream)
        with self._guard:
            if self._form != form:
                self._form = form
            self._clock.begin(Fraction(stream.time_base or Fraction(1, 1000)), stream.average_rate, live=live)
            self._early.clear()
            self._numbers.clear()

    def put(self, packet: Any) -> None:
        """Add an `av.Packet` with data; its bytes are copied."""
        data = bytes(packet)
        with self._guard:
            assert self._form is not None, "begin comes first"
            self._add(packet, data)
            while self._bytes > self._limit and len(self._packets) > 1:
                self.lost += self._drop_first()

    def packet_ref(self, pts_s: float) -> PacketRef:
        """Reference to the newest packet with that time, or to the newest packet of all if none has it.

        Args:
            pts_s: time in seconds, as in the container.
        """
        with self._guard:
            ticks = round(pts_s * TICKS_PER_S / self._clock.base)
            return PacketRef(self, self._numbers.get(ticks, max(0, self._next + len(self._early) - 1)))

    def passed(self, pts_s: float) -> None:
        """See `PacketBuffer.passed`; clips have times of their own."""

    # ------------------------------------------------------------------------------------------------ the readers

    def get(self, number: int) -> BufferedPacket | None:
        """The packet with that number; None if it was dropped or has not arrived."""
        with self._guard:
            return self._get(number)

    def keyframe_before(self, number: int, before: int = 0) -> int | None:
        """Number of the last keyframe shown at least `before` ticks ahead of packet `number`.

        If none is that early, the first keyframe in the ring; None if there is none up to `number`.
        """
        with self._guard:
            packet = self._get(number)
            if packet is None:
                return None
            keyframe = None
            for keyframe_number, pts in self._keyframes:
                if keyframe_number > number or (keyframe is not None and pts > packet.pts - before):
                    break
                keyframe = keyframe_number
            return keyframe

    def packets(self, first: int, last: int) -> list[BufferedPacket]:
        """The packets from `first` to `last`, both included, as far as they are in the ring."""
        with self._guard:
            if not self._packets:
                return []
            begin = max(0, first - self._packets[0].number)
            return list(islice(self._packets, begin, max(begin, last + 1 - self._packets[0].number)))

    def release(self, reader: Hashable, number: int) -> None:
        """Declare that `reader` needs no packet before `number`."""
        with self._guard:
            if reader in self._needed:
                self._needed[reader] = max(number, self._needed[reader])
            self._drop_released()

    def remove_reader(self, reader: Hashable) -> None:
        """Remove `reader`: it needs no further packets."""
        with self._guard:
            self._needed.pop(reader, None)
            self._drop_released()

    @property
    def size_bytes(self) -> int:
        """Size of the packets in bytes."""
        return self._bytes

    # --------------------------------------------------------------------------------------------------- inside

    def _add(self, packet: Any, payload: bytes) -> None:
        raw_packet = _RawPacket(payload, packet.pts, packet.dts, packet.duration or 0, bool(packet.is_keyframe))
        if raw_packet.pts is not None:
            self._numbers[raw_packet.pts] = self._next + len(self._early)
        self._early.append(raw_packet)
        if raw_packet.dts is None and self._clock.restarted and len(self._early) < MAX_EARLY:
            return
        early = self._early
        self._early = []
        if self._clock.restarted:
            fill_times(early, round(self._clock.step / self._clock.base))
        for raw in early:
            self._append(raw)
        if self._packets and len(self._numbers) > 2 * len(self._packets) + 64:
            oldest = self._packets[0].number
            self._numbers = {pts: number for pts, number in self._numbers.items() if number >= oldest}

    def _append(self, raw: _RawPacket) -> None:
        assert self._form is not None
        pts, dts = self._clock.times(raw.pts, raw.dts, keyframe=raw.keyframe)
        lasts = round(raw.duration * self._clock.base)
        packet = BufferedPacket(self._next, raw.data, pts, dts, lasts, raw.keyframe, self._form)
        self._next += 1
        if not self._needed:  # no reader will take it
            return
        self._packets.append(packet)
        self._bytes += len(raw.data)
        if packet.keyframe:
            self._keyframes.append((packet.number, packet.pts))

    def _get(self, number: int) -> BufferedPacket | None:
        index = number - self._packets[0].number if self._packets else -1
        return self._packets[index] if 0 <= index < len(self._packets) else None

    def _drop_released(self) -> None:
        needed = min(self._needed.values(), default=self._next)
        while self._packets and self._packets[0].number < needed:
            self._drop_first()

    def _drop_first(self) -> int:
        oldest = self._packets.popleft()
        self._bytes -= len(oldest.data)
        if oldest.keyframe:
            self._keyframes.popleft()
        return 1
