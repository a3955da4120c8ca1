# SPDX-License-Identifier: Apache-2.0
"""Masks as COCO's compressed run-length encoding, all in NumPy.

A mask is read column by column, and the lengths of its runs of 0 and 1 alternate, 0 first. The counts are encoded as
text: each, from the fourth on minus the one before the previous, in groups of 5 bits from the lowest up, with a sixth
bit if more follow, as characters starting at `0`. Follows pycocotools' `maskApi.c`
(https://github.com/cocodataset/cocoapi).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Rle = dict[str, Any]
"""{"size": [height, width], "counts": text}: the form that COCO's tools read."""


def from_runs(start: np.ndarray, end: np.ndarray, width: int, height: int) -> Rle:
    """Encode a mask given by its runs of 1.

    Args:
        start: (r,) int64, starts of the runs, counted down the columns; ascending, each at or after the previous end.
        end: (r,) int64, ends of the runs, exclusive.
        width: of the frame, in pixels.
        height: of the frame.
    """
    ends = np.stack([start, end], axis=1).ravel()
    return from_ends(ends, np.zeros(len(ends), np.intp), np.array([(width, height)]))[0]


def from_ends(ends: np.ndarray, owner: np.ndarray, sizes_wh: np.ndarray) -> list[Rle]:
    """Encode masks given by their runs of 1.

    Args:
        ends: (2 r,) int64, start and end of each run as in `from_runs`, mask by mask.
        owner: (2 r,) the mask of each, ascending.
        sizes_wh: (m, 2) width and height of each mask.
    """
    if len(ends) > 2:  # a run that ends where the next begins, at a column's foot and the next one's head, is one
        apart = (ends[2::2] != ends[1:-1:2]) | (owner[2::2] != owner[1:-1:2])
        is_bound = np.concatenate([[True], np.repeat(apart, 2), [True]])
        ends = ends[is_bound]
        owner = owner[is_bound]
    area = sizes_wh.prod(axis=1)
    each = np.bincount(owner, minlength=len(area))
    after = np.cumsum(each)
    filled = np.zeros(len(area), bool)  # up to the last pixel
    filled[each > 0] = ends[after[each > 0] - 1] == area[each > 0]
    # The bounds of a mask's runs: 0, its ends, its area.
    size = each + 2 - filled
    first = np.cumsum(size) - size
    bounds = np.zeros(size.sum(), np.int64)
    bounds[np.arange(len(ends)) + (first + 1 - after + each)[owner]] = ends
    bounds[(first + size - 1)[~filled]] = area[~filled]
    runs_ = np.delete(np.diff(bounds), first[1:] - 1)
    shapes = sizes_wh[:, ::-1].tolist()
    return [{"size": shape, "counts": text} for shape, text in zip(shapes, _texts(runs_, size - 1), strict=True)]


def encode(mask: np.ndarray, width: int, height: int, left: int = 0, top: int = 0) -> Rle:
    """Encode a mask.

    Args:
        mask: (h, w) bool, the part of the frame that begins at `left`, `top`; the rest is 0.
        width: of the frame, in pixels.
        height: of the frame.
        left: of the part.
        top: of the part.
    """
    rows, columns = mask.shape
    # A row of 0 above and below each column: then every run begins and ends within its column.
    padded = np.zeros((columns, rows + 2), bool)
    padded[:, 1:-1] = mask.T
    column, row = np.divmod(np.flatnonzero(padded[:, 1:] != padded[:, :-1]), rows + 1)
    ends = (left + column) * height + row + top
    return from_runs(ends[0::2], ends[1::2], width, height)


def runs(rle: Rle) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends (exclusive) of the runs of 1, counted down the columns: two (r,) int64."""
    edges = np.cumsum(decompress(rle["counts"]))
    return edges[0:-1:2] if len(edges) % 2 else edges[0::2], edges[1::2]


def decode(rle: Rle) -> np.ndarray:
    """Return the mask as (height, width) bool.

    Raises:
        ValueError: the counts do not add up to the size.
    """
    height, width = rle["size"]
    counts = decompress(rle["counts"])
    if (counts < 0).any() or counts.sum() != height * width:
        raise ValueError(f"the counts of a mask of {width}x{height} add up to {counts.sum()}, not {height * width}")
    flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return np.asarray(flat.reshape(width, height).T)


def crop(rle: Rle) -> tuple[np.ndarray, int, int]:
    """Return the bounding part of a mask, (h, w) bool, with its left and top; shape (0, 0) if the mask is empty."""
    height = rle["size"][0]
    start, end = runs(rle)
    if not len(start):
        return np.zeros((0, 0), bool), 0, 0
    first = int(start[0]) // height
    last = int(end[-1] - 1) // height
    change = np.zeros((last - first + 1) * height + 1, np.int8)
    change[start - first * height] = 1
    change[end - first * height] -= 1
    columns = np.cumsum(change[:-1], dtype=np.int8).reshape(-1, height) > 0
    rows = np.flatnonzero(columns.any(axis=0))
    return columns[:, rows[0] : rows[-1] + 1].T, first, int(rows[0])


def area(rle: Rle) -> int:
    """Return the number of pixels of a mask."""
    start, end = runs(rle)
    return int((end - start).sum())


def iou(a: Rle, b: Rle) -> float:
    """Return the IoU of two masks of one frame; 1 if both are empty."""
    first = decode(a)
    second = decode(b)
    union = np.count_nonzero(first | second)
    return float(np.count_nonzero(first & second) / union) if union else 1.0


def compress(counts: np.ndarray) -> str:
    """Encode counts, (m,) int64, as text."""
    return _texts(counts, np.array([len(counts)]))[0]


def _texts(counts: np.ndarray, sizes: np.ndarray) -> list[str]:
    """Encode the counts of several masks, one after the other, `sizes` of each."""
    after = np.cumsum(sizes)
    later = np.flatnonzero(np.arange(len(counts)) >= np.repeat(after - sizes + 3, sizes))
    left = counts.copy()
    left[later] -= counts[later - 2]
    bits = max(int(left.max(initial=0)), -int(left.min(initial=0)) - 1).bit_length() + 1  # with the sign
    steps = np.arange(0, bits, 5)
    groups = left[:, None] >> steps & 31
    more = (left[:, None] >> steps + 5) != -(groups >> 4)  # the fifth bit is the sign of the remaining bits
    used = np.ones(more.shape, bool)
    used[:, 1:] = more[:, :-1]
    text = (groups + 32 * more + 48)[used].astype(np.uint8).tobytes().decode("ascii")
    ends = np.concatenate([[0], np.cumsum(used.sum(axis=1))])[after].tolist()
    return [text[start:end] for start, end in itertools.pairwise([0, *ends])]


def decompress(text: str) -> np.ndarray:
    """Return the counts, (m,) int64, encoded by `compress`."""
    codes = np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero((codes & 32) == 0)
    starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    codes = codes[: ends[-1] + 1] if len(ends) else codes[:0]
    place = np.arange(len(codes)) - np.repeat(starts, ends - starts + 1)
    if not len(codes):
        return codes
    values = np.add.reduceat((codes & 31) << (5 * place), starts)
    negative = codes[ends] & 16 > 0
    values[negative] -= np.int64(1) << (5 * (place[ends[negative]] + 1))
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values
