# SPDX-License-Identifier: Apache-2.0
"""Pixelate or blur parts of NV12 frames, a whole batch at once, so that nothing in them can be recognized.

A region is divided into square cells, and only one mean color per cell is kept: pixelated, each cell shows its own;
blurred, the colors are interpolated (bilinear, between the cells' centers). Nothing finer than a cell survives either,
unlike in a Gaussian blur, which can be partly undone. All means are computed before anything is painted, so overlapping
regions, and drawing in place, change no mean; where regions overlap, the last one is visible. Integers only: the host
and the kernels (cuda/hide.cu) produce equal bytes. `regions` derives the regions from detections and zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from streamkit.core.data import Detections, Surface, array_module
from streamkit.ops.cuda.load import kernel
from streamkit.ops.overlay import FRAME, change_on_host, set_ready
from streamkit.ops.transfer import to_device

REGION = np.dtype(
    [
        ("frame", "<i4"),
        ("x1", "<i4"),
        ("y1", "<i4"),
        ("x2", "<i4"),
        ("y2", "<i4"),
        ("cell", "<i4"),
        ("columns", "<i4"),
        ("rows", "<i4"),
        ("first", "<i4"),
        ("mask", "<i4"),
        ("smooth", "<i4"),
    ]
)
"""One region, `struct Region` of cuda/hide.cu.

`frame` is its frame's index; x1, y1, x2, y2, inside the frame, and `cell`, a cell's side, are even. The cells lie in
`columns` and `rows` from x1, y1 on, the last ones cut off at x2, y2; `first` is the first cell's place among all
of the batch, and `mask` its place among the masks, or -1 where all cells are hidden. `smooth` is 1 to blur, 0 to
pixelate.
"""

# the size of a tile in pixels, and the threads of a cell, as in cuda/hide.cu
_WIDE = 64
_HIGH = 16
_THREADS = 128


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
    return change_on_host(
        surfaces, bounds, lambda surface, rows: _hide_on_host(surface, regions[rows], masks), in_place
    )


def _check(surfaces: Sequence[Surface], regions: np.ndarray) -> None:
    size = np.array([(s.width, s.height) for s in surfaces], np.int64)[regions["frame"]]
    if any((regions[name] & 1).any() for name in ("x1", "y1", "x2", "y2", "cell")):
        raise ValueError("a region's x1, y1, x2, y2 and cell must be even: NV12 stores one color for 2x2 pixels")
    inside = (regions["x1"] >= 0) & (regions["y1"] >= 0) & (regions["x1"] < regions["x2"])
    inside &= (regions["y1"] < regions["y2"]) & (regions["x2"] <= size[:, 0]) & (regions["y2"] <= size[:, 1])
    if not inside.all():
        raise ValueError(f"a region must lie in its frame and have a size, got {regions[~inside][0]}")


def _hide_on_device(
    surfaces: Sequence[Surface], regions: np.ndarray, masks: np.ndarray, bounds: list[tuple[int, int]], in_place: bool
) -> list[Surface]:
    import cupy

    changed = list(surfaces)
    frames = []
    for i, (first, last) in enumerate(bounds):
        old = surfaces[i]
        if first < last and not in_place:
            changed[i] = Surface(old.data.copy(), old.color)
        where = changed[i].data.data.ptr
        frames.append((where, where, old.width, old.height, first, last))
    table = np.array(frames, FRAME)
    on_device = to_device(table, regions, np.append(masks, np.uint8(1)))
    last_region = regions[-1]
    count = int(last_region["first"] + last_region["columns"] * last_region["rows"])
    cells = cupy.empty((count, 4), np.uint8)
    numbers = (np.int32(len(regions)), np.int32(count))
    kernel("hide.cu", "means")((count,), (_THREADS,), (*on_device[:2], *numbers, cells))
    tiles = (-(-int(table["width"].max()) // _WIDE), -(-int(table["height"].max()) // _HIGH), len(frames))
    kernel("hide.cu", "paint")(tiles, (_WIDE // 2, _HIGH // 2), (*on_device, cells))
    set_ready(changed, bounds)
    return changed


# ---------------------------------------------------------------------------------------------------- on the host


def _hide_on_host(surface: Surface, regions: np.ndarray, masks: np.ndarray) -> None:
    luma = surface.data[: surface.height]
    chroma = surface.data[surface.height :].reshape(surface.height // 2, surface.width // 2, 2)
    means = [(_means(luma, region, 1), _means(chroma, region, 2)) for region in regions]
    for region, (y, pairs) in zip(regions, means, strict=True):
        cells = slice(region["mask"], region["mask"] + region["columns"] * region["rows"])
        shown = None if region["mask"] < 0 else masks[cells].reshape(region["rows"], region["columns"]) != 0
        _paint(luma, y, shown, region, 1)
        _paint(chroma, pairs, shown, region, 2)


def _means(plane: np.ndarray, region: np.ndarray, step: int) -> np.ndarray:
    """Return the rounded mean of each cell in a plane with a sample per `step` pixels: (rows, columns, ...) int32."""
    import cv2

    x1, y1, x2, y2, cell = (int(region[name]) // step for name in ("x1", "y1", "x2", "y2", "cell"))
    below, right = (np.minimum(np.arange(0, size + cell, cell), size) for size in (y2 - y1, x2 - x1))
    whole = cv2.integral(plane[y1:y2, x1:x2], sdepth=cv2.CV_64F)  # exact: sums of bytes stay far below 2 ** 53
    sums = np.diff(np.diff(whole[below][:, right], axis=0), axis=1).astype(np.int64)
    count = np.diff(below)[:, None] * np.diff(right)
    count = count.reshape(count.shape + (1,) * (sums.ndim - 2))
    return np.asarray((sums + count // 2) // count).astype(np.int32)


def _paint(plane: np.ndarray, means: np.ndarray, shown: np.ndarray | None, region: np.ndarray, step: int) -> None:
    x1, y1, x2, y2, cell = (int(region[name]) // step for name in ("x1", "y1", "x2", "y2", "cell"))
    if region["smooth"]:
        values = _interpolate(_interpolate(means, y2 - y1, cell).swapaxes(0, 1), x2 - x1, cell).swapaxes(0, 1)
        painted = ((values + (1 << 15)) >> 16).astype(np.uint8)
    else:
        painted = _repeat_cells(means.astype(np.uint8), y2 - y1, x2 - x1, cell)
    under = plane[y1:y2, x1:x2]
    if shown is None:
        under[...] = painted
    else:
        where = _repeat_cells(shown, y2 - y1, x2 - x1, cell)
        under[where] = painted[where]


def _repeat_cells(cells: np.ndarray, height: int, width: int, cell: int) -> np.ndarray:
    """Repeat each cell for its samples: (height, width, ...)."""
    return np.asarray(cells.repeat(cell, axis=1)[:, :width].repeat(cell, axis=0)[:height])


def _interpolate(means: np.ndarray, size: int, cell: int) -> np.ndarray:
    """Interpolate between cells along the first axis: (size, ...) int32, times 256."""
    place = np.maximum((2 * np.arange(size) + 1) * 128 // cell - 128, 0)  # from the first cell's middle, in 1/256 cells
    before = np.minimum(place >> 8, len(means) - 1)
    after = np.minimum(before + 1, len(means) - 1)
    share = (place & 255).astype(np.int32).reshape(-1, *[1] * (means.ndim - 1))
    return np.asarray(means[before] * (256 - share) + means[after] * share)


_MIN_CELL = 8  # pixels: smaller cells would leave a small face recognizable
_ZONE_CELLS = 24  # cells of a zone per frame height; its edge is as coarse as they are

Corners = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class HideSpec:
    """One kind of content to hide.

    Attributes:
        smooth: blur; else pixelate.
        labels: the classes of the objects; empty for all, if `objects` is True.
        objects: whether objects are hidden; else the zones themselves.
        zones: areas; with `objects`, only objects whose box has its center in one of them.
        share: the zones are in shares of the frame, else in pixels.
        cells: maximum number of cells along the longer side of an object.
        grow: how much a box is enlarged, as a share of its size, both sides together.
    """

    smooth: bool
    labels: frozenset[str] = frozenset()
    objects: bool = True
    zones: tuple[Corners, ...] = ()
    share: bool = False
    cells: int = 8
    grow: float = 0.2


@dataclass(slots=True)
class Regions:
    """Arguments of `hide.hide`: (m,) REGION ordered by frame, and (k,) uint8 masks."""

    table: np.ndarray = field(default_factory=lambda: np.zeros(0, REGION))
    masks: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))


def regions(
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    tables: Sequence[Detections],
    hidden: Sequence[HideSpec],
    scales: Sequence[tuple[float, float]] | None = None,
) -> Regions:
    """Lay out the regions to hide in a batch.

    Args:
        surfaces: the frames' surfaces.
        sizes: the frames' true widths and heights.
        tables: the batch's detections on the host; `batch_row` is an index of `surfaces`.
        hidden: what to hide; later entries are on top.
        scales: `Frame.shape_scale` of the frames; 1 by default.
    """
    parts: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    for spec in hidden:
        units = sizes if spec.share else scales or [(1.0, 1.0)] * len(sizes)
        if spec.objects:
            parts += [_objects(surfaces, sizes, table, spec, units) for table in tables if len(table)]
        else:
            for row, unit in enumerate(units):
                padded = surfaces[row].width, surfaces[row].height
                for zone in spec.zones:
                    region, mask = _zone(zone, unit, spec.smooth, padded)
                    if region is not None:
                        region = region.copy()
                        region["frame"] = row
                        region["mask"] = sum(map(len, masks))
                        parts.append(region)
                        masks.append(mask)
    if not parts:
        return Regions()
    table = np.concatenate(parts)
    table = table[np.argsort(table["frame"], kind="stable")]
    count = table["columns"] * table["rows"]
    table["first"] = np.cumsum(count) - count
    return Regions(table, np.concatenate(masks) if masks else np.zeros(0, np.uint8))


def _objects(
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    table: Detections,
    spec: HideSpec,
    units: Sequence[tuple[float, float]],
) -> np.ndarray:
    """Return the regions of a table's objects; `units` of the zones are in pixels, for each frame."""
    wanted = np.ones(len(table), bool)
    if spec.labels:
        wanted = np.array([name in spec.labels for name in table.label], bool)
    box = table.xyxy.astype(np.float64)
    wanted &= ~np.isnan(box).any(axis=1) & (box[:, 0] <= box[:, 2]) & (box[:, 1] <= box[:, 3])
    if spec.zones:
        true = np.array(sizes, np.float64)[table.batch_row]
        middle = (np.clip(box[:, :2], 0, true) + np.clip(box[:, 2:], 0, true)) / 2
        wanted &= _in_any(middle / np.array(units, np.float64)[table.batch_row], spec.zones)
    box = box[wanted]
    frame = table.batch_row[wanted].astype(np.int64)
    side = box[:, 2:] - box[:, :2]
    start = box[:, :2] - side * spec.grow / 2
    end = box[:, 2:] + side * spec.grow / 2
    limit = np.array([(s.width, s.height) for s in surfaces], np.float64)[frame]
    start = 2 * np.floor(np.clip(start, 0, limit) / 2)
    end = 2 * np.ceil(np.clip(end, 0, limit) / 2)
    end = np.where((box[:, 2:] >= 0) & (box[:, :2] <= limit), np.minimum(np.maximum(end, start + 2), limit), end)
    there = (end > start).all(axis=1)
    object_regions = np.zeros(int(there.sum()), REGION)
    object_regions["frame"] = frame[there]
    object_regions["mask"] = -1
    object_regions["smooth"] = spec.smooth
    object_regions["x1"], object_regions["y1"] = start[there].T
    object_regions["x2"], object_regions["y2"] = end[there].T
    # By the whole box, not by its visible part: half a face gets cells as coarse as a whole one.
    longest = side[there].max(axis=1, initial=0) * (1 + spec.grow)
    object_regions["cell"] = np.maximum(_MIN_CELL, 2 * np.ceil(longest / spec.cells / 2)).clip(max=4096)
    object_regions["columns"] = -(-(object_regions["x2"] - object_regions["x1"]) // object_regions["cell"])
    object_regions["rows"] = -(-(object_regions["y2"] - object_regions["y1"]) // object_regions["cell"])
    return object_regions


def _in_any(points: np.ndarray, zones: Sequence[Corners]) -> np.ndarray:
    """Return (n,) bool: whether points lie in one of the zones, or on its edge."""
    import cv2

    inside = np.zeros(len(points), bool)
    for zone in zones:
        corners = np.array(zone, np.float32)[:, None]
        inside |= np.array([cv2.pointPolygonTest(corners, (x, y), False) >= 0 for x, y in points.tolist()], bool)
    return inside


@lru_cache(maxsize=256)
def _zone(
    zone: Corners, unit: tuple[float, float], smooth: bool, padded: tuple[int, int]
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return a zone's region, (1,) REGION, None if it is outside, and its mask: every cell that the zone touches."""
    import cv2

    corners = np.array(zone, np.float64) * unit
    start = 2 * np.floor(corners.min(axis=0) / 2)
    end = 2 * np.floor(corners.max(axis=0) / 2) + 2
    x1, y1 = np.clip(start, 0, padded).astype(int).tolist()
    x2, y2 = np.clip(end, 0, padded).astype(int).tolist()
    if x1 >= x2 or y1 >= y2:
        return None, np.zeros(0, np.uint8)
    cell = max(_MIN_CELL, 2 * round(padded[1] / _ZONE_CELLS / 2))
    columns = -(-(x2 - x1) // cell)
    rows = -(-(y2 - y1) // cell)
    # Drawn in full resolution with a thick border, so that cells that the zone only touches are included.
    drawn = np.zeros((rows * cell, columns * cell), np.uint8)
    points = np.rint((corners - (x1, y1)) * 16).astype(np.int32)[None]
    cv2.fillPoly(drawn, points, 1, shift=4)
    cv2.polylines(drawn, points, True, 1, thickness=3, shift=4)
    mask = drawn.reshape(rows, cell, columns, cell).max(axis=(1, 3))
    region = np.zeros(1, REGION)
    region[["x1", "y1", "x2", "y2", "cell", "columns", "rows", "smooth"]] = x1, y1, x2, y2, cell, columns, rows, smooth
    return region, mask.ravel()
