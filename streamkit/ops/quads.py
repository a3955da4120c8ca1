# SPDX-License-Identifier: Apache-2.0
"""Straightening of quadrilaterals, such as number plates seen at an angle, into a network's input tensor.

A row of the tensor shows the inside of four corners as if it were seen from the front: a projective map takes the
rectangle in the input to the corners. A value is sampled as in `ops.preprocess`, bilinearly on the planes of the frame;
with `InputSpec.antialias`, where the quadrilateral becomes smaller, a pixel is the mean of n x n such samples. The
host's implementation and the kernel (cuda/quads.cu) do the same arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from streamkit.core.data import Array, Color, Surface, array_module
from streamkit.ops.color import IMAGE, image_record, yuv_to_rgb
from streamkit.ops.cuda.load import kernel
from streamkit.ops.letterbox import InputSpec, Placement, placements
from streamkit.ops.resample import bilinear_at
from streamkit.ops.transfer import to_device

QUAD = np.dtype(
    [
        ("image", IMAGE),
        ("left", "<i4"),
        ("top", "<i4"),
        ("new_width", "<i4"),
        ("new_height", "<i4"),
        ("matrix", "<f4", 9),
        ("taps", "<i4"),
        ("row", "<i4"),
        ("unused", "<i4"),
    ]
)
"""`struct Quad` of cuda/quads.cu."""

_BLOCK = (32, 8)
_OUT = {"f32": "float", "f16": "__half", "u8": "u8"}
_MAX_TAPS = 8


def reading_order(corners: np.ndarray) -> np.ndarray:
    """Return the corners of quadrilaterals from the upper left one of the text in them, clockwise.

    The text runs along the longer sides, and is turned by at most 90 degrees from the horizontal.

    Args:
        corners: (m, 4, 2), each in any order.
    """
    off = corners - corners.mean(axis=1, keepdims=True)
    turn = np.argsort(np.arctan2(off[..., 1], off[..., 0]), axis=1, kind="stable")
    ring = np.take_along_axis(corners, turn[..., None], axis=1)  # clockwise on the screen, whose y points down
    sides = np.roll(ring, -1, axis=1) - ring
    length = np.hypot(sides[..., 0], sides[..., 1])
    odd = length[:, 1] + length[:, 3] > length[:, 0] + length[:, 2]
    along = np.where(odd[:, None], sides[:, 1] - sides[:, 3], sides[:, 0] - sides[:, 2])
    backwards = (along[:, 0] < 0) | ((along[:, 0] == 0) & (along[:, 1] < 0))
    first = odd + 2 * backwards
    return np.take_along_axis(ring, ((first[:, None] + np.arange(4)) % 4)[..., None], axis=1)


def sides_of(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean width and height of quadrilaterals (m, 4, 2) in reading order, in pixels."""
    sides = np.roll(corners, -1, axis=1) - corners
    length = np.hypot(sides[..., 0], sides[..., 1])
    return (length[:, 0] + length[:, 2]) / 2, (length[:, 1] + length[:, 3]) / 2


def projection(corners: np.ndarray) -> np.ndarray:
    """Return the (3, 3) float64 map of the unit square to four corners (4, 2), from (0, 0) clockwise.

    Formulas: Heckbert, Fundamentals of Texture Mapping and Image Warping, 1989. Corners on one line have no such map:
    the result has values that are not finite.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = np.asarray(corners, np.float64)
    sum_x = x0 - x1 + x2 - x3
    sum_y = y0 - y1 + y2 - y3
    ax = x1 - x2
    bx = x3 - x2
    ay = y1 - y2
    by = y3 - y2
    with np.errstate(all="ignore"):
        area = ax * by - bx * ay
        g = (sum_x * by - bx * sum_y) / area
        h = (ax * sum_y - sum_x * ay) / area
        return np.array(
            [
                [x1 - x0 + g * x1, x3 - x0 + h * x3, x0],
                [y1 - y0 + g * y1, y3 - y0 + h * y3, y0],
                [g, h, np.where(area == 0, np.nan, 1.0)],
            ]
        )


def fill_quads(
    out: Array, surfaces: Sequence[Surface], sizes: Sequence[tuple[int, int]], corners: np.ndarray, spec: InputSpec
) -> None:
    """Write the rows of a network's tensor that have corners; the others are not touched.

    On a GPU this is one launch on the current CuPy stream, not waited for.

    Args:
        out: the tensor, on the surfaces' device, with at least a row for each surface.
        surfaces: the frame of each row.
        sizes: the true width and height of each frame.
        corners: (m, 4, 2) source pixels counted from the frame's edge, in reading order; NaN for a row without. Corners
            on one line count as none.
        spec: the network's input.
    """
    matrices = np.array([projection(quad) for quad in corners]).reshape(-1, 3, 3)
    rows = np.flatnonzero(np.isfinite(matrices).all(axis=(1, 2)))
    if not len(rows):
        return
    places, taps = _plan(corners[rows], spec)
    matrices = matrices[rows]
    if array_module(out) is np:
        for row, place, n, matrix in zip(rows.tolist(), places.tolist(), taps.tolist(), matrices, strict=True):
            _fill_host(out[row], surfaces[row], sizes[row], Placement(*place), n, matrix, spec)
        return
    table = np.zeros(len(rows), QUAD)
    records = [image_record(surfaces[row].color, surfaces[row].data.shape, *sizes[row]) for row in rows.tolist()]
    table["image"] = np.array(records, IMAGE)
    table["image"]["data"] = [surfaces[row].data.data.ptr for row in rows.tolist()]
    for name, values in zip(("left", "top", "new_width", "new_height"), places.T, strict=True):
        table[name] = values
    table["matrix"] = matrices.reshape(-1, 9)
    table["taps"] = taps
    table["row"] = rows
    _launch(out, table, spec)


def _plan(corners: np.ndarray, spec: InputSpec) -> tuple[np.ndarray, np.ndarray]:
    """Return placements (k, 4), and the number of samples along each side of a network pixel (k,)."""
    width, height = (np.maximum(side, 1.0) for side in sides_of(corners))
    places = placements(spec, width, height)
    step = np.maximum(width / places[:, 2], height / places[:, 3])
    taps = np.ceil(step - 1e-6).clip(1, _MAX_TAPS) if spec.antialias else np.ones(len(corners))
    return places, taps.astype(np.int32)


def _fill_host(
    image: np.ndarray,
    surface: Surface,
    size: tuple[int, int],
    place: Placement,
    taps: int,
    matrix: np.ndarray,
    spec: InputSpec,
) -> None:
    """Write one row of the tensor, (3, H, W) or (H, W, 3)."""
    factor, summand, pad = spec.affine()
    left, top, right, bottom = place.visible(spec.size)
    whole = np.empty((spec.size[1], spec.size[0], 3), np.float32)
    whole[:] = pad
    offsets = (np.arange(taps) + 0.5) / taps
    u = ((np.arange(left, right) - place.left)[:, None] + offsets).reshape(-1) / place.width
    v = ((np.arange(top, bottom) - place.top)[:, None] + offsets).reshape(-1) / place.height
    rgb = _sampled(surface, size, matrix, u, v)
    high = bottom - top
    wide = right - left
    rgb = rgb.reshape(high, taps, wide, taps, 3).mean(axis=(1, 3))
    whole[top:bottom, left:right] = (rgb if spec.color == "rgb" else rgb[..., ::-1]) * factor + summand
    if spec.dtype == "u8":
        whole = np.clip(np.rint(whole), 0, 255)
    image[:] = whole if spec.layout == "nhwc" else whole.transpose(2, 0, 1)


def _sampled(surface: Surface, size: tuple[int, int], matrix: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return RGB at the places that the map takes (u, v) to: (len(v), len(u), 3) float32 in 0..255."""
    divisor = matrix[2, 0] * u + (matrix[2, 1] * v + matrix[2, 2])[:, None]
    x, y = ((row[0] * u + (row[1] * v + row[2])[:, None]) / divisor - 0.5 for row in matrix[:2])
    x = x.clip(0, size[0] - 1)
    y = y.clip(0, size[1] - 1)
    luma = surface.data[: surface.height]
    chroma = surface.data[surface.height :].reshape(surface.height // 2, -1, 2)
    chroma = chroma[: (size[1] + 1) // 2, : (size[0] + 1) // 2]
    color: Color = surface.color
    at = (x - color.chroma_x) / 2, (y - color.chroma_y) / 2
    parts = [bilinear_at(luma, x, y), *(bilinear_at(chroma[..., i], *at) for i in (0, 1))]
    yuv1 = np.stack([*parts, np.ones_like(x)], axis=-1)
    return np.asarray(np.clip(yuv1 @ yuv_to_rgb(color).T, 0, 255), np.float32)


def _launch(out: Array, table: np.ndarray, spec: InputSpec) -> None:
    from streamkit.ops.preprocess_cuda import spec_record

    header, quads = to_device(spec_record(spec), table)
    defines = (f"OUT={_OUT[spec.dtype]}", f"NHWC={int(spec.layout == 'nhwc')}")
    grid = (math.ceil(spec.size[0] / _BLOCK[0]), math.ceil(spec.size[1] / _BLOCK[1]), len(table))
    kernel("quads.cu", "quads", defines)(grid, _BLOCK, (header, quads, out))
