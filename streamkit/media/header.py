"""Duration of a video from its container's header, where FFmpeg's value is ambiguous."""

from __future__ import annotations

from typing import Any

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
