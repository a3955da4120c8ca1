"""Decodes only the wanted frames, and the frames that they need.

A frame may need any earlier one back to the last keyframe that can be decoded alone. So unwanted packets wait: they are
decoded if a wanted frame follows, and dropped if such a keyframe comes first. Frames that no other refers to are
dropped at once. The wanted frames are bit-identical to those of a decoder that gets everything.

    I0  P1  b2* P3  P4  P5  I6  P7 ...     wanted: P3       (* nothing refers to b2)
    decoded:  I0 P1 P3; dropped: b2, P4, P5
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from streamkit.core.counters import Counters
from streamkit.core.errors import SourceError
from streamkit.media.frame_numbering import FrameNumbering, NumberedPacket
from streamkit.media.frames import DecodedFrame

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
        self._decoder, self._demuxer, self._counters = decoder, demuxer, counters
        self._codec = demuxer.info.codec
        self._later: list[tuple[Any, bool]] = []  # what a wanted frame may need, and whether to be silent about it
        self._later_bytes = 0
        self._gap = False  # whether something was left out that the decoder may miss: it must be emptied first
        self._opening = sought  # whether the next keyframe is the first that is seen, its past unknown
        self._decoded = False  # whether the last packet went to the decoder
        self._broken: int | None = None  # ticks of the keyframe whose leading frames cannot be decoded
        self._due: dict[float, int] = {}  # numbers of the wanted frames in the decoder, by their times
        self.missing = 0

    def frames(self, numbering: FrameNumbering) -> Generator[tuple[int, DecodedFrame]]:
        """Yield the wanted frames with their numbers, in presentation order.

        Raises:
            SourceError: reading failed; raised after the last good frame.
        """
        trouble = None
        try:
            for one in numbering:
                yield from self._take(one, numbering)
        except SourceError as error:
            trouble = error
        self._drop_later()
        yield from self._numbered(self._decoder.decode(None))
        self.missing += len(self._due)
        if trouble is not None:
            raise trouble

    def keyframes(self, numbering: Iterable[NumberedPacket]) -> Generator[tuple[int, DecodedFrame]]:
        """Yield the wanted frames if only keyframes are wanted: each at once, as the decoder is flushed after it."""
        for one in numbering:
            if not one.wanted:
                self._counters.add(SKIPPED)
                continue
            frames = [*self._decoder.decode(one.packet), *self._decoder.decode(None)]
            self._decoder.restart(self._demuxer)
            self.missing += not frames
            for frame in frames[:1]:
                yield one.number, frame._replace(pts_s=one.pts_s)  # a bare stream's decoder begins at 0 each time

    def _take(self, one: NumberedPacket, numbering: FrameNumbering) -> Generator[tuple[int, DecodedFrame]]:
        if one.alone:
            self._enter(one, numbering)
        goes_with = one.packet.pts is None  # a second field, such as some streams have in packets of their own
        if one.wanted or (goes_with and self._decoded):
            yield from self._catch_up()
            if one.wanted:
                self._due[one.pts_s] = one.number
            self._decoded = True
            yield from self._numbered(self._decoder.decode(one.packet))
            return
        self._decoded = False
        if numbering.keyframes.disposable(one.packet) or (self._codec == "hevc" and self._leads(one.packet)):
            self._counters.add(SKIPPED)
        else:
            self._later.append((one.packet, self._leads(one.packet)))
            self._later_bytes += one.packet.size
            if len(self._later) > _LONGEST or self._later_bytes > _LONGEST_BYTES:
                yield from self._catch_up()

    def _enter(self, keyframe: NumberedPacket, numbering: FrameNumbering) -> None:
        """At a keyframe, drop waiting packets, unless frames shown before the keyframe need them."""
        leading = numbering.leading(keyframe.packet) if keyframe.packet.pts is not None else []
        if self._opening:
            self._opening, self._broken = False, keyframe.packet.pts
        elif self._later or self._gap:
            # H.264 numbers its references: one that is left out is missed
            tied = self._codec == "h264" and not all(numbering.keyframes.disposable(packet) for packet in leading)
            if tied or any(numbering.wanted(packet) for packet in leading):
                return
            self._drop_later()
            self._gap, self._broken = True, keyframe.packet.pts

    def _drop_later(self) -> None:
        if self._later:
            self._counters.add(SKIPPED, len(self._later))
        self._later, self._later_bytes = [], 0

    def _leads(self, packet: Any) -> bool:
        """Whether the packet's frame is shown before a keyframe whose predecessors were skipped."""
        return self._broken is not None and packet.pts is not None and packet.pts < self._broken

    def _catch_up(self) -> Generator[tuple[int, DecodedFrame]]:
        """Decode the waiting packets."""
        if self._gap:
            yield from self._numbered(self._decoder.decode(None))
            self._decoder.restart(self._demuxer)
            self._gap = False
        later, self._later, self._later_bytes = self._later, [], 0
        if later:
            self._counters.add(UNWANTED, len(later))
        for packet, silent in later:
            yield from self._numbered(self._decoder.decode(packet, hidden=silent, unwanted=True))

    def _numbered(self, frames: Iterable[DecodedFrame]) -> Generator[tuple[int, DecodedFrame]]:
        for frame in frames:
            number = self._due.pop(frame.pts_s, None)
            if number is not None:
                yield number, frame
