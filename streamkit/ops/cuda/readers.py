"""Candidate selection on the device: one launch of `candidates.cu` each, whatever the batch.

Nothing here waits for the device. Scratch memory returns to CuPy's pool while kernels may still run: the pool reuses it
on the same stream only, after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.ops import traffic
from streamkit.ops.box_coding import FACE_OUTPUTS, FACE_POINTS, STRIDES, Coding
from streamkit.ops.cuda.load import kernel

_BLOCK = 256
_TALLIES = 3
MAX_ANCHORS = 1 << 17
"""`nms.cu` holds a bit for each anchor in shared memory."""


@dataclass(slots=True)
class DeviceCandidates:
    """The candidates of a batch of n frames with a anchors each, on the device.

    Attributes:
        keys: (n, p) uint64, sort keys in any order; p is the power of two at or above a.
        tallies: (n, 3) int32: number of candidates, and anchors removed by `label` and `not_finite`.
        boxes: (n, a, 4) float32 network pixels; only candidates' rows are written, as in the two below.
        class_id: (n, a) int32.
        points: (n, a, c) float32.
        step: layout of the points, as in `streamkit.ops.candidates.Candidates`.
    """

    keys: Array
    tallies: Array
    boxes: Array
    class_id: Array
    points: Array
    step: int = 2


def best_class(
    boxes: Array,
    scores: Array,
    objectness: Array | None,
    min_score: np.ndarray,
    coding: Coding,
    input_size: tuple[int, int],
    unit: tuple[float, float],
    logits: int,
    *,
    points: Array | None = None,
    step: int = 2,
) -> DeviceCandidates:
    """As `streamkit.ops.candidates.best_class`; `logits` is 1 for the sigmoid, 2 for the softmax."""
    objects = scores[:, :, 0] if objectness is None else objectness
    boxes, scores, objects, values = _one_type(boxes, scores, objects, boxes if points is None else points)
    columns = 0 if points is None else points.shape[2]
    found = _room(scores.shape[0], scores.shape[1], columns, step)
    arguments = (
        *_strided(boxes), *_strided(scores), *_strided(objects),
        np.int32(objectness is not None), np.int32(logits),
        np.int32(coding), np.float32(unit[0]), np.float32(unit[1]), np.int32(input_size[0]), np.int32(input_size[1]),
        *_strided(values), np.int32(columns),
    )  # fmt: skip
    _launch("best_class", _defines(boxes), arguments, found, min_score)
    return found


def each_class(
    boxes: Array, scores: Array, min_score: np.ndarray, coding: Coding, unit: tuple[float, float]
) -> DeviceCandidates:
    """As `streamkit.ops.candidates.each_class`."""
    boxes, scores = _one_type(boxes, scores)
    found = _room(scores.shape[0], scores.shape[1] * scores.shape[2])
    arguments = (
        *_strided(boxes), *_strided(scores), np.int32(coding), np.float32(unit[0]), np.float32(unit[1]),
    )  # fmt: skip
    _launch("each_class", _defines(boxes), arguments, found, min_score)
    return found


def given_class(
    boxes: Array,
    scores: Array,
    labels: Array,
    min_score: np.ndarray,
    coding: Coding,
    unit: tuple[float, float],
    *,
    points: Array | None = None,
    step: int = 2,
) -> DeviceCandidates:
    """As `streamkit.ops.candidates.given_class`."""
    boxes, scores, values = _one_type(boxes, scores, boxes if points is None else points)
    columns = 0 if points is None else points.shape[2]
    if labels.dtype not in (np.int64, np.int32, boxes.dtype):
        labels = labels.astype(boxes.dtype if labels.dtype.kind == "f" else np.int64)
    whole = () if labels.dtype == boxes.dtype else (f"LABELS={8 * labels.itemsize}",)
    found = _room(scores.shape[0], scores.shape[1], columns, step)
    arguments = (
        *_strided(boxes), *_strided(scores), *_strided(labels),
        np.int32(coding), np.float32(unit[0]), np.float32(unit[1]),
        *_strided(values), np.int32(columns),
    )  # fmt: skip
    _launch("given_class", _defines(boxes) + whole, arguments, found, min_score)
    return found


def faces(outputs: Mapping[str, Array], n: int, min_score: np.ndarray, input_size: tuple[int, int]) -> DeviceCandidates:
    """As `streamkit.ops.candidates.faces`."""
    import cupy

    tensors = [cupy.ascontiguousarray(tensor) for tensor in _one_type(*(outputs[name] for name in FACE_OUTPUTS))]
    anchors = sum(tensor.shape[1] for tensor in tensors[: len(STRIDES)])
    found = _room(n, anchors, FACE_POINTS, 3)
    arguments = (*tensors, np.int32(input_size[0]), np.int32(input_size[1]))
    _launch("faces", _defines(tensors[0]), arguments, found, min_score)
    return found


def _launch(
    name: str, defines: tuple[str, ...], arguments: tuple[Any, ...], found: DeviceCandidates, min_score: np.ndarray
) -> None:
    n, anchors = found.class_id.shape
    if not n or not anchors:
        return
    sink = (
        upload(min_score), np.int32(len(min_score)), np.float32(min_score.min(initial=np.inf)),
        np.int32(anchors), np.int32(found.keys.shape[1]),
        found.keys, found.tallies, found.boxes, found.class_id, found.points,
    )  # fmt: skip
    kernel("candidates.cu", name, defines)(((anchors + _BLOCK - 1) // _BLOCK, n), (_BLOCK,), (*arguments, *sink))


def _room(n: int, anchors: int, columns: int = 0, step: int = 2) -> DeviceCandidates:
    import cupy

    if anchors > MAX_ANCHORS:
        raise ValueError(f"a network may give at most {MAX_ANCHORS} anchors a frame, this one gives {anchors}")
    return DeviceCandidates(
        cupy.empty((n, 1 << max(anchors - 1, 0).bit_length()), np.uint64),
        cupy.zeros((n, _TALLIES), np.int32),
        cupy.empty((n, anchors, 4), np.float32),
        cupy.empty((n, anchors), np.int32),
        cupy.empty((n, anchors, columns), np.float32),
        step,
    )


def _one_type(*arrays: Array) -> list[Array]:
    """Return the arrays in one type that the kernels support: all float16, or all float32."""
    half = all(array.dtype == np.float16 for array in arrays)
    return list(arrays) if half else [array.astype(np.float32, copy=False) for array in arrays]


def _defines(array: Array) -> tuple[str, ...]:
    return ("HALF=1",) if array.dtype == np.float16 else ()


def _strided(array: Array) -> tuple[Any, ...]:
    """Return a view as kernel arguments: the address of its first value, and its strides in values."""
    return (array, *(np.int64(stride // array.itemsize) for stride in array.strides))


def upload(values: np.ndarray) -> Array:
    """Return the values on the device, for the current stream. Read-only: equal values share one array.

    Thresholds are the same for every batch, and few sources have few geometries, so usually nothing is copied.
    """
    import cupy

    device, stream = cupy.cuda.runtime.getDevice(), cupy.cuda.get_current_stream().ptr
    return _uploaded(values.tobytes(), values.shape, values.dtype, device, stream)


@lru_cache(maxsize=256)
def _uploaded(values: bytes, shape: tuple[int, ...], dtype: Any, device: int, stream: int) -> Any:
    """Copy once per stream: a copy is only ordered with the kernels of its own stream."""
    import cupy

    traffic.sent(len(values))
    return cupy.asarray(np.frombuffer(values, dtype).reshape(shape))
