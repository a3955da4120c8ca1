# SPDX-License-Identifier: Apache-2.0
"""Boxes: overlap, clipping, and conversion between network pixels and source pixels.

Boxes are (n, 4) float32 x1, y1, x2, y2; x2 and y2 are edges, so a box's width is x2 - x1. NumPy arrays yield NumPy
arrays, CuPy arrays yield CuPy arrays. `cuda/nms.cu` uses the same order of float32 operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamkit.core.data import Array, array_module

Rect = tuple[int, int, int, int]
"""A part of a frame: left, top, right, bottom in source pixels, the last two exclusive; left and top are even."""


def area(xyxy: Array) -> Array:
    """Return the boxes' areas, (n,) float32; 0 for a box whose edges are in the wrong order."""
    xp = array_module(xyxy)
    size = xp.maximum(xyxy[..., 2:] - xyxy[..., :2], np.float32(0))
    return size[..., 0] * size[..., 1]


def intersection_and_union(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the areas of intersection and union of each box of `a` (n, 4) with each of `b` (m, 4): (n, m) float32."""
    xp = array_module(a)
    width = xp.minimum(a[:, None, 2], b[:, 2]) - xp.maximum(a[:, None, 0], b[:, 0])
    height = xp.minimum(a[:, None, 3], b[:, 3]) - xp.maximum(a[:, None, 1], b[:, 1])
    zero = np.float32(0)
    both = xp.maximum(width, zero) * xp.maximum(height, zero)
    return both, (area(a)[:, None] + area(b)) - both


def iou_matrix(a: Array, b: Array) -> Array:
    """Intersection over union of each box of `a` (n, 4) with each of `b` (m, 4): (n, m) float32.

    Two boxes without area have an IoU of 0.
    """
    xp = array_module(a)
    both, union = intersection_and_union(a, b)
    return both / xp.where(union > 0, union, np.float32(1))


def to_source(points: Array, geometry: Array) -> Array:
    """Convert network pixels to source pixels: (network - offset) / scale.

    Args:
        points: (n, 2 k) float32, x and y alternating: boxes (k = 2) or landmarks.
        geometry: (n, 4) or (4,) float32 scale_x, scale_y, offset_x, offset_y, with network = source x scale + offset.
    """
    pairs = points.reshape(len(points), points.shape[1] // 2, 2)
    return ((pairs - geometry[..., None, 2:]) / geometry[..., None, :2]).reshape(points.shape)


def clip(xyxy: Array, size_wh: Array) -> Array:
    """Clip boxes to the frame, to 0..width and 0..height.

    Args:
        xyxy: (n, 4) float32 source pixels.
        size_wh: (n, 2) or (2,) float32, the frames' width and height.
    """
    xp = array_module(xyxy)
    return xp.minimum(xp.maximum(xyxy, np.float32(0)), xp.tile(size_wh, 2))


def check_rects(rects: Sequence[Rect], sizes: Sequence[tuple[int, int]]) -> None:
    """Check that each rect is a part of its frame and begins on an even pixel; raise ValueError."""
    if len(rects) != len(sizes):
        raise ValueError(f"preprocess needs one rect per surface, got {len(rects)} rects and {len(sizes)} surfaces")
    for (left, top, right, bottom), (width, height) in zip(rects, sizes, strict=True):
        if left % 2 or top % 2 or not (0 <= left < right <= width and 0 <= top < bottom <= height):
            raise ValueError(
                f"a rect is left, top, right, bottom within the frame, left and top even; got "
                f"{(left, top, right, bottom)} in {width}x{height}"
            )


def views_around(xyxy: np.ndarray, pad: float, size: tuple[int, int]) -> np.ndarray:
    """Return what fills a network's input around each box: its center, with `pad`, in the aspect ratio of the input.

    Args:
        xyxy: (m, 4) boxes in source pixels.
        pad: margin on each side, as a share of the box's width and height.
        size: width and height of the input.

    Returns:
        (m, 4) float32: left, top, right, bottom; at least a pixel wide and high, and not clipped to a frame.
    """
    boxes = np.asarray(xyxy, np.float64).reshape(-1, 4)
    sides = np.maximum((boxes[:, 2:] - boxes[:, :2]) * (1 + 2 * pad), 1)
    scale = (sides / size).max(axis=1, keepdims=True)
    half = scale * np.array(size) / 2
    center = (boxes[:, :2] + boxes[:, 2:]) / 2
    return np.concatenate([center - half, center + half], axis=1).astype(np.float32)


def crop_rects(xyxy: np.ndarray, sizes_wh: np.ndarray, pad: float = 0.0) -> np.ndarray:
    """Return the whole pixels of each box, with `pad` around it, clipped to the frame.

    The left and upper edge are rounded out to an even pixel, so that a crop has whole blocks of chroma.

    Args:
        xyxy: (m, 4) boxes in source pixels.
        sizes_wh: (m, 2) width and height of each box's frame.
        pad: margin on each side, as a share of the box's width and height; a negative value shrinks the box.

    Returns:
        (m, 4) int32: left, top, right, bottom, the last two exclusive; all 0 if a box lies outside of its frame or is
        not finite.
    """
    boxes = np.array(xyxy, np.float64).reshape(-1, 4)
    limit = np.asarray(sizes_wh, np.float64).reshape(-1, 2)
    boxes[~np.isfinite(boxes).all(axis=1)] = -1  # outside of every frame
    around = pad * (boxes[:, 2:] - boxes[:, :2])
    first = np.maximum(np.floor(boxes[:, :2] - around), 0)
    last = np.minimum(np.ceil(boxes[:, 2:] + around), limit)
    first -= first % 2
    rects = np.concatenate([first, last], axis=1)
    rects[(rects[:, 2:] <= rects[:, :2]).any(axis=1)] = 0  # the box is outside
    return rects.astype(np.int32)
