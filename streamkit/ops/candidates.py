# SPDX-License-Identifier: Apache-2.0
"""Candidates: the anchors of a network's output that reach their class's score, with their boxes.

These functions cover the detectors: `best_class` (a score per class and anchor, with or without objectness),
`each_class` and `best_pairs` (each class of an anchor may be an object: of logits, of scores), `labeled_class` (one
score and one label per row), `faces` (YuNet). Each takes the whole batch's output, as views with any strides, on the
host or on the device; `streamkit.ops.nms.select` makes objects of the result. On the device each is one launch of
`candidates.cu`, whatever the batch, without waiting for the device. Scratch memory returns to CuPy's pool while kernels
may still run: the pool reuses it on the same stream only, after them.

Anchors that do not become candidates are counted:

- `min_score`: the score is below its class's threshold;
- `label`: the class is unwanted (threshold +inf) or not in the list, though its score reaches the lowest threshold;
- `not_finite`: the score or box is NaN or infinite, as from a network that overflows in f16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.ops import traffic
from streamkit.ops.cuda.load import kernel
from streamkit.ops.rotated import CORNERS, corners_of, hull

STRIDES = (8, 16, 32)
FACE_OUTPUTS = tuple(f"{kind}_{stride}" for kind in ("cls", "obj", "bbox", "kps") for stride in STRIDES)
FACE_POINTS = 15
"""Values of a face's five landmarks: x, y and score in turn."""
_BLOCK = 256
_TALLIES = 3
MAX_PAIRS = 30_000
"""Pairs of anchor and class that `best_pairs` considers per frame, as `max_nms` of Ultralytics."""
MAX_ANCHORS = 1 << 17
"""`nms.cu` holds a bit for each anchor in shared memory."""


class Coding(IntEnum):
    """How four values encode a box. The numbers are those of `cuda/candidates.cu`."""

    XYXY = 0
    """Edges, times `unit`."""
    YXYX = 1
    """Edges with y first, times `unit`."""
    CXCYWH = 2
    """Center and size, times `unit`."""
    GRID = 3
    """YOLOX: center = (value + cell) x stride, size = exp(value) x stride; strides 8, 16, 32, rows of cells."""
    ROTATED = 4
    """Center and size, and an angle in a separate array; see `ops.rotated`."""


@dataclass(slots=True)
class Candidates:
    """The candidates of a batch of frames, on the host: m rows, ascending by frame and then by anchor.

    Attributes:
        frame: (m,) int64, the frame in the batch.
        score: (m,) float32.
        class_id: (m,) int32.
        xyxy: (m, 4) float32 network pixels, not clipped.
        points: (m, c) float32, further values of an anchor; c = 0 if the network has none.
        removed: (frames, 3) int32, rejected anchors, by `min_score`, `label`, `not_finite`.
        anchors: number of anchors per frame.
        step: layout of `points`: 2 for alternating x and y in network pixels, 3 if each pair is followed by a score,
            0 if they are not positions.
        rotated: whether the points are the corners of rotated boxes, which non-max suppression compares; `xyxy` is
            their hull.
    """

    frame: np.ndarray
    score: np.ndarray
    class_id: np.ndarray
    xyxy: np.ndarray
    points: np.ndarray
    removed: np.ndarray
    anchors: int
    step: int = 2
    rotated: bool = False


def best_class(
    boxes: Array,
    scores: Array,
    objectness: Array | None = None,
    *,
    min_score: np.ndarray,
    coding: Coding,
    input_size: tuple[int, int],
    unit: tuple[float, float] = (1.0, 1.0),
    logits: bool = False,
    softmax: bool = False,
    points: Array | None = None,
    step: int = 2,
    angle: Array | None = None,
) -> Any:
    """Select the best class of each anchor; the first of equal ones.

    Args:
        boxes: (n, a, 4) float32 or float16, as `coding` says.
        scores: (n, a, c), a score per class; 0..1, or logits with `logits` or `softmax`.
        objectness: (n, a), 0..1, or None. The score is objectness x class score.
        min_score: (c,) float32 on the host, minimum score of each class; +inf for unwanted classes.
        coding: how the boxes are encoded.
        input_size: the network's width and height in pixels.
        unit: factors for x and y, for boxes in shares of the input.
        logits: apply the sigmoid to the scores.
        softmax: apply the softmax over c + 1 classes to the scores, the last of which is no object.
        points: (n, a, c) further values of each anchor, which its object keeps.
        step: layout of `points`, as in `Candidates`.
        angle: (n, a) with `Coding.ROTATED`, radians. The points are the boxes' corners then.

    Returns:
        `Candidates`, or `DeviceCandidates` for arrays on the device.

    Raises:
        ValueError: the number of classes or anchors does not match.
    """
    n, a, classes = scores.shape
    check_scores(classes - softmax, min_score)
    if coding == Coding.GRID:
        check_cells(a, input_size)
    if array_module(scores) is not np:
        objects = scores[:, :, 0] if objectness is None else objectness
        values = points if points is not None else boxes if angle is None else angle[:, :, None]
        boxes, scores, objects, values = _common_dtype(boxes, scores, objects, values)
        columns = CORNERS if angle is not None else 0 if points is None else points.shape[2]
        arguments = (
            *_strided(boxes, scores, objects),
            np.int32(objectness is not None),
            np.int32(2 if softmax else logits),
            np.int32(coding),
            np.float32(unit[0]),
            np.float32(unit[1]),
            np.int32(input_size[0]),
            np.int32(input_size[1]),
            *_strided(values),
            np.int32(columns),
        )
        selected = _launch("best_class", arguments, boxes.dtype, (n, a), min_score, columns, step)
        selected.rotated = angle is not None
        return selected
    selection = _Selection(n, a, min_score)
    with np.errstate(all="ignore"):
        if objectness is not None:
            objectness = objectness.astype(np.float32, copy=False)
            # class scores are at most 1, so no other anchor can reach it
            frame, anchor = selection.above_floor(objectness)
            rows = scores[frame, anchor].astype(np.float32, copy=False)
            class_id = rows.argmax(axis=1)
            score = rows[np.arange(len(rows)), class_id] * objectness[frame, anchor]
        else:
            best = _softmax(scores) if softmax else scores.max(axis=2)
            best = sigmoid(best) if logits else best.astype(np.float32, copy=False)
            scores = scores[:, :, : len(min_score)]
            frame, anchor = selection.above_floor(best)
            class_id = scores[frame, anchor].argmax(axis=1)
            score = best[frame, anchor]
        selection.select(frame, anchor, score, class_id)
        if angle is not None:
            return selection.rotated(boxes, angle)
        xyxy = _decode(boxes[selection.frame, selection.anchor], selection.anchor, coding, unit, input_size)
        return selection.candidates(xyxy, None if points is None else points[selection.frame, selection.anchor], step)


def each_class(
    boxes: Array,
    scores: Array,
    *,
    min_score: np.ndarray,
    coding: Coding,
    unit: tuple[float, float] = (1.0, 1.0),
    points: Array | None = None,
    step: int = 2,
) -> Any:
    """Select each class of each row whose sigmoid reaches its threshold: row r's class k counts as anchor r x c + k.

    Args:
        boxes: (n, a, 4) float32 or float16, as `coding` says; not `Coding.GRID`.
        scores: (n, a, c) logits.
        min_score: (c,) float32 on the host, as in `best_class`.
        coding: how the boxes are encoded.
        unit: factors for x and y.
        points: (n, a, v) further values of each row, which its objects keep.
        step: layout of `points`, as in `Candidates`.

    Raises:
        ValueError: the number of classes does not match.
    """
    n, a, classes = scores.shape
    check_scores(classes, min_score)
    if array_module(scores) is not np:
        boxes, scores, values = _common_dtype(boxes, scores, boxes if points is None else points)
        columns = 0 if points is None else points.shape[2]
        arguments = (
            *_strided(boxes, scores),
            np.int32(coding),
            np.float32(unit[0]),
            np.float32(unit[1]),
            *_strided(values),
            np.int32(columns),
        )
        return _launch("each_class", arguments, boxes.dtype, (n, a * classes), min_score, columns, step)
    selection = _Selection(n, a * classes, min_score)
    with np.errstate(all="ignore"):
        score = sigmoid(scores.reshape(n, a * classes))
        frame, anchor = selection.above_floor(score)
        selection.select(frame, anchor, score[frame, anchor], anchor % max(classes, 1))
        row = selection.anchor // max(classes, 1)
        xyxy = _decode(boxes[selection.frame, row], row, coding, unit, (0, 0))
        return selection.candidates(xyxy, None if points is None else points[selection.frame, row], step)


def best_pairs(
    boxes: Array,
    scores: Array,
    objectness: Array | None = None,
    *,
    min_score: np.ndarray,
    coding: Coding,
    points: Array | None = None,
    step: int = 2,
) -> Any:
    """Select each class of each anchor that reaches its threshold, among the best `MAX_PAIRS` of a frame.

    Arguments as in `best_class`; not `Coding.GRID`. `anchors` of the result is the number of pairs.

    Raises:
        ValueError: the number of classes does not match.
    """
    n, a, classes = scores.shape
    check_scores(classes, min_score)
    xp = array_module(scores)
    values = (scores if objectness is None else scores * objectness[:, :, None]).reshape(n, a * classes)
    pairs = xp.broadcast_to(xp.arange(a * classes), values.shape)
    if a * classes > MAX_PAIRS:
        best = xp.argpartition(-values, MAX_PAIRS - 1, axis=1)[:, :MAX_PAIRS]
        pairs = xp.sort(best, axis=1)  # by anchor: equal scores do not change places
        values = xp.take_along_axis(values, pairs, axis=1)
    rows = (pairs // classes)[:, :, None]
    if points is not None:
        points = xp.take_along_axis(points, rows, axis=1)
    boxes = xp.take_along_axis(boxes, rows, axis=1)
    return labeled_class(boxes, values, pairs % classes, min_score=min_score, coding=coding, points=points, step=step)


def labeled_class(
    boxes: Array,
    scores: Array,
    labels: Array,
    *,
    min_score: np.ndarray,
    coding: Coding = Coding.XYXY,
    unit: tuple[float, float] = (1.0, 1.0),
    points: Array | None = None,
    step: int = 2,
    angle: Array | None = None,
) -> Any:
    """Select rows with one score and one label each, from networks that select objects themselves.

    Args:
        boxes: (n, a, 4) float32 or float16, as `coding` says; not `Coding.GRID`.
        scores: (n, a).
        labels: (n, a), integers or whole floats; rows with one outside 0..c - 1 are counted under `label`.
        min_score: (c,) float32 on the host, as in `best_class`.
        coding: how the boxes are encoded.
        unit: factors for x and y.
        points: (n, a, c) further values of each anchor, which its object keeps.
        step: layout of `points`, as in `Candidates`.
        angle: (n, a) with `Coding.ROTATED`, as in `best_class`.
    """
    n, a = scores.shape
    if array_module(scores) is not np:
        values = points if points is not None else boxes if angle is None else angle[:, :, None]
        boxes, scores, values = _common_dtype(boxes, scores, values)
        if labels.dtype not in (np.int64, np.int32, boxes.dtype):
            labels = labels.astype(boxes.dtype if labels.dtype.kind == "f" else np.int64)
        columns = CORNERS if angle is not None else 0 if points is None else points.shape[2]
        arguments = (
            *_strided(boxes, scores, labels),
            np.int32(coding),
            np.float32(unit[0]),
            np.float32(unit[1]),
            *_strided(values),
            np.int32(columns),
        )
        whole = () if labels.dtype == boxes.dtype else (f"LABELS={8 * labels.itemsize}",)
        selected = _launch("given_class", arguments, boxes.dtype, (n, a), min_score, columns, step, whole)
        selected.rotated = angle is not None
        return selected
    selection = _Selection(n, a, min_score)
    with np.errstate(all="ignore"):
        scores = scores.astype(np.float32, copy=False)
        frame, anchor = selection.above_floor(scores)
        label = labels[frame, anchor]
        class_id = np.where((label >= 0) & (label < len(min_score)), label, -1).astype(np.int64)
        selection.select(frame, anchor, scores[frame, anchor], class_id)
        if angle is not None:
            return selection.rotated(boxes, angle)
        xyxy = _decode(boxes[selection.frame, selection.anchor], selection.anchor, coding, unit, (0, 0))
        return selection.candidates(xyxy, None if points is None else points[selection.frame, selection.anchor], step)


def faces(outputs: Mapping[str, Array], n: int, *, min_score: np.ndarray, input_size: tuple[int, int]) -> Any:
    """Decode YuNet's twelve outputs: score = sqrt(class x objectness), both clipped to 0..1; five landmarks.

    Landmarks have no score of their own, so they get the face's.

    Args:
        outputs: `FACE_OUTPUTS`, each (>= n, cells, 1 | 1 | 4 | 10).
        n: number of real frames in the outputs.
        min_score: (1,) float32 on the host.
        input_size: the network's width and height in pixels.
    """
    a = sum(outputs[f"cls_{stride}"].shape[1] for stride in STRIDES)
    check_cells(a, input_size)
    if (xp := array_module(outputs["cls_8"])) is not np:
        tensors = [xp.ascontiguousarray(output) for output in _common_dtype(*(outputs[name] for name in FACE_OUTPUTS))]
        arguments = *tensors, np.int32(input_size[0]), np.int32(input_size[1])
        return _launch("faces", arguments, tensors[0].dtype, (n, a), min_score, FACE_POINTS, 3)
    cls, obj, bbox, kps = (
        np.concatenate([outputs[f"{kind}_{stride}"][:n] for stride in STRIDES], axis=1, dtype=np.float32)
        for kind in ("cls", "obj", "bbox", "kps")
    )
    selection = _Selection(n, a, min_score)
    with np.errstate(all="ignore"):
        score = np.sqrt(np.clip(cls[..., 0], 0, 1) * np.clip(obj[..., 0], 0, 1))
        frame, anchor = selection.above_floor(score)
        selection.select(frame, anchor, score[frame, anchor], np.zeros(len(frame), np.int64))
        frame = selection.frame
        anchor = selection.anchor
        x, y, stride = cells(input_size)[:, anchor]
        points = kps[frame, anchor].reshape(-1, 5, 2)
        points = (points + np.stack([x, y], axis=1)[:, None]) * stride[:, None, None]
        sure = np.broadcast_to(selection.score[:, None, None], (len(points), 5, 1))
        points = np.concatenate([points, sure], axis=2)
        boxes = _decode(bbox[frame, anchor], anchor, Coding.GRID, (1.0, 1.0), input_size)
        return selection.candidates(boxes, points.reshape(-1, FACE_POINTS), 3)


class _Selection:
    """Narrows a batch's anchors down to candidates, and counts why the others are rejected."""

    def __init__(self, frames: int, anchors: int, min_score: np.ndarray) -> None:
        self.frames = frames
        self.anchors = anchors
        self.min_score = min_score
        self.floor = np.float32(min_score.min(initial=np.inf))

    def above_floor(self, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return frame and anchor of each of the (n, a) scores that reach the lowest threshold."""
        self.not_finite: np.ndarray = np.isnan(score).sum(axis=1)
        reached = np.flatnonzero(score >= self.floor)
        return np.divmod(reached, self.anchors) if self.anchors else (reached, reached)

    def select(self, frame: np.ndarray, anchor: np.ndarray, score: np.ndarray, class_id: np.ndarray) -> None:
        """Apply the thresholds to final scores and classes (-1: no class of the list)."""
        self.not_finite = self.not_finite + self._count(frame[np.isnan(score)])
        thresholds = np.append(self.min_score, np.float32(np.inf))[class_id]
        enough = score >= self.floor
        unwanted = np.isposinf(thresholds)
        self.label = self._count(frame[enough & unwanted])
        rows = np.flatnonzero(enough & ~unwanted & (score >= thresholds))
        self.frame = frame[rows]
        self.anchor = anchor[rows]
        self.score = score[rows]
        self.class_id = class_id[rows].astype(np.int32)

    def candidates(self, xyxy: np.ndarray, points: np.ndarray | None = None, step: int = 2) -> Candidates:
        """Return the candidates, given the boxes and further values of the selected anchors."""
        points = np.zeros((len(xyxy), 0), np.float32) if points is None else points.astype(np.float32, copy=False)
        rows = np.isfinite(xyxy).all(axis=1) & np.isfinite(self.score)
        columns = (self.frame, self.score, self.class_id, xyxy, points)
        if not rows.all():
            self.not_finite = self.not_finite + self._count(self.frame[~rows])
            columns = tuple(column[rows] for column in columns)
        low = self.anchors - self._count(columns[0]) - self.label - self.not_finite
        removed = np.stack([low, self.label, self.not_finite], axis=1).astype(np.int32)
        return Candidates(*columns, removed, self.anchors, step)

    def rotated(self, boxes: np.ndarray, angle: np.ndarray) -> Candidates:
        """Return the candidates with rotated boxes, given center and size (n, a, 4) and angle (n, a) of all anchors."""
        upright, radians = (values[self.frame, self.anchor].astype(np.float32, copy=False) for values in (boxes, angle))
        corners = corners_of(upright, radians)
        rotated = self.candidates(hull(corners), corners)
        rotated.rotated = True
        return rotated

    def _count(self, frame: np.ndarray) -> np.ndarray:
        return np.bincount(frame, minlength=self.frames)


def _decode(
    values: np.ndarray, anchor: np.ndarray, coding: Coding, unit: tuple[float, float], input_size: tuple[int, int]
) -> np.ndarray:
    """Decode the (m, 4) values of the anchors (m,) to boxes (m, 4) float32 in network pixels."""
    values = values.astype(np.float32, copy=False)
    if coding == Coding.GRID:
        x, y, stride = cells(input_size)[:, anchor]
        center = (values[:, :2] + np.stack([x, y], axis=1)) * stride[:, None]
        # Through double, so that any exact enough exponential rounds to the same float32.
        size = np.exp(values[:, 2:].astype(np.float64)).astype(np.float32) * stride[:, None]
    else:
        scale = np.array(unit, np.float32)
        if coding == Coding.YXYX:
            values = values[:, [1, 0, 3, 2]]
        first = values[:, :2] * scale
        second = values[:, 2:] * scale
        if coding != Coding.CXCYWH:
            return np.concatenate([first, second], axis=1)
        center = first
        size = second
    half = size * np.float32(0.5)
    return np.concatenate([center - half, center + half], axis=1)


@lru_cache(maxsize=32)
def cells(input_size: tuple[int, int]) -> np.ndarray:
    """Return column, row and stride of each anchor of a feature pyramid: (3, a) float32."""
    width, height = input_size
    levels = []
    for stride in STRIDES:
        y, x = np.mgrid[: height // stride, : width // stride]
        levels.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)]))
    return np.concatenate(levels, axis=1).astype(np.float32)


def check_cells(anchors: int, input_size: tuple[int, int]) -> None:
    """Check that the number of anchors matches an input of this width and height; raise ValueError."""
    expected = sum((input_size[0] // stride) * (input_size[1] // stride) for stride in STRIDES)
    if anchors != expected:
        raise ValueError(
            f"the output has {anchors} anchors, and an input of {input_size[0]}x{input_size[1]} with strides "
            f"{', '.join(map(str, STRIDES))} has {expected}; the card's input size or family does not match the network"
        )


def check_scores(classes: int, min_score: np.ndarray) -> None:
    """Check that an output has a score for each threshold; raise ValueError."""
    if classes != len(min_score):
        raise ValueError(f"the output has scores of {classes} classes, min_score has {len(min_score)}; they must match")


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)), computed in float64 and rounded once."""
    return (1.0 / (1.0 + np.exp(-logits.astype(np.float64)))).astype(np.float32)


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Return the largest softmax value of each row (n, a) among all classes but the last, of (n, a, c + 1) logits."""
    wide = logits.astype(np.float64)
    top = wide.max(axis=2, initial=-np.inf)
    shares = np.exp(wide[:, :, :-1].max(axis=2, initial=-np.inf) - top) / np.exp(wide - top[:, :, None]).sum(axis=2)
    return np.asarray(shares, np.float32)


# -------------------------------------------------------------------------------------------------------- on the device


@dataclass(slots=True)
class DeviceCandidates:
    """The candidates of a batch of n frames with a anchors each, on the device.

    Attributes:
        keys: (n, p) uint64, sort keys in any order; p is the power of two at or above a.
        tallies: (n, 3) int32: number of candidates, and anchors removed by `label` and `not_finite`.
        boxes: (n, a, 4) float32 network pixels; only candidates' rows are written, as in the two below.
        class_id: (n, a) int32.
        points: (n, a, c) float32.
        step: layout of the points, as in `Candidates`.
        rotated: as in `Candidates`.
    """

    keys: Array
    tallies: Array
    boxes: Array
    class_id: Array
    points: Array
    step: int = 2
    rotated: bool = False


def _launch(
    name: str,
    arguments: tuple[Any, ...],
    dtype: Any,
    shape: tuple[int, int],
    min_score: np.ndarray,
    columns: int = 0,
    step: int = 2,
    defines: tuple[str, ...] = (),
) -> DeviceCandidates:
    """Allocate the candidates, and launch the kernel `name` of `candidates.cu` to write them.

    Args:
        name: the kernel.
        arguments: its arguments before those that all kernels have.
        dtype: type of the outputs of the network, float16 or float32.
        shape: number of frames, and of anchors per frame.
        min_score: minimum score of each class.
        columns: further values of an anchor.
        step: layout of these, as in `Candidates`.
        defines: constants of the kernel, besides the type.
    """
    import cupy

    n, anchors = shape
    if anchors > MAX_ANCHORS:
        raise ValueError(f"a network may have at most {MAX_ANCHORS} anchors per frame, got {anchors}")
    candidates = DeviceCandidates(
        cupy.empty((n, 1 << max(anchors - 1, 0).bit_length()), np.uint64),
        cupy.zeros((n, _TALLIES), np.int32),
        cupy.empty((n, anchors, 4), np.float32),
        cupy.empty((n, anchors), np.int32),
        cupy.empty((n, anchors, columns), np.float32),
        step,
    )
    if n and anchors:
        common = (
            upload(min_score),
            np.int32(len(min_score)),
            np.float32(min_score.min(initial=np.inf)),
            np.int32(anchors),
            np.int32(candidates.keys.shape[1]),
            candidates.keys,
            candidates.tallies,
            candidates.boxes,
            candidates.class_id,
            candidates.points,
        )
        defines = ("HALF=1", *defines) if dtype == np.float16 else defines
        launch = kernel("candidates.cu", name, defines)
        launch(((anchors + _BLOCK - 1) // _BLOCK, n), (_BLOCK,), (*arguments, *common))
    return candidates


def _common_dtype(*arrays: Array) -> list[Array]:
    """Return the arrays in one type that the kernels support: all float16, or all float32."""
    half = all(array.dtype == np.float16 for array in arrays)
    return list(arrays) if half else [array.astype(np.float32, copy=False) for array in arrays]


def _strided(*arrays: Array) -> list[Any]:
    """Return views as kernel arguments: for each, the address of its first value, and its strides in values."""
    return [
        argument
        for array in arrays
        for argument in (array, *(np.int64(stride // array.itemsize) for stride in array.strides))
    ]


def upload(values: np.ndarray) -> Array:
    """Return the values on the device, for the current stream. Read-only: equal values share one array.

    Thresholds are the same for every batch, and few sources have few geometries, so usually nothing is copied.
    """
    import cupy

    device = cupy.cuda.runtime.getDevice()
    stream = cupy.cuda.get_current_stream().ptr
    return _uploaded(values.tobytes(), values.shape, values.dtype, device, stream)


@lru_cache(maxsize=256)
def _uploaded(values: bytes, shape: tuple[int, ...], dtype: Any, device: int, stream: int) -> Any:
    """Copy once per stream: a copy is only ordered with the kernels of its own stream."""
    import cupy

    traffic.sent(len(values))
    return cupy.asarray(np.frombuffer(values, dtype).reshape(shape))
