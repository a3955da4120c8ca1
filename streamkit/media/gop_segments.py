# SPDX-License-Identifier: Apache-2.0
"""Decodes one file with several decoders: cuts its packets at keyframes into segments that are decoded in parallel.

Frames that follow a keyframe in the file but are shown before it (leading frames of an open GOP) need the previous GOP.
So the previous segment decodes them: the keyframe and its leading frames are appended to it, and of these only the
leading frames are returned.

    packets   I0 P4 b2 ... | I16 b14 b15 P20 ...          (numbers: presentation order)
    segment   I0 P4 b2 ...   I16*b14 b15                  (* hidden: decoded but not returned)
    next one                 I16 P20 ...
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.media.av_decoder import CONCEALED, UNDECODABLE
from streamkit.media.bitstream import CUTTABLE, PacketParser
from streamkit.media.demux import clone_packet
from streamkit.media.frames import DecodedFrame
from streamkit.media.nv_caps import capabilities, unsupported
from streamkit.media.received_packet import ReceivedPacket
from streamkit.media.source_errors import DeferredError
from streamkit.media.timing import Timing
from streamkit.media.uris import mask
from streamkit.ops.planes import nv12_shape

if TYPE_CHECKING:
    from streamkit.core.tasks import OrderedExecutor
    from streamkit.media.decode import DecodedFrame, Decoder
    from streamkit.media.demux import Demuxer
    from streamkit.media.stream_info import StreamInfo
    from streamkit.media.surfaces import SurfacePool

logger = logging.getLogger(__name__)


_SHORTEST = 32  # frames per segment: a decoder is flushed at its end and fills again at the next start
_LONGEST = 4096
_LONGEST_BYTES = 64_000_000
_NONE: Counter[str] = Counter()
_REORDERED = 16  # maximum distance in frames between presentation order and file order


class SegmentPacket(NamedTuple):
    """A packet for a decoder; the frame of a hidden one is not returned."""

    packet: Any
    hidden: bool = False


@dataclass(slots=True)
class GopSegment:
    """Packets that one decoder can decode on its own.

    Attributes:
        packets: packets from a keyframe on.
        start: ticks of the keyframe, whose frame must come first; None if any frame may.
        previous: packets of the previous segment.
        rest: all following packets, if no further cut is made.
    """

    packets: list[SegmentPacket]
    start: int | None = None
    previous: list[SegmentPacket] = field(default_factory=list)
    rest: Iterable[Any] = ()


class Segments(Protocol):
    """The segments of a video in order."""

    def __iter__(self) -> Iterator[GopSegment]: ...

    def close(self) -> None:
        """End a wait for the next segment on another thread."""

    def raise_error(self) -> None:
        """Raise the error that ended the packets, if there is one, after all segments are decoded."""


class SegmentCutter:
    """Cuts packets into segments.

    If the video cannot be cut further (frames without times, parameters that change, keyframes far apart), the rest
    becomes one segment.

    Args:
        packets: all packets of the video, in file order.
        demuxer: their demuxer.
        report: receives the reason why one decoder gets the rest, or everything.
    """

    def __init__(self, packets: Iterable[Any], demuxer: Demuxer, report: Callable[[str], None]) -> None:
        self._report = report
        self._time = Timing(demuxer).seconds
        self._codec = demuxer.info.codec
        self._parser = PacketParser(demuxer.stream, self._codec)
        self._packets = DeferredError(packets)
        self._left = iter(self._packets)
        self._window: deque[Any] = deque()  # packets read ahead, to see what follows a keyframe
        self._headers: bytes | None = None

    def __iter__(self) -> Iterator[GopSegment]:
        """Yield the segments in order; packets are read as segments are taken."""
        segment = GopSegment([])
        size = 0
        entered = False
        reason = ""
        while (packet := self._next()) is not None:
            if packet.is_keyframe and entered and len(segment.packets) >= _SHORTEST:
                leading = self._leading(packet, segment)
                if leading is not None:
                    yield self._end_segment(segment, packet, leading)
                    segment = self._start_segment(packet, leading, segment.packets)
                    size = packet.size
                    continue
            segment.packets.append(SegmentPacket(packet))
            entered = entered or packet.is_keyframe
            size = size + packet.size
            reason = self._cut_obstacle(packet) or _too_long(segment, size)
            if reason:
                segment.rest = iter(self._next, None)
                break
        if reason and segment.start is not None:
            self._report(f"by one decoder from {self._time(segment.start):.1f} s on: {reason}")
        elif reason or not segment.previous:
            self._report(f"by one decoder: {reason or f'no keyframe to cut at after its first {_SHORTEST} frames'}")
        if segment.packets:
            yield segment

    def close(self) -> None:
        """Do nothing: the packets are closed by their owner."""

    def raise_error(self) -> None:
        """See `Segments.raise_error`."""
        self._packets.raise_error()

    def _next(self) -> Any:
        """The next packet; None at the end."""
        return self._window.popleft() if self._window else next(self._left, None)

    def _cut_obstacle(self, packet: Any) -> str:
        """The reason why no cut is possible after a packet; empty if it is possible."""
        if packet.pts is None:
            return "its frames have no times"
        if packet.has_sidedata("new_extradata"):
            return "its parameters change"
        if packet.is_keyframe:
            headers = self._parser.parameter_sets(packet)
            if self._headers is None:
                self._headers = headers
            elif headers not in (b"", self._headers):
                return "its parameters change"
        return ""

    def _leading(self, keyframe: Any, segment: GopSegment) -> list[Any] | None:
        """Take the leading frames of a keyframe out of the window; None if no cut is possible here."""
        if self._cut_obstacle(keyframe) or not self._parser.is_random_access(keyframe):
            return None
        trailing = 1 + sum(p.pts is None or p.pts > keyframe.pts for p in self._window)
        while trailing <= _REORDERED and (packet := next(self._left, None)) is not None:
            self._window.append(packet)
            trailing += packet.pts is None or packet.pts > keyframe.pts
        if any(packet.pts is None for packet in self._window):
            return None
        count = sum(packet.pts < keyframe.pts for packet in self._window)
        if not count:
            return []
        leading = list(itertools.islice(self._window, count))
        newest = max(earlier.packet.pts for earlier in segment.packets)
        if (
            self._codec not in ("h264", "hevc")
            or count > _REORDERED
            or any(packet.pts >= keyframe.pts or packet.is_keyframe or self._cut_obstacle(packet) for packet in leading)
            or newest >= min(packet.pts for packet in leading)  # the times jump
        ):
            return None
        for _ in leading:
            self._window.popleft()
        return leading

    def _end_segment(self, segment: GopSegment, keyframe: Any, leading: list[Any]) -> GopSegment:
        """The segment that ends before `keyframe`, with the packets that its leading frames need."""
        if not leading:
            return segment
        tail = [SegmentPacket(clone_packet(keyframe), hidden=True)]
        tail += [SegmentPacket(clone_packet(packet), packet.is_discard) for packet in leading]
        return GopSegment([*segment.packets, *tail], segment.start, segment.previous)

    def _start_segment(self, keyframe: Any, leading: list[Any], previous: list[SegmentPacket]) -> GopSegment:
        """The segment that begins with `keyframe`."""
        packets = [SegmentPacket(keyframe)]
        if self._codec == "h264":  # other frames may depend on their frame numbers; HEVC forbids that
            packets += [SegmentPacket(packet, hidden=True) for packet in leading]
        return GopSegment(packets, None if keyframe.is_discard else keyframe.pts, previous)


class SegmentDecoder:
    """Decodes segments, one after the other, with a decoder that is opened for the first one.

    Args:
        open_: creates the demuxer and its decoder, with the given counters.
        replays: whether a decoder that finds the keyframe damaged may decode the previous segment as well: FFmpeg
            conceals damage with earlier frames. NVDEC takes the bytes of the packets away, so it cannot.
    """

    def __init__(self, open_: Callable[[Counters], tuple[Demuxer, Decoder]], *, replays: bool) -> None:
        self._open = open_
        self._replays = replays
        self._counters = Counters()
        self._demuxer: Demuxer | None = None
        self._decoder: Decoder | None = None

    def __call__(self, segment: GopSegment) -> Iterator[tuple[list[DecodedFrame], Counter[str]]]:
        """Yield frames as they are decoded, with the counts since the last ones.

        Raises:
            SourceError: the decoder cannot be opened, or fails permanently.
        """
        if self._decoder is None:
            self._demuxer, self._decoder = self._open(self._counters)
        if segment.start is None:
            yield from self._decoded(segment.packets, segment.rest)
            return
        taken: list[Any] = []
        entering = True

        def rest() -> Iterator[Any]:
            for packet in segment.rest:
                if entering:
                    taken.append(packet)
                yield packet

        results = self._decoded(segment.packets, rest(), entering=True)
        head = next(results, None)
        if self._replays and not self._starts_clean(head, segment.start):
            hidden = [packet._replace(hidden=True) for packet in segment.previous]
            yield from self._decoded([*hidden, *segment.packets, *map(SegmentPacket, taken)], segment.rest)
            return
        entering = False
        taken.clear()
        if head is not None:
            yield head
            del head
            yield from results

    def close(self) -> None:
        """Close the decoder and its file."""
        if self._decoder is not None and self._demuxer is not None:
            self._decoder.close()
            self._demuxer.close()
            self._decoder = self._demuxer = None

    def _decoded(
        self, packets: Iterable[SegmentPacket], rest: Iterable[Any], *, entering: bool = False
    ) -> Iterator[tuple[list[DecodedFrame], Counter[str]]]:
        """Decode from an empty decoder to a flushed one; damage to hidden frames is not counted."""
        assert self._decoder is not None
        assert self._demuxer is not None
        self._decoder.restart(self._demuxer)
        self._counters.values = Counter()
        for packet, hidden in itertools.chain(packets, map(SegmentPacket, rest), [SegmentPacket(None)]):
            if isinstance(packet, ReceivedPacket) and not self._decoder.takes_received:
                hidden = hidden or packet.is_discard
                packet = packet.av_packet()
            frames = self._decoder.decode(packet, hidden=hidden)
            counts = self._counters.values
            if counts:
                self._counters.values = Counter()
            else:
                counts = _NONE  # the decoder adds to its own later
            if hidden:
                counts.pop(UNDECODABLE, None)
            if (hidden or entering) and not frames:
                counts.pop(CONCEALED, None)
            if frames:
                entering = False
            if frames or counts:
                yield frames, counts

    def _starts_clean(self, head: tuple[list[DecodedFrame], Counter[str]] | None, start: int) -> bool:
        """Whether the first result of a segment is its keyframe's frame, without damage so far."""
        if head is None or not head[0]:
            return False
        assert self._demuxer is not None
        damaged = head[1][CONCEALED] or head[1][UNDECODABLE]
        return not damaged and head[0][0].pts_s == Timing(self._demuxer).seconds(start)


def _too_long(segment: GopSegment, size: int) -> str:
    if len(segment.packets) < _LONGEST and size < _LONGEST_BYTES:
        return ""
    return f"no keyframe to cut at follows after {len(segment.packets)} frames"


Decoders = int | Literal["auto"]

# decoded frames that a segment may buffer
_MAX_BUFFERED = 256
_MIN_BUFFERED = 8
_STEP = 8  # frames that a decoder hands over together: 6,338 frames/s of one HEVC file on an H200, 6,025 one by one
_MIN_FRAMES_PER_DECODER = 100  # minimum frames of a video per decoder with `auto`


class ParallelDecoder:
    """Decodes a file with several decoders.

    Args:
        uri: a path.
        count: number of decoders.
        open_: creates a decoder and its demuxer; called when it is first needed, on any thread.
        pool: surface pool of the decoders.
        counters: receives the decoders' counts when their frames are returned.
        executor: runs the decoders.
        reports: whether to log the reason if not all decoders are used.
    """

    def __init__(
        self,
        uri: str,
        count: int,
        open_: Callable[[Counters], tuple[Demuxer, Decoder]],
        pool: SurfacePool,
        counters: Counters,
        executor: OrderedExecutor,
        *,
        reports: bool = True,
    ) -> None:
        self._uri = uri
        self._pool = pool
        self._counters = counters
        self._executor = executor
        self._reports = reports
        self._decoders = [SegmentDecoder(open_, replays=pool.device.kind == "cpu") for _ in range(count)]

    def frames(self, segments: Segments, info: StreamInfo) -> Generator[DecodedFrame]:
        """Yield the frames of `segments` in presentation order, as a single decoder would.

        Raises:
            SourceError: reading or decoding failed permanently; raised after the last good frame.
        """
        buffered = self._buffered_frames(info)
        step = max(1, min(_STEP, buffered // 4))
        workers = [partial(_in_steps, decoder, step) for decoder in self._decoders]
        # beside the steps that wait, each decoder has one in hand
        results: Any = self._executor.run(iter(segments), workers, max(1, buffered // step - 1))
        with closing(results), closing(segments):
            for frames, counts in results:
                for name, n in counts.items():
                    self._counters.add(name, n)
                frames.reverse()
                while frames:
                    yield frames.pop()  # or those that were yielded would be held until the next step
            segments.raise_error()

    def report(self, why: str) -> None:
        """Log why not all decoders are used."""
        if self._reports:
            logger.warning(f"{mask(self._uri)} is decoded {why}")

    def close(self) -> None:
        """Close the decoders."""
        for decoder in self._decoders:
            decoder.close()

    def _buffered_frames(self, info: StreamInfo) -> int:
        """Number of frames of a segment that may wait: all sources together may use a quarter of the pool."""
        rows, columns = nv12_shape(max(1, info.width), max(1, info.height))
        share = self._pool.limit // 4 // self._executor.sources // (len(self._decoders) + 2)
        return max(_MIN_BUFFERED, min(_MAX_BUFFERED, share // (rows * columns)))


def _in_steps(
    decoder: SegmentDecoder, step: int, segment: GopSegment
) -> Iterator[tuple[list[DecodedFrame], Counter[str]]]:
    """Yield what a decoder yields, `step` frames at a time; those before an error come before it."""
    frames: list[DecodedFrame] = []
    counts: Counter[str] = Counter()
    try:
        for more_frames, more_counts in decoder(segment):
            frames += more_frames
            if more_counts:
                counts.update(more_counts)
            del more_frames  # or this thread would hold them while it makes the next
            if len(frames) >= step:
                yield frames, counts
                frames = []
                counts = Counter()
    except Exception:
        if frames or counts:
            yield frames, counts
        raise
    if frames or counts:
        yield frames, counts


def decoder_count(wanted: Decoders, info: StreamInfo, device: Device, executor: OrderedExecutor) -> int:
    """Number of decoders for a file.

    Args:
        wanted: a number, or `auto`: this file's share of the device's decoders, fewer if the file is short.
        info: stream information from the container.
        device: device of the surfaces.
        executor: provides the number of sources and cores.
    """
    if info.live or info.codec not in CUTTABLE:
        return 1
    if wanted != "auto":
        return wanted
    engines = executor.cores
    if device.kind == "cuda":
        reason = unsupported(device.index, info.codec, info.chroma, info.bit_depth, info.width, info.height)
        if reason is None:
            engines = capabilities(device.index, info.codec, info.bit_depth).get("num_decoder_engines", 1)
    frames = info.frames or round((info.duration_s or 0.0) * (info.average_rate or 25.0))
    return max(1, min(engines // executor.sources, frames // _MIN_FRAMES_PER_DECODER))
