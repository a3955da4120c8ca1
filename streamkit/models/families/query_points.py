# SPDX-License-Identifier: Apache-2.0
"""Queries with keypoints: RF-DETR's keypoint networks and DETRPose.

| family | outputs | keypoints |
| --- | --- | --- |
| `rfdetr_pose` | `dets` (N, Q, 4), `labels` (N, Q, C), `keypoints` (N, Q, P, 8) | those of all classes in turn |
| `detrpose` | `scores` (N, K), `labels` (N, K), `keypoints` (N, K, P, 2) | in pixels of the frame |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.models.facts import CardFacts
from streamkit.models.families.base import (
    Columns,
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    ReadOptions,
    Shapes,
    Size,
    listed,
    network_family,
)
from streamkit.models.families.detr import DETR_LINE, RF_DETR_LINE, stretched, target_sizes
from streamkit.models.network_file import ModelInfo
from streamkit.ops.candidates import Coding, labeled_class
from streamkit.ops.nms import Packed

_RAW = ("dets", "labels", "keypoints")
_SELECTED = ("scores", "labels", "keypoints")
_VALUES = 8
_TRACE_ALPHA = 0.2  # the authors' `postprocess_trace_alpha`
_TINY = 1e-12


def _count(shape: tuple[Any, ...], classes: Any) -> tuple[int, int]:
    """Return the number of classes with keypoints, and of the keypoints of each, for shapes without open sizes."""
    slots = shape[2]
    classes_with_points = classes if slots % classes == 0 else 1
    return classes_with_points, slots // classes_with_points


def _certainty(points: Array, xp: Any) -> Array:
    """Return (mean trace)^-0.2 of the covariances of the keypoints of objects (..., P, 8), as rfdetr's `PostProcess`.

    The mean is weighted by how findable the points are. 4 to 6 are the Cholesky factors of the inverse covariance.
    """
    log_11, factor_21, log_22 = (points[..., at] for at in (4, 5, 6))
    first = -2 * log_11
    second = -2 * log_22
    third = 2 * xp.log(xp.maximum(xp.abs(factor_21), _TINY)) + first + second
    trace = xp.logaddexp(xp.logaddexp(first, second), third)
    weight = xp.log(xp.maximum(_sigmoid(points[..., 2], xp), _TINY))
    return xp.exp(-_TRACE_ALPHA * (_log_sum(trace + weight, xp) - _log_sum(weight, xp)))


def _log_sum(logs: Array, xp: Any) -> Array:
    top = logs.max(axis=-1, keepdims=True)
    return xp.log(xp.exp(logs - top).sum(axis=-1)) + top[..., 0]


def _sigmoid(logits: Array, xp: Any) -> Array:
    return 1 / (1 + xp.exp(-logits))


def _reference_rfdetr_pose(image: PlainImage) -> np.ndarray:
    boxes, logits, slots = (image.outputs[name] for name in _RAW)
    queries, classes = logits.shape
    classes_with_points, count = _count((1, *slots.shape), classes)
    rows = []
    for query in range(queries):
        center = boxes[query, :2] * image.input_size
        half = boxes[query, 2:] * image.input_size / 2
        for class_id in range(classes):
            share = 1 / (1 + math.exp(-logits[query, class_id]))
            points = np.zeros((count, 3))
            if class_id < classes_with_points:
                class_points = slots[query].reshape(classes_with_points, count, _VALUES)[class_id]
                points = np.column_stack(
                    [class_points[:, :2] * image.input_size, 1 / (1 + np.exp(-class_points[:, 2]))]
                )
                factor = class_points[:, 5] ** 2 + np.exp(2 * class_points[:, 4]) + np.exp(2 * class_points[:, 6])
                traces = factor / np.exp(2 * (class_points[:, 4] + class_points[:, 6]))
                share *= np.average(traces, weights=points[:, 2]) ** -_TRACE_ALPHA
                share /= 1 + share
            rows.append([*(center - half), *(center + half), share, class_id, *points.ravel()])
    return np.array(rows)


@network_family(
    "rfdetr_pose",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`dets` (N, Q, 4), `labels` (N, Q, C), `keypoints` (N, Q, P, 8)",
                "cx, cy, w, h in shares of the input; class logits; x, y in shares of the input, logits of whether the "
                "point is findable and visible, three factors of its inverse covariance, and a class logit, for the "
                "keypoints of all C classes in turn, or of the first alone. The covariance lowers the object's score. "
                "RF-DETR's keypoint networks (rfdetr 1.11)",
            ),
        ),
        reference=_reference_rfdetr_pose,
    ),
)
class RfDetrPose(Family):
    """Pairs of query and class, each with the keypoints of its class. A keypoint's score is how findable it is."""

    task = "pose"
    columns: Columns = {"keypoints": (-1, 3)}  # noqa: RUF012  # never changed

    def line(self, info: ModelInfo, size: Size | None) -> CardFacts:
        """See `Family.line`."""
        return RF_DETR_LINE

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        boxes, logits, points = self._named(outputs, _RAW)
        if (len(boxes), len(logits), len(points)) != (3, 3, 4):
            raise ValueError(f"family {self.name} reads {self.traits.formats[0].outputs}; it has {listed(outputs)}")
        self._check_size("dets", boxes, 2, 4, "cx, cy, w, h")
        self._check_size("keypoints", points, 3, _VALUES, "x, y, findable, visible, three of the covariance, class")
        self._check_classes("labels", logits, 2, 0, classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(_RAW)

    def points(self, outputs: Shapes, classes: int) -> int | None:
        """See `Family.points`."""
        shape = tuple(outputs["keypoints"])
        return _count(shape, classes)[1] if isinstance(shape[2], int) and shape[2] > 0 else None

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        boxes, logits, slots = (array[:n].astype(np.float32) for array in self._named(outputs, _RAW))
        xp = array_module(slots)
        _, queries, classes = logits.shape
        classes_with_points, count = _count(slots.shape, classes)
        slots = slots.reshape(n, queries, classes_with_points, count, _VALUES)
        points = xp.zeros((n, queries, classes, count, 3), np.float32)
        with np.errstate(all="ignore"):
            scores = _sigmoid(logits, xp)
            sure = scores[:, :, :classes_with_points] * _certainty(slots, xp)
            scores[:, :, :classes_with_points] = sure / (1 + sure)
            points[:, :, :classes_with_points, :, 0] = slots[..., 0] * np.float32(input_size[0])
            points[:, :, :classes_with_points, :, 1] = slots[..., 1] * np.float32(input_size[1])
            points[:, :, :classes_with_points, :, 2] = _sigmoid(slots[..., 2], xp)
        pairs = queries * classes
        return labeled_class(
            xp.repeat(boxes, classes, axis=1),
            scores.reshape(n, pairs),
            xp.broadcast_to(xp.arange(pairs, dtype=np.int32) % classes, (n, pairs)),
            min_score=min_score,
            coding=Coding.CXCYWH,
            unit=input_size,
            points=points.reshape(n, pairs, count * 3),
            step=3,
        )


def _reference_detrpose(image: PlainImage) -> np.ndarray:
    scores, labels, points = (image.outputs[name] for name in _SELECTED)
    points = points / image.frame_size * image.input_size
    with_scores = np.concatenate([points, np.broadcast_to(scores[:, None, None], (*points.shape[:2], 1))], axis=2)
    corners = points.min(axis=1), points.max(axis=1)
    return np.column_stack([*corners, scores, labels, with_scores.reshape(len(scores), -1)])


@network_family(
    "detrpose",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`scores` (N, K), `labels` (N, K), `keypoints` (N, K, P, 2)",
                "x, y in pixels of the frame, whose size the network takes as the input `orig_target_sizes`: the "
                "authors' postprocessor. A box is that of the keypoints, which have the object's score. DETRPose; "
                "unverified",
            ),
        ),
        line=DETR_LINE,
        reference=_reference_detrpose,
    ),
)
class DetrPose(Family):
    """Objects that the network itself has selected: keypoints without boxes."""

    task = "pose"
    columns: Columns = {"keypoints": (-1, 3)}  # noqa: RUF012  # never changed

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        scores, labels, points = self._named(outputs, _SELECTED)
        if (len(scores), len(labels), len(points)) != (2, 2, 4):
            raise ValueError(f"family {self.name} reads {self.traits.formats[0].outputs}; it has {listed(outputs)}")
        self._check_size("keypoints", points, 3, 2, "x, y")

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(_SELECTED)

    def points(self, outputs: Mapping[str, Any], classes: int) -> int | None:
        """See `Family.points`."""
        count = outputs["keypoints"][2]
        return count if isinstance(count, int) and count > 0 else None

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """See `Family.extra_inputs`."""
        return target_sizes(sizes_wh, xp)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        scores, labels, places = (array[:n] for array in self._named(outputs, _SELECTED))
        xp = array_module(places)
        sure = xp.broadcast_to(scores[:, :, None, None], (*places.shape[:3], 1))
        points = xp.concatenate([places, sure.astype(places.dtype)], axis=3)
        boxes = xp.concatenate([places.min(axis=2), places.max(axis=2)], axis=2)
        return labeled_class(
            boxes, scores, labels, min_score=min_score, points=points.reshape(*points.shape[:2], -1), step=3
        )

    def read(
        self, outputs: Outputs, geometry: np.ndarray, sizes_wh: np.ndarray, input_size: Size, options: ReadOptions
    ) -> Packed:
        """See `Family.read`."""
        return super().read(outputs, stretched(geometry, sizes_wh, input_size), sizes_wh, input_size, options)
