# SPDX-License-Identifier: Apache-2.0
"""The objects of a part of a frame, in the pixels of that part."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.core.data import Frame
from streamkit.core.detections import Detections
from streamkit.ops import rle
from streamkit.ops.boxes import Rect, area, clip

_MIN_SHARE = 0.5
"""Objects of which less than this share is in the part are left out."""


def objects_within(table: Detections, rect: Rect) -> tuple[Detections, np.ndarray]:
    """Return the objects that are mostly in a part of a frame, and their rows in the table.

    Boxes are clipped to the part; masks, keypoints and corners of rotated boxes move with it. Keypoints outside of the
    part get the score 0.

    Args:
        table: the objects of the frame, on the host.
        rect: the part.
    """
    left, top, right, bottom = rect
    offset = np.array([left, top], np.float32)
    boxes = clip(table.xyxy - np.tile(offset, 2), np.array([right - left, bottom - top], np.float32))
    whole = area(table.xyxy)
    rows = np.flatnonzero((whole > 0) & (area(boxes) >= _MIN_SHARE * whole))
    chosen = table[rows]
    more = dict[str, Any]()
    if "keypoints" in chosen.extra:
        more["keypoints"] = _moved_points(chosen.extra["keypoints"], offset, rect)
    if "corners" in chosen.extra:
        more["corners"] = (chosen.extra["corners"] - offset).astype(np.float32)
    if "mask" in chosen.extra:
        more["mask"] = np.full(len(rows), None)
        more["mask"][:] = [None if mask is None else _moved_mask(mask, rect) for mask in chosen.extra["mask"]]
    return chosen.with_columns(xyxy=np.ascontiguousarray(boxes[rows]), **more), rows


def part_of(frame: Frame, rect: Rect) -> tuple[Frame, dict[str, np.ndarray]]:
    """Return a frame, without pixels, of the size and with the objects of a part; and the rows of each table."""
    left, top, right, bottom = rect
    tables = {}
    rows = {}
    for name, table in frame.tables.items():
        tables[name], rows[name] = objects_within(table, rect)
    part = Frame(frame.source, frame.index, frame.pts_s, right - left, bottom - top, tables=tables)
    return part, rows


def _moved_points(points: np.ndarray, offset: np.ndarray, rect: Rect) -> np.ndarray:
    moved = np.array(points, np.float32)
    moved[..., :2] -= offset
    size = np.array([rect[2] - rect[0], rect[3] - rect[1]])
    outside = ((moved[..., :2] < 0) | (moved[..., :2] > size)).any(axis=-1)
    moved[outside] = np.where(np.isnan(moved[outside]), np.nan, 0).astype(np.float32)
    return moved


def _moved_mask(mask: rle.Rle, rect: Rect) -> rle.Rle:
    left, top, right, bottom = rect
    return rle.encode(rle.decode(mask)[top:bottom, left:right], right - left, bottom - top)
