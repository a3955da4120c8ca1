"""Assigns each packet the number of its frame in the video, before anything is decoded.

Frames are numbered in presentation order; packets arrive in decode order. A packet's decoding time guarantees that no
later packet is shown before it. So the number of a frame is known once a packet arrives that is decoded no earlier than
the frame is shown. Packets wait for that: two or three with B frames, none without.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkit.core.errors import SourceError
from streamkit.media.keyframes import Keyframes
from streamkit.media.timing import Timing

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer

_REORDERED = 32  # packets that wait where there are no decoding times: more than any reordering needs

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
    """Numbers the frames of packets. Iteration yields the packets in their original order.

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
        self, packets: Iterable[Any], demuxer: Demuxer, wants: Wants, *, first: int = 0, since_s: float = -math.inf,
        ahead: bool = True, flushed: bool = False,
    ) -> None:  # fmt: skip
        self._packets, self._wants, self._ahead, self._flushed = packets, wants, ahead, flushed
        self._next, self._since_s = first, since_s
        self._codec = demuxer.info.codec
        self._timing = Timing(demuxer)
        self.keyframes = Keyframes(demuxer.stream, self._codec)
        # read and not given: packets, whether they are keyframes, and their ticks
        self._window: deque[tuple[Any, bool, int]] = deque()
        self._ticks: int | None = None  # of the last packet that had some
        self._waiting: list[tuple[int, bool]] = []  # a heap: ticks of frames that are shown and have no number yet
        self._known: dict[int, tuple[int, float, bool]] = {}  # by ticks
        self._horizon: float = -math.inf  # ticks: no frame that is shown so early comes any more

    def __iter__(self) -> Iterator[NumberedPacket]:
        """Yield the packets, each as soon as its frame has a number.

        Raises:
            SourceError: reading failed; raised after the last packet.
        """
        trouble = None
        try:
            for packet in self._packets:
                alone = packet.is_keyframe and self.keyframes.enters(packet, flushed=self._flushed)
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
        except SourceError as error:
            trouble = error
        self._horizon = math.inf
        yield from self._ready()
        if trouble is not None:
            raise trouble

    def leading(self, keyframe: Any) -> list[Any]:
        """Packets after a keyframe just yielded whose frames are shown before it."""
        return [packet for packet, _, ticks in self._window if ticks < keyframe.pts]

    def wanted(self, packet: Any) -> bool:
        """Whether the frame of a packet not yet yielded is wanted."""
        return packet.pts in self._known and self._known[packet.pts][2]

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
            self._known[ticks] = self._count(self._timing.seconds(ticks), alone)
        while self._window and self._window[0][2] <= self._horizon:
            packet, alone, _ = self._window.popleft()
            known = self._known.pop(packet.pts, None) if self._shows(packet) else None
            yield NumberedPacket(packet, alone, *(known or (-1, 0.0, False)))

    def _shows(self, packet: Any) -> bool:
        return packet.pts is not None and not packet.is_discard and self.keyframes.shows(packet)

    def _count(self, pts_s: float, alone: bool) -> tuple[int, float, bool]:
        if pts_s < self._since_s:
            return -1, pts_s, False
        number = self._next
        self._next += 1
        return number, pts_s, self._wants(number, pts_s, alone)

    def _untimed(self, packet: Any, alone: bool) -> NumberedPacket:
        """Number a packet without a presentation time; a reset comes after all earlier frames, also when shown."""
        alone = alone and self.keyframes.resets(packet)
        self._timing.sent(packet)
        return NumberedPacket(packet, alone, *self._count(self._timing(None), alone))
