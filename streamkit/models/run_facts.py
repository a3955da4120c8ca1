# SPDX-License-Identifier: Apache-2.0
"""What one run of a network on a gray image shows: sizes that its file leaves open, and families that do not fit.

Shapes are shared: (N, 8400, 6) holds YOLOX's raw values, decoded boxes with an objectness, or corners with a class. A
family that a network's shapes allow is excluded where the values cannot be its own. Outputs of zeros exclude nothing,
but for networks that always have rows.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from streamkit.core.data import Device
from streamkit.core.errors import ModelError, OutputError
from streamkit.core.user_cache import user_cache
from streamkit.io.outputs import write_cache_file
from streamkit.models.network import network_hash
from streamkit.models.network_file import ModelInfo, not_run
from streamkit.models.onnxruntime_package import need_onnxruntime
from streamkit.models.session import Session
from streamkit.models.shape_facts import Candidate, Size

Values = Mapping[str, np.ndarray]
Doubt = Callable[[Values, Size, int | None], str]
"""Returns why outputs are not a family's, of values, size of the input and number of classes; empty if they may be."""

logger = logging.getLogger(__name__)

_FORMAT = 2
_RUN = "in a run on a gray image"
_SLACK = 0.01
"""By how much a score may be outside of 0 to 1: f16 and int8 round."""
_MAX_BOX_SHARE = 0.9
_SHARES = 2.0
"""Largest coordinate of boxes in shares of the input; in pixels, boxes of a network reach further."""


def with_sizes(info: ModelInfo, size: Size) -> ModelInfo:
    """Return the network with the sizes that the file leaves open as in one run on a gray image, but for the batch.

    Without change if there are none, or if the network has further inputs.
    """
    open_ = any(None in output.shape[1:] for output in info.outputs.values())
    if not open_ or len(info.inputs) > 1:
        return info
    values = values_of(info, size)
    outputs = {
        name: dataclasses.replace(output, dims=(*output.dims[:1], *values[name].shape[1:]))
        for name, output in info.outputs.items()
    }
    return dataclasses.replace(info, outputs=outputs)


def doubts(info: ModelInfo, size: Size, candidates: Sequence[Candidate]) -> dict[str, str]:
    """Return the families that the values of one run exclude, each with the reason.

    Args:
        info: the network.
        size: width and height of its input.
        candidates: what its shapes allow.

    Raises:
        ModelError: the network cannot be run.
    """
    families = {candidate.family for candidate in candidates}
    open_vector = "embedding" in families and "logits" in families  # whether it is of classes is not yet known
    doubted = [
        candidate for candidate in candidates if not (open_vector and candidate.family in ("logits", "probabilities"))
    ]
    reasons = {candidate.family: doubt(info, size, candidate.family, candidate.classes) for candidate in doubted}
    return {family: reason for family, reason in reasons.items() if reason}


def doubt(info: ModelInfo, size: Size, family: str, classes: int | None) -> str:
    """Return why the values of one run are not a family's; empty if they may be, or nothing is known of its values.

    Raises:
        ModelError: the network cannot be run.
    """
    rule = _DOUBTS.get(family)
    if rule is None or len(info.inputs) > 1:
        return ""
    reason = rule(values_of(info, size), size, classes)
    return f"{reason}, {_RUN}" if reason else ""


def values_of(info: ModelInfo, size: Size) -> Values:
    """Return the outputs for one gray image; cached until the file changes. Raises ModelError."""
    return _values(info.file, network_hash(info.file), size)


@functools.lru_cache(maxsize=16)
def _values(file: Path, contents: str, size: Size) -> Values:
    """Return the outputs of a run, which is kept: each process that begins needs them again."""
    width, height = size
    runtime = need_onnxruntime().__version__
    values_file = user_cache("networks", f"{contents}-gray-{width}x{height}-{_FORMAT}-{runtime}.npz")
    values = _cached_values(values_file)
    if values is None:
        values = _run(file, size)
        content = io.BytesIO()
        np.savez(content, *values.values(), names=np.array(list(values)))
        try:
            write_cache_file(values_file, content.getvalue())
        except OutputError as error:
            logger.debug(f"a run of {file.name} on a gray image is not kept: {error}")
    return values


def _cached_values(file: Path) -> Values | None:
    """Return the outputs in a file; None if there is none that can be read."""
    try:
        with np.load(io.BytesIO(file.read_bytes())) as arrays:
            names = arrays["names"].tolist()
            return {name: arrays[f"arr_{place}"] for place, name in enumerate(names)}
    except Exception:  # what damage raises has no common base but Exception; the values are made again
        return None


def _run(file: Path, size: Size) -> Values:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    session = Session(file, Device(), threads=threads)
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


# ------------------------------------------------------------------------------------------------------ by the family


def _rows(values: Values) -> np.ndarray:
    """Return the first image's rows of the only output of 3 dimensions, as float64."""
    return np.asarray(next(array[0] for array in values.values() if array.ndim == 3), np.float64)


def _not_scores(scores: np.ndarray) -> str:
    outside = scores.size and (scores.min() < -_SLACK or scores.max() > 1 + _SLACK)
    return "its scores are not from 0 to 1" if outside else ""


def _not_classes(classes: np.ndarray) -> str:
    return "its classes are not whole numbers" if (classes % 1 != 0).any() else ""


def _corners(boxes: np.ndarray) -> bool:
    """Whether boxes are x1, y1, x2, y2; a few with a score near 0 may be inside out."""
    return bool((boxes[:, 2:] >= boxes[:, :2]).all(axis=1).mean() >= _MAX_BOX_SHARE)


def _not_corners(boxes: np.ndarray) -> str:
    return "" if _corners(boxes) else "its boxes are not corners"


def _in_shares(boxes: np.ndarray) -> bool:
    return bool(np.abs(boxes).max(initial=0.0) <= _SHARES)


def _yolox(values: Values, size: Size, classes: int | None) -> str:
    rows = _rows(values)
    if (np.abs(rows[:, :2]).max(axis=0, initial=0.0) > 0.75 * np.array(size)).all():
        return "its box centers are in network pixels"
    return _not_scores(rows[:, 4:])


def _yolov5(values: Values, size: Size, classes: int | None) -> str:
    rows = _rows(values)
    if not rows.any():
        return ""
    if (np.abs(rows[:, :2]).max(axis=0) < 0.25 * np.array(size)).all():
        return "its box centers are raw offsets"
    if _corners(rows[:, :4]):
        return "its boxes are corners, not center and size"
    return _not_scores(rows[:, 4:])


def _columns(scores: Callable[[np.ndarray, int | None], np.ndarray]) -> Doubt:
    """Return the doubt of columns of anchors: `scores` takes the values behind the box, and the number of classes."""

    def doubt(values: Values, size: Size, classes: int | None) -> str:
        rows = _rows(values).T
        if not rows.any():
            return ""
        if _in_shares(rows[:, :4]):
            return "its boxes are not in network pixels"
        return _not_scores(scores(rows[:, 4:], classes))

    return doubt


def _without_coefficients(values: Values, size: Size, classes: int | None) -> str:
    coefficients = next(array.shape[1] for array in values.values() if array.ndim == 4)
    return _columns(lambda behind, _: behind[:, :-coefficients])(values, size, classes)


def _point_scores(behind: np.ndarray, classes: int | None) -> np.ndarray:
    """Return the scores of objects and of keypoints, (anchors, values); those of objects alone if it is unknown."""
    if classes is None:
        return behind[:, :1]
    return np.concatenate([behind[:, :classes], behind[:, classes + 2 :: 3]], axis=1)


def _end_to_end(values: Values, size: Size, classes: int | None) -> str:
    rows = _rows(values)
    if not rows.any():  # after non-max suppression, rows without an object are zeros
        return ""
    if _in_shares(rows[:, :4]):
        return "its boxes are shares of the input"
    return _not_scores(rows[:, 4]) or _not_classes(rows[:, 5]) or _not_corners(rows[:, :4])


def _end_to_end_points(values: Values, size: Size, classes: int | None) -> str:
    return _end_to_end(values, size, classes) or _not_scores(_rows(values)[:, 8::3])


def _queries(values: Values, size: Size, classes: int | None) -> str:
    rows = _rows(values)
    if not rows.any():
        return "it has no rows"
    if rows.shape[1] == 6 and not _not_classes(rows[:, 5]):
        return "its last column is the class"
    return "" if _in_shares(rows[:, :4]) and not _not_scores(rows[:, 4:]) else "its rows are not shares and scores"


def _selected_queries(values: Values, size: Size, classes: int | None) -> str:
    rows = _rows(values)
    if not rows.any():
        return "it has no rows"
    if not _in_shares(rows[:, :4]):
        return "its boxes are in network pixels"
    return _not_scores(rows[:, 4]) or _not_classes(rows[:, 5])


def _anchors_apart(values: Values, size: Size, classes: int | None) -> str:
    boxes = next(array[0] for name, array in values.items() if "box" in name.lower())
    scores = next(array[0] for name, array in values.items() if "score" in name.lower())
    if not boxes.any():
        return ""
    if _in_shares(boxes):
        return "its boxes are shares of the input"
    return _not_corners(boxes) or _not_scores(scores)


def _class_maps(values: Values, size: Size, classes: int | None) -> str:
    """Exclude heat maps and detectors on a grid: small values that are no probabilities of classes."""
    name, array = next(iter(values.items()))
    if array.dtype.kind != "f" or array.ndim != 4 or "logits" in name or not array.any():
        return ""
    scores = array[0].astype(np.float64)
    probabilities = any(np.abs(scores.sum(axis=axis) - 1).max() < 0.05 for axis in (0, 2))
    logits = np.abs(scores).max() > 1 + _SLACK
    return "" if logits or probabilities else "its values are neither logits nor probabilities of classes"


def _sum_to_1(values: Values) -> bool:
    vector = next(iter(values.values())).astype(np.float64).reshape(-1)
    return bool(vector.min() >= 0 and abs(vector.sum() - 1) < 1e-2)


_DOUBTS: dict[str, Doubt] = {
    "yolox": _yolox,
    "yolov5": _yolov5,
    "yolov8": _columns(lambda behind, _: behind),
    "yolov8_pose": _columns(_point_scores),
    "yolov8_seg": _without_coefficients,
    "yolo_world": _anchors_apart,
    "yolo_e2e": _end_to_end,
    "yolo_e2e_pose": _end_to_end_points,
    "yolo_e2e_seg": _end_to_end,
    "rtdetr": _queries,
    "rtdetr_e2e": _selected_queries,
    "semantic": _class_maps,
    "logits": lambda values, size, classes: "its outputs sum to 1" if _sum_to_1(values) else "",
    "probabilities": lambda values, size, classes: "" if _sum_to_1(values) else "its outputs do not sum to 1",
}
"""By the family's name."""
