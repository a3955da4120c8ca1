# SPDX-License-Identifier: Apache-2.0
"""What the families' `FamilyTraits` are made of: rules of shapes, doubts of values, steps of plain references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamkit.models.families.base import Doubt, ShapeRule, Size, Values, is_inner
from streamkit.models.network_file import ModelInfo

Dims = tuple[Any, ...]
Strides = tuple[int, ...]
USUAL: Strides = (8, 16, 32)
STRIDES = (USUAL, (16, 32), (4, 8, 16), (4, 8, 16, 32), (8, 16, 32, 64))
"""Strides of the feature pyramids that detectors have."""
SINGLE = tuple((1, strides) for strides in STRIDES)
"""The pyramids with one anchor per cell, for `anchors`."""
_MAX_ROWS = 1000
SLACK = 0.01
"""By how much a score may be outside of 0 to 1: f16 and int8 round."""
_MAX_BOX_SHARE = 0.9
_SHARES = 2.0
"""Largest coordinate of boxes in shares of the input; in pixels, boxes of a network reach further."""


# ---------------------------------------------------------------------------------------------- shapes, for `plausible`


def cell_count(size: Size, strides: Sequence[int]) -> int:
    """Return the number of cells of a feature pyramid."""
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


def rows_of(info: ModelInfo) -> Dims:
    """Return the shape of the only output of 3 dimensions."""
    return next(dims for dims in info.output_dims.values() if len(dims) == 3)


def holds_integers(info: ModelInfo) -> bool:
    """Whether all outputs are integers."""
    return all(output.dtype.kind in "iu" for output in info.outputs.values())


def anchors(axis: int, pyramids: Sequence[tuple[int, Strides]]) -> ShapeRule:
    """Return the rule that a dimension is the number of anchors of a feature pyramid.

    Args:
        axis: the dimension.
        pyramids: anchors in a cell and strides of the pyramids that it may be.
    """

    def rule(info: ModelInfo, size: Size) -> bool:
        count = rows_of(info)[axis]
        return not isinstance(count, int) or count in {
            per_cell * cell_count(size, strides) for per_cell, strides in pyramids
        }

    return rule


def without_map(rule: ShapeRule) -> ShapeRule:
    """Return the rule for a network without a map, whose prototypes would be those of masks."""
    return lambda info, size: all(len(dims) != 4 for dims in info.output_dims.values()) and rule(info, size)


def selected_rows(minimum: int, maximum: int, multiple: int = 5) -> ShapeRule:
    """Return the rule that the rows have so many values, and are so many as people choose."""

    def rule(info: ModelInfo, size: Size) -> bool:
        _, rows, values = rows_of(info)
        if any(map(is_inner, info.outputs)) or holds_integers(info):
            return False
        if not isinstance(values, int):
            return not isinstance(rows, int)  # a run tells
        if not minimum <= values <= maximum or _is_pyramid(values, size):
            return False
        return not isinstance(rows, int) or _are_selected(rows, values, multiple, size)

    return rule


def _are_selected(rows: int, values: int, multiple: int, size: Size) -> bool:
    """Whether so many rows are chosen by people: neither anchors, nor tokens, nor the lines of a map.

    People choose 100 or 300 rows or queries. Tokens of a transformer, such as 197 or 201, are as many as patches.
    """
    chosen = rows <= _MAX_ROWS and rows % multiple == 0
    return chosen and not _is_pyramid(rows, size) and not in_shape((rows, values), size)


def _is_pyramid(count: int, size: Size) -> bool:
    """Whether a dimension is a number of anchors."""
    return count in {n * cell_count(size, strides) for strides in STRIDES for n in (1, 3)}


def in_shape(place: Dims, size: Size) -> bool:
    """Whether (height, width) are the input's, or the same share of both, of 1/32 to 4; open ones may be."""
    if not all(isinstance(side, int) for side in place):
        return True
    shares = [side / whole for side, whole in zip(place, (size[1], size[0]), strict=True)]
    return bool(min(shares) >= 1 / 33 and max(shares) <= min(4, 1.1 * min(shares)))


# -------------------------------------------------------------------------------------------------- values, for `doubt`


def first_rows(values: Values) -> np.ndarray:
    """Return the first image's rows of the only output of 3 dimensions, as float64."""
    return np.asarray(next(array[0] for array in values.values() if array.ndim == 3), np.float64)


def not_scores(scores: np.ndarray) -> str:
    """Say that scores are not from 0 to 1."""
    outside = scores.size and (scores.min() < -SLACK or scores.max() > 1 + SLACK)
    return "its scores are not from 0 to 1" if outside else ""


def not_classes(classes: np.ndarray) -> str:
    """Say that numbers of classes are not whole."""
    return "its classes are not whole numbers" if (classes % 1 != 0).any() else ""


def are_corners(boxes: np.ndarray) -> bool:
    """Whether boxes are x1, y1, x2, y2; a few with a score near 0 may be inside out."""
    return bool((boxes[:, 2:] >= boxes[:, :2]).all(axis=1).mean() >= _MAX_BOX_SHARE)


def not_corners(boxes: np.ndarray) -> str:
    """Say that boxes are not x1, y1, x2, y2."""
    return "" if are_corners(boxes) else "its boxes are not corners"


def in_shares(boxes: np.ndarray) -> bool:
    """Whether boxes are in shares of the input."""
    return bool(np.abs(boxes).max(initial=0.0) <= _SHARES)


def not_selected(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray) -> str:
    """Say that the objects of an image are not corners in pixels, scores and classes; empty without objects."""
    if not boxes.any():
        return ""
    if in_shares(boxes):
        return "its boxes are shares of the input"
    return not_scores(scores) or not_classes(classes) or not_corners(boxes)


def doubt_of_columns(scores: Callable[[np.ndarray, int | None], np.ndarray]) -> Doubt:
    """Return the doubt of columns of anchors: `scores` takes the values behind the box, and the number of classes."""

    def doubt(values: Values, size: Size, classes: int | None) -> str:
        rows = first_rows(values).T
        if not rows.any():
            return ""
        if in_shares(rows[:, :4]):
            return "its boxes are not in network pixels"
        return not_scores(scores(rows[:, 4:], classes))

    return doubt


# ------------------------------------------------------------------------------------------- one image, for `reference`


def best_rows(center: np.ndarray, size: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return rows of the best class of each anchor."""
    best = scores.argmax(1)
    return np.column_stack([center - size / 2, center + size / 2, scores.max(1), best])


def grid_cells(input_size: Size, stride: int) -> np.ndarray:
    """Return (cells, 2) x and y of the cells of a stride, line by line."""
    across = input_size[0] // stride
    down = input_size[1] // stride
    return np.array([(x, y) for y in range(down) for x in range(across)], np.float64)


def rotated_boxes(boxes: np.ndarray, angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return hulls (n, 4) and corners (n, 8) of center, size and angle in radians."""
    corners = np.array([_corners(box, angle) for box, angle in zip(boxes, angles, strict=True)]).reshape(-1, 4, 2)
    return np.column_stack([corners.min(axis=1), corners.max(axis=1)]), corners.reshape(-1, 8)


def _corners(box: np.ndarray, angle: float) -> np.ndarray:
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    upright = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * box[2:] / 2
    return np.asarray(upright @ turn + box[:2])


def matrix(outputs: Values) -> np.ndarray:
    """Return the output of two dimensions."""
    return next(output for output in outputs.values() if output.ndim == 2)


def column_rows(outputs: Values, classes: int | None = None) -> np.ndarray:
    """Read boxes and scores of columns, and the values behind the scores of `classes` classes; None for all values."""
    values = matrix(outputs).T
    end = values.shape[1] if classes is None else 4 + classes
    return np.column_stack([best_rows(values[:, :2], values[:, 2:4], values[:, 4:end]), values[:, end:]])


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax over the last dimension."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
