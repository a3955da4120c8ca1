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
from streamkit.models.families.base import fits, is_inner, unclaimed
from streamkit.models.network_file import ModelInfo

Size = tuple[int, int]
Dims = tuple[Any, ...]
_ANY = 99_991
"""A number of classes that no network has: a family that accepts it does not see the number in the shapes."""
_Strides = tuple[int, ...]
_USUAL: _Strides = (8, 16, 32)
_STRIDES = (_USUAL, (16, 32), (4, 8, 16), (4, 8, 16, 32), (8, 16, 32, 64))
_LEAST_EMBEDDING = 16
_MOST_ROWS = 1000
_LEAST_QUERIES = 50
_ROUND_ROWS = 5
_ROUND_QUERIES = 50
"""People choose how many rows or queries a network has: 100, 300. Tokens of a transformer, such as 197 or 201, are as
many as there are patches."""
_MOST_POINT_VALUES = 6 + 3 * 150
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
        size: width and height of its input, None if unknown.
        classes: length of the label list, None if unknown.
        among: the families to consider; by default all whose shapes tell them.
        select: the card's `select`.
    """
    listed: list[Candidate] = []
    for name, family in FAMILIES.items():
        if name not in (among if among is not None else FAMILIES.keys() - _NOT_BY_SHAPE):
            continue
        reads = family.selecting(select) if name == "detr" else family
        if _takes_inputs(info, reads) and _plausible(name, info, size):
            count = len(reads.label.split(",")) if reads.label else classes
            listed += [Candidate(name, number, _unread(info, reads, number)) for number in _counts(info, reads, count)]
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


def _plausible(name: str, info: ModelInfo, size: Size | None) -> bool:
    rule = _PLAUSIBLE.get(name)
    return rule is None or rule(list(info.output_dims.values()), size, info)


def _cells(size: Size, strides: Sequence[int]) -> int:
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


_Rule = Callable[[list[Dims], Size | None, ModelInfo], bool]


def _anchors(axis: int, pyramids: Sequence[tuple[int, _Strides]]) -> _Rule:
    """Return the rule that a dimension is the number of anchors of a feature pyramid.

    Args:
        axis: the dimension.
        pyramids: anchors in a cell and strides of the pyramids that it may be.
    """

    def rule(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
        dims = next((dims for dims in outputs if len(dims) == 3), ())
        if not dims or not isinstance(dims[axis], int):
            return bool(dims)
        if size is None:
            other = dims[3 - axis]
            return not isinstance(other, int) or dims[axis] > other
        return dims[axis] in {per_cell * _cells(size, strides) for per_cell, strides in pyramids}

    return rule


def _without_map(rule: Callable[..., bool]) -> Callable[..., bool]:
    return lambda outputs, size, info: all(len(dims) != 4 for dims in outputs) and rule(outputs, size, info)


def _rows(least: int, most: int) -> _Rule:
    """Return the rule that the only output of 3 dimensions has rows of so many values, and too few to be anchors."""

    def rule(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
        listed = [dims for dims in outputs if len(dims) == 3]
        if len(listed) != 1 or _has_features(info):
            return False
        _, rows, values = listed[0]
        if not isinstance(values, int):
            return not isinstance(rows, int)  # a run tells
        if not least <= values <= most or _is_pyramid(values, size):
            return False
        return not isinstance(rows, int) or _are_selected(rows, values, _ROUND_ROWS, size)

    return rule


def _queries(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
    """Whether the only output is one of queries: fewer than anchors, more than the values of an anchor."""
    (dims,) = outputs if len(outputs) == 1 else ((),)
    if len(dims) != 3 or _has_features(info):
        return False
    _, rows, values = dims
    if not isinstance(rows, int) or not isinstance(values, int):
        return not isinstance(rows, int) and not isinstance(values, int)  # a run tells
    selected = rows >= _LEAST_QUERIES and _are_selected(rows, values, _ROUND_QUERIES, size)
    return selected and not _is_pyramid(values, size)


def _has_features(info: ModelInfo) -> bool:
    """Whether an output is, by its name, features of inner layers, such as the tokens of a transformer."""
    return any(map(is_inner, info.outputs))


def _are_selected(rows: int, values: int, multiple: int, size: Size | None) -> bool:
    """Whether so many rows are chosen by people: neither anchors, nor tokens, nor the lines of a map."""
    chosen = rows <= _MOST_ROWS and rows % multiple == 0 and not _is_pyramid(rows, size)
    return chosen and (size is None or not _in_shape((rows, values), size))


def _is_pyramid(count: int, size: Size | None) -> bool:
    """Whether a dimension is a number of anchors; where the input's size is unknown, whether it may be."""
    if size is None:
        return count > _MOST_ROWS
    return count in {n * _cells(size, strides) for strides in _STRIDES for n in (1, 3)}


def _map(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
    """Whether the only output is a map in the shape of the input, of scores, or of classes as integers."""
    if len(outputs) != 1 or _OTHER_MAPS.search(next(iter(info.outputs))):
        return False
    dims = outputs[0]
    if _holds_integers(info):
        places = [(1, dims[1:3])] if len(dims) == 3 else [(dims[1], dims[2:4])] if len(dims) == 4 else []
        return any(fits(values, 1) and _in_shape(place, size) for values, place in places)
    places = [(dims[1], dims[2:4]), (dims[3], dims[1:3])] if len(dims) == 4 else []
    return any(values != 1 and _in_shape(place, size) for values, place in places)


def _in_shape(place: Dims, size: Size | None) -> bool:
    """Whether (height, width) are the input's, or the same share of both, at least 1/32."""
    if not all(isinstance(side, int) for side in place):
        return True
    if size is None:
        return bool(min(place) >= 8)
    shares = [side / whole for side, whole in zip(place, (size[1], size[0]), strict=True)]
    return bool(min(shares) >= 1 / 33 and max(shares) <= min(4, 1.1 * min(shares)))


def _raw_detr(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
    """Whether raw outputs are logits of queries: an output called scores has been through a sigmoid or softmax."""
    named = {name for name, dims in info.output_dims.items() if len(dims) == 3}
    return {"labels", "boxes", "scores"} <= info.outputs.keys() or not any("score" in name.lower() for name in named)


def _anchors_apart(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
    """Whether two outputs have a row for each anchor of a feature pyramid."""
    rows = {dims[1] for dims in outputs if len(dims) == 3}
    if size is None or not all(isinstance(count, int) for count in rows):
        return len(outputs) == 2
    return len(outputs) == 2 and rows <= {_cells(size, strides) for strides in _STRIDES}


def _embedding(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
    """Whether the only vector is long enough; the features of places that it is made of may stand beside it."""
    vectors = [output for output in info.outputs.values() if not output.name.endswith("hidden_state")]
    if len(vectors) != 1 or vectors[0].dtype.kind != "f" or not vectors[0].dims:
        return False
    return max(_ints(vectors[0].dims[1:] or (2,))) >= _LEAST_EMBEDDING or not isinstance(vectors[0].dims[-1], int)


def _one_vector(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
    floats = all(output.dtype.kind == "f" for output in info.outputs.values())
    if not floats or len(outputs) != 1 or not outputs[0]:
        return False
    return bool(not isinstance(outputs[0][-1], int) or max(_ints(outputs[0][1:])) > 1)


def _ints(dims: Dims) -> list[int]:
    return [dim for dim in dims if isinstance(dim, int)] or [2]


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
    "yolo_e2e_pose": _without_map(_rows(9, _MOST_POINT_VALUES)),
    "yolo_e2e_seg": _rows(7, 1000),
    "detr": _raw_detr,
    "rtdetr": _without_map(_queries),
    "rtdetr_e2e": _without_map(_rows(6, 6)),
    "semantic": _map,
    "logits": _one_vector,
    "probabilities": _one_vector,
    "embedding": _embedding,
}
