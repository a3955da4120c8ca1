"""Masks: from a network's low-resolution output to source pixels.

Instance masks (as in YOLACT and YOLOv8-seg): an object's logits are its coefficients times the frame's prototypes. They
are computed only within the object's box, on the outputs' device, and copied to the host as one byte per value. There,
for host and device alike, they are sampled bilinearly at the source's pixels; a pixel belongs to the mask if the logit
is above 0 and its centre is in the box.

Semantic masks: each place of the network's map has its best class; a source pixel takes the class of its place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.ops import rle
from streamkit.ops.candidates import upload
from streamkit.ops.cuda.load import kernel
from streamkit.ops.resample import bilinear
from streamkit.ops.rle import Rle

STEPS = 16
"""A logit is stored as its signed root in steps of 1/16, up to 63: precise near 0, where the mask ends."""

FULL_MAPS = 8
"""Memory of a frame's crops, in maps of the whole frame; the best objects get theirs first."""

_THREADS, _MOST = 128, 256  # as in cuda/masks.cu


class MaskCrops(NamedTuple):
    """The objects' crops of the mask maps of a batch of n frames with k rows each.

    Attributes:
        rects: (n, k, 4) int32, x, y, width and height in places of the map; width 0 for a row without an object, and
            for an object beyond the memory limit.
        logits: (n, room) int8 roots in `STEPS`; a frame's crops, each row-major, concatenated.
    """

    rects: Array
    logits: Array


def crop_logits(
    rows: Array, counts: Array, prototypes: Array, geometry: np.ndarray, input_size: tuple[int, int]
) -> MaskCrops:
    """Compute the logits within each object's box.

    On a device this is one launch on the current stream, not waited for.

    Args:
        rows: (n, k, 6 + c) float32 as in `ops.nms.Packed`: box in source pixels, score, class, c coefficients.
        counts: (n, m) int32; the first column is the number of rows in use.
        prototypes: (>= n, c, h, w) float32 or float16.
        geometry: (n, 4) float32 on the host: network pixel = source pixel x scale + offset.
        input_size: the network's width and height in pixels.
    """
    n, k, width = rows.shape
    _, coefficients, high, wide = prototypes.shape
    if coefficients != width - 6 or coefficients > _MOST:
        raise ValueError(
            f"{coefficients} prototypes need as many coefficients, at most {_MOST}; the objects have {width - 6}"
        )
    room = FULL_MAPS * high * wide
    to_map = _to_map(geometry, (wide, high), input_size)
    if array_module(rows) is not np:
        return _crop_logits_on_device(rows, counts, prototypes, to_map, room)
    found = MaskCrops(np.zeros((n, k, 4), np.int32), np.zeros((n, room), np.int8))
    for frame in range(n):
        used = 0
        for i in range(int(counts[frame, 0])):
            x, y, w, h = _crop_rect(rows[frame, i, :4], to_map[frame], (wide, high))
            if used + w * h > room:
                continue
            found.rects[frame, i] = x, y, w, h
            part = prototypes[frame, :, y : y + h, x : x + w].reshape(coefficients, -1).astype(np.float32)
            with np.errstate(all="ignore"):
                logits = np.nan_to_num(rows[frame, i, 6:] @ part, nan=-np.inf)
                roots = np.copysign(np.sqrt(np.abs(logits)) * np.float32(STEPS), logits)
            found.logits[frame, used : used + w * h] = np.rint(np.clip(roots, -127, 127))
            used += w * h
    return found


def _to_map(geometry: np.ndarray, map_size: tuple[int, int], input_size: tuple[int, int]) -> np.ndarray:
    """Return (n, 4) float32, scale_x, scale_y, offset_x, offset_y: map place = source pixel x scale + offset."""
    share = np.array(map_size, np.float64) / np.array(input_size)
    return np.asarray(geometry.astype(np.float64) * np.tile(share, 2), np.float32)


def _crop_rect(box: np.ndarray, to_map: np.ndarray, map_size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return x, y, width, height of the places that the box's pixels are sampled from; `crop_rect` of cuda/masks.cu."""
    low = box[:2] * to_map[:2] + to_map[2:] - np.float32(0.5)
    high = box[2:] * to_map[:2] + to_map[2:] - np.float32(0.5)
    x, y = (int(min(max(np.floor(low[i]), 0), map_size[i] - 1)) for i in (0, 1))
    x_end, y_end = (int(min(max(np.floor(high[i]) + 2, (x, y)[i] + 1), map_size[i])) for i in (0, 1))
    return x, y, x_end - x, y_end - y


def _crop_logits_on_device(rows: Array, counts: Array, prototypes: Array, to_map: np.ndarray, room: int) -> MaskCrops:
    """Launch `masks.cu` once, with a block per object."""
    xp = array_module(rows)
    n, k, width = rows.shape
    found = MaskCrops(xp.empty((n, k, 4), np.int32), xp.empty((n, room), np.int8))
    if not n:
        return found
    prototypes = xp.ascontiguousarray(prototypes)
    if prototypes.dtype != np.float16:
        prototypes = prototypes.astype(np.float32, copy=False)
    _, coefficients, high, wide = prototypes.shape
    launch = kernel("masks.cu", "crop_logits", ("HALF=1",) if prototypes.dtype == np.float16 else ())
    arguments = (
        rows, np.int32(width), counts, np.int32(counts.shape[1]), prototypes, np.int32(coefficients), np.int32(wide),
        np.int32(high), upload(to_map), np.int32(k), np.int32(room), found.rects, found.logits,
    )  # fmt: skip
    launch((k, n), (_THREADS,), arguments)
    return found


def instance_masks(
    boxes: np.ndarray,
    frame: np.ndarray,
    rank: np.ndarray,
    found: MaskCrops,
    map_size: tuple[int, int],
    geometry: np.ndarray,
    sizes_wh: np.ndarray,
    input_size: tuple[int, int],
) -> np.ndarray:
    """Make the objects' masks in source pixels, on the host.

    Args:
        boxes: (m, 4) float32 source pixels.
        frame: (m,) the frame of each object.
        rank: (m,) its row within the frame.
        found: the pieces, on the host.
        map_size: width and height of the map.
        geometry: as in `crop_logits`.
        sizes_wh: (n, 2) width and height of each frame.
        input_size: as in `crop_logits`.

    Returns:
        (m,) objects: COCO's `Rle`, or None for objects beyond the memory limit.
    """
    to_map = _to_map(geometry, map_size, input_size).astype(np.float64)
    ends = np.cumsum(found.rects[..., 2] * found.rects[..., 3], axis=1)
    made: list[Any] = []
    for box, at, row in zip(boxes, frame.tolist(), rank.tolist(), strict=True):
        x, y, w, h = found.rects[at, row].tolist()
        piece = found.logits[at, ends[at, row] - w * h : ends[at, row]].reshape(h, w)
        made.append(_mask(box, piece, (x, y), map_size, to_map[at], sizes_wh[at].tolist()) if w else None)
    masks = np.empty(len(made), object)
    masks[:] = made
    return masks


def _mask(
    box: np.ndarray,
    piece: np.ndarray,
    corner: tuple[int, int],
    map_size: tuple[int, int],
    to_map: np.ndarray,
    size: tuple[int, int],
) -> Rle:
    # The pixels whose centres, at + 0.5, are in the box.
    first, last = np.ceil(box[:2] - 0.5).astype(int), np.ceil(box[2:] - 0.5).astype(int)
    (left, top), (right, bottom) = np.maximum(first, 0), np.minimum(last, size)
    if right <= left or bottom <= top:
        return rle.encode(np.zeros((0, 0), bool), *size)
    roots = piece.astype(np.float32)
    x, y = (
        np.clip((np.arange(start, stop) + 0.5) * to_map[i] + to_map[2 + i] - 0.5, 0, map_size[i] - 1) - corner[i]
        for i, start, stop in ((0, left, right), (1, top, bottom))
    )
    return rle.encode(bilinear(roots * np.abs(roots), x, y) > 0, *size, int(left), int(top))


# --------------------------------------------------------------------------------------------------------- semantic


def best_classes(scores: Array, axis: int) -> Array:
    """Return the best class of each place of (n, ...) scores, uint8, without `axis`; the first of equal classes."""
    xp = array_module(scores)
    return xp.argmax(scores, axis=axis).astype(np.uint8)


def class_masks(
    classes: np.ndarray, geometry: np.ndarray, size_wh: tuple[int, int], input_size: tuple[int, int]
) -> dict[int, Rle]:
    """Return the mask of each class in a frame's map.

    Args:
        classes: (h, w) uint8, the class of each place of the map.
        geometry: (4,) of the frame.
        size_wh: its width and height.
        input_size: the network's width and height in pixels.
    """
    high, wide = classes.shape
    to_map = _to_map(geometry[None], (wide, high), input_size)[0].astype(np.float64)
    across, down = (
        np.clip(np.floor((np.arange(size_wh[i]) + 0.5) * to_map[i] + to_map[2 + i]), 0, (wide, high)[i] - 1).astype(int)
        for i in (0, 1)
    )
    # A column of the map covers many of the source: its runs are computed once and repeated for each.
    own, column = np.unique(across, return_inverse=True)
    small = classes.T[own][:, down]
    change = np.ones(small.shape, bool)
    change[:, 1:] = small[:, 1:] != small[:, :-1]
    of, start = np.nonzero(change)
    end = np.append(start[1:], 0)
    end[end == 0] = size_wh[1]
    count = np.bincount(of, minlength=len(own))
    each = count[column]
    first = np.cumsum(count) - count
    run = np.repeat(first[column] - (np.cumsum(each) - each), each) + np.arange(each.sum())
    x = np.repeat(np.arange(size_wh[0], dtype=np.int64) * size_wh[1], each)
    start, end, what = x + start[run], x + end[run], small[of, start][run]
    mine = {int(c): what == c for c in np.unique(what).tolist()}
    return {c: rle.from_runs(start[rows], end[rows], *size_wh) for c, rows in mine.items()}
