"""Selection of a container's video stream, and its properties according to the header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamkit.core.errors import SourceError


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What a container says of its video stream.

    Attributes:
        codec: FFmpeg's name of it: `h264`, `hevc`, `av1`.
        width: of the coded frame, in pixels, before rotation.
        height: likewise.
        pixel_format: FFmpeg's name of it, `yuv420p`; empty where it is not known.
        bit_depth: bits a luma sample.
        chroma: 420, 422, 444, 400 (none), or 0 for anything else.
        average_rate: frames a second, or None.
        start_s: presentation time of the first frame in seconds.
        duration_s: how long it is shown, or None.
        frames: as many as the container says it has, or None.
        live: whether frames come as they happen.
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


FILE_OPTIONS = {"flv_full_metadata": "1"}
"""FFmpeg's, to open a file with: what `length_s` needs. Other containers ignore it."""
_COUNT_FROM_ZERO = frozenset({"matroska,webm", "asf", "nut"})


def length_s(container: Any, stream: Any) -> float | None:
    """Duration from the first frame to the end of the last one, in seconds.

    Args:
        container: an `av.container.InputContainer`, opened with `FILE_OPTIONS`.
        stream: its video stream.

    Returns:
        None if the header does not contain it.
    """
    base = stream.time_base
    tick = float(base) if base else 0.0
    said = _tagged_s(container, stream) if stream.duration is None else stream.duration * tick
    if container.format.name == "avi" and stream.frames:  # of a file that was cut, FFmpeg guesses by its size
        said = max(said or 0.0, stream.frames * tick)
    start_s = (stream.start_time or 0) * tick
    # where some programs write a length and some an end, the shorter one is taken: nothing whole is called cut
    if said is not None and said > start_s and _says_its_end(container, stream):
        return said - start_s
    return said


def _says_its_end(container: Any, stream: Any) -> bool:
    """Whether the value in the header is the end time, counted from zero and not from the first frame."""
    name = container.format.name
    if name == "flv":  # a length where there is one; otherwise FFmpeg takes the time of the last packet
        return bool(container.metadata.get("duration", "0") == "0")
    # the pieces of a stream for DASH and HLS have the times of the whole, and an index of their own
    return name in _COUNT_FROM_ZERO or (name.startswith("mov") and not stream.frames and (stream.start_time or 0) > 0)


def _tagged_s(container: Any, stream: Any) -> float | None:
    """Duration from Matroska's stream tag, or from a container with a single stream."""
    for name, text in stream.metadata.items():
        parts = text.split(":")
        if name.upper().startswith("DURATION") and len(parts) == 3:
            try:
                return float(parts[0]) * 3600 + float(parts[1]) * 60 + float(parts[2])
            except ValueError:
                break
    if len(container.streams) == 1 and container.duration:
        return float(container.duration) / 1e6
    return None


_DEFAULT_PIXELS = 5_000_000
"""By so much a stream that is marked as the default one outranks others; FFmpeg's own figure."""


def choose_stream(container: Any, number: int | None, name: str, *, is_file: bool) -> Any:
    """Select the video stream to read; cover images do not count.

    Args:
        container: an `av.container.InputContainer`.
        number: index of the stream, from 0; None for the best.
        name: masked address for errors.
        is_file: whether the container is a file.

    Raises:
        SourceError: there is no video stream, none with that index, or no decoder for it.
    """
    import av

    found = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
    if not found:
        raise SourceError(f"{name} has no video stream", cause="no_video" if is_file else "codec")
    if number is not None and number >= len(found):
        most = len(found) - 1
        allowed = f"0 to {most}" if most else "0"
        has = f"{most + 1} video stream{'s' * (most > 0)}"
        raise SourceError(f"{name}: stream must be {allowed}, for it has {has}, got {number}", cause="no_video")
    chosen = max(found, key=_rank) if number is None else found[number]
    if not chosen.codec_context:
        raise SourceError(f"{name}: no decoder here knows its codec", cause="codec")
    return chosen


def _rank(stream: Any) -> int:
    """Rank of a video stream, as in the command `ffmpeg`, which uses the first of equal ones."""
    import av

    context = stream.codec_context
    pixels = context.width * context.height if context else -1
    return int(pixels + _DEFAULT_PIXELS * bool(stream.disposition & av.stream.Disposition.default))
