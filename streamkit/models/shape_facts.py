# SPDX-License-Identifier: Apache-2.0
"""Which families read a network's outputs, by their shapes; where these leave two, by the values of one run.

A family's own `check` decides whether it can read outputs; `_PLAUSIBLE` adds how the shapes of its networks relate to
the input, since a shape such as (N, 84, 8400) could also hold 84 anchors of 8,395 classes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Device
from streamkit.core.errors import ModelError
from streamkit.models.families import FAMILIES, Family
from streamkit.models.network_file import ModelInfo, not_run
from streamkit.models.session import Session

Size = tuple[int, int]
Dims = tuple[Any, ...]
_ANY = 99_991
"""A number of classes that no network has: a family that accepts it does not see the number in the shapes."""
_STRIDES = ((8, 16, 32), (16, 32), (4, 8, 16), (4, 8, 16, 32), (8, 16, 32, 64))
_LEAST_EMBEDDING = 16
_MOST_ROWS, _LEAST_QUERIES = 1000, 50
_NOT_BY_SHAPE = ("yolov8_obb", "ctc", "slots")
"""Families whose shapes are those of others: taken only if a source or the user names them."""


class Candidate(NamedTuple):
    """A family that can read a network's outputs.

    Attributes:
        classes: the number of classes that the shapes have for it; None if they leave it open.
    """

    family: str
    classes: int | None


def candidates(
    info: ModelInfo, size: Size | None, classes: int | None, among: Sequence[str] | None = None, select: str = ""
) -> list[Candidate]:
    """Return the families that can read a network's outputs.

    Args:
        info: the network.
        size: width and height of its input, None if unknown.
        classes: length of the label list, None if unknown.
        among: the families to consider; by default all whose shapes tell them.
        select: the card's `select`.
    """
    found = []
    for name, family in FAMILIES.items():
        if name not in (among if among is not None else FAMILIES.keys() - _NOT_BY_SHAPE):
            continue
        reads = family.selecting(select) if name == "detr" else family
        if _takes_inputs(info, reads) and _plausible(name, info, size):
            count = len(reads.label.split(",")) if reads.label else classes
            found += [Candidate(name, fitting) for fitting in _counts(info, reads, count)]
    return found


def _takes_inputs(info: ModelInfo, family: Family) -> bool:
    """Whether the family has a value for every input beside the images."""
    return not info.inputs.keys() - {info.image_input} - family.extra_inputs(np.ones((1, 2), np.int64), np).keys()


def _counts(info: ModelInfo, family: Family, classes: int | None) -> list[int | None]:
    """Return the number of classes with which the family accepts the outputs, as a list of at most one."""
    shapes = {name: output.dims for name, output in info.outputs.items()}

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
    return rule is None or rule([output.dims for output in info.outputs.values()], size, info)


def _cells(size: Size, strides: Sequence[int]) -> int:
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


def _anchors(axis: int, per_cell: Sequence[int]) -> Callable[[list[Dims], Size | None, ModelInfo], bool]:
    """Return the rule that a dimension is the number of anchors of a feature pyramid."""

    def rule(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
        dims = next((dims for dims in outputs if len(dims) == 3), ())
        if not dims or not isinstance(dims[axis], int):
            return bool(dims)
        if size is None:
            other = dims[3 - axis]
            return not isinstance(other, int) or dims[axis] > other
        return dims[axis] in {n * _cells(size, strides) for strides in _STRIDES for n in per_cell}

    return rule


def _without_map(rule: Callable[..., bool]) -> Callable[..., bool]:
    return lambda outputs, size, info: all(len(dims) != 4 for dims in outputs) and rule(outputs, size, info)


def _rows(least: int, most: int) -> Callable[[list[Dims], Size | None, ModelInfo], bool]:
    """Return the rule that the only output of 3 dimensions has rows of so many values, and too few to be anchors."""

    def rule(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
        found = [dims for dims in outputs if len(dims) == 3]
        if len(found) != 1:
            return False
        _, rows, values = found[0]
        if not isinstance(values, int):
            return not isinstance(rows, int)  # a run tells
        few = not isinstance(rows, int) or rows <= _MOST_ROWS
        return few and least <= values <= most and not _is_pyramid(values, size)

    return rule


def _queries(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
    """Whether the only output is one of queries: fewer than anchors, more than the values of an anchor."""
    (dims,) = outputs if len(outputs) == 1 else ((),)
    if len(dims) != 3:
        return False
    _, rows, values = dims
    if not isinstance(rows, int) or not isinstance(values, int):
        return not isinstance(rows, int) and not isinstance(values, int)  # a run tells
    return _LEAST_QUERIES <= rows <= _MOST_ROWS and not (_is_pyramid(rows, size) or _is_pyramid(values, size))


def _is_pyramid(count: int, size: Size | None) -> bool:
    """Whether a dimension is a number of anchors; where the input's size is unknown, whether it may be."""
    if size is None:
        return count > _MOST_ROWS
    return count in {n * _cells(size, strides) for strides in _STRIDES for n in (1, 3)}


def _map(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
    """Whether the only output is a map in the shape of the input, of scores, or of classes as integers."""
    if len(outputs) != 1:
        return False
    (dims,), whole = outputs, next(iter(info.outputs.values())).dtype.kind in "iu"
    places = [dims[1:3]] if len(dims) == 3 else [dims[2:4], dims[1:3]] if len(dims) == 4 else []
    if len(dims) == 3 and not whole:
        return False
    return any(_in_shape(place, size) for place in places)


def _in_shape(place: Dims, size: Size | None) -> bool:
    """Whether (height, width) are the input's, or the same share of both, at least 1/32."""
    if not all(isinstance(side, int) for side in place):
        return True
    if size is None:
        return bool(min(place) >= 8)
    shares = [side / whole for side, whole in zip(place, (size[1], size[0]), strict=True)]
    return bool(min(shares) >= 1 / 33 and max(shares) <= min(4, 1.1 * min(shares)))


def _one_vector(outputs: list[Dims], size: Size | None, info: ModelInfo) -> bool:
    floats = all(output.dtype.kind == "f" for output in info.outputs.values())
    if not floats or len(outputs) != 1 or not outputs[0]:
        return False
    return bool(not isinstance(outputs[0][-1], int) or max(_ints(outputs[0][1:])) > 1)


def _ints(dims: Dims) -> list[int]:
    return [dim for dim in dims if isinstance(dim, int)] or [2]


_PLAUSIBLE: dict[str, Callable[[list[Dims], Size | None, ModelInfo], bool]] = {
    "yolox": _without_map(_anchors(1, (1,))),
    "yolov5": _without_map(_anchors(1, (1, 3))),
    "yolov8": _without_map(_anchors(2, (1,))),
    "yolo_world": lambda outputs, size, info: len(outputs) == 2,
    "yolov8_pose": _without_map(_anchors(2, (1,))),
    "yolov8_seg": _anchors(2, (1,)),
    "yolov8_obb": _without_map(_anchors(2, (1,))),
    "yolo_e2e": _without_map(_rows(6, 6)),
    "yolo_e2e_pose": _without_map(_rows(9, 1000)),
    "yolo_e2e_seg": _rows(7, 1000),
    "rtdetr": _without_map(_queries),
    "rtdetr_e2e": _without_map(_rows(6, 6)),
    "semantic": _map,
    "logits": _one_vector,
    "probabilities": _one_vector,
    "embedding": lambda outputs, size, info: (
        _one_vector(outputs, size, info) and max(_ints(outputs[0][1:] or (2,))) >= _LEAST_EMBEDDING
    ),
}


# ------------------------------------------------------------------------------------------------- values of one run


def with_sizes(info: ModelInfo, size: Size) -> ModelInfo:
    """Return the network with the sizes that the file leaves open as in one run on a gray image, but for the batch.

    Without change if there are none, or if the network has further inputs.
    """
    open_ = any(None in output.shape[1:] for output in info.outputs.values())
    if not open_ or len(info.inputs) > 1:
        return info
    made = values_of(info, size)
    outputs = {
        name: dataclasses.replace(output, dims=(*output.dims[:1], *made[name].shape[1:]))
        for name, output in info.outputs.items()
    }
    return dataclasses.replace(info, outputs=outputs)


def decide(info: ModelInfo, size: Size, found: list[Candidate]) -> tuple[list[Candidate], str]:
    """Narrow candidates by the values of one run on a gray image.

    `yolox` has raw values of a few units, `yolov5` box centres over the whole input; `probabilities` sum to 1;
    RT-DETR's boxes are shares of the input.

    Returns:
        The candidates that remain, and how this was decided; the same ones and nothing where it cannot be.
    """
    names = {one.family for one in found}
    if names == {"yolox", "yolov5"}:
        keep, why = _boxes_or_raw(values_of(info, size), size)
    elif "yolo_e2e" in names and names <= {"yolo_e2e", "rtdetr_e2e", "rtdetr"}:
        keep, why = _pixels_or_shares(values_of(info, size))
    elif names == {"logits", "probabilities"}:
        keep, why = _shares_or_logits(values_of(info, size))
    else:
        return found, ""
    return ([one for one in found if one.family == keep], why) if keep else (found, "")


def values_of(info: ModelInfo, size: Size) -> Mapping[str, np.ndarray]:
    """Return the outputs for one gray image; cached until the file changes. Raises ModelError."""
    stat = info.file.stat()
    return _values(info.file, stat.st_mtime_ns, stat.st_size, size)


def _boxes_or_raw(outputs: Mapping[str, np.ndarray], size: Size) -> tuple[str, str]:
    rows = next(value[0] for value in outputs.values() if value.ndim == 3)
    most = np.abs(rows[:, :2]).max(axis=0)
    if (most > 0.75 * np.array(size)).all():
        return "yolov5", "its box centres are in network pixels, in a run on a gray image"
    if (most < 0.25 * np.array(size)).all():
        return "yolox", "its box centres are raw offsets, in a run on a gray image"
    return "", ""


def _pixels_or_shares(outputs: Mapping[str, np.ndarray]) -> tuple[str, str]:
    rows = next(value[0] for value in outputs.values() if value.ndim == 3)
    if not rows.any():  # after non-max suppression, rows without an object are zeros; RT-DETR has none
        return "yolo_e2e", "it has no rows in a run on a gray image"
    if (rows[:, 5] % 1 != 0).any():
        return "rtdetr", "its last column is no class, in a run on a gray image"
    if np.abs(rows[:, :4]).max() <= 2:
        return "rtdetr_e2e", "its boxes are shares of the input, in a run on a gray image"
    return "yolo_e2e", "its boxes are in network pixels, in a run on a gray image"


def _shares_or_logits(outputs: Mapping[str, np.ndarray]) -> tuple[str, str]:
    values = next(iter(outputs.values())).astype(np.float64).reshape(-1)
    if values.min() >= 0 and abs(values.sum() - 1) < 1e-2:
        return "probabilities", "its outputs sum to 1, in a run on a gray image"
    return "logits", "its outputs do not sum to 1, in a run on a gray image"


@functools.lru_cache(maxsize=16)
def _values(file: Path, changed_ns: int, bytes_: int, size: Size) -> Mapping[str, np.ndarray]:
    session = Session(file, Device())
    shape = (3, size[1], size[0]) if session.layout == "nchw" else (size[1], size[0], 3)
    image = np.full((session.fixed_batch or 1, *shape), 114 if session.dtype == "u8" else 0.447)
    dtype = {"f32": np.float32, "f16": np.float16, "u8": np.uint8}[session.dtype]
    try:
        outputs = session.run({session.image_input: image.astype(dtype)})
    except ModelError:
        raise
    except Exception as error:
        # ONNX Runtime's exceptions have no common base but Exception.
        raise not_run(file, size, error) from None
    return {name: np.asarray(value) for name, value in outputs.items()}
