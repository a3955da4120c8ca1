"""Mux: packets into an mp4 or mkv file that appears under its name when it is whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.data import Surface
from streamkit.errors import SourceError
from streamkit.media.demux import Demuxer
from streamkit.media.encode import TIME_BASE, Encoder
from streamkit.media.uris import mask
from streamkit.outputs import WholeFile, output_error

if TYPE_CHECKING:
    from av.packet import Packet

FORMATS = {".mp4": "mp4", ".mkv": "matroska"}

LONGEST_GAP = 2**31 - 1 - TIME_BASE.denominator
"""Ticks: mp4 cannot hold more between two frames; 372 s."""

REORDERED = 8
"""Frames that lie between the decoding and the showing of one at most, where there are B frames."""

LONGEST_REORDERING = 2**29
"""Ticks, 93 s: what so many frames may last. mp4 holds four times as much between decoding and showing; the frames
before the first that is shown take as much again."""


_SLACK_S = 1e-6


def container_format(path: str | Path) -> str:
    """FFmpeg's name of the container that a path's suffix asks for; raise ValueError for another than these two."""
    found = FORMATS.get(Path(path).suffix.lower())
    if found is None:
        raise ValueError(f"path must end in {' or '.join(FORMATS)}, got {str(path)!r}")
    return found


class VideoFile:
    """One video file from the first surface to the last.

    Each frame keeps its presentation time, so that a variable frame rate stays one: to 0.2 microseconds in mp4, to the
    millisecond in mkv, which has no finer clock. A frame lasts until the next one, the last as long as the one before.

    Args:
        file: where it goes, begun.
        encoder: what makes the packets.
        metadata: tags for the whole file.
    """

    def __init__(self, file: WholeFile, encoder: Encoder, metadata: dict[str, str] | None = None) -> None:
        import av

        self._file, self._encoder = file, encoder
        kind = container_format(file.path)
        # mp4 keeps a start after zero in the clock of the whole movie: as fine as the frames'
        options = {"movie_timescale": str(TIME_BASE.denominator)} if kind == "mp4" else {}
        self._waiting: deque[Packet] = deque()
        self._lasts: dict[int | None, int] = {}  # how long the frame of each time is shown
        self._last_ticks: int | None = None
        self._step = TIME_BASE.denominator // 25
        self._container: Any = None
        with _Guard(self):
            self._container = av.open(str(file.part), "w", format=kind, options=options)
            self._container.metadata.update(metadata or {})
            encoder.start(self._container)

    def write(self, surface: Surface, ticks: int) -> None:
        """Encode one surface, to be shown at `ticks`, which must rise.

        Raises:
            OutputError: it cannot be encoded or written; the file is gone then.
        """
        with _Guard(self):
            if self._last_ticks is not None:
                self._lasts[self._last_ticks] = self._step = ticks - self._last_ticks
            self._last_ticks = ticks
            self._mux(self._encoder.encode(surface, ticks))

    def finish(self) -> None:
        """Write what is still inside, close, and give the file its name."""
        with _Guard(self):
            packets = self._encoder.flush()
            if self._last_ticks is not None:
                self._lasts[self._last_ticks] = self._step
            self._mux(packets)
            self._container.close()
        self._file.finish()

    def discard(self) -> None:
        """Remove what was written."""
        from av.error import FFmpegError

        if self._container is not None:
            with suppress(FFmpegError, OSError):  # it is thrown away
                self._container.close()
        self._file.discard()

    def _mux(self, packets: Iterable[Packet]) -> None:
        """Write packets as soon as it is known how long they last."""
        self._waiting.extend(packets)
        while self._waiting and self._waiting[0].pts in self._lasts:
            packet = self._waiting.popleft()
            packet.duration = self._lasts.pop(packet.pts)
            self._container.mux_one(packet)


class _Guard:
    """What goes wrong within becomes an OutputError, and the file is discarded."""

    def __init__(self, video: VideoFile) -> None:
        self._video = video

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            from av.error import FFmpegError

            self._video.discard()
            if isinstance(error, (FFmpegError, OSError, ValueError, RuntimeError)):
                raise output_error(self._video._file.path, error) from error


def copy_packets(uri: str, file: WholeFile, first_s: float, last_s: float, *, stream: int | None = None) -> None:
    """Write the packets of a video between two times, as they are, into a file; finishes it.

    Begins at the last keyframe before `first_s`, since nothing can be shown without it. Times stay those of the video;
    where they begin below zero, which no file can show, they begin at zero.

    Args:
        uri: the video.
        file: where it goes, begun.
        first_s: the first frame's presentation time in seconds.
        last_s: the last frame's.
        stream: which of the video streams, from 0; None for the best.

    Raises:
        OutputError: it cannot be read or written, it has no presentation times, or the container does not take its
            codec.
    """
    from av.error import FFmpegError

    try:
        with closing(Demuxer(uri, number=stream)) as demuxer:
            found = first_s <= demuxer.info.start_s or _goes_to(demuxer, first_s)
            if found:
                _copy(demuxer, file, first_s, last_s)
        if not found:
            with closing(Demuxer(uri, number=stream)) as demuxer:
                _copy(demuxer, file, first_s, last_s)
    except (SourceError, FFmpegError, OSError, ValueError) as error:
        file.discard()
        raise output_error(file.path, error) from error
    file.finish()


def _copy(demuxer: Demuxer, file: WholeFile, first_s: float, last_s: float) -> None:
    import av

    tick = demuxer.stream.time_base
    first, last = round(first_s / tick), round(last_s / tick)
    shift: int | None = None
    with av.open(str(file.part), "w", format=container_format(file.path)) as sink:
        copied = sink.add_stream_from_template(demuxer.stream, opaque=True)
        for packet in decodable(_dated(demuxer), first):
            if packet.dts > last:
                break
            if shift is None:
                shift = max(0, -packet.pts)
            packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, copied
            sink.mux_one(packet)
    if shift is None:
        raise SourceError(f"{mask(demuxer.uri)} has no keyframe to begin with")


def _goes_to(demuxer: Demuxer, first_s: float) -> bool:
    """Go to a keyframe at or before a time; False where the video has to be read through from its beginning."""
    if not demuxer.seek(first_s):
        return False
    head = next(demuxer.packets(), None)
    return (
        head is not None
        and head.pts is not None
        and head.pts * demuxer.stream.time_base <= first_s + _SLACK_S
        and demuxer.seek(first_s)
    )


def _dated(demuxer: Demuxer) -> Iterator[Any]:
    """The packets, each with a decoding time: Matroska gives none to the first ones, which wait for the first that has.

    Raises:
        SourceError: a packet has no presentation time.
    """
    early: list[Any] = []
    dts: int | None = None
    for packet in demuxer.packets():
        if packet.pts is None:
            what = mask(demuxer.uri)
            raise SourceError(f"{what} holds no presentation times, which encoder: copy needs; set encoder: cpu")
        if packet.dts is None and dts is not None:
            packet.dts = min(packet.pts, dts + 1)
        early.append(packet)
        if packet.dts is None:
            continue
        dts = packet.dts
        yield from _backwards(early, dts, demuxer.step)
        early = []
    if early:
        yield from _backwards(early, early[-1].pts, demuxer.step)


def _backwards(packets: list[Any], dts: int, step: int) -> Iterator[Any]:
    """Give packets decoding times up to `dts`, the last one's: a step apart, and none behind its presentation time."""
    for packet in reversed(packets):
        packet.dts = dts = min(dts, packet.pts)
        dts -= step
    yield from packets


def decodable(packets: Iterable[Any], first: int) -> Iterator[Any]:
    """The packets from the last keyframe on that is shown at or before `first`, in ticks; all have times.

    Where none is, from the first keyframe on.
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
