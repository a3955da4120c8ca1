# SPDX-License-Identifier: Apache-2.0
"""Non-max suppression, and selection of a batch's objects among its candidates.

Greedy, as in all detectors: from the best score down, a box that is kept removes those of its class that overlap it by
more than the threshold: by IoU, or by probabilistic IoU where boxes are rotated (`ops.rotated`). Boxes are compared
before clipping. Equal scores are ordered by anchor, so the result does not
depend on the device or the batch.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.ops import rotated
from streamkit.ops.boxes import clip, intersection_and_union, to_source
from streamkit.ops.candidates import Candidates, upload
from streamkit.ops.cuda.load import kernel

CAUSES = ("min_score", "label", "not_finite", "nms", "outside", "size", "top_k")
"""Why an anchor is no object, in the order of the tests:

- `min_score`, `label`, `not_finite`: see `streamkit.ops.candidates`;
- `nms`: a better object overlaps it;
- `outside`: no part of it is in the frame (one that is partly inside is clipped, never dropped);
- `size`: its shorter side is under `min_size` or its longer side over `max_size`;
- `top_k`: there are `top_k` better objects, none of which suppresses it.
"""

_BLOCK = 128
_THREADS = 1024


class Packed(NamedTuple):
    """A batch's objects in two tables that are views of one buffer, so one copy brings both to the host.

    Attributes:
        rows: (n, k, 6 + c) float32: x1, y1, x2, y2 in source pixels, clipped; score; class id; the candidates' points,
            in source pixels if they are positions. Best first, zeros after the last.
        counts: (n, 1 + len(CAUSES)) int32: rows in use, then anchors removed by cause.
        buffer: float32, flat: the bytes of both.
    """

    rows: Array
    counts: Array
    buffer: Array

    @classmethod
    def empty(cls, n: int, k: int, columns: int, xp: Any = np) -> Packed:
        """Allocate k objects with 6 + `columns` values in each of n frames; not initialized."""
        return cls.over(xp.empty(n * k * (6 + columns) + n * (1 + len(CAUSES)), np.float32), (n, k, 6 + columns))

    @classmethod
    def over(cls, buffer: Array, shape: tuple[int, ...]) -> Packed:
        """Return the tables in a buffer, such as a copy on the host; `shape` is that of the rows."""
        values = math.prod(shape)
        counts = buffer[values:].view(np.int32).reshape(shape[0], 1 + len(CAUSES))
        return cls(buffer[:values].reshape(shape), counts, buffer)


def select(
    candidates: Any,
    geometry: np.ndarray,
    sizes_wh: np.ndarray,
    *,
    iou: float | None,
    agnostic: bool = False,
    top_k: int = 300,
    min_size: float = 0.0,
    max_size: float = np.inf,
) -> Packed:
    """Suppress, convert to source pixels, clip, filter by size and take the best, for all frames at once.

    Args:
        candidates: result of the functions of `streamkit.ops.candidates`.
        geometry: (n, 4) float32 on the host, each frame's scale_x, scale_y, offset_x, offset_y.
        sizes_wh: (n, 2) on the host, each frame's width and height.
        iou: the threshold of non-max suppression; None for none.
        agnostic: boxes suppress each other across classes.
        top_k: maximum number of objects per frame.
        min_size: minimum length of an object's shorter side, in source pixels, after clipping.
        max_size: maximum length of its longer side.

    Returns:
        `Packed`, on the candidates' device; k is `top_k` or the number of anchors, if that is less.
    """
    frames = np.concatenate([geometry, sizes_wh], axis=1).astype(np.float32)
    if not isinstance(candidates, Candidates):
        return _select_on_device(candidates, frames, iou, agnostic, top_k, min_size, max_size)
    n = len(frames)
    k = min(top_k, candidates.anchors)
    columns = candidates.points.shape[1]
    packed = Packed.empty(n, k, columns)
    packed.buffer[:] = 0
    ends = np.searchsorted(candidates.frame, np.arange(n + 1)).tolist()
    with np.errstate(all="ignore"):
        for i, (start, end) in enumerate(pairwise(ends)):
            order = start + np.argsort(-candidates.score[start:end], kind="stable")
            xyxy = candidates.xyxy[order]
            class_id = candidates.class_id[order]
            source = clip(to_source(xyxy, frames[i, :4]), frames[i, 4:])
            side = source[:, 2:] - source[:, :2]
            outside = ~(side > 0).all(axis=1)
            size = ~outside & ((side.min(axis=1) < np.float32(min_size)) | (side.max(axis=1) > np.float32(max_size)))
            good = ~(outside | size)
            if iou is None:
                stay, rest = _without_suppression(good, k)
            else:
                shapes = candidates.points[order] if candidates.rotated else xyxy
                stay, rest = _greedy(shapes, None if agnostic else class_id, iou, good, k)
            chosen = stay[good[stay]]
            rows = packed.rows[i, : len(chosen)]
            rows[:, :4] = source[chosen]
            rows[:, 4] = candidates.score[order[chosen]]
            rows[:, 5] = class_id[chosen]
            if columns:
                rows[:, 6:] = candidates.points[order[chosen]]
            if columns and candidates.step:
                places = rows[:, 6:].reshape(-1, candidates.step)  # of all rows, one below the other
                places[:, :2] = to_source(places[:, :2], frames[i, :4])
                rows[:, 6:] = places.reshape(len(rows), columns)
            suppressed = len(order) - len(stay) - rest
            later = (suppressed, np.count_nonzero(outside[stay]), np.count_nonzero(size[stay]), rest)
            packed.counts[i] = (len(chosen), *candidates.removed[i], *later)
    return packed


def _without_suppression(good: np.ndarray, top_k: int) -> tuple[np.ndarray, int]:
    """Return the same as `_greedy`, without any suppression."""
    places = np.flatnonzero(good)
    stop = int(places[top_k - 1]) + 1 if 0 < top_k <= len(places) else len(good) if top_k else 0
    return np.arange(stop), len(good) - stop


def _greedy(
    shapes: np.ndarray, class_id: np.ndarray | None, iou: float, good: np.ndarray, top_k: int
) -> tuple[np.ndarray, int]:
    """Go down a list sorted by score until `top_k` boxes that are `good` have been kept.

    Works in blocks: a block's boxes suppress each other, then the kept ones suppress all later boxes. This preserves
    the greedy order with few large array operations. `shapes` are (n, 4) boxes, or (n, 8) corners of rotated ones.

    Returns:
        Indices of the boxes kept, ascending, good or not; the number of boxes after the last of them not suppressed.
    """
    alive = np.ones(len(shapes), bool)
    places: list[int] = []
    left = top_k if len(shapes) else 0
    for start in range(0, len(shapes), _BLOCK):
        stop = min(start + _BLOCK, len(shapes))
        block = start + np.flatnonzero(alive[start:stop])
        hits = np.triu(_overlap(shapes, class_id, block, block, iou), 1)
        suppressed = np.zeros(len(block), bool)
        survivors: list[int] = []
        for i, counts in enumerate(good[block].tolist()):
            if not suppressed[i]:
                survivors.append(i)
                suppressed |= hits[i]
                left -= counts
                if not left:
                    break
        alive[block[suppressed]] = False
        winners = block[survivors]
        after = stop + np.flatnonzero(alive[stop:])
        places += winners.tolist()
        if len(winners) and len(after):
            alive[after[_overlap(shapes, class_id, winners, after, iou).any(axis=0)]] = False
        if not left:
            break
    end = places[-1] + 1 if places else 0
    return np.array(places, np.intp), int(np.count_nonzero(alive[end:]))


def _overlap(
    shapes: np.ndarray, class_id: np.ndarray | None, rows: np.ndarray, others: np.ndarray, iou: float
) -> np.ndarray:
    """Return whether each of `rows` overlaps each of `others` by more than `iou`, within a class: (r, o) bool."""
    if shapes.shape[1] == rotated.CORNERS:
        hits = rotated.overlaps(shapes[rows], shapes[others], iou)
    else:
        both, union = intersection_and_union(shapes[rows], shapes[others])
        hits = both > np.float32(iou) * union
    if class_id is not None:
        hits &= class_id[rows, None] == class_id[others]
    return hits


def _select_on_device(
    candidates: Any, frames: np.ndarray, iou: float | None, agnostic: bool, top_k: int, min_size: float, max_size: float
) -> Packed:
    """Launch `nms.cu` once, with a block per frame, after the launch that found the candidates."""
    xp = array_module(candidates.keys)
    n, anchors, columns = candidates.points.shape
    k = min(top_k, anchors)
    packed = Packed.empty(n, k, columns, xp)
    if not n:
        return packed
    arguments = (
        candidates.keys,
        candidates.tallies,
        candidates.boxes,
        candidates.class_id,
        candidates.points,
        np.int32(anchors),
        np.int32(candidates.keys.shape[1]),
        np.int32(columns),
        np.int32(candidates.step),
        upload(frames),
        np.int32(iou is not None),
        np.float32(iou or 0),
        np.int32(agnostic),
        np.int32(candidates.rotated),
        np.float64(rotated.distance_limit(iou or 0)),
        np.int32(k),
        np.float32(min_size),
        np.float32(max_size),
        xp.empty_like(candidates.boxes),
        xp.empty_like(candidates.class_id),
        packed.rows,
        packed.counts,
    )
    kernel("nms.cu", "select_objects")((n,), (_THREADS,), arguments, shared_mem=max(4, (anchors + 31) // 32 * 4))
    return packed
