"""Containers and streams: packets of the video stream of a file or an address."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import IO, Any

from streamkit.errors import SourceError
from streamkit.image_file import MAX_MEGAPIXELS, PIXEL_LIMIT, TOO_LARGE, check_image
from streamkit.media.header import FILE_OPTIONS, length_s
from streamkit.media.link import Link
from streamkit.media.trouble import cannot_open, cannot_read, not_a_video
from streamkit.media.uris import is_live, is_path, mask

_POLL_S = 0.2  # FFmpeg looks ten times a second whether it is to end a wait
# without an index these land anywhere: they are read through instead
_UNSEEKABLE = ("mpegts", "mpeg", "h264", "hevc", "m4v", "mpegvideo", "av1", "obu", "ivf", "rawvideo")


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What a container says of its video stream.

    Attributes:
        codec: FFmpeg's name of it: `h264`, `hevc`, `av1`.
        width: of the coded picture, in pixels, before rotation.
        height: likewise.
        pixel_format: FFmpeg's name of it, `yuv420p`; empty where it is not known.
        bit_depth: bits a luma sample.
        chroma: 420, 422, 444, 400 (none), or 0 for anything else.
        average_rate: frames a second, or None.
        start_s: presentation time of the first picture in seconds.
        duration_s: how long it is shown, or None.
        frames: as many as the container says it has, or None.
        live: whether pictures come as they happen.
    """

    codec: str
    width: int
    height: int
    pixel_format: str
    bit_depth: int
    chroma: int
    average_rate: float | None
    start_s: float
    duration_s: float | None
    frames: int | None
    live: bool

    def facts(self) -> dict[str, Any]:
        """What a list of videos says of this one: codec, width, height, fps, frames and duration_s."""
        return {
            "codec": self.codec, "width": self.width, "height": self.height, "fps": self.average_rate,
            "frames": self.frames, "duration_s": self.duration_s,
        }  # fmt: skip


class Demuxer:
    """Reads the packets of a container's first video stream; a cover picture is none.

    Args:
        uri: a path, an address that FFmpeg knows (rtsp, rtsps, http, https and HLS, rtmp, ...), or a V4L2 device.
        link: how an address is opened.
        file: an open file that is read in place of the address, which then is only its name.

    Attributes:
        container: FFmpeg's.
        stream: the video stream.
        info: what the container says of it.
        packets_read: how many packets have come.
        discarded: how many of them belong to no picture that is shown.
        damaged: how many of them FFmpeg calls damaged.
        sender_shift_s: what is to be added to a presentation time to get the sender's own clock, in seconds since 1970;
            None until the sender has told (RTSP, by RTCP).

    Raises:
        SourceError: it cannot be opened; the text says why in plain words, its cause in one.
    """

    def __init__(self, uri: str, link: Link | None = None, *, file: IO[bytes] | None = None) -> None:
        import av

        self.uri, self._link = uri, link or Link()
        where, form, options = self._link.opening(uri)
        if file or is_path(uri):
            options |= FILE_OPTIONS
            check_image(where)
        options |= PIXEL_LIMIT
        timeout_s, begun_s = self._link.timeout_s, time.monotonic()
        # PyAV 19 never fails on tags that are not UTF-8, and has no such argument
        lenient: dict[str, Any] = {} if int(av.__version__.split(".")[0]) >= 19 else {"metadata_errors": "ignore"}
        self._wait(begun_s)
        try:
            self.container = av.open(
                file or where,
                format=form,
                options=options,
                timeout=None if file or is_path(uri) else (timeout_s, timeout_s),
                **lenient,
            )
        except (OSError, ValueError, av.FFmpegError) as error:
            if file:
                raise not_a_video(uri, error) from error
            raise cannot_open(uri, error, late=self._late(begun_s)) from error
        streams = [s for s in self.container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
        if not streams:
            self.container.close()
            raise SourceError(f"{mask(uri)} has no video stream", cause="no_video" if is_path(uri) else "codec")
        self.stream: Any = streams[0]
        if not self.stream.codec_context:
            self.container.close()
            raise SourceError(f"{mask(uri)}: no decoder here knows its codec", cause="codec")
        self.sender_shift_s: float | None = None
        self._limit_pixels()
        self.info = self._read_info()
        self.packets_read = self.discarded = self.damaged = 0
        # these count pictures at a rate that nobody told them
        self._untimed = self.info.live and self.container.format.name in ("mpjpeg", "mjpeg")
        self._first_s: float | None = None
        if self._untimed:
            self.stream.time_base = Fraction(1, 90_000)  # theirs is a 25th of a second

    def packets(self) -> Iterator[Any]:
        """Packets in decode order, each an `av.Packet` with data.

        Raises:
            SourceError: reading failed; what was yielded before is good.
        """
        import av

        packets, live = self.container.demux(self.stream), self.info.live
        base = self.stream.time_base
        tick = float(base) if base else 0.0
        while True:
            if live:
                asked_s = time.monotonic()
                self._wait(asked_s)
            try:
                packet = next(packets)
            except StopIteration:
                return
            except (OSError, ValueError, av.FFmpegError) as error:
                raise cannot_read(self.uri, error, late=live and self._late(asked_s)) from error
            late = live and self._late(asked_s)
            if packet.size:
                self.packets_read += 1
                self.discarded += packet.is_discard
                self.damaged += packet.is_corrupt
                if live:
                    self._date(packet, tick)
                yield packet
            if late:  # FFmpeg takes a wait that was ended for the stream's end, and hands out what it held back
                raise cannot_read(self.uri, TimeoutError(), late=True)

    def _wait(self, now_s: float) -> None:
        """Let what comes next take `timeout_s`; other streams' packets do not make it longer."""
        if not is_path(self.uri):
            self._link.interrupt.deadline_s = now_s + self._link.timeout_s

    def _late(self, since_s: float) -> bool:
        return time.monotonic() - since_s >= self._link.timeout_s - _POLL_S

    def _date(self, packet: Any, tick: float) -> None:
        """Take the sender's clock from a packet that has it; give one a time where its container has none."""
        if self._untimed:
            now_s = time.monotonic()
            self._first_s = now_s if self._first_s is None else self._first_s
            packet.pts = packet.dts = round((now_s - self._first_s) / tick)
        elif packet.pts is not None and packet.has_sidedata("prft"):
            microseconds = struct.unpack_from("=q", bytes(packet.get_sidedata("prft")))[0]
            self.sender_shift_s = microseconds / 1e6 - packet.pts * tick

    def seek(self, pts_s: float) -> bool:
        """Go to a keyframe at or before a presentation time; False where it has to be read through instead."""
        if self.container.format.name in _UNSEEKABLE:
            return False
        import av

        base = self.stream.time_base
        try:
            self.container.seek(int(pts_s * base.denominator / base.numerator), stream=self.stream, backward=True)
        except (OSError, ValueError, av.FFmpegError):
            return False
        return True

    @contextmanager
    def spare(self) -> Iterator[Any]:
        """An FFmpeg decoder of the stream, to look at single packets with; its pictures' memory is let go afterwards.

        The stream's own keeps two pictures for as long as the stream is open: 7 MiB at 1080p.
        """
        import av

        if is_path(self.uri):  # opened once more, for what only the container knows: which way is up
            with av.open(self._link.opening(self.uri)[0], options=PIXEL_LIMIT) as container:
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

    def close(self) -> None:
        """Close the file or connection."""
        self.container.close()

    def _limit_pixels(self) -> None:
        """Bound what a frame takes, also where its size changes on the way: a small packet can unpack to any size."""
        context = self.stream.codec_context
        if context.width * context.height > MAX_MEGAPIXELS * 1e6:
            self.container.close()
            size = f"{context.width}x{context.height}"
            raise SourceError(f"{mask(self.uri)}: {size} is {TOO_LARGE}", cause="codec")
        context.options = dict(PIXEL_LIMIT)

    def _read_info(self) -> StreamInfo:
        stream, context = self.stream, self.stream.codec_context
        layout = context.format
        base = stream.time_base
        tick = base.numerator / base.denominator if base else 0.0
        duration = length_s(self.container, stream)
        return StreamInfo(
            codec=context.codec.canonical_name,
            width=context.width,
            height=context.height,
            pixel_format=context.pix_fmt or "",
            bit_depth=layout.components[0].bits if layout else 8,
            chroma=chroma_of(layout),
            average_rate=float(stream.average_rate) if stream.average_rate else None,
            start_s=(stream.start_time or 0) * tick,
            duration_s=duration,
            frames=stream.frames or None,
            live=is_live(self.uri) or (not is_path(self.uri) and duration is None and not self.container.duration),
        )


def chroma_of(layout: Any) -> int:
    """The chroma of an `av.VideoFormat`: 420, 422, 444, 400 (none), or 0 for anything else."""
    if layout is None or layout.is_rgb:
        return 0
    parts = [c for c in layout.components if not c.is_alpha]
    if len(parts) < 3:
        return 400
    ratio = parts[0].width // max(parts[1].width, 1), parts[0].height // max(parts[1].height, 1)
    return {(2, 2): 420, (2, 1): 422, (1, 1): 444}.get(ratio, 0)


def headed(packet: Any, headers: bytes) -> Any:
    """A packet with more bytes in front, and the same times; never to be discarded."""
    import av

    longer = av.Packet(headers + bytes(packet))
    longer.pts, longer.dts, longer.time_base, longer.is_keyframe = packet.pts, packet.dts, packet.time_base, True
    return longer


def twin(packet: Any) -> Any:
    """A packet of the same bytes and times; never to be discarded."""
    import av

    copy = av.Packet(bytes(packet))
    copy.pts, copy.dts, copy.time_base, copy.is_keyframe = packet.pts, packet.dts, packet.time_base, True
    if packet.has_sidedata("new_extradata"):
        copy.set_sidedata(packet.get_sidedata("new_extradata"))
    return copy
