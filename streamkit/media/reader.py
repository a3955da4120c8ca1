# SPDX-License-Identifier: Apache-2.0
"""Reads one video from its first to its last frame with demuxer and decoder, and checks its integrity at the end."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import IO, Any

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.stage import PacketBuffer
from streamkit.core.tasks import MessageProcess, OrderedExecutor
from streamkit.core.tracing import Spans
from streamkit.media.av_decoder import CONCEALED, UNDECODABLE
from streamkit.media.bitstream import rewriter
from streamkit.media.decode import DecodedFrame, Decoder, open_decoder
from streamkit.media.demux import Demuxer
from streamkit.media.frame_sampling import FrameSampler
from streamkit.media.gop_segments import Decoders, ParallelDecoder, SegmentCutter, Segments, decoder_count
from streamkit.media.integrity import ArrivalMonitor, check_integrity, lost_frames
from streamkit.media.link import ConnectionOptions
from streamkit.media.live_clock import LiveClock
from streamkit.media.ring import PacketRef
from streamkit.media.segment_transfer import ReceivedSegments, read_segments
from streamkit.media.selective_decode import FrameNumbering, SelectiveDecoder
from streamkit.media.source_errors import DeferredError
from streamkit.media.surfaces import SurfacePool
from streamkit.media.uris import mask

logger = logging.getLogger(__name__)

LOST = "frames lost in decoding"
OUT_OF_ORDER = "timestamps out of order corrected"
_SLACK_S = 1e-6
_NEW_CLOCK_S = 1.0
"""A recording whose time falls back by more was joined from several; after a smaller step the times are wrong."""
_MIN_SUBPROCESS_FRAMES = 6000
"""A shorter video takes longer with another process, which starts in 0.3 s and saves 50 us per frame."""


class VideoReader:
    """Reads one video, maybe several times, with one decoder or several.

    Args:
        uri: a path or an address.
        device: device of the surfaces.
        pool: surface pool of that device.
        counters: counts damaged and lost frames.
        threads: number of threads for decoding on the CPU.
        low_delay: return frames as soon as they are complete; for live and paced sources.
        link: connection options of an address.
        spans: the thread's track in the timeline of the run; shows waits for packets of live sources.
        on_packet: called with each `av.Packet` before it is decoded; may change its bytes in place.
        decoders: number of decoders that decode a file in parallel, or `auto`; the frames are the same.
        executor: runs these decoders.
        in_subprocess: whether another process of the executor reads a file for several decoders; by default, as
            `reads_in_subprocess` says.
        ring: keeps the packets as received.
        stream: index of the video stream, from 0; None for the best.
        file: an open file to read instead of `uri`, which then is only its name; with one decoder only.
        clock: corrects the times of a live source; by default, a new one for each connection.

    Attributes:
        info: stream information from the container.
        step_s: duration of a frame in seconds.
        first_frame: number and time of the first frame of the part that is read, wanted or not; None if all frames are
            returned.
        last_frame: the same for the last frame so far.

    Raises:
        SourceError: the video cannot be opened.
    """

    def __init__(
        self,
        uri: str,
        device: Device,
        pool: SurfacePool,
        counters: Counters,
        *,
        threads: int = 1,
        low_delay: bool = False,
        link: ConnectionOptions | None = None,
        spans: Spans | None = None,
        on_packet: Callable[[Any], None] | None = None,
        decoders: Decoders = 1,
        executor: OrderedExecutor | None = None,
        in_subprocess: bool | None = None,
        ring: PacketBuffer | None = None,
        stream: int | None = None,
        file: IO[bytes] | None = None,
        clock: LiveClock | None = None,
    ) -> None:
        self._file = file
        self._clock = clock
        self._uri = uri
        self._link = link or ConnectionOptions()
        self._counters = counters
        self._on_packet = on_packet
        self._spans = spans or Spans()
        self._number = stream
        self._demuxer = self._open_demuxer()
        self.info = self._demuxer.info
        self._ring = self._usable_ring(ring)
        self._begin_ring()
        self.step_s = 1.0 / (self.info.average_rate or 25.0)
        self._used = False
        self._shown = 0
        self._last_s: float | None = None
        self._previous_s: float | None = None  # time of the last frame by the container
        self._shown_s: float | None = None  # its time as returned
        self._spacing_s = self.step_s
        self._stopped = False  # whether reading stopped at the requested end
        self.first_frame: tuple[int, float] | None = None
        self.last_frame: tuple[int, float] | None = None
        self._arrivals = ArrivalMonitor(uri, self._link.timeout_s)  # live only
        self._counts: dict[float, tuple[int, float]] = {}
        self._decoder: Decoder | None = None
        self._split: ParallelDecoder | None = None
        self._process: MessageProcess | None = None
        may_use_subprocess = on_packet is None and ring is None and file is None
        if may_use_subprocess and in_subprocess is None:
            in_subprocess = reads_in_subprocess(self._demuxer, device)
        self._in_subprocess = may_use_subprocess and bool(in_subprocess)
        self._executor = executor or OrderedExecutor()
        count = decoder_count(decoders, self.info, device, self._executor)
        if count == 1:
            if decoders not in (1, "auto"):
                logger.warning(
                    f"{mask(uri)} is decoded by one decoder: {self.info.codec} video cannot be cut at keyframes"
                )
            self._decoder = open_decoder(
                self._demuxer, device, pool, counters, threads=threads, low_delay=low_delay or self.info.live
            )
            return

        def another(counts: Counters) -> tuple[Demuxer, Decoder]:
            demuxer = self._open_demuxer()
            return demuxer, open_decoder(demuxer, device, pool, counts)

        self._split = ParallelDecoder(uri, count, another, pool, counters, self._executor, reports=decoders != "auto")

    def frames(
        self,
        start_s: float = 0.0,
        end_s: float | None = None,
        *,
        sampler: FrameSampler | None = None,
        keyframes: bool = False,
    ) -> Iterator[tuple[int, DecodedFrame]]:
        """Yield the frames with their numbers in the video, from 0, in presentation order.

        Args:
            start_s: seconds after the video's first frame; earlier frames are skipped, but count.
            end_s: likewise; this frame and later ones are skipped.
            sampler: selects the wanted frames. Others are not decoded if possible, and may still be returned if not.
            keyframes: return only keyframes that can be decoded alone; other packets never reach a decoder.

        Raises:
            SourceError: reading failed, or the video ends early or is damaged; raised after the last good frame.
        """
        if self._used:
            self._reopen()
        self._used = True
        damage = self._damage()
        begin = self.info.start_s + start_s - _SLACK_S
        until = None if end_s is None else self.info.start_s + end_s - _SLACK_S
        self._shown = 0
        self._last_s = None
        self._until = until
        self._stopped = False
        self.first_frame = None
        self.last_frame = None
        self._missing = 0
        picks = self._split is None and (keyframes or not self.info.live)
        if picks and (keyframes or sampler is not None or start_s > 0):
            pairs = self._selected_frames(begin if start_s > 0 else None, sampler, keyframes)
        else:
            pairs = self._frames_from(begin) if start_s > 0 else enumerate(self._decoded(whole=until is None))
        self._previous_s = self._shown_s = None
        for number, frame in pairs:
            if until is not None and frame.pts_s >= until:
                return
            yield number, self._in_order(frame)
        if self._stopped:
            return
        whole = not start_s
        missing = self._missing if self.first_frame else lost_frames(self._demuxer, self._shown) if whole else 0
        if missing:
            self._counters.add(LOST, missing)
        check_integrity(
            self._demuxer,
            self._last_s,
            self._shown,
            max(missing, self._damage() - damage),
            whole=whole,
            step_s=self.step_s,
        )

    def packet_ref(self, pts_s: float) -> PacketRef | None:
        """Reference to the packet of a frame in the ring; None if packets are not kept."""
        return None if self._ring is None else self._ring.packet_ref(self._container_s(pts_s))

    def sender_time_s(self, pts_s: float) -> float | None:
        """A presentation time on the sender's own clock, in seconds since 1970; None if it has not reported one."""
        offset_s = self._demuxer.sender_offset_s
        return None if offset_s is None else pts_s + offset_s

    def arrival_s(self, pts_s: float) -> float:
        """Arrival of a live frame's packet on the monotonic clock, in seconds; of the newest packet if none matches."""
        return self._arrivals.arrival_s(round(self._container_s(pts_s) / self._demuxer.stream.time_base))

    def _container_s(self, pts_s: float) -> float:
        """The time that the container gives the frame with this time."""
        return self._previous_s if pts_s == self._shown_s and self._previous_s is not None else pts_s

    def close(self) -> None:
        """Close the decoders and the file."""
        for resource in (self._decoder, self._split, self._process):
            if resource is not None:
                resource.close()
        self._demuxer.close()

    def _in_order(self, frame: DecodedFrame) -> DecodedFrame:
        """The frame, with a later time if its own one is not after that of the frame before it."""
        before_s = self._previous_s
        shown_s = self._shown_s
        self._previous_s = self._shown_s = frame.pts_s
        if before_s is None or shown_s is None:
            self._spacing_s = self.step_s
            return frame
        if frame.pts_s > before_s:
            self._spacing_s = min(self.step_s, frame.pts_s - before_s)
        back_s = shown_s - frame.pts_s
        if back_s < 0 or (back_s > _NEW_CLOCK_S and not self.info.live):
            return frame
        self._counters.add(OUT_OF_ORDER)
        self._shown_s = shown_s + self._spacing_s
        return frame._replace(pts_s=self._shown_s)

    def _decoded(self, *, whole: bool = False) -> Generator[DecodedFrame]:
        """Yield the remaining frames, `whole` if these are all; frames decoded before an error come before it."""
        if self._split is None:
            return self._counted(self._decode_in_order(self._packets()))
        segments: Segments
        if whole and (process := self._reading_process()) is not None:
            segments = ReceivedSegments(process, self._demuxer, self._split.report)
        else:
            segments = SegmentCutter(self._packets(), self._demuxer, self._split.report)
        return self._counted(self._split.frames(segments, self.info))

    def _reading_process(self) -> MessageProcess | None:
        """The process that reads the file, ready to read it from its start; None if this one does."""
        if not self._in_subprocess:
            return None
        if self._process is not None and not self._process.running:
            self._process.close()
            self._process = None
        if self._process is None:
            self._process = self._executor.start_process(read_segments, self._uri, self._number)
        return self._process

    def _counted(self, frames: Generator[DecodedFrame]) -> Generator[DecodedFrame]:
        """Yield decoded frames and record their count and time."""
        with closing(frames):
            for frame in frames:
                self._shown += 1
                self._last_s = frame.pts_s
                yield frame
                if self.info.live:
                    self._arrivals.frame_decoded()

    def _packets(self) -> Generator[Any]:
        packets: Iterable[Any] = self._demuxer.packets()
        if self.info.live:
            packets = self._spans.each("wait for packets", packets, waiting=True)
            self._arrivals.frame_decoded()
        base = self._demuxer.stream.time_base
        until = math.inf
        if self._until is not None and base and not self._demuxer.decode_times:
            until = self._until / base
        for packet in packets:
            if packet.dts is not None and packet.dts >= until:  # and so are all later times
                self._stopped = True
                return
            if self.info.live:
                self._arrivals.packet(packet.pts, packet.is_keyframe)
            if self._ring is not None:
                self._ring.put(packet)
            if self._on_packet is not None:
                self._on_packet(packet)
            yield packet

    def _decode_in_order(self, packets: Iterable[Any]) -> Generator[DecodedFrame]:
        """Decode these packets with one decoder."""
        assert self._decoder is not None
        packets = DeferredError(packets)
        for packet in packets:
            yield from self._decoder.decode(packet)
        yield from self._decoder.decode(None)
        packets.raise_error()

    def _selected_frames(
        self, begin: float | None, sampler: FrameSampler | None, keyframes: bool
    ) -> Iterator[tuple[int, DecodedFrame]]:
        """Yield the wanted frames from a time on, with their numbers; also others if packets have no times."""
        assert self._decoder is not None
        first_number, sought = self._seek_before(begin) if begin is not None and not self.info.live else (0, None)
        packets = self._packets() if sought is None else itertools.chain([sought], self._packets())
        head = next(packets, None)
        if head is None:
            return
        packets = itertools.chain([head], packets)
        if head.pts is None and not keyframes:
            for number, frame in enumerate(self._counted(self._decode_in_order(packets))):
                if begin is None or frame.pts_s >= begin:
                    yield number, frame
            return
        del head

        def wants(number: int, pts_s: float, alone: bool) -> bool:
            before = begin is not None and pts_s < begin and not (self.info.live and self.first_frame)
            if before or (self._until is not None and pts_s >= self._until):
                return False
            self.first_frame = self.first_frame or (number, pts_s)
            self.last_frame = (number, pts_s)
            self._shown += 1
            self._last_s = pts_s
            return (alone or not keyframes) and (sampler is None or sampler.accepts(number, pts_s))

        numbering = FrameNumbering(
            packets,
            self._demuxer,
            wants,
            first=first_number,
            ahead=not self.info.live,
            flushed=keyframes,
            since_s=-math.inf if sought is None or begin is None else begin,
        )
        selective = SelectiveDecoder(self._decoder, self._demuxer, self._counters, sought=sought is not None)
        for number, frame in selective.keyframes(numbering) if keyframes else selective.frames(numbering):
            yield number, frame
            if self.info.live:
                self._arrivals.frame_decoded()
        self._missing = selective.missing

    def _seek_before(self, begin: float) -> tuple[int, Any]:
        """Seek to a keyframe at or before a time.

        Returns:
            Number of frames before that time, and the first packet from there; 0 and None if the video must be read
            from its start, where it then is.
        """
        keyframe = self._count_before(begin)
        if keyframe is not None and self._demuxer.seek(begin):
            assert self._decoder is not None
            self._decoder.restart(self._demuxer)
            packet = next(self._packets(), None)
            base = self._demuxer.stream.time_base
            if packet is not None and packet.pts is not None and packet.pts * base <= keyframe[1] + _SLACK_S:
                return keyframe[0], packet
        self._reopen()
        return 0, None

    def _frames_from(self, begin: float) -> Iterator[tuple[int, DecodedFrame]]:
        """Yield the frames from a time on, with their numbers: by a seek, or by reading from the start if that fails.

        A live source is read once, without seeking: its clock may fall back after the first frame without ending it.
        """
        if self.info.live:
            yield from itertools.dropwhile(lambda pair: pair[1].pts_s < begin, enumerate(self._decoded()))
            return
        keyframe = self._count_before(begin)
        if keyframe is not None and self._demuxer.seek(begin):
            with closing(self._decoded()) as decoded:
                first = next(decoded, None)
                if first is not None and first.pts_s <= keyframe[1] + _SLACK_S:
                    rest = itertools.chain([first], decoded)
                    del first
                    yield from enumerate((p for p in rest if p.pts_s >= begin), keyframe[0])
                    return
        self._reopen()
        yield from (pair for pair in enumerate(self._decoded()) if pair[1].pts_s >= begin)

    def _count_before(self, begin: float) -> tuple[int, float] | None:
        """Number of frames before a time, and the time of the first later one; None if packets have no times.

        Packets are read but not decoded: tens of thousands per second.
        """
        if begin not in self._counts:
            count = 0
            first = math.inf
            base = self._demuxer.stream.time_base
            tick = base.numerator / base.denominator
            for packet in self._demuxer.packets():
                if packet.pts is None or packet.dts is None:
                    return None
                if packet.dts * tick > max(first, begin):
                    break
                if packet.is_discard:
                    continue
                pts_s = packet.pts * tick
                if pts_s < begin:
                    count += 1
                else:
                    first = min(first, pts_s)
            self._counts[begin] = count, first
        return self._counts[begin]

    def _reopen(self) -> None:
        self._demuxer.close()
        self._demuxer = self._open_demuxer()
        self._begin_ring()
        if self._decoder is not None:
            self._decoder.restart(self._demuxer)

    def _open_demuxer(self) -> Demuxer:
        if self._file is not None:
            self._file.seek(0)
        return Demuxer(self._uri, self._link, file=self._file, number=self._number, clock=self._clock)

    def _usable_ring(self, ring: PacketBuffer | None) -> PacketBuffer | None:
        """Return the ring; None, with a warning, if the packets have no presentation times."""
        if ring is None or not self._demuxer.decode_times:
            return ring
        logger.warning(
            f"{mask(self._uri)}: clips cannot be recorded from it, nor its video shown live: its container has no "
            "presentation times"
        )
        return None

    def _begin_ring(self) -> None:
        if self._ring is not None:
            self._ring.begin(self._demuxer.stream, live=self.info.live)

    def _damage(self) -> int:
        return sum(self._counters[name] for name in (CONCEALED, UNDECODABLE))


def reads_in_subprocess(demuxer: Demuxer, device: Device) -> bool:
    """Whether several decoders of a video are so fast that another process should read it."""
    info = demuxer.info
    frames = info.frames or round((info.duration_s or 0.0) * (info.average_rate or 0.0))
    simple = rewriter(info.codec, demuxer.stream.codec_context.extradata) is not None
    can_reopen = not demuxer.uri.startswith(("/dev/fd", "/dev/std", "/proc/"))  # another process has other descriptors
    return device.kind == "cuda" and simple and can_reopen and frames >= _MIN_SUBPROCESS_FRAMES
