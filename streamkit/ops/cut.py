# SPDX-License-Identifier: Apache-2.0
"""Cut parts out of NV12 frames into small surfaces, on the frames' device; measure the sharpness of parts.

A part keeps its samples, or is downscaled by a step: each sample is then the rounded mean of step x step samples of its
plane. At the part's edge its last sample is repeated, and no sample outside is read. Integers only: the host and the
kernel (cuda/cut.cu) produce equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from streamkit.core.data import Color, Surface, array_module
from streamkit.ops.boxes import Rect, check_rects
from streamkit.ops.cuda import driver
from streamkit.ops.cuda.load import kernel
from streamkit.ops.planes import nv12_shape
from streamkit.ops.transfer import fetch, to_device

PART = np.dtype(
    [
        ("source", "<u8"),
        ("to", "<u8"),
        ("left", "<i4"),
        ("top", "<i4"),
        ("right", "<i4"),
        ("bottom", "<i4"),
        ("pitch", "<i4"),
        ("rows", "<i4"),
        ("step", "<i4"),
        ("width", "<i4"),
        ("height", "<i4"),
        ("unused", "<i4"),
    ]
)
"""One part, `struct Part` of cuda/cut.cuh.

`source` is the frame's address, `pitch` and `rows` its padded width and height. `to`, `width` and `height` are the
cut surface's, padded; where nothing is cut they are 0.
"""

_BLOCK = (32, 8)


def step_for(size: tuple[int, int], longest: int) -> int:
    """Return the step that brings a part of this size closest to `longest` on its longer side, not below it."""
    return max(1, max(size) // longest)


def cut_size(rect: Rect, step: int) -> tuple[int, int]:
    """Return the true width and height of the cut part."""
    left, top, right, bottom = rect
    return -(-(right - left) // step), -(-(bottom - top) // step)


def cut_bytes(rect: Rect, step: int) -> int:
    """Return the size of the cut part in bytes."""
    rows, columns = nv12_shape(*cut_size(rect, step))
    return rows * columns


def cut_color(color: Color, step: int) -> Color:
    """Return the color of the cut part: the mean of several chroma samples has another siting than one of them."""
    x, y = ((siting + (step - 1) / 2) / step for siting in (color.chroma_x, color.chroma_y))
    return replace(color, chroma_x=x, chroma_y=y)


def cut(
    surfaces: Sequence[Surface], sizes: Sequence[tuple[int, int]], rects: Sequence[Rect], steps: Sequence[int]
) -> list[Surface]:
    """Cut a part out of each frame; the frames may be released afterwards.

    On a GPU this is one launch for all, on the frames' device and its current stream, and it waits for completion,
    since callers on the host have nothing else that keeps the frames alive until then.

    Args:
        surfaces: the frames, all on the host or all on one device. A surface may occur several times.
        sizes: the true width and height of each.
        rects: the part of each, in source pixels; see `Rect`.
        steps: number of samples merged along each side, at least 1.

    Returns:
        A surface for each, on the same device, of true size `cut_size(rect, step)`.

    Raises:
        ValueError: a rect is not a part of its frame, or a step is below 1.
    """
    check_rects(rects, sizes)
    if any(step < 1 for step in steps):
        raise ValueError(f"a step must be 1 or more, got {min(steps)}")
    if not surfaces:
        return []
    colors = [cut_color(surface.color, step) for surface, step in zip(surfaces, steps, strict=True)]
    if array_module(surfaces[0].data) is not np:
        return _cut_on_device(surfaces, rects, steps, colors)
    return [
        Surface(_cut_on_host(surface.data, rect, step), color)
        for surface, rect, step, color in zip(surfaces, rects, steps, colors, strict=True)
    ]


def to_host(surfaces: Sequence[Surface]) -> list[Surface]:
    """Return small surfaces on the host; from a GPU all of them are one copy, which is waited for."""
    if not surfaces or array_module(surfaces[0].data) is np:
        return list(surfaces)
    with on_device_stream(surfaces):
        on_host = fetch([surface.data for surface in surfaces])()
    return [Surface(data, surface.color) for data, surface in zip(on_host, surfaces, strict=True)]


@contextmanager
def on_device_stream(surfaces: Sequence[Surface]) -> Any:
    """Enter the device of these surfaces; yield its current stream, made to wait for their writers."""
    import cupy

    with surfaces[0].data.device:
        stream = cupy.cuda.get_current_stream()
        driver.wait_for(stream, surfaces)
        yield stream


def parts_table(surfaces: Sequence[Surface], rects: Sequence[Rect]) -> np.ndarray:
    """Return the records of parts on a device, (m,) PART; `to`, `step`, `width` and `height` are still 0."""
    table = np.zeros(len(surfaces), PART)
    table["source"] = [surface.data.data.ptr for surface in surfaces]
    table["pitch"] = [surface.width for surface in surfaces]
    table["rows"] = [surface.height for surface in surfaces]
    for name, values in zip(
        ("left", "top", "right", "bottom"), np.array(rects, np.int32).reshape(-1, 4).T, strict=True
    ):
        table[name] = values
    return table


# -------------------------------------------------------------------------------------------- implementations


def _cut_on_device(
    surfaces: Sequence[Surface], rects: Sequence[Rect], steps: Sequence[int], colors: Sequence[Color]
) -> list[Surface]:
    import cupy

    with on_device_stream(surfaces) as stream:
        outputs = [
            cupy.empty(nv12_shape(*cut_size(rect, step)), np.uint8) for rect, step in zip(rects, steps, strict=True)
        ]
        table = parts_table(surfaces, rects)
        table["to"] = [data.data.ptr for data in outputs]
        table["step"] = steps
        table["width"] = [data.shape[1] for data in outputs]
        table["height"] = [data.shape[0] * 2 // 3 for data in outputs]
        (parts,) = to_device(table)
        wide = int(table["width"].max()) // 2
        high = int(table["height"].max()) // 2
        grid = (-(-wide // _BLOCK[0]), -(-high // _BLOCK[1]), len(outputs))
        kernel("cut.cu", "cut")(grid, _BLOCK, (parts,))
        stream.synchronize()
    return [Surface(data, color) for data, color in zip(outputs, colors, strict=True)]


def _cut_on_host(data: np.ndarray, rect: Rect, step: int) -> np.ndarray:
    left, top, right, bottom = rect
    rows = data.shape[0] * 2 // 3
    luma = data[:rows]
    chroma = data[rows:].reshape(rows // 2, -1, 2)
    out = np.empty(nv12_shape(*cut_size(rect, step)), np.uint8)
    high = out.shape[0] * 2 // 3
    out[:high] = _means(luma, (left, top, right, bottom), (out.shape[1], high), step)
    half = left // 2, top // 2, (right + 1) // 2, (bottom + 1) // 2
    out[high:] = _means(chroma, half, (out.shape[1] // 2, high // 2), step).reshape(high // 2, -1)
    return out


def _means(plane: np.ndarray, rect: Rect, size: tuple[int, int], step: int) -> np.ndarray:
    """Return (h, w, ...) uint8 of `size`: means of step x step samples of a part of a plane; its edge is repeated."""
    left, top, right, bottom = rect
    part = plane[top:bottom, left:right]
    more = size[1] * step - part.shape[0], size[0] * step - part.shape[1]
    if any(more):
        part = np.pad(part, [*((0, n) for n in more), *[(0, 0)] * (part.ndim - 2)], "edge")
    if step == 1:
        return part
    sums = part.reshape(size[1], step, size[0], step, *part.shape[2:]).sum(axis=(1, 3), dtype=np.uint32)
    return np.asarray((sums + step * step // 2) // (step * step), np.uint8)


# threads of a block, and blocks that share a part's rows
_THREADS = 256
_BLOCKS = 16


def sharpness(surfaces: Sequence[Surface], sizes: Sequence[tuple[int, int]], rects: Sequence[Rect]) -> np.ndarray:
    """Return the sharpness of each part: (m,) float64 on the host, 0 if it has fewer than 3 pixels on a side.

    It is the variance of the Laplacian of the luma, LAPV of Pech-Pacheco, Cristobal, Chamorro-Martinez and
    Fernandez-Valdivia, "Diatom autofocusing in brightfield microscopy: a comparative study", ICPR 2000: blur removes
    edges, and with them the variance. The Laplacian is up + down + left + right - 4 x center; a part's border has none,
    so no pixel outside the part is read. Its sums are integers: the host and the kernel (cuda/sharpness.cu) produce
    equal numbers.

    On a GPU this is one launch for all, on the frames' device and its current stream; 16 bytes for each part are copied
    to the host, and waited for.

    Args:
        surfaces: the frames, all on the host or all on one device. A surface may occur several times.
        sizes: the true width and height of each.
        rects: the part of each, in source pixels; see `Rect`.

    Raises:
        ValueError: a rect is not a part of its frame.
    """
    check_rects(rects, sizes)
    if not surfaces:
        return np.zeros(0)
    on_host = array_module(surfaces[0].data) is np
    sums = _laplacian_sums_on_host(surfaces, rects) if on_host else _laplacian_sums_on_device(surfaces, rects)
    sides = np.array([(right - left - 2, bottom - top - 2) for left, top, right, bottom in rects], np.float64)
    count = np.maximum(sides, 0).prod(axis=1)
    some = np.maximum(count, 1)
    return np.where(count > 0, sums[:, 1] / some - (sums[:, 0] / some) ** 2, 0.0)


def _laplacian_sums_on_host(surfaces: Sequence[Surface], rects: Sequence[Rect]) -> np.ndarray:
    """Return (m, 2) float64, integers: the sum of the Laplacian, and of its squares."""
    import cv2

    sums = np.zeros((len(surfaces), 2))
    for sums_of_part, surface, (left, top, right, bottom) in zip(sums, surfaces, rects, strict=True):
        if min(right - left, bottom - top) >= 3:
            edges = cv2.Laplacian(surface.data[top:bottom, left:right], cv2.CV_16S)[1:-1, 1:-1]
            sums_of_part[0] = cv2.sumElems(edges)[0]
            sums_of_part[1] = np.rint(cv2.norm(edges, cv2.NORM_L2SQR))  # whole, but for its last digit
    return sums


def _laplacian_sums_on_device(surfaces: Sequence[Surface], rects: Sequence[Rect]) -> np.ndarray:
    """See `_laplacian_sums_on_host`."""
    import cupy

    with on_device_stream(surfaces):
        (parts,) = to_device(parts_table(surfaces, rects))
        sums = cupy.zeros((len(surfaces), 2), np.int64)
        kernel("sharpness.cu", "sharpness")((_BLOCKS, len(surfaces)), (_THREADS,), (parts, sums))
        (on_host,) = fetch([sums])()
    return on_host.astype(np.float64)
