"""Pixelate or blur parts of NV12 frames, a whole batch at once, so that nothing in them can be recognised.

A region is divided into square cells, and only one mean colour per cell is kept: pixelated, each cell shows its own;
blurred, the colours are interpolated (bilinear, between the cells' centres). Nothing finer than a cell survives either,
unlike in a Gaussian blur, which can be partly undone. All means are computed before anything is painted, so overlapping
regions, and drawing in place, change no mean; where regions overlap, the last one is visible. Integers only: the host
and the kernels (cuda/hide.cu) produce equal bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from streamkit.core.data import Surface, array_module
from streamkit.ops import traffic
from streamkit.ops.overlay import FRAME

REGION = np.dtype(
    [
        ("frame", "<i4"), ("x1", "<i4"), ("y1", "<i4"), ("x2", "<i4"), ("y2", "<i4"), ("cell", "<i4"),
        ("columns", "<i4"), ("rows", "<i4"), ("first", "<i4"), ("mask", "<i4"), ("smooth", "<i4"),
    ]
)  # fmt: skip
"""One region, `struct Region` of cuda/hide.cu.

`frame` is its frame's index; x1, y1, x2, y2, inside the frame, and `cell`, a cell's side, are even. The cells lie in
`columns` and `rows` from x1, y1 on, the last ones cut off at x2, y2; `first` is the first cell's place among all
of the batch, and `mask` its place among the masks, or -1 where all cells are hidden. `smooth` is 1 to blur, 0 to
pixelate.
"""

_WIDE, _HIGH, _THREADS = 64, 16, 128  # pixels of a tile and threads of a cell, as in cuda/hide.cu


def hide(
    surfaces: Sequence[Surface], regions: np.ndarray, masks: np.ndarray, *, in_place: bool = False
) -> list[Surface]:
    """Hide regions of frames of any sizes.

    On a device everything runs on the current stream; `ready` of the changed surfaces is its event.

    Args:
        surfaces: the frames, all on the host or all on the current device, completely written.
        regions: (m,) REGION on the host, ordered by frame.
        masks: (k,) uint8 on the host, for regions with a mask: which cells are hidden (1) or kept (0).
        in_place: change the surfaces themselves; only if nothing else reads them. A host array that is not writeable
            is copied all the same.

    Returns:
        A surface for each: a new one if something was hidden (unless `in_place`), else the one given.

    Raises:
        ValueError: a region's position or cell is odd, or it extends out of its frame.
    """
    if not len(regions):
        return list(surfaces)
    _check(surfaces, regions)
    ends = np.searchsorted(regions["frame"], np.arange(len(surfaces)), side="right").tolist()
    bounds = list(zip([0, *ends], ends, strict=False))
    if array_module(surfaces[0].data) is not np:
        return _hide_on_device(surfaces, regions, masks, bounds, in_place)
    changed = list(surfaces)
    for i, (first, last) in enumerate(bounds):
        if first < last:
            changed[i] = _hide_on_host(surfaces[i], regions[first:last], masks, in_place)
    return changed


def _check(surfaces: Sequence[Surface], regions: np.ndarray) -> None:
    size = np.array([(s.width, s.height) for s in surfaces], np.int64)[regions["frame"]]
    if any((regions[name] & 1).any() for name in ("x1", "y1", "x2", "y2", "cell")):
        raise ValueError("a region's x1, y1, x2, y2 and cell must be even: NV12 stores one colour for 2x2 pixels")
    inside = (regions["x1"] >= 0) & (regions["y1"] >= 0) & (regions["x1"] < regions["x2"])
    inside &= (regions["y1"] < regions["y2"]) & (regions["x2"] <= size[:, 0]) & (regions["y2"] <= size[:, 1])
    if not inside.all():
        raise ValueError(f"a region must lie in its frame and have a size, got {regions[~inside][0]}")


def _hide_on_device(
    surfaces: Sequence[Surface], regions: np.ndarray, masks: np.ndarray, bounds: list[tuple[int, int]], in_place: bool
) -> list[Surface]:
    import cupy

    from streamkit.ops.cuda.load import kernel

    changed, frames = list(surfaces), []
    done = cupy.cuda.Event(block=False, disable_timing=True)
    for i, (first, last) in enumerate(bounds):
        old = surfaces[i]
        if first < last and not in_place:
            changed[i] = Surface(old.data.copy(), old.color)
        where = changed[i].data.data.ptr
        frames.append((where, where, old.width, old.height, first, last))
    table = np.array(frames, FRAME)
    parts = [table.view(np.uint8), np.ascontiguousarray(regions).view(np.uint8), np.append(masks, np.uint8(1))]
    sent = cupy.asarray(np.concatenate(parts))  # one copy, staged by CuPy in pinned memory: nothing waits here
    traffic.sent(sent.nbytes)
    at = [0, *np.cumsum([part.nbytes for part in parts]).tolist()]
    on_device = [sent[begin:end] for begin, end in itertools.pairwise(at)]
    last_region = regions[-1]
    count = int(last_region["first"] + last_region["columns"] * last_region["rows"])
    cells = cupy.empty((count, 4), np.uint8)
    numbers = (np.int32(len(regions)), np.int32(count))
    kernel("hide.cu", "means")((count,), (_THREADS,), (*on_device[:2], *numbers, cells))
    tiles = (-(-int(table["width"].max()) // _WIDE), -(-int(table["height"].max()) // _HIGH), len(frames))
    kernel("hide.cu", "paint")(tiles, (_WIDE // 2, _HIGH // 2), (*on_device, cells))
    done.record()
    for surface, (first, last) in zip(changed, bounds, strict=True):
        if first < last:
            surface.ready = done
    return changed


# --------------------------------------------------------------------------------------------------------- the twin


def _hide_on_host(surface: Surface, regions: np.ndarray, masks: np.ndarray, in_place: bool) -> Surface:
    if not (in_place and surface.data.flags.writeable):
        surface = Surface(surface.data.copy(), surface.color)
    luma = surface.data[: surface.height]
    chroma = surface.data[surface.height :].reshape(surface.height // 2, surface.width // 2, 2)
    means = [(_means(luma, one, 1), _means(chroma, one, 2)) for one in regions]
    for one, (y, pairs) in zip(regions, means, strict=True):
        cells = slice(one["mask"], one["mask"] + one["columns"] * one["rows"])
        shown = None if one["mask"] < 0 else masks[cells].reshape(one["rows"], one["columns"]) != 0
        _paint(luma, y, shown, one, 1)
        _paint(chroma, pairs, shown, one, 2)
    return surface


def _means(plane: np.ndarray, one: np.ndarray, step: int) -> np.ndarray:
    """Return the rounded mean of each cell in a plane with a sample per `step` pixels: (rows, columns, ...) int32."""
    import cv2

    x1, y1, x2, y2, cell = (int(one[name]) // step for name in ("x1", "y1", "x2", "y2", "cell"))
    below, right = (np.minimum(np.arange(0, size + cell, cell), size) for size in (y2 - y1, x2 - x1))
    whole = cv2.integral(plane[y1:y2, x1:x2], sdepth=cv2.CV_64F)  # exact: sums of bytes stay far below 2 ** 53
    sums = np.diff(np.diff(whole[below][:, right], axis=0), axis=1).astype(np.int64)
    count = np.diff(below)[:, None] * np.diff(right)
    count = count.reshape(count.shape + (1,) * (sums.ndim - 2))
    return np.asarray((sums + count // 2) // count).astype(np.int32)


def _paint(plane: np.ndarray, means: np.ndarray, shown: np.ndarray | None, one: np.ndarray, step: int) -> None:
    x1, y1, x2, y2, cell = (int(one[name]) // step for name in ("x1", "y1", "x2", "y2", "cell"))
    if one["smooth"]:
        values = _run(_run(means, y2 - y1, cell).swapaxes(0, 1), x2 - x1, cell).swapaxes(0, 1)
        painted = ((values + (1 << 15)) >> 16).astype(np.uint8)
    else:
        painted = _wide(means.astype(np.uint8), y2 - y1, x2 - x1, cell)
    under = plane[y1:y2, x1:x2]
    if shown is None:
        under[...] = painted
    else:
        where = _wide(shown, y2 - y1, x2 - x1, cell)
        under[where] = painted[where]


def _wide(cells: np.ndarray, height: int, width: int, cell: int) -> np.ndarray:
    """Repeat each cell for its samples: (height, width, ...)."""
    return np.asarray(cells.repeat(cell, axis=1)[:, :width].repeat(cell, axis=0)[:height])


def _run(means: np.ndarray, size: int, cell: int) -> np.ndarray:
    """Interpolate between cells along the first axis: (size, ...) int32, times 256."""
    place = np.maximum((2 * np.arange(size) + 1) * 128 // cell - 128, 0)  # from the first cell's middle, in 1/256 cells
    before = np.minimum(place >> 8, len(means) - 1)
    after = np.minimum(before + 1, len(means) - 1)
    share = (place & 255).astype(np.int32).reshape(-1, *[1] * (means.ndim - 1))
    return np.asarray(means[before] * (256 - share) + means[after] * share)
