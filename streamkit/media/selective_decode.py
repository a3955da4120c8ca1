# SPDX-License-Identifier: Apache-2.0
"""Decodes only the wanted frames, and the frames that they need.

A frame may need any earlier one back to the last keyframe that can be decoded alone. So unwanted packets wait: they are
decoded if a wanted frame follows, and dropped if such a keyframe comes first. Frames that no other refers to are
dropped at once. The wanted frames are bit-identical to those of a decoder that gets everything.

    I0  P1  b2* P3  P4  P5  I6  P7 ...     wanted: P3       (* nothing refers to b2)
    decoded:  I0 P1 P3; dropped: b2, P4, P5
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkit.core.counters import Counters
from streamkit.media.bitstream import PacketParser
from streamkit.media.frames import DecodedFrame
from streamkit.media.source_errors import DeferredError
from streamkit.media.timing import Timing

if TYPE_CHECKING:
    from streamkit.media.decode import Decoder
    from streamkit.media.demux import Demuxer


SKIPPED = "frames not decoded"
UNWANTED = "frames decoded for others"
_LONGEST = 4096
_LONGEST_BYTES = 64_000_000


class SelectiveDecoder:
    """Decodes the wanted frames in one pass over a video.

    Args:
        decoder: an empty decoder, or one at the start of the video.
        demuxer: source of the packets.
        counters: counts frames that were not decoded, and frames decoded only because others need them.
        sought: whether the packets start in the middle of the video.

    Attributes:
        missing: number of wanted frames that were not decoded.
    """

    def __init__(self, decoder: Decoder, demuxer: Demuxer, counters: Counters, *, sought: bool = False) -> None:
        self._decoder = decoder
        self._demuxer = demuxer
        self._counters = counters
        self._codec = demuxer.info.codec
        self._deferred: list[tuple[Any, bool]] = []  # what a wanted frame may need; whether to ignore damage
        self._deferred_bytes = 0
        self._gap = False  # whether packets were skipped that the decoder needs: it must be flushed first
        self._opening = sought  # whether the next keyframe is the first one after a seek
        self._decoded = False  # whether the last packet went to the decoder
        self._undecodable_before: int | None = None  # ticks of the keyframe whose leading frames cannot be decoded
        self._due: dict[float, int] = {}  # numbers of the wanted frames in the decoder, by their times
        self.missing = 0

    def frames(self, numbering: FrameNumbering) -> Generator[tuple[int, DecodedFrame]]:
        """Yield the wanted frames with their numbers, in presentation order.

        Raises:
            SourceError: reading failed; raised after the last good frame.
        """
        packets = DeferredError(numbering)
        for packet in packets:
            yield from self._process(packet, numbering)
        self._drop_deferred()
        yield from self._numbered(self._decoder.decode(None))
        self.missing += len(self._due)
        packets.raise_error()

    def keyframes(self, numbering: Iterable[NumberedPacket]) -> Generator[tuple[int, DecodedFrame]]:
        """Yield the wanted frames if only keyframes are wanted: each at once, as the decoder is flushed after it."""
        for numbered in numbering:
            if not numbered.wanted:
                self._counters.add(SKIPPED)
                continue
            frames = [*self._decoder.decode(numbered.packet), *self._decoder.decode(None)]
            self._decoder.restart(self._demuxer)
            self.missing += not frames
            for frame in frames[:1]:
                # in a stream without times the decoder restarts at 0
                yield numbered.number, frame._replace(pts_s=numbered.pts_s)

    def _process(self, numbered: NumberedPacket, numbering: FrameNumbering) -> Generator[tuple[int, DecodedFrame]]:
        if numbered.alone:
            self._enter_gop(numbered, numbering)
        goes_with = numbered.packet.pts is None  # a second field: in some streams it has its own packet
        if numbered.wanted or (goes_with and self._decoded):
            yield from self._catch_up()
            if numbered.wanted:
                self._due[numbered.pts_s] = numbered.number
            self._decoded = True
            yield from self._numbered(self._decoder.decode(numbered.packet))
            return
        self._decoded = False
        if numbering.parser.is_disposable(numbered.packet) or (
            self._codec == "hevc" and self._is_undecodable(numbered.packet)
        ):
            self._counters.add(SKIPPED)
        else:
            self._deferred.append((numbered.packet, self._is_undecodable(numbered.packet)))
            self._deferred_bytes += numbered.packet.size
            if len(self._deferred) > _LONGEST or self._deferred_bytes > _LONGEST_BYTES:
                yield from self._catch_up()

    def _enter_gop(self, keyframe: NumberedPacket, numbering: FrameNumbering) -> None:
        """At a keyframe, drop waiting packets, unless frames shown before the keyframe need them."""
        leading = numbering.leading(keyframe.packet) if keyframe.packet.pts is not None else []
        if self._opening:
            self._opening = False
            self._undecodable_before = keyframe.packet.pts
        elif self._deferred or self._gap:
            # H.264 numbers its reference frames: a skipped one is noticed
            tied = self._codec == "h264" and not all(numbering.parser.is_disposable(packet) for packet in leading)
            if tied or any(numbering.wanted(packet) for packet in leading):
                return
            self._drop_deferred()
            self._gap = True
            self._undecodable_before = keyframe.packet.pts

    def _drop_deferred(self) -> None:
        if self._deferred:
            self._counters.add(SKIPPED, len(self._deferred))
        self._deferred = []
        self._deferred_bytes = 0

    def _is_undecodable(self, packet: Any) -> bool:
        """Whether the packet's frame is shown before a keyframe whose predecessors were skipped."""
        return self._undecodable_before is not None and packet.pts is not None and packet.pts < self._undecodable_before

    def _catch_up(self) -> Generator[tuple[int, DecodedFrame]]:
        """Decode the waiting packets."""
        if self._gap:
            yield from self._numbered(self._decoder.decode(None))
            self._decoder.restart(self._demuxer)
            self._gap = False
        deferred = self._deferred
        self._deferred = []
        self._deferred_bytes = 0
        if deferred:
            self._counters.add(UNWANTED, len(deferred))
        for packet, silent in deferred:
            yield from self._numbered(self._decoder.decode(packet, hidden=silent, unwanted=True))

    def _numbered(self, frames: Iterable[DecodedFrame]) -> Generator[tuple[int, DecodedFrame]]:
        for frame in frames:
            number = self._due.pop(frame.pts_s, None)
            if number is not None:
                yield number, frame


_REORDERED = 32  # packets that wait if there are no decoding times: more than any reordering needs

Wants = Callable[[int, float, bool], bool]
"""Whether a frame is wanted, by its number, its time in seconds, and whether it can be decoded alone."""


class NumberedPacket(NamedTuple):
    """A packet and its frame's number.

    Attributes:
        packet: an `av.Packet`.
        alone: whether it is a keyframe that can be decoded without any other frame.
        number: number of its frame in the video, from 0; -1 if the frame is not shown or not counted, or if the packet
            has no time although others do: it then belongs to the previous packet.
        pts_s: presentation time in seconds.
        wanted: whether the frame is wanted.
    """

    packet: Any
    alone: bool
    number: int
    pts_s: float
    wanted: bool


class FrameNumbering:
    """Assigns each packet the number of its frame in the video, before anything is decoded.

    Iteration yields the packets in their original order. Frames are numbered in presentation order; packets arrive in
    decode order. A packet's decoding time guarantees that no later packet is shown before it. So the number of a frame
    is known once a packet arrives that is decoded no earlier than the frame is shown. Packets wait for that: two or
    three with B frames, none without.

    Args:
        packets: packets in decode order.
        demuxer: their demuxer.
        wants: called once for each counted frame, in presentation order.
        first: number of the first counted frame.
        since_s: frames before this time are not counted.
        ahead: whether packets may wait for later ones; otherwise frames are numbered in the order they arrive.
        flushed: whether the decoder is flushed before each keyframe, so that no keyframe can discard frames that are
            not yet shown.
    """

    def __init__(
        self,
        packets: Iterable[Any],
        demuxer: Demuxer,
        wants: Wants,
        *,
        first: int = 0,
        since_s: float = -math.inf,
        ahead: bool = True,
        flushed: bool = False,
    ) -> None:
        self._packets = packets
        self._wants = wants
        self._ahead = ahead
        self._flushed = flushed
        self._next = first
        self._since_s = since_s
        self._codec = demuxer.info.codec
        self._timing = Timing(demuxer)
        self.parser = PacketParser(demuxer.stream, self._codec)
        # read and not given: packets, whether they are keyframes, and their ticks
        self._window: deque[tuple[Any, bool, int]] = deque()
        self._ticks: int | None = None  # of the last packet that had some
        self._waiting: list[tuple[int, bool]] = []  # a heap: ticks of frames that are shown and have no number yet
        self._numbered_ticks: dict[int, tuple[int, float, bool]] = {}  # by ticks
        self._horizon: float = -math.inf  # ticks: no frame that is shown so early comes any more

    def __iter__(self) -> Iterator[NumberedPacket]:
        """Yield the packets, each as soon as its frame has a number.

        Raises:
            SourceError: reading failed; raised after the last packet.
        """
        packets = DeferredError(self._packets)
        for packet in packets:
            alone = packet.is_keyframe and self.parser.is_random_access(packet, flushed=self._flushed)
            if packet.pts is not None:
                self._ticks = packet.pts
            elif self._ticks is None:
                yield self._untimed(packet, alone)
                continue
            self._window.append((packet, alone and packet.pts is not None, self._ticks))
            if self._shows(packet):
                heapq.heappush(self._waiting, (packet.pts, alone))
            self._advance(packet)
            yield from self._ready()
        self._horizon = math.inf
        yield from self._ready()
        packets.raise_error()

    def leading(self, keyframe: Any) -> list[Any]:
        """Packets after a keyframe just yielded whose frames are shown before it."""
        return [packet for packet, _, ticks in self._window if ticks < keyframe.pts]

    def wanted(self, packet: Any) -> bool:
        """Whether the frame of a packet not yet yielded is wanted."""
        return packet.pts in self._numbered_ticks and self._numbered_ticks[packet.pts][2]

    def _advance(self, packet: Any) -> None:
        if not self._ahead:
            self._horizon = max(self._horizon, self._window[-1][2])
        elif packet.dts is not None:
            self._horizon = max(self._horizon, packet.dts)
        elif len(self._window) > _REORDERED and self._waiting:
            self._horizon = max(self._horizon, self._waiting[0][0])

    def _ready(self) -> Iterator[NumberedPacket]:
        while self._waiting and self._waiting[0][0] <= self._horizon:
            ticks, alone = heapq.heappop(self._waiting)
            self._numbered_ticks[ticks] = self._count(self._timing.seconds(ticks), alone)
        while self._window and self._window[0][2] <= self._horizon:
            packet, alone, _ = self._window.popleft()
            numbering = self._numbered_ticks.pop(packet.pts, None) if self._shows(packet) else None
            yield NumberedPacket(packet, alone, *(numbering or (-1, 0.0, False)))

    def _shows(self, packet: Any) -> bool:
        return packet.pts is not None and not packet.is_discard and self.parser.is_shown(packet)

    def _count(self, pts_s: float, alone: bool) -> tuple[int, float, bool]:
        if pts_s < self._since_s:
            return -1, pts_s, False
        number = self._next
        self._next += 1
        return number, pts_s, self._wants(number, pts_s, alone)

    def _untimed(self, packet: Any, alone: bool) -> NumberedPacket:
        """Number a packet without a presentation time; a reset comes after all earlier frames, also when shown."""
        alone = alone and self.parser.is_idr(packet)
        self._timing.sent(packet)
        return NumberedPacket(packet, alone, *self._count(self._timing(None), alone))
