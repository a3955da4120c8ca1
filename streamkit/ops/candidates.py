"""Candidates: the anchors of a network's output that reach their class's score, with their boxes.

Four functions cover the detectors: `best_class` (a score per class and anchor, with or without objectness),
`each_class` (the same, but each class of an anchor may be an object), `given_class` (one score and one label per row),
`faces` (YuNet). Each takes the whole batch's output, as views with any strides, on the host or on the device;
`streamkit.ops.nms.select` makes objects of the result. The host's implementations are here; the device's, one launch
each, are in `streamkit.ops.cuda.readers`.

Anchors that do not become candidates are counted:

- `min_score`: the score is below its class's threshold;
- `label`: the class is unwanted (threshold +inf) or not in the list, though its score reaches the lowest threshold;
- `not_finite`: the score or box is NaN or infinite, as from a network that overflows in f16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.ops.box_coding import FACE_POINTS, STRIDES, Coding
from streamkit.ops.scores import check_scores, float32, sigmoid
from streamkit.ops.scores import softmax as softmax_of


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
    """

    frame: np.ndarray
    score: np.ndarray
    class_id: np.ndarray
    xyxy: np.ndarray
    points: np.ndarray
    removed: np.ndarray
    anchors: int
    step: int = 2


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
        from streamkit.ops.cuda import readers

        return readers.best_class(
            boxes,
            scores,
            objectness,
            min_score,
            coding,
            input_size,
            unit,
            2 if softmax else int(logits),
            points=points,
            step=step,
        )
    found = _Found(n, a, min_score)
    with np.errstate(all="ignore"):
        if objectness is not None:
            objectness = float32(objectness)
            frame, anchor = found.reach(objectness)  # class scores are at most 1, so no other anchor can reach it
            rows = float32(scores[frame, anchor])
            class_id = rows.argmax(axis=1)
            score = rows[np.arange(len(rows)), class_id] * objectness[frame, anchor]
        else:
            best = softmax_of(scores) if softmax else scores.max(axis=2)
            best = sigmoid(best) if logits else float32(best)
            scores = scores[:, :, : len(min_score)]
            frame, anchor = found.reach(best)
            class_id = scores[frame, anchor].argmax(axis=1)
            score = best[frame, anchor]
        found.pick(frame, anchor, score, class_id)
        xyxy = _decode(float32(boxes[found.frame, found.anchor]), found.anchor, coding, unit, input_size)
        return found.done(xyxy, points, step)


def each_class(
    boxes: Array, scores: Array, *, min_score: np.ndarray, coding: Coding, unit: tuple[float, float] = (1.0, 1.0)
) -> Any:
    """Select each class of each row whose sigmoid reaches its threshold: row r's class k counts as anchor r x c + k.

    Args:
        boxes: (n, a, 4) float32 or float16, as `coding` says; not `Coding.GRID`.
        scores: (n, a, c) logits.
        min_score: (c,) float32 on the host, as in `best_class`.
        coding: how the boxes are encoded.
        unit: factors for x and y.

    Raises:
        ValueError: the number of classes does not match.
    """
    n, a, classes = scores.shape
    check_scores(classes, min_score)
    if array_module(scores) is not np:
        from streamkit.ops.cuda import readers

        return readers.each_class(boxes, scores, min_score, coding, unit)
    found = _Found(n, a * classes, min_score)
    with np.errstate(all="ignore"):
        score = sigmoid(scores.reshape(n, a * classes))
        frame, anchor = found.reach(score)
        found.pick(frame, anchor, score[frame, anchor], anchor % max(classes, 1))
        row = found.anchor // max(classes, 1)
        return found.done(_decode(float32(boxes[found.frame, row]), row, coding, unit, (0, 0)))


def given_class(
    boxes: Array,
    scores: Array,
    labels: Array,
    *,
    min_score: np.ndarray,
    coding: Coding = Coding.XYXY,
    unit: tuple[float, float] = (1.0, 1.0),
    points: Array | None = None,
    step: int = 2,
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
    """
    if array_module(scores) is not np:
        from streamkit.ops.cuda import readers

        return readers.given_class(boxes, scores, labels, min_score, coding, unit, points=points, step=step)
    n, a = scores.shape
    found = _Found(n, a, min_score)
    with np.errstate(all="ignore"):
        scores = float32(scores)
        frame, anchor = found.reach(scores)
        label = labels[frame, anchor]
        class_id = np.where((label >= 0) & (label < len(min_score)), label, -1).astype(np.int64)
        found.pick(frame, anchor, scores[frame, anchor], class_id)
        xyxy = _decode(float32(boxes[found.frame, found.anchor]), found.anchor, coding, unit, (0, 0))
        return found.done(xyxy, points, step)


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
    if array_module(outputs["cls_8"]) is not np:
        from streamkit.ops.cuda import readers

        return readers.faces(outputs, n, min_score, input_size)
    cls, obj, bbox, kps = (
        np.concatenate([float32(outputs[f"{kind}_{stride}"][:n]) for stride in STRIDES], axis=1)
        for kind in ("cls", "obj", "bbox", "kps")
    )
    found = _Found(n, a, min_score)
    with np.errstate(all="ignore"):
        score = np.sqrt(np.clip(cls[..., 0], 0, 1) * np.clip(obj[..., 0], 0, 1))
        frame, anchor = found.reach(score)
        found.pick(frame, anchor, score[frame, anchor], np.zeros(len(frame), np.int64))
        frame, anchor = found.frame, found.anchor
        x, y, stride = cells(input_size)[:, anchor]
        points = kps[frame, anchor].reshape(-1, 5, 2)
        points = (points + np.stack([x, y], axis=1)[:, None]) * stride[:, None, None]
        sure = np.broadcast_to(found.score[:, None, None], (len(points), 5, 1))
        points = np.concatenate([points, sure], axis=2)
        boxes = _decode(bbox[frame, anchor], anchor, Coding.GRID, (1.0, 1.0), input_size)
        return found.made(boxes, points.reshape(-1, FACE_POINTS), 3)


@dataclass(slots=True)
class _Found:
    """Narrows a batch's anchors down to candidates, and counts why the others are rejected."""

    frames: int
    anchors: int
    min_score: np.ndarray
    floor: np.float32 = field(init=False)
    not_finite: np.ndarray = field(init=False)
    label: np.ndarray = field(init=False)
    frame: np.ndarray = field(init=False)
    anchor: np.ndarray = field(init=False)
    score: np.ndarray = field(init=False)
    class_id: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.floor = np.float32(self.min_score.min(initial=np.inf))

    def reach(self, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return frame and anchor of each of the (n, a) scores that reach the lowest threshold."""
        self.not_finite = np.isnan(score).sum(axis=1)
        reached = np.flatnonzero(score >= self.floor)
        return np.divmod(reached, self.anchors) if self.anchors else (reached, reached)

    def pick(self, frame: np.ndarray, anchor: np.ndarray, score: np.ndarray, class_id: np.ndarray) -> None:
        """Apply the thresholds to final scores and classes (-1: no class of the list)."""
        self.not_finite = self.not_finite + self._count(frame[np.isnan(score)])
        least = np.append(self.min_score, np.float32(np.inf))[class_id]
        enough = score >= self.floor
        unwanted = np.isposinf(least)
        self.label = self._count(frame[enough & unwanted])
        rows = np.flatnonzero(enough & ~unwanted & (score >= least))
        self.frame, self.anchor, self.score = frame[rows], anchor[rows], score[rows]
        self.class_id = class_id[rows].astype(np.int32)

    def done(self, xyxy: np.ndarray, points: np.ndarray | None = None, step: int = 2) -> Candidates:
        """Return the candidates, given the boxes of the picked anchors, and further values of all anchors."""
        if points is None:
            return self.made(xyxy, np.zeros((len(xyxy), 0), np.float32), step)
        return self.made(xyxy, float32(points[self.frame, self.anchor]), step)

    def made(self, xyxy: np.ndarray, points: np.ndarray, step: int) -> Candidates:
        """Return the candidates, given the boxes and further values of the picked anchors."""
        rows = np.isfinite(xyxy).all(axis=1) & np.isfinite(self.score)
        columns = (self.frame, self.score, self.class_id, xyxy, points)
        if not rows.all():
            self.not_finite = self.not_finite + self._count(self.frame[~rows])
            columns = tuple(column[rows] for column in columns)
        low = self.anchors - self._count(columns[0]) - self.label - self.not_finite
        removed = np.stack([low, self.label, self.not_finite], axis=1).astype(np.int32)
        return Candidates(*columns, removed, self.anchors, step)

    def _count(self, frame: np.ndarray) -> np.ndarray:
        return np.bincount(frame, minlength=self.frames)


def _decode(
    values: np.ndarray, anchor: np.ndarray, coding: Coding, unit: tuple[float, float], input_size: tuple[int, int]
) -> np.ndarray:
    """Decode the (m, 4) float32 values of the anchors (m,) to boxes (m, 4) float32 in network pixels."""
    if coding == Coding.GRID:
        x, y, stride = cells(input_size)[:, anchor]
        centre = (values[:, :2] + np.stack([x, y], axis=1)) * stride[:, None]
        # Through double, so that any exact enough exponential rounds to the same float32.
        size = np.exp(values[:, 2:].astype(np.float64)).astype(np.float32) * stride[:, None]
    else:
        scale = np.array(unit, np.float32)
        if coding == Coding.YXYX:
            values = values[:, [1, 0, 3, 2]]
        first, second = values[:, :2] * scale, values[:, 2:] * scale
        if coding != Coding.CXCYWH:
            return np.concatenate([first, second], axis=1)
        centre, size = first, second
    half = size * np.float32(0.5)
    return np.concatenate([centre - half, centre + half], axis=1)


@lru_cache(maxsize=32)
def cells(input_size: tuple[int, int], strides: Sequence[int] = STRIDES) -> np.ndarray:
    """Return column, row and stride of each anchor of a feature pyramid: (3, a) float32."""
    width, height = input_size
    levels = []
    for stride in strides:
        y, x = np.mgrid[: height // stride, : width // stride]
        levels.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)]))
    return np.concatenate(levels, axis=1).astype(np.float32)


def check_cells(anchors: int, input_size: tuple[int, int]) -> None:
    """Check that the number of anchors matches an input of this width and height; raise ValueError."""
    expected = sum((input_size[0] // stride) * (input_size[1] // stride) for stride in STRIDES)
    if anchors != expected:
        raise ValueError(
            f"the output has {anchors} anchors, and an input of {input_size[0]}x{input_size[1]} with strides "
            f"{', '.join(map(str, STRIDES))} gives {expected}; the card's input size or family is another network's"
        )
