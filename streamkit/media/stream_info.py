# SPDX-License-Identifier: Apache-2.0
"""Selection of a container's video stream, and its properties according to the header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamkit.core.errors import SourceError


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """Properties of a container's video stream.

    Attributes:
        codec: FFmpeg's name of the codec: `h264`, `hevc`, `av1`.
        width: width of a coded frame in pixels, before rotation.
        height: its height.
        pixel_format: FFmpeg's name of the pixel format, such as `yuv420p`; empty if unknown.
        bit_depth: bits per luma sample.
        chroma: 420, 422, 444, 400 (none), or 0 for anything else.
        average_rate: frames per second, or None.
        start_s: presentation time of the first frame in seconds.
        duration_s: duration in seconds, or None.
        frames: number of frames according to the container, or None.
        live: whether frames arrive in real time.
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
        """The stream's entry in a list of videos: codec, width, height, fps, frames and duration_s."""
        return {
            "codec": self.codec,
            "width": self.width,
            "height": self.height,
            "fps": self.average_rate,
            "frames": self.frames,
            "duration_s": self.duration_s,
        }


FILE_OPTIONS = {"flv_full_metadata": "1"}
"""Options for opening a file that `stream_duration_s` needs. Other containers ignore them."""
_COUNT_FROM_ZERO = frozenset({"matroska,webm", "asf", "nut"})


def stream_duration_s(container: Any, stream: Any) -> float | None:
    """Duration from the first frame to the end of the last one, in seconds.

    Args:
        container: an `av.container.InputContainer`, opened with `FILE_OPTIONS`.
        stream: its video stream.

    Returns:
        None if the header does not contain it.
    """
    base = stream.time_base
    tick = float(base) if base else 0.0
    stated_s = _tagged_duration_s(container, stream) if stream.duration is None else stream.duration * tick
    if container.format.name == "avi" and stream.frames:  # FFmpeg estimates it from the size if the file is truncated
        stated_s = max(stated_s or 0.0, stream.frames * tick)
    start_s = (stream.start_time or 0) * tick
    # some programs write a duration, others an end time: the shorter one never marks a complete file as truncated
    if stated_s is not None and stated_s > start_s and _states_end_time(container, stream):
        return stated_s - start_s
    return stated_s


def _states_end_time(container: Any, stream: Any) -> bool:
    """Whether the value in the header is the end time, counted from zero and not from the first frame."""
    name = container.format.name
    if name == "flv":  # the tag is a duration; without it FFmpeg uses the time of the last packet
        return bool(container.metadata.get("duration", "0") == "0")
    # segments of DASH and HLS have the times of the whole stream, and their own index
    return name in _COUNT_FROM_ZERO or (name.startswith("mov") and not stream.frames and (stream.start_time or 0) > 0)


def _tagged_duration_s(container: Any, stream: Any) -> float | None:
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
"""Bonus of a stream that is marked as the default, as in FFmpeg."""


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

    streams = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
    if not streams:
        raise SourceError(f"{name} has no video stream", cause="no_video" if is_file else "codec")
    if number is not None and number >= len(streams):
        last = len(streams) - 1
        allowed = f"0 to {last}" if last else "0"
        has = f"{last + 1} video stream{'s' * (last > 0)}"
        raise SourceError(f"{name}: stream must be {allowed}, as it has {has}, got {number}", cause="no_video")
    chosen = max(streams, key=_rank) if number is None else streams[number]
    if not chosen.codec_context:
        raise SourceError(f"{name}: this FFmpeg has no decoder for its codec", cause="codec")
    return chosen


def _rank(stream: Any) -> int:
    """Rank of a video stream, as in the command `ffmpeg`, which uses the first of equal ones."""
    import av

    context = stream.codec_context
    pixels = context.width * context.height if context else -1
    return int(pixels + _DEFAULT_PIXELS * bool(stream.disposition & av.stream.Disposition.default))
