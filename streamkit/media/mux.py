"""Mux: packets into an mp4 or mkv file that appears under its name when it is whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.data import Surface
from streamkit.errors import OutputError
from streamkit.media.encode import TIME_BASE, Encoder
from streamkit.outputs import WholeFile, output_error

if TYPE_CHECKING:
    from av.packet import Packet

FORMATS = {".mp4": "mp4", ".mkv": "matroska"}

LONGEST_GAP = 2**31 - 1
"""Ticks: mp4 cannot hold more between two frames; 373 s."""


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


def copy_packets(uri: str, file: WholeFile, first_s: float, last_s: float) -> None:
    """Write the packets of a video between two times, as they are, into a file; finishes it.

    Begins at the last keyframe before `first_s`, since nothing can be shown without it.

    Args:
        uri: the video.
        file: where it goes, begun.
        first_s: the first frame's presentation time in seconds.
        last_s: the last frame's.

    Raises:
        OutputError: it cannot be read or written, or the container does not take its codec.
    """
    import av
    from av.error import FFmpegError

    try:
        with (
            av.open(uri) as source,
            av.open(str(file.part), "w", format=container_format(file.path)) as sink,
        ):
            stream = source.streams.video[0]
            assert stream.time_base is not None
            first, last = round(first_s / stream.time_base), round(last_s / stream.time_base)
            if first > (stream.start_time or 0):
                source.seek(first, stream=stream)
            copied = sink.add_stream_from_template(stream, opaque=True)
            for packet in source.demux(stream):
                if packet.dts is None:
                    continue
                if packet.dts > last:
                    break
                packet.stream = copied
                sink.mux_one(packet)
    except (FFmpegError, OSError, ValueError, IndexError) as error:
        file.discard()
        if isinstance(error, OutputError):
            raise
        raise output_error(file.path, error) from error
    file.finish()
