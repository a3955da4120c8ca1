# SPDX-License-Identifier: Apache-2.0
"""How detections are drawn, and in which colors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from streamkit.core.data import Color
from streamkit.ops.color import rgb_to_yuv


@dataclass(frozen=True, slots=True)
class Style:
    """What `annotate` draws.

    Attributes:
        labels: show the class's name.
        scores: show the score with two digits.
        tracks: show the track's number, if any.
        color: what determines an object's color; its class if it has no track or no identity.
        thickness: thickness of lines in pixels; None for one by the frame's size. Odd numbers are rounded up.
        text_size: height of a label in pixels, likewise.
        fill: opacity of a box's inside, 0 to 1.
        only: names of the classes to draw; None for all.
        masks: opacity of masks, 0 to 1.
        min_keypoint_score: minimum score of a keypoint to draw it.
        analytics: draw lines and zones with their counts.
        untracked: draw objects without a track, in tables that have tracks.
        fit_labels: shorten labels that are much larger than their object, or leave them out.
        title: text in the upper left corner of each frame.
    """

    labels: bool = True
    scores: bool = True
    tracks: bool = True
    color: Literal["class", "track", "identity"] = "class"
    thickness: int | None = None
    text_size: int | None = None
    fill: float = 0.0
    only: tuple[str, ...] | None = None
    masks: float = 0.4
    min_keypoint_score: float = 0.3
    analytics: bool = True
    untracked: bool = False
    fit_labels: bool = False
    title: str = ""

    def line_width(self, short_side: int) -> int:
        """The thickness of lines, even, by the frame's shorter side in pixels: 2 at 360, 4 at 1080."""
        return _even(self.thickness) if self.thickness else 2 * max(1, round(short_side / 540))

    def text_height(self, short_side: int) -> int:
        """The height of a label, even: 14 at 360, 26 at 1080."""
        return _even(self.text_size) if self.text_size else 2 * round(4.4 + short_side * 0.008)


def _even(value: int) -> int:
    return value + value % 2


PALETTE = (
    0x2E93FF, 0xFF9F1C, 0x2EC27E, 0xE5383B, 0xB57BFF, 0xFFD60A, 0x00C2D1, 0xFF6FB5, 0x1E7800, 0xA51E87,
    0x4BFFD2, 0xFFC3FF, 0x0069A5, 0xA5870F, 0x009687, 0x874BD2, 0xB46987, 0xFFA5A5, 0x87F078, 0x965A1E,
)  # fmt: skip
"""RGB, the most distinct colors first. Class, track or zone n has color n modulo the length, in every run.

The first eight were chosen by hand for video: saturated, bright, well separated. Each of the others is the
sRGB color farthest from all before it. The distance is OKLab's, weighted 55 % for normal vision and 45 % for
color-blind vision (the nearer of deuteranopia and protanopia, by Machado, Oliveira and Fernandes, 2009).
"""


def luminance(rgb: int) -> float:
    """Return the relative luminance of an sRGB color, 0 to 1, as defined by WCAG 2."""
    total = 0.0
    for shift, weight in ((16, 0.2126), (8, 0.7152), (0, 0.0722)):
        channel = (rgb >> shift & 255) / 255
        total += weight * (channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4)
    return total


def text_color(rgb: int) -> int:
    """Return the color of text on the background `rgb`: black or white, whichever is easier to read.

    WCAG 2's contrast ratios are equal at 0.18; a little above that, small white letters still read better.
    """
    return 0x000000 if luminance(rgb) > 0.2 else 0xFFFFFF


@lru_cache(maxsize=64)
def palette_yuv(color: Color) -> tuple[np.ndarray, np.ndarray]:
    """Return the palette and the colors of text on it in the Y, Cb and Cr of a surface.

    Returns:
        Two (len(PALETTE),) uint32 arrays, Y | Cb << 8 | Cr << 16: the colors, and the color of text on each.
    """
    text_colors = [text_color(rgb) for rgb in PALETTE]
    return _packed(PALETTE, color), _packed(text_colors, color)


def _packed(colors: tuple[int, ...] | list[int], color: Color) -> np.ndarray:
    rgb = np.array([(c >> 16 & 255, c >> 8 & 255, c & 255, 1) for c in colors], np.float64)
    y, cb, cr = np.clip(np.rint(rgb_to_yuv(color) @ rgb.T), 0, 255).astype(np.uint32)
    packed = np.asarray(y | cb << 8 | cr << 16, np.uint32)
    packed.setflags(write=False)
    return packed
