"""What a container says of its video stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
