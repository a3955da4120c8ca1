# SPDX-License-Identifier: Apache-2.0
"""The types of what passes pixels to other libraries, through DLPack; `ops.tensors` implements them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from streamkit.core.surface import Color


class DLPackArray(Protocol):
    """An array of pixels that `torch.from_dlpack`, `cupy.from_dlpack` and `numpy.from_dlpack` accept.

    Attributes:
        shape: the lengths of its dimensions.
        dtype: uint8.
        device: `cpu`, or `cuda:N`.
        nbytes: its size in bytes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: str
    nbytes: int

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...


class Nv12Planes(NamedTuple):
    """The planes of an NV12 image, as they are in memory; rows may have padding between them.

    Attributes:
        y: luma, (height, width) uint8.
        uv: Cb and Cr, (ceil(height / 2), ceil(width / 2), 2) uint8.
        color: matrix, range and chroma siting.
    """

    y: DLPackArray
    uv: DLPackArray
    color: Color
