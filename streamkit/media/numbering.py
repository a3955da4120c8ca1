"""The number that each packet's picture has in the video, known before anything is decoded.

Pictures are numbered in the order shown, packets come in the order decoded. A packet's decoding time is a promise that
no later packet is shown before it; so the number of a picture is certain once a packet comes that is decoded no earlier
than the picture is shown. Packets wait for that: two or three where there are B pictures, none where there are none.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkit.errors import SourceError
from streamkit.media.keyframes import Keyframes
from streamkit.media.timing import Timing

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer

_REORDERED = 32  # packets that wait where there are no decoding times: more than any reordering needs

Wants = Callable[[int, float, bool], bool]
"""Whether a picture is wanted, by its number, its time in seconds, and whether it can be decoded alone."""


class Numbered(NamedTuple):
    """A packet and what is known of its picture.

    Attributes:
        packet: an `av.Packet`.
        alone: whether it is a keyframe that can be decoded without any other picture.
        number: of its picture in the video, from 0; -1 for one that is not shown, or not counted, and for a packet
            without a time among others that have some: it goes with the one before.
        pts_s: its time.
        wanted: whether it is.
    """

    packet: Any
    alone: bool
    number: int
    pts_s: float
    wanted: bool


class Numbering:
    """Numbers the pictures of packets. Iterating gives the packets in the order they came.

    Args:
        packets: in the order decoded.
        demuxer: what they come from.
        wants: is asked once for each picture that is counted, in the order shown.
        first: the number of the first picture that is counted.
        since_s: pictures before this time are not counted.
        ahead: whether packets may wait for later ones; without it pictures are numbered in the order they come.
        flushed: whether the decoder is emptied before each keyframe, so that none can throw away what is not shown yet.
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
        self._waiting: list[tuple[int, bool]] = []  # a heap: ticks of pictures that are shown and have no number yet
        self._known: dict[int, tuple[int, float, bool]] = {}  # by ticks
        self._horizon: float = -math.inf  # ticks: no picture that is shown so early comes any more

    def __iter__(self) -> Iterator[Numbered]:
        """The packets, each as soon as its picture has a number.

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
        """The packets behind a keyframe that has just been given whose pictures are shown before it."""
        return [packet for packet, _, ticks in self._window if ticks < keyframe.pts]

    def wanted(self, packet: Any) -> bool:
        """Whether the picture of a packet that is still to come is wanted."""
        return packet.pts in self._known and self._known[packet.pts][2]

    def _advance(self, packet: Any) -> None:
        if not self._ahead:
            self._horizon = max(self._horizon, self._window[-1][2])
        elif packet.dts is not None:
            self._horizon = max(self._horizon, packet.dts)
        elif len(self._window) > _REORDERED and self._waiting:
            self._horizon = max(self._horizon, self._waiting[0][0])

    def _ready(self) -> Iterator[Numbered]:
        while self._waiting and self._waiting[0][0] <= self._horizon:
            ticks, alone = heapq.heappop(self._waiting)
            self._known[ticks] = self._count(self._timing.seconds(ticks), alone)
        while self._window and self._window[0][2] <= self._horizon:
            packet, alone, _ = self._window.popleft()
            known = self._known.pop(packet.pts, None) if self._shows(packet) else None
            yield Numbered(packet, alone, *(known or (-1, 0.0, False)))

    def _shows(self, packet: Any) -> bool:
        return packet.pts is not None and not packet.is_discard and self.keyframes.shows(packet)

    def _count(self, pts_s: float, alone: bool) -> tuple[int, float, bool]:
        if pts_s < self._since_s:
            return -1, pts_s, False
        number = self._next
        self._next += 1
        return number, pts_s, self._wants(number, pts_s, alone)

    def _untimed(self, packet: Any, alone: bool) -> Numbered:
        """A packet without a presentation time: a reset comes behind all that precede it, also on the screen."""
        alone = alone and self.keyframes.resets(packet)
        self._timing.sent(packet)
        return Numbered(packet, alone, *self._count(self._timing(None), alone))
