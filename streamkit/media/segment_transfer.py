# SPDX-License-Identifier: Apache-2.0
"""Segments of a file that another process reads and cuts, so that this one spends its GIL on decoding.

PyAV releases the GIL twice per packet that it reads. With seven decoders beside it, the thread that reads then waits
for the GIL more than it reads, and limits them all: one HEVC file on an H200 went from 3,716 to 5,059 frames/s when its
packets were read before the start. A message holds a segment, with the packets' bytes as the container has them:

    kind, number of packets, start, flags | a row for each packet | side data and bytes of each packet

A segment that cannot be cut further is followed by `PACKETS` messages; `END` comes last, with the error that ended the
file, if there is one.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from streamkit.core.errors import SourceError
from streamkit.media.bitstream import address_of
from streamkit.media.demux import Demuxer
from streamkit.media.gop_segments import GopSegment, SegmentCutter, SegmentPacket
from streamkit.media.received_packet import CORRUPT, DISCARD, EXTRADATA, KEYFRAME, NO_TICKS, ReceivedPacket
from streamkit.media.uris import mask

if TYPE_CHECKING:
    from streamkit.core.tasks import MessageProcess

_SEGMENT, _PACKETS, _REPORT, _END = range(4)
_HEAD = struct.Struct("<BIqB")  # kind, packets, ticks of the start, flags
_ROW = struct.Struct("<qqIIB")  # presentation and decoding ticks, bytes, bytes of side data, flags
_HAS_START = 1
_HAS_REST = 2
_HIDDEN = 8  # beside the flags of `ReceivedPacket`
_REST_PACKETS = 64
_COUNTS = ("packets_read", "discarded", "damaged", "covered_ticks")  # of a demuxer


# -------------------------------------------------------------------------------------------------- the other process


def read_segments(requests: Iterable[bytes], uri: str, number: int | None) -> Generator[bytes]:
    """Yield the messages of a file, from its start for each request.

    Args:
        requests: one for each time that the file is to be read.
        uri: its path.
        number: index of the video stream, as for `Demuxer`.
    """
    for _ in requests:
        end: dict[str, Any] = {}
        try:
            with closing(Demuxer(uri, number=number)) as demuxer:
                reasons: list[str] = []
                cut = SegmentCutter(demuxer.packets(), demuxer, reasons.append)
                for segment in cut:
                    yield from _messages(segment, reasons)
                yield from _reports(reasons)
                end = {name: getattr(demuxer, name) for name in _COUNTS}
            cut.raise_error()
        except SourceError as error:
            end["error"] = {"text": str(error), "cause": error.cause, "damaged": error.damaged}
        yield _HEAD.pack(_END, 0, 0, 0) + json.dumps(end).encode()


def _messages(segment: GopSegment, reasons: list[str]) -> Iterator[bytes]:
    yield from _reports(reasons)
    rest = map(SegmentPacket, segment.rest)
    following = list(itertools.islice(rest, _REST_PACKETS))
    flags = _HAS_START * (segment.start is not None) | _HAS_REST * bool(following)
    yield _message(_SEGMENT, segment.packets, segment.start or 0, flags)
    while following:
        yield _message(_PACKETS, following)
        following = list(itertools.islice(rest, _REST_PACKETS))


def _reports(reasons: list[str]) -> Iterator[bytes]:
    for reason in reasons:
        yield _HEAD.pack(_REPORT, 0, 0, 0) + reason.encode()
    reasons.clear()


def _message(kind: int, packets: Sequence[SegmentPacket], start: int = 0, flags: int = 0) -> bytes:
    rows: list[bytes] = []
    data: list[Any] = []
    for packet, hidden in packets:
        extradata = bytes(packet.get_sidedata(EXTRADATA)) if packet.has_sidedata(EXTRADATA) else b""
        bits = KEYFRAME * packet.is_keyframe | DISCARD * packet.is_discard | CORRUPT * packet.is_corrupt
        times = (NO_TICKS if ticks is None else ticks for ticks in (packet.pts, packet.dts))
        rows.append(_ROW.pack(*times, packet.size, len(extradata), bits | _HIDDEN * hidden))
        data += [extradata, memoryview(packet)]
    return b"".join([_HEAD.pack(kind, len(rows), start, flags), *rows, *data])


# ------------------------------------------------------------------------------------------------------- this process


class ReceivedSegments:
    """The segments of a file, which another process reads and cuts. One iteration only.

    Args:
        process: runs `read_segments` for the file.
        demuxer: an open demuxer of the file; gets the counts of what was read.
        report: see `SegmentCutter`.

    Attributes:
        ended: whether all messages have been received, so that the file can be read again.
    """

    def __init__(self, process: MessageProcess, demuxer: Demuxer, report: Callable[[str], None]) -> None:
        self._process = process
        self._demuxer = demuxer
        self._report = report
        self._base = demuxer.stream.time_base
        self._error: SourceError | None = None
        self.ended = self._closed = False

    def __iter__(self) -> Iterator[GopSegment]:
        """Yield the segments in order."""
        previous: list[SegmentPacket] = []
        self._process.send(b"")
        while (received := self._receive()) is not None:
            packets, start, flags = received
            rest = self._rest() if flags & _HAS_REST else ()
            yield GopSegment(packets, start if flags & _HAS_START else None, previous, rest)
            if flags & _HAS_REST:
                return
            previous = packets

    def close(self) -> None:
        """Stop the process if it is not at the end of the file."""
        if not self.ended:
            self._closed = True
            self._process.stop()

    def raise_error(self) -> None:
        """Raise the error that ended the file or the process, if there was one."""
        if self._error is not None:
            raise self._error

    def _rest(self) -> Iterator[ReceivedPacket]:
        while (received := self._receive()) is not None:
            yield from (packet for packet, _ in received[0])

    def _receive(self) -> tuple[list[SegmentPacket], int, int] | None:
        """Receive packets, with start and flags; None at the end of the file, or of the process."""
        while (message := self._process.receive()) is not None:
            kind, count, start, flags = _HEAD.unpack_from(message)
            if kind == _REPORT:
                self._report(bytes(message[_HEAD.size :]).decode())
            elif kind == _END:
                self._end(json.loads(bytes(message[_HEAD.size :])))
                return None
            else:
                return self._packets(message, count), start, flags
        if not self._closed:
            self._error = SourceError(
                f"{mask(self._demuxer.uri)} cannot be read further: the process that reads it {self._process.ended}"
            )
        return None

    def _packets(self, message: memoryview, count: int) -> list[SegmentPacket]:
        rows = message[_HEAD.size : _HEAD.size + count * _ROW.size]
        at = _HEAD.size + len(rows)
        address = address_of(message)
        base = self._base
        packets = []
        for pts, dts, size, side, flags in _ROW.iter_unpack(rows):
            extradata = bytes(message[at : at + side]) if side else b""
            at += side
            data = message[at : at + size]
            packet = ReceivedPacket(data, address + at, pts, dts, flags, base, extradata)
            packets.append(SegmentPacket(packet, flags & _HIDDEN == _HIDDEN))
            at += size
        return packets

    def _end(self, outcome: dict[str, Any]) -> None:
        self.ended = True
        error = outcome.pop("error", None)
        for name, count in outcome.items():
            setattr(self._demuxer, name, count)
        self._error = error and SourceError(error["text"], cause=error["cause"], damaged=error["damaged"])
