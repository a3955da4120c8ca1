"""A picture in memory, and how its colours are to be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamkit.core.detections import Array, shape_text


@dataclass(frozen=True, slots=True)
class Color:
    """How the Y, Cb and Cr of a picture are to be read.

    Args:
        matrix: the luma coefficients, as ITU-R BT.601, BT.709 or BT.2020 (non-constant luminance) give them.
        full_range: True for 0..255, False for 16..235 (luma) and 16..240 (chroma).
        chroma_x: where a chroma sample sits to the right of its block's left luma sample, in luma samples:
            0 for H.264's and HEVC's left siting, 0.5 for centre (JPEG).
        chroma_y: the same downwards; 0.5 for left and centre siting, 0 for top-left.
    """

    matrix: Literal["bt601", "bt709", "bt2020"] = "bt709"
    full_range: bool = False
    chroma_x: float = 0.0
    chroma_y: float = 0.5


class Surface:
    """An NV12 picture. Read-only once it is handed on; it lives as long as its last reader.

    Attributes:
        data: (height * 3 / 2, width) uint8, C-contiguous, on host or device; the luma rows, then the rows of
            interleaved Cb and Cr. Height and width are even: odd pictures are padded by repeating the edge.
        color: how to read it.
        ready: a CUDA event after which `data` is written, or None when it is already (always None on the host).
        turn: where known, the address of the CUDA stream that writes it, and a number that rises along that stream.
        awaited: whether a stream that goes on until the surface is free has waited for `ready`.
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
        """Whether `data` belongs to a pool, which takes it back when the surface goes."""
        return self._give_back is not None

    def __copy__(self) -> Surface:
        """Itself: a second one of the same memory would give it back twice."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Surface:
        return self

    def __del__(self) -> None:
        give_back = getattr(self, "_give_back", None)
        if give_back is not None:
            give_back(self.data, None if self.awaited else self.ready)

    def __repr__(self) -> str:
        return f"Surface({shape_text(self.data)}, {self.color})"
