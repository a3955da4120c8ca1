# SPDX-License-Identifier: Apache-2.0
"""Views: parts of a frame that a network sees separately, and the merging of their boxes.

A detector finds small objects better if it sees a frame in tiles, each as large as its input. Tiles overlap, so that an
object cut by one tile is whole in another; after SAHI (Akyon et al., Slicing Aided Hyper Inference, ICIP 2022).
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from streamkit.ops import rotated
from streamkit.ops.boxes import Rect, intersection_and_union

MAX_TILES = 1024
"""Maximum number of tiles per frame."""

_COVERED = np.float32(0.6)
"""A box cut off by its view's border is removed if a box of another view covers this share of it."""

_SAME = np.float32(0.45)
"""Minimum IoU of boxes of one object in different views: its edges differ more between views than within one."""

_NEAR_NETWORK_PX = 4.0
"""Maximum distance from a view's border to a box that it cuts off, in network pixels."""


def bounding_rect(corners: np.ndarray, width: int, height: int) -> Rect | None:
    """Return the bounding rectangle of a polygon's (n, 2) corners in whole pixels, clipped; None if it is outside."""
    low = np.floor(corners.min(axis=0))
    high = np.ceil(corners.max(axis=0))
    left, top = (max(0, int(v)) // 2 * 2 for v in low.tolist())
    right = min(width, int(high[0]))
    bottom = min(height, int(high[1]))
    return (left, top, right, bottom) if left < right and top < bottom else None


def tiles(rect: Rect, size: tuple[int, int], overlap: float) -> list[Rect]:
    """Lay tiles over a part of a frame, row by row, so that they cover it.

    Args:
        rect: the part.
        size: width and height of a tile, unless the part is smaller.
        overlap: minimum share of a tile that overlaps its neighbor, below 1.

    Raises:
        ValueError: there would be more than `MAX_TILES`.
    """
    across, down = (_starts(rect[2 + i] - rect[i], size[i], overlap) for i in (0, 1))
    if len(across) * len(down) > MAX_TILES:
        raise ValueError(
            f"tiles of {size[0]}x{size[1]} with an overlap of {overlap:g} would be {len(across) * len(down)} in "
            f"{rect[2] - rect[0]}x{rect[3] - rect[1]} pixels, more than {MAX_TILES}: make them larger"
        )
    return [(rect[0] + x, rect[1] + y, rect[0] + x_end, rect[1] + y_end) for y, y_end in down for x, x_end in across]


def _starts(length: int, tile: int, overlap: float) -> list[tuple[int, int]]:
    """Return start and end of the tiles along an axis: spread evenly, at even positions, the last up to the end."""
    last = (length - tile) // 2 * 2
    if last <= 0:
        return [(0, length)]
    step = max(2, int(tile * (1 - overlap) + 1e-6) // 2 * 2)  # even, or rounding would part two tiles that only touch
    count = 1 + math.ceil(last / step)
    firsts = [last * i // (count - 1) // 2 * 2 for i in range(count)]
    return [(first, length if i == count - 1 else first + tile) for i, first in enumerate(firsts)]


def is_cut_off(xyxy: np.ndarray, rects: np.ndarray, within: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return whether each box ends at a side of its view that is not a side of the part that the views cover.

    Args:
        xyxy: (n, 4) boxes in source pixels.
        rects: (n, 4) the view of each.
        within: (n, 4) the part of the frame that its views cover.
        scale: (n, 2) network pixels per source pixel.

    Returns:
        (n,) bool.
    """
    near = np.tile(_NEAR_NETWORK_PX / scale, 2)
    outward = np.array([-1, -1, 1, 1])
    reaches = (xyxy - rects) * outward >= -near
    return np.asarray((reaches & (rects != within)).any(axis=1))


def merge(
    xyxy: np.ndarray,
    score: np.ndarray,
    class_id: np.ndarray,
    frame: np.ndarray,
    view: np.ndarray,
    cut: np.ndarray,
    *,
    iou: float,
    agnostic: bool,
    top_k: int,
    corners: np.ndarray | None = None,
) -> tuple[np.ndarray, int, int]:
    """Apply greedy non-max suppression over the views of each frame.

    Complete boxes come before boxes that are cut off, and then higher scores before lower ones. A kept box removes
    boxes of its class that overlap it by more than `iou`; of other views, also those that overlap it by more than 0.45,
    and cut ones that it covers.

    Args:
        xyxy: (n, 4) float32 source pixels.
        score: (n,).
        class_id: (n,).
        frame: (n,) the frame of each, ascending.
        view: (n,) the view that each was found in.
        cut: (n,) bool, from `is_cut_off`.
        iou: the threshold.
        agnostic: boxes suppress each other across classes.
        top_k: maximum number of boxes per frame; the best are kept.
        corners: (n, 4, 2) corners of rotated boxes, which are compared instead, by probabilistic IoU.

    Returns:
        The rows kept, by frame and best first; the number of rows suppressed; the number removed by `top_k`.
    """
    chosen: list[np.ndarray] = []
    taken = left_out = 0
    bounds = np.flatnonzero(np.diff(frame, prepend=-1, append=-1)).tolist()
    for start, end in pairwise(bounds):
        rows = start + np.lexsort((-score[start:end], cut[start:end]))
        across = view[rows][:, None] != view[rows]
        if corners is None:
            both, union = intersection_and_union(xyxy[rows], xyxy[rows])
            hits = both > np.float32(iou) * union
            hits |= across & (both > min(np.float32(iou), _SAME) * union)
            hits |= across & (both > _COVERED * np.diagonal(both)) & cut[rows]
        else:
            shapes = corners[rows].reshape(len(rows), rotated.CORNERS)
            hits = rotated.overlaps(shapes, shapes, iou)
            hits |= across & rotated.overlaps(shapes, shapes, min(iou, float(_SAME)))
            torn = np.flatnonzero(cut[rows])
            hits[:, torn] |= across[:, torn] & (rotated.covered(shapes[torn], shapes) > _COVERED).T
        if not agnostic:
            hits &= class_id[rows][:, None] == class_id[rows]
        alive = np.ones(len(rows), bool)
        for i in range(len(rows)):
            if alive[i]:
                alive[i + 1 :] &= ~hits[i, i + 1 :]
        stay = rows[alive]
        stay = stay[np.argsort(-score[stay], kind="stable")]
        taken = taken + len(rows) - len(stay)
        left_out = left_out + max(0, len(stay) - top_k)
        chosen.append(stay[:top_k])
    return np.concatenate(chosen) if chosen else np.zeros(0, np.intp), taken, left_out
