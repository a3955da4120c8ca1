# SPDX-License-Identifier: Apache-2.0
"""Demuxing: packets of the video stream of a file or an address."""

from __future__ import annotations

import errno
import io
import itertools
import logging
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from typing import IO, Any

from streamkit.core.errors import SourceError
from streamkit.io.image_file import MAX_MEGAPIXELS, PIXEL_LIMIT, TOO_LARGE, check_image
from streamkit.media.bitstream import MPEG4_PICTURE
from streamkit.media.continuity import CONTAINERS, ContinuityFilter
from streamkit.media.encryption import encryption_error, is_encrypted, is_encrypted_track
from streamkit.media.http_content import content_problem, fetch_image
from streamkit.media.link import ConnectionOptions
from streamkit.media.live_clock import LiveClock, fill_times
from streamkit.media.source_errors import DeferredError, cannot_open, cannot_read, not_a_video
from streamkit.media.stream_info import FILE_OPTIONS, StreamInfo, choose_stream, stream_duration_s
from streamkit.media.uris import is_http, is_live, is_path, local_path, mask, scheme

logger = logging.getLogger(__name__)

_POLL_S = 0.2  # FFmpeg checks ten times a second whether to end a wait
# without an index a seek ends anywhere, so these are read from the start
_UNSEEKABLE = ("mpegts", "mpeg", "h264", "hevc", "m4v", "mpegvideo", "av1", "obu", "ivf", "rawvideo")
_DECODE_TIMES = frozenset({"avi", "asf"})
"""Containers without presentation times. FFmpeg derives them, but for codecs in `_REORDERED` it invents them."""
_REORDERED = frozenset({"h264", "hevc"})
_UNTIMED = frozenset({"mpjpeg", "mjpeg", "h264", "hevc", "vvc", "m4v", "mpegvideo", "h263", "obu"})
"""Containers without any times. FFmpeg numbers their frames at a default rate."""
_DAY_S = 86_400.0
_POLLED_S = 1.0
_KIND_BYTES = 3
_UNCODED_BYTES = 8
"""Maximum size of a packet whose picture repeats the one before it."""
_PROBED_PACKETS = 32  # packets that are read to find the first frame's time: more than any reordering needs
_MAX_UNTIMED = 1024
_MAX_EARLY = 8
"""Packets of a live source that wait for the first one with a decoding time; FFmpeg reads as many to open it."""
_MATROSKA = "matroska,webm"


class Demuxer:
    """Reads the packets of one video stream of a container; cover images do not count as video.

    Args:
        uri: a path, an address that FFmpeg supports (rtsp, rtsps, http, https and HLS, rtmp, ...), or a V4L2 device.
        link: connection options of an address.
        file: an open file to read instead of `uri`, which then is only its name; it must be seekable.
        number: index of the video stream, from 0, without cover images; None for the best one in `ffmpeg`'s ranking:
            the largest, or among streams under 5 megapixels one that is marked as the default.
        clock: corrects the times of a live source; by default, a new one.

    Attributes:
        container: FFmpeg's container.
        stream: the video stream.
        info: its properties.
        packets_read: number of packets read.
        decode_times: whether packets have decoding times only (`pts` is None). The n-th frame shown then has the n-th
            of these times; see `Timing`.
        discarded: number of packets whose frames are not shown.
        covered_ticks: decoding time of a recording's last packet if its clock had not restarted; None if packets have
            none.
        damaged: number of places with missing or broken data, as far as the container shows; the frames concerned
            carry FFmpeg's corrupt flag (see `continuity`).
        sender_offset_s: offset from presentation time to the sender's own clock in seconds since 1970; None until the
            sender has reported it (RTSP, by RTCP), and while its clock is implausible.

    Raises:
        SourceError: the source cannot be opened; the text gives the reason, `cause` in one word.
    """

    def __init__(
        self,
        uri: str,
        link: ConnectionOptions | None = None,
        *,
        file: IO[bytes] | None = None,
        number: int | None = None,
        clock: LiveClock | None = None,
    ) -> None:
        self.uri = uri
        self._link = link or ConnectionOptions()
        self._file = file
        self._fetched_s = 0.0  # start of the last request for a still image, on the monotonic clock
        self._image = b""  # the first still image
        self.container: Any = self._open()
        self._polls = not self.is_file and is_http(uri) and _is_image(self.container)
        if self._polls:
            self.container = self._image_container()
        elif self._link.poll_s is not None:
            logger.warning(f"{mask(uri)} sends a stream, not a still image: poll has no effect")
        try:
            self.stream: Any = choose_stream(self.container, number, mask(uri), is_file=self.is_file)
            if is_encrypted_track(self.stream):
                raise encryption_error(uri)
            self._limit_pixels()
        except SourceError:
            self.container.close()
            raise
        self.info = self._read_info()
        self.sender_offset_s: float | None = None
        self.packets_read = self.discarded = self.damaged = 0
        self.covered_ticks: int | None = None
        self._last_dts: int | None = None
        self._no_pts = self.container.format.name in _DECODE_TIMES and self.info.codec in _REORDERED
        self.decode_times = self._no_pts and bool(self.stream.codec_context.has_b_frames)
        self._probed: list[Any] = []
        self._packed = False
        self._owed_pictures = 0  # of packed video: pictures without a packet of their own so far
        self._untimed = self._polls or (self.info.live and self.container.format.name in _UNTIMED)
        if self._untimed:
            self.stream.time_base = Fraction(1, 90_000)  # instead of one by the default rate
            self.decode_times = bool(self.stream.codec_context.has_b_frames)
        self._tick_s = float(self.stream.time_base or 1)
        self._clock = clock or LiveClock(name=mask(uri), real_time=is_live(uri))
        self._clock.begin(self._tick_s, self.step, reorders=bool(self.stream.codec_context.has_b_frames))
        self._arrived_s = 0.0  # of a live source's last packet, on the monotonic clock
        self._waited_s = 0.0  # how long the reader waited for it
        if not self.info.live:
            self._probe_packed()
            self._probe_start()

    def _open(self) -> Any:
        """Open the file or address.

        Raises:
            SourceError: that is not possible.
        """
        import av

        where, form, options = (self.uri, None, {}) if self._file else self._link.open_arguments(self.uri)
        if self.is_file:
            options |= FILE_OPTIONS
            if not self._file:
                check_image(where)
        options |= PIXEL_LIMIT
        opening_s = self._link.opening_s(self.uri)
        # PyAV 19 accepts tags that are not UTF-8, and has no such argument
        lenient: dict[str, Any] = {} if int(av.__version__.split(".")[0]) >= 19 else {"metadata_errors": "ignore"}
        opened_s = time.monotonic()
        self._set_deadline(opened_s, opening_s)
        try:
            return av.open(
                self._file or where,
                format=form,
                options=options,
                timeout=None if self.is_file else (opening_s, self._link.timeout_s),
                **lenient,
            )
        except (OSError, ValueError, av.FFmpegError) as error:
            if self._file:
                raise not_a_video(self.uri, error, self._file) from error
            problem = self._content_problem(error)
            if problem is not None:
                raise SourceError(f"{mask(self.uri)}: {problem}", cause="codec") from error
            # FFmpeg reports a silent RTSP server as invalid data
            allowed_s = self._link.timeout_s if scheme(self.uri) in ("rtsp", "rtsps") else opening_s
            raise cannot_open(self.uri, error, late=self._timed_out(opened_s, allowed_s)) from error

    def _content_problem(self, error: Exception) -> str | None:
        """Why FFmpeg does not recognize what an HTTP address sends; None if unknown, or for any other error."""
        from av.error import InvalidDataError

        # an answer without a length ends with EIO, as does a request to an unknown host
        unrecognized = isinstance(error, InvalidDataError) or getattr(error, "errno", None) == errno.EIO
        if not unrecognized or not is_http(self.uri):
            return None
        self._set_deadline(time.monotonic(), self._link.timeout_s)
        return content_problem(*self._request())

    def _request(self) -> tuple[str, dict[str, str], float]:
        """The arguments of `fetch_image`."""
        where, _, options = self._link.open_arguments(self.uri)
        return where, options, self._link.timeout_s

    def _image_container(self) -> Any:
        """The still image of the address as a container in memory; its connection is closed."""
        import av

        self.container.close()
        try:
            self._image = self._fetch()
            return av.open(io.BytesIO(self._image), options=dict(PIXEL_LIMIT))
        except (OSError, ValueError, av.FFmpegError) as error:
            raise cannot_open(self.uri, error) from error

    def packets(self) -> Iterator[Any]:
        """Yield packets in decode order, each an `av.Packet` with data.

        Raises:
            SourceError: reading failed; packets yielded before are valid.
        """
        for packet in self._with_continuity() if self.container.format.name in CONTAINERS else self._read():
            self.damaged += packet.is_corrupt
            yield packet

    def _with_continuity(self) -> Iterator[Any]:
        """Yield the packets of a transport stream with corrected corrupt flags."""
        read = self.read_bytes if self.is_file else None
        gaps = ContinuityFilter(read, self.info, self.stream.id, float(self.stream.time_base))
        packets = DeferredError(self._read())
        for packet in packets:
            yield from gaps.filter(packet)
        yield from gaps.flush()
        self.damaged += gaps.lost
        packets.raise_error()

    def _read(self) -> Iterator[Any]:
        """Yield the packets with the times that the container gives them, or those of a plausible clock."""
        return self._read_live() if self.info.live else self._read_container()

    def _read_live(self) -> Iterator[Any]:
        """Yield the packets of a live source; the first ones, which have no times, wait for the first that has."""
        packets = DeferredError(self._read_images() if self._polls else self._read_container())
        waiting: list[tuple[Any, float, float]] = []
        waits = not self._untimed
        for packet in packets:
            waiting.append((packet, self._arrived_s, self._waited_s))
            if waits and packet.dts is None and len(waiting) < _MAX_EARLY:
                continue
            if waits:
                self._fill_times([packet for packet, *_ in waiting])
                waits = False
            yield from itertools.starmap(self._with_times, waiting)
            waiting.clear()
        yield from itertools.starmap(self._with_times, waiting)
        packets.raise_error()

    def _fill_times(self, packets: list[Any]) -> None:
        if all(packet.pts is None and packet.dts is None for packet in packets):
            self._untimed = True
        else:
            fill_times(packets, self.step)

    def _read_images(self) -> Iterator[Any]:
        """Yield the still image of the address at each interval; the first one now."""
        import av

        interval_s = self._link.poll_s or _POLLED_S
        image = self._image
        while True:
            if image[:_KIND_BYTES] != self._image[:_KIND_BYTES]:
                raise SourceError(f"{mask(self.uri)} answers no longer with an image of the same kind", cause="codec")
            self._arrived_s = time.monotonic()
            self._waited_s = self._arrived_s - self._fetched_s
            packet = av.Packet(image)
            packet.time_base = self.stream.time_base
            packet.is_keyframe = True
            self.packets_read += 1
            yield packet
            if not self._link.interrupt.sleep(self._fetched_s + interval_s):
                return
            try:
                image = self._fetch()
            except (OSError, ValueError, av.FFmpegError) as error:
                late = self._timed_out(self._fetched_s, self._link.timeout_s)
                raise cannot_read(self.uri, error, late=late) from error

    def _fetch(self) -> bytes:
        """Fetch the still image of the address."""
        self._fetched_s = time.monotonic()
        self._set_deadline(self._fetched_s, self._link.timeout_s)
        return fetch_image(*self._request())

    def _read_container(self) -> Iterator[Any]:
        """Yield the packets as FFmpeg returns them."""
        import av

        probed = self._probed
        self._probed = []
        packets = itertools.chain(probed, self.container.demux(self.stream))
        live = self.info.live
        timeout_s = self._link.timeout_s
        while True:
            if live:
                requested_s = time.monotonic()
                self._set_deadline(requested_s, timeout_s)
            try:
                packet = next(packets)
            except StopIteration:
                return
            except (OSError, ValueError, av.FFmpegError) as error:
                problem = self._content_problem(error) if live and not self.packets_read else None
                if problem is not None:
                    raise SourceError(f"{mask(self.uri)}: {problem}", cause="codec") from error
                raise cannot_read(self.uri, error, late=live and self._timed_out(requested_s, timeout_s)) from error
            late = live and self._timed_out(requested_s, timeout_s)
            if packet.size:
                if packet.is_keyframe and is_encrypted(packet):
                    raise encryption_error(self.uri)
                self.packets_read += 1
                self.discarded += packet.is_discard
                if not live and packet.dts is not None:
                    self._cover(packet.dts)
                if self._packed and self._has_no_picture(packet):
                    continue
                if self._no_pts:
                    packet.pts = None if self.decode_times else packet.dts
                if live:
                    self._arrived_s = time.monotonic()
                    self._waited_s = self._arrived_s - requested_s
                yield packet
            if late:  # FFmpeg treats an interrupted wait as the end of the stream, and returns its buffered packets
                raise cannot_read(self.uri, TimeoutError(), late=True)

    def _cover(self, dts: int) -> None:
        """Extend the time that packets cover, over a clock that restarts."""
        if self.covered_ticks is None or self._last_dts is None:
            self.covered_ticks = dts
        else:
            self.covered_ticks += dts - self._last_dts if dts >= self._last_dts else self.step
        self._last_dts = dts

    def _set_deadline(self, now_s: float, allowed_s: float) -> None:
        """Limit the next wait; packets of other streams do not extend it."""
        if not is_path(self.uri):
            self._link.interrupt.deadline_s = now_s + allowed_s

    def _timed_out(self, since_s: float, allowed_s: float) -> bool:
        return time.monotonic() - since_s >= allowed_s - _POLL_S

    def _with_times(self, packet: Any, arrived_s: float, waited_s: float) -> Any:
        """Set the times of a live source's packet, and read the sender's clock from a packet that has it."""
        if self._untimed:
            packet.dts = self._clock.by_arrival(arrived_s)
            packet.pts = None if self.decode_times else packet.dts
            return packet
        packet.pts, packet.dts = self._clock.times(
            packet.pts, packet.dts, keyframe=packet.is_keyframe, arrived_s=arrived_s, waited_s=waited_s
        )
        if packet.pts is not None and packet.has_sidedata("prft"):
            sent_s = struct.unpack_from("=q", bytes(packet.get_sidedata("prft")))[0] / 1e6
            plausible = self._clock.trusted and abs(sent_s - time.time()) < _DAY_S
            self.sender_offset_s = sent_s - packet.pts * self._tick_s if plausible else None
        return packet

    def seek(self, pts_s: float) -> bool:
        """Seek to a keyframe at or before a presentation time; return False if that is not possible."""
        if self.container.format.name in _UNSEEKABLE:
            return False
        import av

        self._probed.clear()
        self._last_dts = None
        base = self.stream.time_base
        try:
            self.container.seek(int(pts_s * base.denominator / base.numerator), stream=self.stream, backward=True)
        except (OSError, ValueError, av.FFmpegError):
            return False
        return True

    @contextmanager
    def single_frame_decoder(self) -> Iterator[Any]:
        """Yield an FFmpeg decoder of the stream for single packets; its memory is released afterwards.

        The stream's own decoder would hold two frames for as long as the stream is open: 7 MiB at 1080p.
        """
        import av

        if is_path(self.uri) and not self._file:  # opened again: only the container has the rotation
            with av.open(self._link.open_arguments(self.uri)[0], options=PIXEL_LIMIT) as container:
                context: Any = container.streams[self.stream.index].codec_context
                context.thread_count = 1
                yield context
        elif self.info.live:
            context = av.CodecContext.create(self.stream.codec_context.codec, "r")
            context.extradata = self.stream.codec_context.extradata
            context.options = dict(PIXEL_LIMIT)
            context.thread_count = 1
            yield context
        else:
            yield self.stream.codec_context
            self.stream.codec_context.flush_buffers()

    @property
    def is_file(self) -> bool:
        """Whether it reads a file, and `read_bytes` works."""
        return self._file is not None or is_path(self.uri)

    def read_bytes(self, start: int, end: int) -> bytes:
        """Read bytes of the file, from `start` to before `end`."""
        if not self._file:
            with open(local_path(self.uri), "rb") as file:
                file.seek(start)
                return file.read(end - start)
        before = self._file.tell()  # FFmpeg continues from there
        self._file.seek(start)
        data = self._file.read(end - start)
        self._file.seek(before)
        return data

    def close(self) -> None:
        """Close the container or connection; not a `file`."""
        self._probed.clear()
        self.container.close()

    def _limit_pixels(self) -> None:
        """Limit the size of a frame, also if it changes later: a small packet can decode to a frame of any size."""
        context = self.stream.codec_context
        if context.width * context.height > MAX_MEGAPIXELS * 1e6:
            size = f"{context.width}x{context.height}"
            raise SourceError(f"{mask(self.uri)}: {size} is {TOO_LARGE}", cause="codec")
        context.options = dict(PIXEL_LIMIT)

    def _probe_packed(self) -> None:
        """Find out whether an MPEG-4 video is packed, as DivX and XviD write it into AVI.

        A packet then has a picture and the B frame that is shown before it, and a later packet is a placeholder. The
        times of packets are those of frames in presentation order, and the container's or FFmpeg's presentation times
        run backwards.
        """
        if self.info.codec != "mpeg4":
            return
        first = itertools.islice(self._read_ahead(), _PROBED_PACKETS)
        self._packed = any(bytes(packet).count(MPEG4_PICTURE) > 1 for packet in first)
        if self._packed:
            self._no_pts = self.decode_times = True

    def _has_no_picture(self, packet: Any) -> bool:
        """Whether a packet of packed video only says that its encoder has dropped a frame."""
        if packet.size > _UNCODED_BYTES:
            self._owed_pictures += bytes(packet).count(MPEG4_PICTURE) - 1
            return False
        if self._owed_pictures > 0:
            self._owed_pictures -= 1
            return False
        return True

    def _probe_start(self) -> None:
        """Read a file's first packets if its header does not contain the time of the first frame.

        Matroska stores no negative times, so such packets have none. They get times one step apart, up to the first
        packet with a time.
        """
        name = self.container.format.name
        started = self.stream.start_time is not None
        if started and name != _MATROSKA and name not in _DECODE_TIMES and not self._packed:
            return
        times: list[int | None] = []
        timed = 0
        for packet in self._read_ahead():
            times.append(packet.dts if self._no_pts else packet.pts)
            timed += times[-1] is not None
            if not timed and (name != _MATROSKA or len(times) == _MAX_UNTIMED):
                return
            if timed == _PROBED_PACKETS or (timed and len(times) == 1 and started and name == _MATROSKA):
                break
        stamps = [time for time in times if time is not None]
        if not stamps or (times[0] is not None and started and name == _MATROSKA):
            return
        untimed = [packet for packet, time in zip(self._probed, times, strict=False) if time is None]
        first = min(stamps) - len(untimed) * self.step
        for place, packet in enumerate(untimed):
            packet.dts = first + place * self.step
            if not self.stream.codec_context.has_b_frames:
                packet.pts = packet.dts
            else:
                self.decode_times = True
        self.info = replace(self.info, start_s=float(first * self.stream.time_base))

    def _read_ahead(self) -> Iterator[Any]:
        """Yield the first packets, up to the first error, which the next reader gets again."""
        import av

        yield from list(self._probed)
        with suppress(OSError, ValueError, av.FFmpegError):
            for packet in self.container.demux(self.stream):
                if packet.size:
                    self._probed.append(packet)
                    yield packet

    @property
    def step(self) -> int:
        """Duration of a frame, in the stream's ticks."""
        return max(1, round(1 / ((self.info.average_rate or 25.0) * float(self.stream.time_base))))

    def _read_info(self) -> StreamInfo:
        stream = self.stream
        context = self.stream.codec_context
        layout = context.format
        base = stream.time_base
        tick = base.numerator / base.denominator if base else 0.0
        duration = None if self._polls else stream_duration_s(self.container, stream)
        return StreamInfo(
            codec=context.codec.canonical_name,
            width=context.width,
            height=context.height,
            pixel_format=context.pix_fmt or "",
            bit_depth=layout.components[0].bits if layout else 8,
            chroma=chroma_of(layout),
            average_rate=self._average_rate(),
            start_s=(stream.start_time or 0) * tick,
            duration_s=duration,
            frames=None if self._polls else stream.frames or None,
            live=self._polls
            or is_live(self.uri)
            or (not is_path(self.uri) and duration is None and not self.container.duration),
        )

    def _average_rate(self) -> float | None:
        if self._polls:
            return 1.0 / (self._link.poll_s or _POLLED_S)
        return float(self.stream.average_rate) if self.stream.average_rate else None


def _is_image(container: Any) -> bool:
    """Whether FFmpeg takes the answer of an address for a still image."""
    return bool(container.format.name == "image2" or container.format.name.endswith("_pipe"))


def chroma_of(layout: Any) -> int:
    """Chroma subsampling of an `av.VideoFormat`: 420, 422, 444, 400 (none), or 0 for anything else."""
    if layout is None or layout.is_rgb:
        return 0
    parts = [c for c in layout.components if not c.is_alpha]
    if len(parts) < 3:
        return 400
    ratio = parts[0].width // max(parts[1].width, 1), parts[0].height // max(parts[1].height, 1)
    return {(2, 2): 420, (2, 1): 422, (1, 1): 444}.get(ratio, 0)


def clone_packet(packet: Any, headers: bytes = b"") -> Any:
    """Copy a packet with the same times and `headers` before its bytes, without the discard flag."""
    import av

    copy = av.Packet(headers + bytes(packet))
    copy.pts = packet.pts
    copy.dts = packet.dts
    copy.time_base = packet.time_base
    copy.is_keyframe = packet.is_keyframe
    copy.is_corrupt = packet.is_corrupt
    if packet.has_sidedata("new_extradata"):
        copy.set_sidedata(packet.get_sidedata("new_extradata"))
    return copy
