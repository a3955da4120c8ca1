# SPDX-License-Identifier: Apache-2.0
"""Which families read a network's outputs, by their shapes; `run_facts` narrows them by the values of one run.

A family's own `check` decides whether it can read outputs, and `Family.claims` whether it explains all of them;
`_PLAUSIBLE` adds how the shapes of its networks relate to the input, since a shape such as (N, 84, 8400) could also
hold 84 anchors of 8,395 classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamkit.models.families import FAMILIES, Family
from streamkit.models.families.base import is_inner, unclaimed
from streamkit.models.network_file import ModelInfo

Size = tuple[int, int]
Dims = tuple[Any, ...]
_ANY = 99_991
"""A number of classes that no network has: a family that accepts it does not see the number in the shapes."""
_Strides = tuple[int, ...]
_USUAL: _Strides = (8, 16, 32)
_STRIDES = (_USUAL, (16, 32), (4, 8, 16), (4, 8, 16, 32), (8, 16, 32, 64))
_MIN_EMBEDDING = 16
_MAX_ROWS = 1000
_MAX_POINT_VALUES = 6 + 3 * 150
_OTHER_MAPS = re.compile("heat|depth|disp|anomaly|keypoint|flow|mask", re.IGNORECASE)
"""Names of maps that are no classes."""
_NOT_BY_SHAPE = ("yolov8_obb", "ctc", "slots")
"""Families whose shapes are those of others: taken only if a source or the user names them."""


class Candidate(NamedTuple):
    """A family that can read a network's outputs.

    Attributes:
        classes: the number of classes that the shapes have for it; None if they leave it open.
        unread: the outputs that it does not explain.
    """

    family: str
    classes: int | None
    unread: tuple[str, ...] = ()


def candidates(
    info: ModelInfo, size: Size | None, classes: int | None, among: Sequence[str] | None = None, select: str = ""
) -> list[Candidate]:
    """Return the families that can read a network's outputs, also those that leave some unread.

    Args:
        info: the network.
        size: width and height of its input; None to leave open how the shapes relate to it.
        classes: length of the label list, None if unknown.
        among: the families to consider; by default all whose shapes tell them.
        select: the card's `select`.
    """
    listed: list[Candidate] = []
    for name, family in FAMILIES.items():
        if name not in (among if among is not None else FAMILIES.keys() - _NOT_BY_SHAPE):
            continue
        reads = family.selecting(select)
        if not _takes_inputs(info, reads):
            continue
        numbers = _counts(info, reads, 1 if reads.label else classes)
        if numbers and _plausible(name, info, size):
            listed += [Candidate(name, number, _unread(info, reads, number)) for number in numbers]
    return listed


def needs_no_decision(candidate: Candidate, info: ModelInfo, labeled: bool) -> bool:
    """Whether the shapes are of this family only, so that it may be chosen without the user.

    Rows of 4 + C values are also those of RT-DETR with C classes, and of oriented boxes that a network has selected; a
    map of numbers may be of classes, key points or distances. As many labels as the map has values say classes.
    """
    if candidate.family == "rtdetr":
        return False
    if candidate.family == "semantic":
        return _holds_integers(info) or (labeled and (candidate.classes or 0) > 1)
    return True


def _unread(info: ModelInfo, family: Family, classes: int | None) -> tuple[str, ...]:
    return tuple(unclaimed(family, info.output_dims, _ANY if classes is None else classes))


def _holds_integers(info: ModelInfo) -> bool:
    return all(output.dtype.kind in "iu" for output in info.outputs.values())


def _takes_inputs(info: ModelInfo, family: Family) -> bool:
    """Whether the family has a value for every input beside the images."""
    return not info.inputs.keys() - {info.image_input} - family.extra_inputs(np.ones((1, 2), np.int64), np).keys()


def _counts(info: ModelInfo, family: Family, classes: int | None) -> list[int | None]:
    """Return the number of classes with which the family accepts the outputs, as a list of at most one."""
    shapes = info.output_dims

    def accepts(count: int) -> bool:
        try:
            family.check(shapes, count)
        except ValueError:
            return False
        return True

    if classes is not None:
        return [classes] if accepts(classes) else []
    if accepts(_ANY):
        return [None]
    sizes = {dim for dims in shapes.values() for dim in dims if isinstance(dim, int)}
    beside = {0, 1, 4, 5, 6} | {4 + size for size in sizes}
    possible = sorted({size - other for size in sizes for other in beside if size > other} | {1})
    fitting = [count for count in possible if accepts(count)]
    return [fitting[-1] if len(fitting) == 1 else None] if fitting else []


# -------------------------------------------------------------------------------------------- shapes against the input


_Rule = Callable[[ModelInfo, Size], bool]
"""Whether the shapes of a network, which a family's `check` accepts, may be those of its networks."""


def _plausible(name: str, info: ModelInfo, size: Size | None) -> bool:
    rule = _PLAUSIBLE.get(name)
    return rule is None or size is None or rule(info, size)


def _cells(size: Size, strides: Sequence[int]) -> int:
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


def _rows_of(info: ModelInfo) -> Dims:
    """Return the shape of the only output of 3 dimensions."""
    return next(dims for dims in info.output_dims.values() if len(dims) == 3)


def _anchors(axis: int, pyramids: Sequence[tuple[int, _Strides]]) -> _Rule:
    """Return the rule that a dimension is the number of anchors of a feature pyramid.

    Args:
        axis: the dimension.
        pyramids: anchors in a cell and strides of the pyramids that it may be.
    """

    def rule(info: ModelInfo, size: Size) -> bool:
        count = _rows_of(info)[axis]
        return not isinstance(count, int) or count in {
            per_cell * _cells(size, strides) for per_cell, strides in pyramids
        }

    return rule


def _without_map(rule: _Rule) -> _Rule:
    """Return the rule for a network without a map, whose prototypes would be those of masks."""
    return lambda info, size: all(len(dims) != 4 for dims in info.output_dims.values()) and rule(info, size)


def _rows(minimum: int, maximum: int, multiple: int = 5) -> _Rule:
    """Return the rule that the rows have so many values, and are so many as people choose."""

    def rule(info: ModelInfo, size: Size) -> bool:
        _, rows, values = _rows_of(info)
        if any(map(is_inner, info.outputs)) or _holds_integers(info):
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
    return chosen and not _is_pyramid(rows, size) and not _in_shape((rows, values), size)


def _is_pyramid(count: int, size: Size) -> bool:
    """Whether a dimension is a number of anchors."""
    return count in {n * _cells(size, strides) for strides in _STRIDES for n in (1, 3)}


def _map(info: ModelInfo, size: Size) -> bool:
    """Whether the output is a map in the shape of the input, of scores of classes, or of classes as integers."""
    ((name, dims),) = [(name, dims) for name, dims in info.output_dims.items() if len(dims) in (3, 4)]
    if _OTHER_MAPS.search(name):
        return False
    if _holds_integers(info):
        return _in_shape(dims[-2:], size)
    return len(dims) == 4 and any(
        values != 1 and _in_shape(place, size) for values, place in ((dims[1], dims[2:4]), (dims[3], dims[1:3]))
    )


def _in_shape(place: Dims, size: Size) -> bool:
    """Whether (height, width) are the input's, or the same share of both, of 1/32 to 4; open ones may be."""
    if not all(isinstance(side, int) for side in place):
        return True
    shares = [side / whole for side, whole in zip(place, (size[1], size[0]), strict=True)]
    return bool(min(shares) >= 1 / 33 and max(shares) <= min(4, 1.1 * min(shares)))


def _raw_detr(info: ModelInfo, size: Size) -> bool:
    """Whether raw outputs are logits of queries: an output called scores has been through a sigmoid or softmax."""
    raw = [name.lower() for name, dims in info.output_dims.items() if len(dims) == 3]
    return len(raw) == 1 or not any("score" in name for name in raw)


def _anchors_apart(info: ModelInfo, size: Size) -> bool:
    """Whether the outputs have a row for each anchor of a feature pyramid."""
    rows = {dims[1] for dims in info.output_dims.values() if len(dims) == 3}
    counts = {count for count in rows if isinstance(count, int)}
    return counts <= {_cells(size, strides) for strides in _STRIDES}


def _embedding(info: ModelInfo, size: Size) -> bool:
    """Whether the vector is long enough; the features of places that it is made of may stand beside it."""
    vectors = [output for output in info.outputs.values() if not is_inner(output.name) or len(output.dims) == 2]
    if len(vectors) > 1 or vectors[0].dtype.kind != "f":
        return False
    length = vectors[0].dims[1]
    return not isinstance(length, int) or length >= _MIN_EMBEDDING


def _single_vector(info: ModelInfo, size: Size) -> bool:
    """Whether the only output is a vector of several numbers."""
    vectors = list(info.outputs.values())
    return len(vectors) == 1 and vectors[0].dtype.kind == "f" and vectors[0].dims[1] != 1


_SINGLE = tuple((1, strides) for strides in _STRIDES)
_DECODED = ((1, _USUAL), (1, (8, 16, 32, 64)), *((3, strides) for strides in _STRIDES))

_PLAUSIBLE: dict[str, _Rule] = {
    "yolox": _without_map(_anchors(1, ((1, _USUAL),))),
    "yolov5": _without_map(_anchors(1, _DECODED)),
    "yolov8": _without_map(_anchors(2, _SINGLE)),
    "yolo_world": _anchors_apart,
    "yolov8_pose": _without_map(_anchors(2, _SINGLE)),
    "yolov8_seg": _anchors(2, _SINGLE),
    "yolov8_obb": _without_map(_anchors(2, _SINGLE)),
    "yolo_e2e": _without_map(_rows(6, 6)),
    "yolo_e2e_pose": _without_map(_rows(9, _MAX_POINT_VALUES)),
    "yolo_e2e_seg": _rows(7, 1000),
    "detr": _raw_detr,
    "rtdetr": _without_map(_rows(5, 1000, 50)),
    "rtdetr_e2e": _without_map(_rows(6, 6)),
    "semantic": _map,
    "logits": _single_vector,
    "probabilities": _single_vector,
    "embedding": _embedding,
}
