# SPDX-License-Identifier: Apache-2.0
"""Text and dots as small masks ("sprites") in one flat buffer, used for drawing on the host and on a device.

A sprite is a piece of a label, a class name or a number, drawn once by OpenCV at four times the size, and averaged
down. It holds (height, width) coverages of 0 to 255 for luma and then (height / 2, width / 2) for chroma, row by row.
Sizes are even, so sprites side by side never share a chroma sample.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from streamkit.ops import traffic

_FINER = 4  # sprites are drawn this much larger, then averaged
_CAPITAL = 0.56  # a capital's share of a label's height
_WEIGHT = 0.14  # a stroke's share of a capital's height
_LONGEST = 64  # characters; a name beyond that is cut
# bytes
_START = 1 << 16
_FULL = 1 << 22


class Atlas:
    """The sprites of one user, drawn on first use. Not thread-safe.

    Attributes:
        data: (capacity,) uint8 on the host; replaced when it grows.
        used: number of its bytes that hold sprites.
        colored: cache of colored sprites for drawing on the host.
    """

    def __init__(self) -> None:
        self.data = np.zeros(_START, np.uint8)
        self.used = 0
        self.colored: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
        self._sprites: dict[tuple[str, int], tuple[int, int]] = {}
        self._device: Any = None
        self._sent = 0
        self._stencils: list[np.ndarray] = []
        self._stencil_bytes = 0

    def begin(self) -> None:
        """Begin a batch: drop stencils, and all sprites if there are too many. This invalidates earlier marks."""
        self._stencils = []
        self._stencil_bytes = 0
        if self.used > _FULL:
            self.used = self._sent = 0
            self._sprites.clear()
            self.colored.clear()

    def text(self, text: str, height: int) -> tuple[int, int]:
        """Return the offset of a text's sprite, and its width in pixels.

        Args:
            text: characters outside ASCII become `?`.
            height: the sprite's in pixels, even; a capital letter fills half of it.
        """
        placed = self._sprites.get((text, height))
        return placed if placed is not None else self._add(text, height, _text(text, height))

    def dot(self, diameter: int) -> int:
        """Return the offset of a disc's sprite; it is `diameter` pixels, even, wide and high."""
        placed = self._sprites.get(("", diameter))
        return (placed if placed is not None else self._add("", diameter, _disc(diameter)))[0]

    def stencil(self, blocks: np.ndarray) -> int:
        """Store a stencil for this batch, (rows, columns) bool; return the byte offset of its bits."""
        bits = np.packbits(blocks, axis=1).ravel()
        start = self._stencil_bytes
        self._stencil_bytes += bits.size
        self._stencils.append(bits)
        return start

    def stencils(self) -> np.ndarray:
        """Return the concatenated bits of this batch's stencils, uint8 on the host."""
        if len(self._stencils) > 1:
            self._stencils = [np.concatenate(self._stencils)]
        return self._stencils[0] if self._stencils else np.zeros(0, np.uint8)

    def stencil_at(self, start: int, columns: int, rows: int) -> np.ndarray:
        """Return the stencil at a byte offset: (rows, columns) bool."""
        wide = -(-columns // 8)
        bits = self.stencils()[start : start + rows * wide].reshape(rows, wide)
        return np.unpackbits(bits, axis=1, count=columns).astype(bool)

    def masks(self, sprite: int, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
        """Return views of a sprite's luma (height, width) and chroma (height / 2, width / 2) coverage, uint8."""
        middle = sprite + width * height
        end = middle + width * height // 4
        return self.data[sprite:middle].reshape(height, width), self.data[middle:end].reshape(height // 2, width // 2)

    def on_device(self) -> Any:
        """Return the buffer on the current CUDA device; new sprites are copied on the current stream."""
        import cupy

        if self._device is None or self._device.size != self.data.size:
            self._device = cupy.empty(self.data.size, np.uint8)
            self._sent = 0
        if self._sent < self.used:
            self._device[self._sent : self.used] = cupy.asarray(self.data[self._sent : self.used])
            traffic.sent(self.used - self._sent)
            self._sent = self.used
        return self._device

    def _add(self, text: str, height: int, luma: np.ndarray) -> tuple[int, int]:
        rows, columns = luma.shape
        fours = luma.reshape(rows // 2, 2, columns // 2, 2).sum((1, 3), dtype=np.uint16)
        sprite = np.concatenate([luma.ravel(), ((fours + 2) // 4).astype(np.uint8).ravel()])
        start = self.used
        self.used += sprite.size
        while self.used > self.data.size:
            self.data = np.concatenate([self.data, np.zeros_like(self.data)])
        self.data[start : self.used] = sprite
        self._sprites[text, height] = start, columns
        return start, columns


def _text(text: str, height: int) -> np.ndarray:
    """Return a text's coverage, (height, even width) uint8, with margins at both ends."""
    import cv2

    text = "".join(c if " " <= c <= "~" else "?" for c in text[:_LONGEST])
    capital = max(1, round(height * _CAPITAL)) * _FINER
    capital_1, tail_1 = _metrics()
    scale = capital / capital_1
    stroke = max(1, round(capital * _WEIGHT))
    (wide, _), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, stroke)
    margin = height * _FINER // 6
    width = -(-(wide + 2 * margin) // (2 * _FINER)) * 2
    fine = np.zeros((height * _FINER, width * _FINER), np.uint8)
    # Capitals are centerd, or higher if the tails of g and y need room; on whole pixels, so that they are sharp.
    room = height * _FINER - capital
    baseline = min(room // 2, int(room - tail_1 * scale - stroke / 2)) // _FINER * _FINER + capital
    origin = ((width * _FINER - wide) // 2, baseline)
    cv2.putText(fine, text, origin, cv2.FONT_HERSHEY_SIMPLEX, scale, 255, stroke, cv2.LINE_AA)
    return np.asarray(cv2.resize(fine, (width, height), interpolation=cv2.INTER_AREA))


@lru_cache(maxsize=1)
def _metrics() -> tuple[float, float]:
    """Return the height of a capital and the depth of a tail at scale 1; OpenCV 4 and 5 have different fonts."""
    import cv2

    sheet = np.zeros((600, 1000), np.uint8)
    cv2.putText(sheet, "Hgj", (50, 400), cv2.FONT_HERSHEY_SIMPLEX, 10, 255, 1)
    rows = np.flatnonzero((sheet > 127).any(axis=1))
    return (400 - rows[0]) / 10, (rows[-1] - 400) / 10


def _disc(diameter: int) -> np.ndarray:
    """Return a disc's coverage, (diameter, diameter) uint8."""
    fine = 8
    place = (np.arange(diameter * fine) + 0.5) / fine - diameter / 2
    inside = place[:, None] ** 2 + place[None, :] ** 2 <= (diameter / 2) ** 2
    share = inside.reshape(diameter, fine, diameter, fine).mean((1, 3))
    return np.asarray(np.rint(share * 255), np.uint8)
