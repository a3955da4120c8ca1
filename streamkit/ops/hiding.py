"""Regions to hide, from detections and zones: which parts of a frame, and how coarsely; see `hide.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from streamkit.core.data import Detections, Surface
from streamkit.ops.hide import REGION

_LEAST = 8  # pixels of a cell: less would leave a small face as it is
_ZONE_CELLS = 24  # of the frame's height: a zone's cells are its pattern, and its edge is as rough as they are

Corners = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class HideSpec:
    """One kind of content to hide.

    Attributes:
        smooth: blur; else pixelate.
        labels: the classes of the objects; empty for all, if `objects` is True.
        objects: whether objects are hidden; else the zones themselves.
        zones: areas; with `objects`, only objects whose box has its centre in one of them.
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
) -> Regions:
    """Lay out the regions to hide in a batch.

    Args:
        surfaces: the frames' surfaces.
        sizes: the frames' true widths and heights.
        tables: the batch's detections on the host; `batch_row` is an index of `surfaces`.
        hidden: what to hide; later entries are on top.
    """
    parts: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    for one in hidden:
        if one.objects:
            parts += [_objects(surfaces, sizes, table, one) for table in tables if len(table)]
        else:
            for row, size in enumerate(sizes):
                for zone in one.zones:
                    region, mask = _zone(zone, one.share, one.smooth, size, (surfaces[row].width, surfaces[row].height))
                    if region is not None:
                        region = region.copy()
                        region["frame"], region["mask"] = row, sum(map(len, masks))
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
    surfaces: Sequence[Surface], sizes: Sequence[tuple[int, int]], table: Detections, one: HideSpec
) -> np.ndarray:
    """Return the regions of a table's objects."""
    wanted = np.ones(len(table), bool)
    if one.labels:
        wanted = np.array([name in one.labels for name in table.label], bool)
    box = table.xyxy.astype(np.float64)
    wanted &= ~np.isnan(box).any(axis=1) & (box[:, 0] <= box[:, 2]) & (box[:, 1] <= box[:, 3])
    if one.zones:
        true = np.array(sizes, np.float64)[table.batch_row]
        middle = (np.clip(box[:, :2], 0, true) + np.clip(box[:, 2:], 0, true)) / 2
        wanted &= _in_any(middle / true if one.share else middle, one.zones)
    box, frame = box[wanted], table.batch_row[wanted].astype(np.int64)
    side = box[:, 2:] - box[:, :2]
    start, end = box[:, :2] - side * one.grow / 2, box[:, 2:] + side * one.grow / 2
    limit = np.array([(s.width, s.height) for s in surfaces], np.float64)[frame]
    start = 2 * np.floor(np.clip(start, 0, limit) / 2)
    end = 2 * np.ceil(np.clip(end, 0, limit) / 2)
    end = np.where((box[:, 2:] >= 0) & (box[:, :2] <= limit), np.minimum(np.maximum(end, start + 2), limit), end)
    there = (end > start).all(axis=1)
    made = np.zeros(int(there.sum()), REGION)
    made["frame"], made["mask"], made["smooth"] = frame[there], -1, one.smooth
    made["x1"], made["y1"] = start[there].T
    made["x2"], made["y2"] = end[there].T
    # By the whole box, not by what of it is in the frame: a face half in sight is as coarse as one in full sight.
    longest = side[there].max(axis=1, initial=0) * (1 + one.grow)
    made["cell"] = np.maximum(_LEAST, 2 * np.ceil(longest / one.cells / 2)).clip(max=4096)
    made["columns"] = -(-(made["x2"] - made["x1"]) // made["cell"])
    made["rows"] = -(-(made["y2"] - made["y1"]) // made["cell"])
    return made


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
    zone: Corners, share: bool, smooth: bool, size: tuple[int, int], padded: tuple[int, int]
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return a zone's region, (1,) REGION, None if it is outside, and its mask: every cell that the zone touches."""
    import cv2

    corners = np.array(zone, np.float64) * (size if share else (1, 1))
    start, end = 2 * np.floor(corners.min(axis=0) / 2), 2 * np.floor(corners.max(axis=0) / 2) + 2
    x1, y1 = np.clip(start, 0, padded).astype(int).tolist()
    x2, y2 = np.clip(end, 0, padded).astype(int).tolist()
    if x1 >= x2 or y1 >= y2:
        return None, np.zeros(0, np.uint8)
    cell = max(_LEAST, 2 * round(padded[1] / _ZONE_CELLS / 2))
    columns, rows = -(-(x2 - x1) // cell), -(-(y2 - y1) // cell)
    # Drawn at the size of the pixels, with its border, which is drawn thick: what the zone only just touches counts.
    drawn = np.zeros((rows * cell, columns * cell), np.uint8)
    points = np.rint((corners - (x1, y1)) * 16).astype(np.int32)[None]
    cv2.fillPoly(drawn, points, 1, shift=4)
    cv2.polylines(drawn, points, True, 1, thickness=3, shift=4)
    mask = drawn.reshape(rows, cell, columns, cell).max(axis=(1, 3))
    region = np.zeros(1, REGION)
    region[["x1", "y1", "x2", "y2", "cell", "columns", "rows", "smooth"]] = x1, y1, x2, y2, cell, columns, rows, smooth
    return region, mask.ravel()
