# SPDX-License-Identifier: Apache-2.0
"""Masks: from a network's low-resolution output to source pixels.

Instance masks: an object's logits are its coefficients times the frame's prototypes (as in YOLACT and YOLOv8-seg), or a
map of its own (as in DETR). They are computed only within the object's box, one byte per value, and stay on the
outputs' device until masks are read. Then they are sampled bilinearly at the source's pixels; a pixel belongs to the
mask if the logit is above 0 and its center is in the box. On a GPU only the ends of the runs of such pixels are copied
to the host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.ops import rle
from streamkit.ops.candidates import upload
from streamkit.ops.cuda.load import kernel
from streamkit.ops.transfer import LateArray, fetch_now, reading, to_device

STEPS = 16
"""A logit is stored as its signed root in steps of 1/16, up to 63: precise near 0, where the mask ends."""

FULL_MAPS = 8
"""Memory of a frame's crops, in maps of the whole frame; the best objects get theirs first."""

_THREADS = 128  # as in cuda/masks.cu
_MAX_COEFFICIENTS = 256  # as in cuda/masks.cu
_CELLS = 1 << 18  # of crops, sampled at once
_ENDS = 4  # of runs, a column of an object: the room for them on the device in the first attempt


def crop_logits(
    rows: Array,
    counts: Array,
    prototypes: Array,
    geometry: np.ndarray,
    input_size: tuple[int, int],
    *,
    own_map: bool = False,
) -> Array:
    """Compute the logits within each object's box.

    On a device this is one launch on the current stream, not waited for.

    Args:
        rows: (n, k, 6 + c) float32 as in `ops.nms.Packed`: box in source pixels, score, class, c coefficients.
        counts: (n, m) int32; the first column is the number of rows in use.
        prototypes: (>= n, c, h, w) float32 or float16.
        geometry: (n, 4) float32 on the host: network pixel = source pixel x scale + offset.
        input_size: the network's width and height in pixels.
        own_map: each object has a map of its own, whose number is its only value, in place of coefficients.

    Returns:
        (n, room) int8 roots in `STEPS`: the crops of a frame's objects, each row-major, concatenated; those for which
        no room is left are omitted.
    """
    n, k, width = rows.shape
    _, coefficients, high, wide = prototypes.shape
    if not own_map and (coefficients != width - 6 or coefficients > _MAX_COEFFICIENTS):
        raise ValueError(
            f"{coefficients} prototypes need as many coefficients, at most {_MAX_COEFFICIENTS}; "
            f"the objects have {width - 6}"
        )
    room = FULL_MAPS * high * wide
    to_map = _to_map(geometry, (wide, high), input_size)
    if array_module(rows) is not np:
        return _crop_logits_on_device(rows, counts, prototypes, to_map, room, own_map)
    logits = np.zeros((n, room), np.int8)
    frame = np.repeat(np.arange(n), counts[:, 0])
    used = rows[np.arange(k) < counts[:, :1]]
    rects = _crop_rects(used[:, :4], to_map[frame], (wide, high))
    starts = _starts(rects, frame, room)
    with np.errstate(all="ignore"):
        for at, row, start, (x, y, w, h) in zip(frame.tolist(), used, starts.tolist(), rects.tolist(), strict=True):
            if start < 0:
                continue
            maps = int(row[6]) if own_map else slice(None)
            part = prototypes[at, maps, y : y + h, x : x + w].astype(np.float32).reshape(-1, h * w)
            values = np.nan_to_num(part[0] if own_map else row[6:] @ part, nan=-np.inf)
            roots = np.copysign(np.sqrt(np.abs(values)) * np.float32(STEPS), values)
            logits[at, start : start + w * h] = np.rint(np.clip(roots, -127, 127))
    return logits


def _to_map(geometry: np.ndarray, map_size: tuple[int, int], input_size: tuple[int, int]) -> np.ndarray:
    """Return (n, 4) float32, scale_x, scale_y, offset_x, offset_y: map place = source pixel x scale + offset."""
    share = np.array(map_size, np.float64) / np.array(input_size)
    return np.asarray(geometry.astype(np.float64) * np.tile(share, 2), np.float32)


def _crop_rects(boxes: np.ndarray, to_map: np.ndarray, map_size: tuple[int, int]) -> np.ndarray:
    """Return x, y, width, height of the places that the pixels of each box are sampled from, (m, 4) int32.

    `crop_rect` of cuda/masks.cu returns the same.

    Args:
        boxes: (m, 4) float32 source pixels.
        to_map: (m, 4) float32, of each box.
        map_size: width and height of the map.
    """
    size = np.array(map_size, np.float32)
    low = boxes[:, :2] * to_map[:, :2] + to_map[:, 2:] - np.float32(0.5)
    high = boxes[:, 2:] * to_map[:, :2] + to_map[:, 2:] - np.float32(0.5)
    first = np.clip(np.floor(low), 0, size - 1)
    end = np.minimum(np.maximum(np.floor(high) + 2, first + 1), size)
    return np.asarray(np.concatenate([first, end - first], axis=1), np.int32)


def _starts(rects: np.ndarray, frame: np.ndarray, room: int) -> np.ndarray:
    """Return where each object's crop begins in the memory of its frame, (m,) int; -1 where no room is left.

    Args:
        rects: (m, 4) the crops, by frame, best first.
        frame: (m,) the frame of each, ascending.
        room: of a frame.
    """
    areas = rects[:, 2].astype(np.int64) * rects[:, 3]
    before = np.cumsum(areas) - areas
    first = np.searchsorted(frame, frame)
    starts: np.ndarray = before - before[first] if len(before) else before
    if (starts + areas <= room).all():
        return starts
    used: dict[int, int] = {}
    for i, (at, area) in enumerate(zip(frame.tolist(), areas.tolist(), strict=True)):
        begin = used.get(at, 0)
        starts[i] = begin if begin + area <= room else -1
        used[at] = begin + area * (begin + area <= room)
    return starts


def _crop_logits_on_device(
    rows: Array, counts: Array, prototypes: Array, to_map: np.ndarray, room: int, own_map: bool
) -> Array:
    """Launch `crop_logits` of `masks.cu` once, with a block per object."""
    xp = array_module(rows)
    n, k, width = rows.shape
    logits = xp.empty((n, room), np.int8)
    if not n:
        return logits
    prototypes = xp.ascontiguousarray(prototypes)
    if prototypes.dtype != np.float16:
        prototypes = prototypes.astype(np.float32, copy=False)
    _, coefficients, high, wide = prototypes.shape
    defines = [define for define, used in (("HALF=1", prototypes.dtype == np.float16), ("OWN_MAP=1", own_map)) if used]
    launch = kernel("masks.cu", "crop_logits", tuple(defines))
    arguments = (
        rows,
        np.int32(width),
        counts,
        np.int32(counts.shape[1]),
        prototypes,
        np.int32(coefficients),
        np.int32(wide),
        np.int32(high),
        upload(to_map),
        np.int32(k),
        np.int32(room),
        logits,
    )
    launch((k, n), (_THREADS,), arguments)
    return logits


class InstanceMasks:
    """The masks of a batch's objects in source pixels, made when they are read.

    On the host the masks that are read are sampled. On a device those of the whole batch are, at the first one that is
    read, in one launch and one copy.

    Args:
        boxes: (m, 4) float32 source pixels, on the host.
        frame: (m,) the frame of each object, ascending; in a frame in the order of the rows of `crop_logits`.
        logits: of `crop_logits`.
        map_size: width and height of the map.
        geometry: as in `crop_logits`.
        sizes_wh: (n, 2) width and height of each frame.
        input_size: as in `crop_logits`.
    """

    def __init__(
        self,
        boxes: np.ndarray,
        frame: np.ndarray,
        logits: LateArray,
        map_size: tuple[int, int],
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
    ) -> None:
        to_map = _to_map(geometry, map_size, input_size)
        self._map_size = map_size
        self._maps = to_map
        self._logits: LateArray | None = logits
        self._from_device: list[np.ndarray] | None = None
        self._frame = frame
        self._sizes = np.asarray(sizes_wh, np.int64)[frame]
        self._rects = _crop_rects(boxes, to_map[frame], map_size).astype(np.int64)
        self._starts = _starts(self._rects, frame, logits.shape[1])
        # The pixels whose centers, at + 0.5, are in the box.
        first, last = (np.ceil(edge - 0.5).astype(np.int64) for edge in (boxes[:, :2], boxes[:, 2:]))
        self._first = np.maximum(first, 0)
        self._last = np.maximum(np.minimum(last, self._sizes), self._first)
        self._pixels = (self._last - self._first).prod(axis=1) * (self._starts >= 0)
        self._masks = np.full(len(boxes), None)
        self._open = self._starts >= 0

    @property
    def lost(self) -> int:
        """Number of objects without a mask, because of the limit `FULL_MAPS`."""
        return int(np.count_nonzero(self._starts < 0))

    def rows(self, index: np.ndarray) -> np.ndarray:
        """Return the masks of these objects, (k,) of dtype object: COCO's `Rle`, or None beyond the limit."""
        missing = index[self._open[index]]
        if len(missing):
            seen = np.flatnonzero(self._pixels[missing])
            ends, owner = self._ends(missing[seen])
            encoded = rle.from_ends(ends, seen[owner], self._sizes[missing])
            self._masks[missing] = encoded
            self._open[missing] = False  # after the masks: another thread may read them at once
        return np.asarray(self._masks[index])

    def _ends(self, objects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the runs of these objects' masks, and the owner of each, an index into `objects`."""
        if not len(objects):
            return np.zeros(0, np.int64), np.zeros(0, np.intp)
        late = self._logits  # before the next line: another thread sets both, in the opposite order
        if self._from_device is None and late is not None:
            logits = late.array
            if array_module(logits) is np:
                return self._sample(objects, logits)
            self._from_device = self._ends_from_device(logits)
            self._logits = None
        assert self._from_device is not None
        ends_of_masks = [self._from_device[i] for i in objects.tolist()]
        owner = np.repeat(np.arange(len(ends_of_masks)), [len(ends) for ends in ends_of_masks])
        return np.concatenate(ends_of_masks) if ends_of_masks else np.zeros(0, np.int64), owner

    def _sample(self, objects: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the same as `_ends`, from logits on the host."""
        cells = np.cumsum(self._rects[objects, 3] * (self._last - self._first)[objects, 0])
        parts = np.split(np.arange(len(objects)), np.flatnonzero(np.diff(cells // _CELLS)) + 1)
        ends_of_parts = []
        owners = []
        for part in parts:  # the memory for one at a time
            members = objects[part]
            ends, owner = _run_ends(
                logits.ravel(),
                self._frame[members] * logits.shape[1] + self._starts[members],
                self._rects[members],
                self._first[members],
                self._last[members],
                self._maps[self._frame[members]].astype(np.float64),
                self._map_size,
                self._sizes[members, 1],
            )
            ends_of_parts.append(ends)
            owners.append(part[owner])
        return np.concatenate(ends_of_parts), np.concatenate(owners)

    def _ends_from_device(self, logits: Array) -> list[np.ndarray]:
        """Return the ends of the runs of all masks."""
        room = np.where(self._pixels > 0, self._last[:, 0] - self._first[:, 0], 0) * _ENDS
        parts = [self._frame, self._starts, self._rects, self._first, self._last, self._sizes[:, 1]]
        objects = np.column_stack(parts)
        with reading(logits):
            counts_and_ends = _launch_mask_ends(logits, objects, self._maps, self._map_size, room)
            counts = counts_and_ends[: len(room)].astype(np.int64)
            if (counts > room).any():  # more runs than usual; now their number is known
                room = counts
                counts_and_ends = _launch_mask_ends(logits, objects, self._maps, self._map_size, room)
        begin = len(room) + np.cumsum(room) - room
        pairs = zip(begin.tolist(), counts.tolist(), strict=True)
        return [counts_and_ends[first : first + count].astype(np.int64) for first, count in pairs]


def _launch_mask_ends(
    logits: Array, objects: np.ndarray, to_map: np.ndarray, map_size: tuple[int, int], room: np.ndarray
) -> np.ndarray:
    """Launch `mask_ends` of `masks.cu` once, with a block per object, and copy the result to the host.

    Args:
        logits: on the device.
        objects: (m, 11) integers: frame, start of the crop, its x, y, width and height; left, top, right and bottom of
            the box's pixels; height of the frame.
        to_map: (n, 4) float32, of each frame.
        map_size: width and height of the map.
        room: (m,) for how many ends there is room for each object; for objects without room nothing is computed.

    Returns:
        int32: the number of ends of each object, then the room for those of each.
    """
    import cupy

    m = len(objects)
    begin = m + np.cumsum(room) - room
    table = np.column_stack([objects, begin, room]).astype(np.int32)
    maps, sent = to_device(to_map.astype(np.float64), table)  # the wider type first: its values are aligned then
    counts_and_ends = cupy.empty(m + int(room.sum()), np.int32)
    arguments = (
        logits,
        np.int64(logits.shape[1]),
        sent.view(np.int32),
        maps.view(np.float64),
        np.int32(map_size[0]),
        np.int32(map_size[1]),
        counts_and_ends,
    )
    kernel("masks.cu", "mask_ends")((m,), (_THREADS,), arguments)
    return fetch_now(counts_and_ends)


def _run_ends(
    logits: np.ndarray,
    starts: np.ndarray,
    rects: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    to_map: np.ndarray,
    map_size: tuple[int, int],
    heights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return where runs of pixels above 0 begin and end, in turn, counted down the columns of each object's frame.

    Logits are sampled bilinearly. Between two rows of a crop that are both above 0, or both not, so is every pixel;
    only the others are computed. A run ends at the foot of the box, even if the next column begins with one above 0.
    What can be is done for all objects together: small ones would otherwise cost NumPy's calls alone.

    Args:
        logits: int8 roots, flat.
        starts: (m,) where the crop of each object begins in `logits`.
        rects: (m, 4) x, y, width and height of the crops in places of the map.
        first: (m, 2) the first column and row of pixels of each object.
        last: (m, 2) those after the last; there is at least one pixel.
        to_map: (m, 4) float64, of each object.
        map_size: width and height of the map.
        heights: (m,) of the frames.

    Returns:
        The places, int64, and the object of each, ascending.
    """
    across, down = (_samples(axis, rects, first, last, to_map, map_size) for axis in (0, 1))
    # The pixels of a column between the same two rows of the crop are a cell.
    fresh = np.ones(len(down.owner), bool)
    fresh[1:] = (np.diff(down.lower) != 0) | (np.diff(down.owner) != 0)
    top = np.flatnonzero(fresh)
    size = np.diff(top, append=len(fresh))
    cells = np.bincount(down.owner[top], minlength=len(rects))
    columns_to = np.cumsum(last[:, 0] - first[:, 0])
    cells_to = np.cumsum(cells)
    columns_from = columns_to - last[:, 0] + first[:, 0]
    cells_from = cells_to - cells
    # Each object's columns of pixels, and its cells, by their first row.
    columns = list(map(slice, columns_from.tolist(), columns_to.tolist()))
    tops = [top[first_cell:end] for first_cell, end in zip(cells_from.tolist(), cells_to.tolist(), strict=True)]
    crops = np.column_stack([starts, rects[:, 2:]])
    values, begins, seconds = _sample_columns(logits, crops, columns, tops, across, down)
    each = cells[across.owner]
    head = np.cumsum(each) - each
    begin = np.cumsum(rects[across.owner, 3]) - rects[across.owner, 3]
    heads = head[columns_from]

    def placed(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the column of each of these entries of `begins`, and its cell."""
        owner = np.searchsorted(heads, index, side="right") - 1
        column, cell = np.divmod(index - heads[owner], cells[owner])
        return column + columns_from[owner], cell + cells_from[owner]

    mixed = np.flatnonzero(begins != seconds)
    column, cell = placed(mixed)
    length = size[cell]
    stop = np.cumsum(length)
    row = np.arange(length.sum()) + np.repeat(top[cell] - stop + length, length)
    of = np.repeat(np.arange(len(mixed)), length)
    pixel = column[of]
    low, upper = (values[begin[pixel] + side[row]] for side in (down.lower, down.upper))
    inside = low * (1 - down.weight[row]) + upper * down.weight[row] > 0
    begins[mixed] = inside[stop - length]
    ends = begins.copy()
    ends[mixed] = inside[stop - 1]
    # Pixels that differ from the one above are the first of a cell or within one; what is inside ends at the foot.
    above = np.concatenate([[False], ends[:-1]])
    above[head] = False
    bound = np.flatnonzero(begins != above)
    within = np.flatnonzero((inside[1:] != inside[:-1]) & (of[1:] == of[:-1])) + 1
    foot = np.flatnonzero(ends[head + each - 1])
    column, cell = placed(bound)
    column = np.concatenate([column, pixel[within], foot])
    owner = across.owner[column]
    y = np.concatenate([down.pixel[top[cell]], down.pixel[row[within]], last[across.owner[foot], 1]])
    stride = int((last[:, 0] * heights).max(initial=0)) + 1
    keys = np.sort(owner * stride + across.pixel[column] * heights[owner] + y, kind="stable")
    owner, place = np.divmod(keys, stride)
    return place, owner


class _Samples(NamedTuple):
    """The pixels of objects along an axis, one object after the other.

    Attributes:
        owner: the object.
        pixel: the column or row of the frame.
        lower, upper: the places of the crop that the pixel lies between.
        weight: of the upper one, float32.
    """

    owner: np.ndarray
    pixel: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    weight: np.ndarray


def _samples(
    axis: int,
    rects: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    to_map: np.ndarray,
    map_size: tuple[int, int],
) -> _Samples:
    """Return the pixels along an axis; arguments as in `_run_ends`."""
    count = last[:, axis] - first[:, axis]
    owner = np.repeat(np.arange(len(count)), count)
    pixel = np.arange(len(owner)) + (first[:, axis] - np.cumsum(count) + count)[owner]
    at = (pixel + 0.5) * to_map[owner, axis] + to_map[owner, 2 + axis] - 0.5
    at = np.clip(at, 0, map_size[axis] - 1) - rects[owner, axis]
    end = rects[owner, 2 + axis] - 1
    at = np.clip(at, 0, end)
    lower = np.floor(at).astype(np.intp)
    return _Samples(owner, pixel, lower, np.minimum(lower + 1, end), (at - lower).astype(np.float32))


def _sample_columns(
    logits: np.ndarray,
    crops: np.ndarray,
    columns: list[slice],
    tops: list[np.ndarray],
    across: _Samples,
    down: _Samples,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sample the crops of all objects at their columns of pixels.

    Args:
        logits: as in `_run_ends`.
        crops: (m, 3), for each object where its crop begins in `logits`, its width and its height.
        columns: for each object its columns, of those of `across`.
        tops: for each object the first row of each of its cells, of those of `down`.
        across: the columns of pixels of all objects.
        down: the rows of pixels of all objects.

    Returns:
        A value for each column and row of a crop; and for each column and cell, whether the upper and the lower row of
        the crop that the cell lies between are above 0.
    """
    sampled = []
    upper = []
    lower = []
    for (start, wide, high), part, rows in zip(crops.tolist(), columns, tops, strict=True):
        roots = logits[start : start + wide * high].reshape(high, wide).T.astype(np.float32)
        square = roots * np.abs(roots)
        weight = across.weight[part, None]
        value = square[across.lower[part]] * (1 - weight) + square[across.upper[part]] * weight
        positive = value > 0
        sampled.append(value.ravel())
        upper.append(positive[:, down.lower[rows]].ravel())
        lower.append(positive[:, down.upper[rows]].ravel())
    return np.concatenate(sampled), np.concatenate(upper), np.concatenate(lower)
