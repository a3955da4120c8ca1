"""How detections are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Style:
    """What `annotate` draws.

    Attributes:
        labels: the class's name.
        scores: the score, two digits.
        tracks: the track's number, where there is one.
        color: what an object has its colour from; without a track from its class.
        thickness: of lines, in pixels; None takes it from the frame's size. Odd numbers are rounded up.
        text_size: height of a label in pixels, likewise.
        fill: how opaque the inside of a box is, 0 to 1.
        only: names of the classes to draw; none draws all.
        masks: how opaque masks are, 0 to 1.
        min_point: the least score of a key point that is drawn.
        analytics: lines and zones with their counts.
        untracked: objects in no track, in tables that have tracks.
    """

    labels: bool = True
    scores: bool = True
    tracks: bool = True
    color: Literal["class", "track"] = "class"
    thickness: int | None = None
    text_size: int | None = None
    fill: float = 0.0
    only: tuple[str, ...] = ()
    masks: float = 0.4
    min_point: float = 0.3
    analytics: bool = True
    untracked: bool = False

    def line(self, short_side: int) -> int:
        """The thickness of lines, even, in a frame whose shorter side is so many pixels: 2 at 360, 4 at 1080."""
        return _even(self.thickness) if self.thickness else 2 * max(1, round(short_side / 540))

    def text(self, short_side: int) -> int:
        """The height of a label, even: 14 at 360, 26 at 1080."""
        return _even(self.text_size) if self.text_size else 2 * round(4.4 + short_side * 0.008)


def _even(value: int) -> int:
    return value + value % 2
