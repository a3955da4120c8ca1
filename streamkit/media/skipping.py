"""Decoding of wanted pictures only, and of what they need.

A picture may need any earlier one back to the last keyframe that can be decoded alone. So what is not wanted waits: it
is decoded when a wanted picture follows, and dropped when such a keyframe comes first. What nothing can need is dropped
at once. The wanted pictures are, bit for bit, those of a decoder that gets everything.

    I0  P1  b2* P3  P4  P5  I6  P7 ...     wanted: P3       (* nothing refers to b2)
    decoded:  I0 P1 P3; dropped: b2, P4, P5
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from streamkit.counters import Counters
from streamkit.errors import SourceError
from streamkit.media.frames import Picture
from streamkit.media.numbering import Numbered, Numbering

if TYPE_CHECKING:
    from streamkit.media.decode import Decoder
    from streamkit.media.demux import Demuxer

SKIPPED = "pictures not decoded"
UNWANTED = "pictures decoded for others"
_LONGEST = 4096
_LONGEST_BYTES = 64_000_000


class Skipping:
    """Decodes the wanted pictures of one reading of a video.

    Args:
        decoder: empty, or at the video's beginning.
        demuxer: what the packets come from.
        counters: takes how many pictures were not decoded, and how many only because others need them.
        sought: whether the packets begin in the middle of the video.

    Attributes:
        missing: wanted pictures that did not come out.
    """

    def __init__(self, decoder: Decoder, demuxer: Demuxer, counters: Counters, *, sought: bool = False) -> None:
        self._decoder, self._demuxer, self._counters = decoder, demuxer, counters
        self._codec = demuxer.info.codec
        self._later: list[tuple[Any, bool]] = []  # what a wanted picture may need, and whether to be silent about it
        self._later_bytes = 0
        self._gap = False  # whether something was left out that the decoder may miss: it must be emptied first
        self._opening = sought  # whether the next keyframe is the first that is seen, its past unknown
        self._decoded = False  # whether the last packet went to the decoder
        self._broken: int | None = None  # ticks of the keyframe whose leading pictures cannot be decoded
        self._due: dict[float, int] = {}  # numbers of the wanted pictures in the decoder, by their times
        self.missing = 0

    def pictures(self, numbering: Numbering) -> Generator[tuple[int, Picture]]:
        """The wanted pictures with their numbers, in the order shown.

        Raises:
            SourceError: reading failed; raised after the last good picture.
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

    def keyframes(self, numbering: Iterable[Numbered]) -> Generator[tuple[int, Picture]]:
        """The wanted pictures where these are keyframes alone: each at once, for the decoder is emptied behind it."""
        for one in numbering:
            if not one.wanted:
                self._counters.add(SKIPPED)
                continue
            pictures = [*self._decoder.decode(one.packet), *self._decoder.decode(None)]
            self._decoder.restart(self._demuxer)
            self.missing += not pictures
            for picture in pictures[:1]:
                yield one.number, picture._replace(pts_s=one.pts_s)  # a bare stream's decoder begins at 0 each time

    def _take(self, one: Numbered, numbering: Numbering) -> Generator[tuple[int, Picture]]:
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

    def _enter(self, keyframe: Numbered, numbering: Numbering) -> None:
        """A keyframe has come: drop what waits, unless pictures that need it are shown before the keyframe."""
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
        """Whether the packet is of a picture that is shown before a keyframe whose past was left out."""
        return self._broken is not None and packet.pts is not None and packet.pts < self._broken

    def _catch_up(self) -> Generator[tuple[int, Picture]]:
        """Decode what waits."""
        if self._gap:
            yield from self._numbered(self._decoder.decode(None))
            self._decoder.restart(self._demuxer)
            self._gap = False
        later, self._later, self._later_bytes = self._later, [], 0
        if later:
            self._counters.add(UNWANTED, len(later))
        for packet, silent in later:
            yield from self._numbered(self._decoder.decode(packet, hidden=silent, unwanted=True))

    def _numbered(self, pictures: Iterable[Picture]) -> Generator[tuple[int, Picture]]:
        for picture in pictures:
            number = self._due.pop(picture.pts_s, None)
            if number is not None:
                yield number, picture
