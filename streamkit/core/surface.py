# SPDX-License-Identifier: Apache-2.0
"""An image in memory and its color format."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamkit.core.detections import Array, shape_text


@dataclass(frozen=True, slots=True)
class Color:
    """The color format of a YCbCr image.

    Args:
        matrix: the luma coefficients of ITU-R BT.601, BT.709 or BT.2020 (non-constant luminance).
        full_range: True for 0..255, False for 16..235 (luma) and 16..240 (chroma).
        chroma_x: horizontal offset of a chroma sample from its block's left luma sample, in luma samples:
            0 for left siting (H.264, HEVC), 0.5 for center siting (JPEG).
        chroma_y: vertical offset; 0.5 for left and center siting, 0 for top-left.
    """

    matrix: Literal["bt601", "bt709", "bt2020"] = "bt709"
    full_range: bool = False
    chroma_x: float = 0.0
    chroma_y: float = 0.5


class Surface:
    """An NV12 image. Read-only once it is passed on; released after its last reader.

    Attributes:
        data: (height * 3 / 2, width) uint8, C-contiguous, on host or device; the luma rows, then the rows of
            interleaved Cb and Cr. Height and width are even: odd sizes are padded by repeating the edge.
        color: the color format.
        ready: a CUDA event that signals that `data` is written, or None if it is (always None on the host).
        turn: the address of the CUDA stream that writes it, and a number that increases along that stream, if known.
        awaited: whether a stream that outlives the surface has waited for `ready`.
    """

    __slots__ = ("__weakref__", "_give_back", "awaited", "color", "data", "ready", "turn")

    def __init__(
        self, data: Array, color: Color, *, ready: Any = None, give_back: Callable[[Array, Any], None] | None = None
    ) -> None:
        if data.ndim != 2 or data.dtype != np.uint8 or data.shape[0] % 3 or data.shape[1] % 2:
            raise ValueError(
                "Surface.data must be uint8 of shape (height * 3 / 2, width), height and width even, got "
                f"{data.dtype}{list(data.shape)}"
            )
        self.data = data
        self.color = color
        self.ready = ready
        self.turn: tuple[int, int] | None = None
        self.awaited = False
        self._give_back = give_back

    @property
    def height(self) -> int:
        """Luma rows, padding included."""
        return int(self.data.shape[0]) * 2 // 3

    @property
    def width(self) -> int:
        """Luma columns, padding included."""
        return int(self.data.shape[1])

    @property
    def pooled(self) -> bool:
        """Whether `data` belongs to a pool, to which it returns when the surface is deleted."""
        return self._give_back is not None

    def __copy__(self) -> Surface:
        """Return itself: a copy would return the memory to the pool twice."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Surface:
        return self

    def __del__(self, exits: Callable[[], bool] = sys.is_finalizing) -> None:
        give_back = getattr(self, "_give_back", None)
        if give_back is not None and not exits():  # at the exit, the modules of the pool may be gone
            give_back(self.data, None if self.awaited else self.ready)

    def __repr__(self) -> str:
        return f"Surface({shape_text(self.data)}, {self.color})"
