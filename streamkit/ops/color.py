# SPDX-License-Identifier: Apache-2.0
"""NV12 and RGB: conversion between a surface's Y, Cb and Cr and RGB.

The rule, which the CUDA kernels follow too: luma and chroma are expanded from their range to 0..255, chroma is
interpolated linearly between its samples at the surface's siting, the matrix gives RGB, and RGB is clipped to 0..255.
Formulas: ITU-R BT.601-7, BT.709-6 and BT.2020-2 (non-constant luminance).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.data import Array, Color, Frame, Surface, array_module
from streamkit.ops.resample import Axis, chroma_axis, resample, smooth, smooth_axis
from streamkit.ops.scratch import Scratch, scratch
from streamkit.ops.transfer import host_pixels

MATRICES = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
"""Weights of red and blue in luma; green has the remainder."""

_BAND = 1 << 18
"""Pixels converted at a time: their float32 values stay in the processor's cache."""

IMAGE = np.dtype(
    [
        ("data", "<u8"),
        ("width", "<i4"),
        ("height", "<i4"),
        ("pitch", "<i4"),
        ("rows", "<i4"),
        ("chroma_x", "<f4"),
        ("chroma_y", "<f4"),
        ("y", "<f4"),
        ("rv", "<f4"),
        ("gu", "<f4"),
        ("gv", "<f4"),
        ("bu", "<f4"),
        ("r0", "<f4"),
        ("g0", "<f4"),
        ("b0", "<f4"),
    ]
)
"""`struct Image` of cuda/color.cuh: how a kernel reads a surface. `data` is the address of the first luma row."""


@cache
def yuv_to_rgb(color: Color) -> np.ndarray:
    """Return the (3, 4) float64 matrix A of rgb = A @ (Y, Cb, Cr, 1): stored bytes to RGB in 0..255, unclipped."""
    kr, kb = MATRICES[color.matrix]
    kg = 1 - kr - kb
    luma, black = (1.0, 0.0) if color.full_range else (255 / 219, 16.0)
    chroma = 1.0 if color.full_range else 255 / 224
    red = 2 * (1 - kr) * chroma
    blue = 2 * (1 - kb) * chroma
    a = np.array([[luma, 0, red], [luma, -blue * kb / kg, -red * kr / kg], [luma, blue, 0]])
    a = np.column_stack([a, -a @ (black, 128.0, 128.0)])
    a.setflags(write=False)
    return a


@cache
def rgb_to_yuv(color: Color) -> np.ndarray:
    """Return the (3, 4) float64 matrix of (Y, Cb, Cr) = A @ (R, G, B, 1), all in bytes; inverts `yuv_to_rgb`."""
    a = yuv_to_rgb(color)
    inverse = np.linalg.inv(a[:, :3])
    inverse = np.column_stack([inverse, -inverse @ a[:, 3]])
    inverse.setflags(write=False)
    return inverse


def image_record(color: Color, shape: Sequence[int], width: int, height: int) -> np.ndarray:
    """Return an IMAGE record, () shaped, for a surface whose data has `shape`; its `data` is 0.

    Args:
        color: the surface's color.
        shape: the shape of its data.
        width: the frame's true width in pixels.
        height: its true height.
    """
    check_size(shape, width, height)
    (y, _, rv, r0), (_, gu, gv, g0), (_, bu, _, b0) = yuv_to_rgb(color).tolist()
    size = width, height, shape[1], shape[0] * 2 // 3
    return np.array((0, *size, color.chroma_x, color.chroma_y, y, rv, gu, gv, bu, r0, g0, b0), IMAGE)


def check_size(shape: Sequence[int], width: int, height: int) -> None:
    """Check that a surface's data of this shape can hold a frame of this size; raise ValueError."""
    if not (1 <= width <= shape[1] and 1 <= height <= shape[0] * 2 // 3):
        raise ValueError(f"a surface of {shape[1]}x{shape[0] * 2 // 3} pixels cannot hold a frame of {width}x{height}")


def planes(
    data: np.ndarray,
    color: Color,
    width: int,
    height: int,
    size: tuple[int, int],
    new: Scratch,
    *,
    left: int = 0,
    top: int = 0,
    antialias: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sample Y, Cb and Cr of a host frame bilinearly at the pixels of the frame resized to `size`.

    Args:
        data: an NV12 surface's data.
        color: its color; only the siting matters here.
        width: the frame's true width.
        height: its true height.
        size: width, height to resize to.
        new: allocator of the results.
        left: left end of a part of a frame, even; `width` and `height` are then the part's.
        top: upper end of the part, even.
        antialias: average the samples where the frame becomes smaller, see `ops.resample`.

    Returns:
        Three (size[1], size[0]) float32 arrays in the stored bytes' units, with the range not expanded.
    """
    import cv2

    new_width, new_height = size
    luma = data[top : top + height, left : left + width]
    chroma_width = (width + 1) // 2
    chroma_height = (height + 1) // 2
    first = data.shape[0] * 2 // 3 + top // 2
    chroma = data[first : first + chroma_height].reshape(chroma_height, -1, 2)
    chroma = chroma[:, left // 2 : left // 2 + chroma_width]
    parts = tuple(new((chroma_height, chroma_width), np.uint8) for _ in range(2))
    cv2.split(chroma, parts)
    if antialias and (width > new_width or height > new_height):
        y = smooth(luma, smooth_axis(width, new_width), smooth_axis(height, new_height), new)
        soft = smooth_axis(width, new_width, color.chroma_x), smooth_axis(height, new_height, color.chroma_y)
        return y, smooth(parts[0], *soft, new), smooth(parts[1], *soft, new)
    y = resample(luma, Axis(width, new_width), Axis(height, new_height), new)
    across = chroma_axis(width, new_width, color.chroma_x)
    down = chroma_axis(height, new_height, color.chroma_y)
    return y, resample(parts[0], across, down, new), resample(parts[1], across, down, new)


def rgb(frame: Frame) -> np.ndarray:
    """Return a frame's pixels as (height, width, 3) uint8 RGB on the host.

    This is a copy; from a GPU it is slow, and counted in the summary as `pixels to host`.

    Raises:
        ValueError: the frame has no pixels.
    """
    return to_rgb(surface_of(frame), frame.width, frame.height, frame._state.counters)


def surface_of(frame: Frame) -> Surface:
    """Return a frame's surface. Raises ValueError if it has none."""
    if frame.surface is None:
        raise ValueError(
            f"frame {frame.index} of {frame.source} has no pixels: its source makes none, or a stage removed them; "
            "frame.surface is None on such frames"
        )
    return frame.surface


def to_rgb(surface: Surface, width: int, height: int, counters: Counters | None = None) -> np.ndarray:
    """Return a surface's pixels as (height, width, 3) uint8 RGB on the host, rounded to nearest.

    Args:
        surface: on host or device; from a device it is copied, which `counters` counts as `pixels to host`.
        width: the frame's true width.
        height: its true height.
        counters: counts the copies.
    """
    import cv2

    check_size(surface.data.shape, width, height)
    data = host_pixels(surface, counters)
    a = yuv_to_rgb(surface.color)
    with scratch() as new:
        y, cb, cr = planes(data, surface.color, width, height, (width, height), new)
        red, green, blue = (new(y.shape, np.uint8) for _ in range(3))
        # into uint8 OpenCV rounds to nearest and clips
        cv2.addWeighted(y, a[0, 0], cr, a[0, 2], a[0, 3], red, cv2.CV_8U)
        cv2.addWeighted(cv2.addWeighted(y, a[1, 0], cb, a[1, 1], a[1, 3]), 1, cr, a[1, 2], 0, green, cv2.CV_8U)
        cv2.addWeighted(y, a[2, 0], cb, a[2, 1], a[2, 3], blue, cv2.CV_8U)
        return np.asarray(cv2.merge((red, green, blue)))


def from_rgb(rgb: np.ndarray, color: Color) -> np.ndarray:
    """Convert an RGB image to NV12 data on the host, as in `Surface.data`.

    Each chroma sample is the mean over the area of two by two luma samples around its position, so at left siting the
    adjacent columns count half.

    Args:
        rgb: (h, w, 3) uint8.
        color: the target color.

    Returns:
        (H * 3 / 2, W) uint8, where H and W are h and w made even by repeating the last row and column.
    """
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8 or 0 in rgb.shape:
        raise ValueError(f"from_rgb needs an image of shape (h, w, 3), uint8, got {rgb.dtype}{list(rgb.shape)}")
    height, width = (n + n % 2 for n in rgb.shape[:2])
    data = np.empty((height * 3 // 2, width), np.uint8)
    rows = max(2, _BAND // width // 2 * 2)
    for top in range(0, height, rows):
        _convert_band(rgb, color, top, min(top + rows, height), data)
    return data


def write_nv12(rgb: Array, color: Color, out: Array) -> None:
    """Convert an RGB image to NV12 data where it is, on host or device, by the rule of `from_rgb`.

    Rounding may differ from `from_rgb` by one level. On a device this is queued on the current stream.

    Args:
        rgb: (h, w, 3) uint8.
        color: the target color.
        out: (H * 3 / 2, W) uint8 to write, where H and W are h and w made even.
    """
    xp = array_module(rgb)
    height = out.shape[0] * 2 // 3
    width = out.shape[1]
    more = height - rgb.shape[0], width - rgb.shape[1]
    if any(more):
        rgb = xp.pad(rgb, ((0, more[0]), (0, more[1]), (0, 0)), "edge")
    parts = [rgb[..., i].astype(np.float32) for i in range(3)]
    for i, row in enumerate(rgb_to_yuv(color).astype(np.float32)):
        plane = parts[0] * row[0] + parts[1] * row[1] + parts[2] * row[2] + row[3]
        if i == 0:
            out[:height] = _bytes(plane, xp)
        else:
            halved = _halve(plane, color.chroma_y, xp)
            out[height:, i - 1 :: 2] = _bytes(_halve(halved.T, color.chroma_x, xp).T, xp)


def _convert_band(rgb: np.ndarray, color: Color, top: int, bottom: int, data: np.ndarray) -> None:
    """Fill the even rows `top` to `bottom` of NV12 data; float32 copies are limited to these rows."""
    import cv2

    height = data.shape[0] * 2 // 3
    width = data.shape[1]
    first = max(0, top - 2)  # two rows above and below, for a chroma sample that lies on the edge between two bands
    band = rgb[first : bottom + 2]
    more = min(bottom + 2, height) - first - len(band), width - band.shape[1]
    if any(more):
        band = np.pad(band, ((0, more[0]), (0, more[1]), (0, 0)), "edge")
    matrix = rgb_to_yuv(color)
    data[top:bottom] = _rounded(cv2.transform(band[top - first : bottom - first].astype(np.float32), matrix[:1]))
    halved = _halve_rows(band, color.chroma_y, (top - first) // 2, (bottom - first) // 2)
    across = np.array([_overlap(2, j - color.chroma_x) / 2 for j in (-1, 0, 1, 2)])
    identity = np.ones(1)
    chroma = []
    for row in matrix[1:]:
        means = cv2.sepFilter2D(
            cv2.transform(halved, row[None]),
            cv2.CV_32F,
            across,
            identity,
            anchor=(1, 0),
            borderType=cv2.BORDER_REPLICATE,
        )
        even_columns = cv2.resize(means, (width // 2, len(means)), interpolation=cv2.INTER_NEAREST)
        chroma.append(_rounded(even_columns))
    data[height + top // 2 : height + bottom // 2] = cv2.merge(chroma).reshape(-1, width)


def _halve_rows(rgb: np.ndarray, siting: float, start: int, end: int) -> np.ndarray:
    """Return rows `start` to `end` of the means over the height, as `_halve`, of an image of three channels."""
    import cv2

    rows = np.arange(2 * start, 2 * end, 2)
    last = len(rgb) - 1
    weights = {j: _overlap(2, j - siting) / 2 for j in (-1, 0, 1, 2)}
    (first, w), (second, v), *rest = [(rgb[np.clip(rows + j, 0, last)], w) for j, w in weights.items() if w]
    mean = cv2.addWeighted(first, w, second, v, 0, dtype=cv2.CV_32F)
    for more, weight in rest:
        mean = cv2.scaleAdd(more.astype(np.float32), weight, mean)
    return np.asarray(mean)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Round to nearest and clip to uint8, as OpenCV does when it converts."""
    import cv2

    return np.asarray(cv2.addWeighted(values, 1, values, 0, 0, dtype=cv2.CV_8U))


def _bytes(values: Array, xp: Any = np) -> Array:
    """Round Y, U or V of RGB to uint8: none is below 0, and chroma of full range reaches 255.5."""
    return xp.minimum(xp.rint(values), 255).astype(np.uint8)


def _halve(values: Array, siting: float, xp: Any = np) -> Array:
    """Return means over the height of two rows, centerd on 2i + siting; edge samples are repeated."""
    even = values[0::2]
    odd = values[1::2]
    before = xp.concatenate([even[:1], odd[:-1]])  # of row 2i: 2i - 1
    after = xp.concatenate([even[1:], odd[-1:]])  # of row 2i + 1: 2i + 2
    weights = [_overlap(2, j - siting) / 2 for j in (-1, 0, 1, 2)]
    parts = [np.float32(w) * v for w, v in zip(weights, (before, even, odd, after), strict=True) if w]
    return sum(parts[1:], parts[0])


def _overlap(width: float, distance: float) -> float:
    """Return the overlap of a sample of width 1 and a window of `width`, with centers `distance` apart."""
    return max(0.0, min(distance + 0.5, width / 2) - max(distance - 0.5, -width / 2))
