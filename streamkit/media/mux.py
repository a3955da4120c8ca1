# SPDX-License-Identifier: Apache-2.0
"""Writes packets to an mp4 or mkv file, which gets its final name once it is complete."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.core.data import Surface
from streamkit.core.errors import SourceError
from streamkit.io.outputs import AtomicFile, output_error
from streamkit.media.demux import Demuxer
from streamkit.media.encode import TIME_BASE, Encoder
from streamkit.media.ring import TICKS_PER_S, BufferedPacket, StreamFormat
from streamkit.media.uris import mask

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream


FORMATS = {".mp4": "mp4", ".mkv": "matroska"}

LONGEST_GAP = 2**31 - 1 - TIME_BASE.denominator
"""Maximum time between two frames in mp4, in ticks; 372 s."""

REORDERED = 8
"""Maximum number of frames between decoding and presentation of a frame, with B frames."""

LONGEST_REORDERING = 2**29
"""Maximum duration of these frames in ticks; 93 s. mp4 stores four times as much between decoding and presentation; the
frames before the first one shown take as much again."""


_SLACK_S = 1e-6


def container_format(path: str | Path) -> str:
    """FFmpeg's container name for a path's suffix. Raises ValueError for unsupported suffixes."""
    format_name = FORMATS.get(Path(path).suffix.lower())
    if format_name is None:
        raise ValueError(f"path must end in {' or '.join(FORMATS)}, got {str(path)!r}")
    return format_name


class _ContainerFile:
    """A container that is written to a partial file. As a context, it removes the file if the block raises.

    Args:
        file: the output file, after `begin()`.
        tags: metadata of the container.
        options: FFmpeg's, of the muxer.

    Raises:
        OutputError: in place of errors of FFmpeg and the system.
    """

    def __init__(self, file: AtomicFile, tags: Mapping[str, str], options: dict[str, str] | None = None) -> None:
        import av

        self._file = file
        self._container: Any = None
        with self:
            kind = container_format(file.path)
            self._container = av.open(str(file.part), "w", format=kind, options=options or {})
            self._container.metadata.update(tags)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            from av.error import FFmpegError

            self.discard()
            if isinstance(error, (FFmpegError, OSError, ValueError, RuntimeError)):
                raise output_error(self._file.path, error) from error

    def discard(self) -> None:
        """Remove the partial file."""
        from av.error import FFmpegError

        if self._container is not None:
            with suppress(FFmpegError, OSError, ValueError):  # the file is removed anyway
                self._container.close()
        self._file.discard()


class VideoWriter(_ContainerFile):
    """One video file from the first surface to the last.

    Each frame keeps its presentation time, so a variable frame rate is preserved: to 0.2 microseconds in mp4, to the
    millisecond in mkv, which has no finer clock. A frame lasts until the next one, the last as long as the one before.

    Args:
        file: the output file, after `begin()`.
        encoder: creates the packets.
        metadata: tags of the file.
    """

    def __init__(self, file: AtomicFile, encoder: Encoder, metadata: dict[str, str] | None = None) -> None:
        # mp4 stores a start time after zero in the movie's time scale: it must be as fine as the frames' times
        options = {"movie_timescale": str(TIME_BASE.denominator)} if file.path.suffix.lower() == ".mp4" else {}
        super().__init__(file, metadata or {}, options)
        self._encoder = encoder
        self._waiting: deque[Packet[VideoStream]] = deque()
        self._durations: dict[int | None, int] = {}  # how long the frame of each time is shown
        self._last_ticks: int | None = None
        self._step = TIME_BASE.denominator // 25
        with self:
            encoder.start(self._container)

    def write(self, surface: Surface, ticks: int) -> None:
        """Encode one surface with presentation time `ticks`, which must rise.

        Raises:
            OutputError: it cannot be encoded or written; the file is then removed.
        """
        with self:
            if self._last_ticks is not None:
                self._durations[self._last_ticks] = self._step = ticks - self._last_ticks
            self._last_ticks = ticks
            self._mux(self._encoder.encode(surface, ticks))

    def finish(self) -> None:
        """Write the remaining packets, close the file, and give it its name."""
        with self:
            packets = self._encoder.flush()
            if self._last_ticks is not None:
                self._durations[self._last_ticks] = self._step
            self._mux(packets)
            self._container.close()
        self._file.finish()

    def _mux(self, packets: Iterable[Packet[VideoStream]]) -> None:
        """Write packets as soon as their duration is known."""
        self._waiting.extend(packets)
        while self._waiting and self._waiting[0].pts in self._durations:
            packet = self._waiting.popleft()
            packet.duration = self._durations.pop(packet.pts)
            self._container.mux_one(packet)


class Clip(_ContainerFile):
    """Packets of a source written to a file as received; it starts at a keyframe, and its first frame is at time 0.

    Args:
        path: the final path, used once the file is complete; `.mp4` or `.mkv`.
        first: the first keyframe; it must be written like the other packets.
        tags: metadata of the file.

    Attributes:
        bytes: bytes written so far.

    Raises:
        OutputError: the file cannot be written, or the container does not support the codec.
    """

    def __init__(self, path: Path, first: BufferedPacket, tags: Mapping[str, str]) -> None:
        self.path = path
        self.stream_format = first.stream_format
        self.bytes = self.packets = 0
        self._zero = self._end = self._newest = first.pts
        file = AtomicFile(path)
        file.begin()
        super().__init__(file, tags)
        with self:
            self._stream = first.stream_format.add_to(self._container)

    @property
    def duration_s(self) -> float:
        """Duration so far, in seconds."""
        return (self._end - self._zero) / TICKS_PER_S

    def may_end_before(self, packet: BufferedPacket) -> bool:
        """Whether the clip may end before this packet: every frame shown up to its end is then in the file."""
        return packet.pts > self._newest

    def contains(self, packet: BufferedPacket) -> bool:
        """Whether a packet's frame is among those shown in the file."""
        return self._zero <= packet.pts <= self._newest

    def offset_s(self, packet: BufferedPacket) -> float:
        """When a packet's frame is shown in the file, in seconds."""
        return max(0, packet.pts - self._zero) / TICKS_PER_S

    def write(self, packet: BufferedPacket) -> bool:
        """Write one packet; return False for a frame shown before the first one, which cannot be decoded.

        Raises:
            OutputError: it cannot be written; the file is then removed.
        """
        import av

        if packet.pts < self._zero:
            return False
        av_packet = av.Packet(packet.data)
        av_packet.stream = self._stream
        av_packet.time_base = TIME_BASE
        av_packet.pts = packet.pts - self._zero
        av_packet.dts = packet.dts - self._zero
        av_packet.duration = packet.duration
        av_packet.is_keyframe = packet.keyframe
        with self:
            self._container.mux_one(av_packet)
        self._end = max(self._end, packet.pts + packet.duration)
        self._newest = max(self._newest, packet.pts)
        self.bytes += len(packet.data)
        self.packets += 1
        return True

    def finish(self) -> None:
        """Complete the file and move it to its final path.

        Raises:
            OutputError: it cannot be written; the file is then removed.
        """
        with self:
            self._container.close()
        self._file.finish()


def copy_packets(uri: str, file: AtomicFile, first_s: float, last_s: float, *, stream: int | None = None) -> None:
    """Copy the packets of a video between two times to a file without re-encoding; finishes the file.

    The copy starts at the last keyframe before `first_s`, as nothing can be decoded without it. Times stay those of the
    video; negative times, which no file can show, are shifted to start at zero.

    Args:
        uri: the video.
        file: the output file, after `begin()`.
        first_s: presentation time of the first frame in seconds.
        last_s: presentation time of the last frame in seconds.
        stream: index of the video stream, from 0; None for the best.

    Raises:
        OutputError: the video cannot be read, the file cannot be written, the video has no presentation times, or the
            container does not support its codec.
    """
    from av.error import FFmpegError

    try:
        with closing(Demuxer(uri, number=stream)) as demuxer:
            begins_right = first_s <= demuxer.info.start_s or _seek_to(demuxer, first_s)
            if begins_right:
                _copy(demuxer, file, first_s, last_s)
        if not begins_right:
            with closing(Demuxer(uri, number=stream)) as demuxer:
                _copy(demuxer, file, first_s, last_s)
    except (SourceError, FFmpegError, OSError, ValueError) as error:
        file.discard()
        raise output_error(file.path, error) from error
    file.finish()


def _copy(demuxer: Demuxer, file: AtomicFile, first_s: float, last_s: float) -> None:
    import av

    tick = demuxer.stream.time_base
    first = round(first_s / tick)
    last = round(last_s / tick)
    shift: int | None = None
    with av.open(str(file.part), "w", format=container_format(file.path)) as sink:
        copied = StreamFormat(demuxer.stream).add_to(sink)
        for packet in from_keyframe(_with_dts(demuxer), first):
            if packet.dts > last:
                break
            if shift is None:
                shift = max(0, -packet.pts)
            packet.pts += shift
            packet.dts += shift
            packet.stream = copied
            sink.mux_one(packet)
    if shift is None:
        raise SourceError(f"{mask(demuxer.uri)} has no keyframe to start at")


def _seek_to(demuxer: Demuxer, first_s: float) -> bool:
    """Seek to a keyframe at or before a time; return False if the video must be read from its start."""
    if not demuxer.seek(first_s):
        return False
    head = next(demuxer.packets(), None)
    return (
        head is not None
        and head.pts is not None
        and head.pts * demuxer.stream.time_base <= first_s + _SLACK_S
        and demuxer.seek(first_s)
    )


def _with_dts(demuxer: Demuxer) -> Iterator[Any]:
    """Yield packets with decoding times; those without wait for the next one that has one, as Matroska's first ones do.

    Raises:
        SourceError: a packet has no presentation time.
    """
    waiting: list[Any] = []
    for packet in demuxer.packets():
        if packet.pts is None:
            what = mask(demuxer.uri)
            raise SourceError(f"{what} has no presentation times, which encoder: copy requires; set encoder: cpu")
        waiting.append(packet)
        if packet.dts is not None:
            yield from _backfill_dts(waiting, packet.dts, demuxer.step)
            waiting = []
    if waiting:
        yield from _backfill_dts(waiting, waiting[-1].pts, demuxer.step)


def _backfill_dts(packets: list[Any], dts: int, step: int) -> Iterator[Any]:
    """Set decoding times one step apart up to `dts`, that of the last packet, none after its presentation time."""
    for packet in reversed(packets):
        packet.dts = dts = min(dts, packet.pts)
        dts -= step
    yield from packets


def from_keyframe(packets: Iterable[Any], first: int) -> Iterator[Any]:
    """Yield packets from the last keyframe shown at or before `first`, in ticks; all packets must have times.

    If there is none, yields packets from the first keyframe on.
    """
    waiting: list[Any] = []
    left = iter(packets)
    for packet in left:
        if packet.is_keyframe and (packet.pts <= first or not waiting):
            waiting = []
        if packet.is_keyframe or waiting:
            waiting.append(packet)
        if waiting and packet.dts > first:
            break
    yield from waiting
    yield from left
