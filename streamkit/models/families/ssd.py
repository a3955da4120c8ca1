# SPDX-License-Identifier: Apache-2.0
"""SSD and other detectors that end in their own NMS. The output's names and rank determine the format:

| outputs | format | boxes |
| --- | --- | --- |
| one of (N, 1, K, 7) | OpenVINO's DetectionOutput: image, label, score, box | x1, y1, x2, y2 as shares of the input |
| `detection_boxes`, `detection_scores`, `detection_classes` | TensorFlow | y1, x1, y2, x2 as shares of the input |
| `bboxes`, `scores`, `labels` | ONNX model zoo | x1, y1, x2, y2 as shares of the input |
| `boxes`, `scores`, `labels` | torchvision | x1, y1, x2, y2 in network pixels |

Boxes are (N, K, 4), scores and labels (N, K); torchvision's format has no N, and takes one image at a time. Most
of these networks count classes from 1: the card's label list then begins with `background`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    Size,
    network_family,
    shape_of,
)
from streamkit.ops.candidates import Coding, labeled_class

_TENSORFLOW = ("detection_boxes", "detection_scores", "detection_classes")
_TENSORFLOW_EXTRAS = (
    "num_detections",
    "raw_detection_boxes",
    "raw_detection_scores",
    "detection_anchor_indices",
    "detection_multiclass_scores",
)
_ZOO = ("bboxes", "scores", "labels")
_TORCHVISION = ("boxes", "scores", "labels")


def _reference_ssd(image: PlainImage) -> np.ndarray:
    wide, high = image.input_size
    outputs = image.outputs
    names = outputs.keys()
    if {"detection_boxes", "detection_scores", "detection_classes"} <= names:
        boxes, scores, labels = (outputs[f"detection_{kind}"] for kind in ("boxes", "scores", "classes"))
        count = int(outputs["num_detections"].item()) if "num_detections" in names else len(boxes)
        top, left, bottom, right = boxes.T
        return np.column_stack([left * wide, top * high, right * wide, bottom * high, scores, labels])[:count]
    if {"bboxes", "scores", "labels"} <= names:
        return np.column_stack([outputs["bboxes"] * (wide, high, wide, high), outputs["scores"], outputs["labels"]])
    if {"boxes", "scores", "labels"} <= names:
        return np.column_stack([outputs["boxes"], outputs["scores"], outputs["labels"]])
    rows = next(output for output in outputs.values() if output.ndim == 3)[0]
    ends = np.flatnonzero(rows[:, 0] < 0)  # OpenVINO's mark of the end
    rows = rows[: ends[0]] if len(ends) else rows
    return np.column_stack([rows[:, 3:] * (wide, high, wide, high), rows[:, 2], rows[:, 1]])


@network_family(
    "ssd",
    FamilyTraits(
        formats=(
            OutputFormat("(N, 1, K, 7)", "image, class, score; x1, y1, x2, y2 in shares of the input. OpenVINO"),
            OutputFormat(
                "`detection_boxes` (N, K, 4), `detection_scores` (N, K), `detection_classes` (N, K)",
                "y1, x1, y2, x2 in shares of the input. TensorFlow",
            ),
            OutputFormat(
                "`bboxes` (N, K, 4), `scores` (N, K), `labels` (N, K)",
                "x1, y1, x2, y2 in shares of the input. ONNX model zoo",
            ),
            OutputFormat(
                "`boxes` (N, K, 4), `scores` (N, K), `labels` (N, K)",
                "x1, y1, x2, y2 in network pixels. torchvision, which leaves out N",
            ),
        ),
        reference=_reference_ssd,
    ),
)
class Ssd(Family):
    """Rows that the network itself has selected; the number of classes is not in the shapes."""

    rank = 4
    layout = "(N, 1, rows, 7)"
    sizes = ((1, 1, "one list per frame"), (3, 7, "image, label, score, x1, y1, x2, y2"))

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        names = self._names(outputs)
        if names is None:
            super().check(outputs, classes)
        else:
            shape = self._named(outputs, names)[0]
            self._check_size(names[0], shape, len(shape) - 1, 4, "the box")

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: TensorFlow's graphs also have the number of rows, and what they have selected from."""
        names = self._names(outputs)
        if names is None:
            return super().claims(outputs, classes)
        return frozenset([*names, *(_TENSORFLOW_EXTRAS if names == _TENSORFLOW else ())])

    def single_image(self, outputs: Shapes) -> bool:
        """See `Family.single_image`: as torchvision exports them."""
        return self._names(outputs) == _TORCHVISION and len(outputs[_TORCHVISION[0]]) == 2

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        names = self._names(outputs)
        if names is None:
            output = self._only(outputs)[1][:n, 0]
            boxes = output[:, :, 3:]
            scores = output[:, :, 2]
            labels = output[:, :, 1]
        else:
            boxes, scores, labels = self._named(outputs, names)
            if boxes.ndim == 2:
                boxes = boxes[None]
                scores = scores[None]
                labels = labels[None]
            boxes = boxes[:n]
            scores = scores[:n]
            labels = labels[:n]
        if len(boxes) < n:
            raise ValueError(f"{n} frames gave one list of objects; run this network with batches of 1")
        return labeled_class(
            boxes,
            scores,
            labels,
            min_score=min_score,
            coding=Coding.YXYX if names == _TENSORFLOW else Coding.XYXY,
            unit=(1.0, 1.0) if names == _TORCHVISION else input_size,
        )

    def _names(self, outputs: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the three outputs' names; None for OpenVINO's format."""
        for names in (_TENSORFLOW, _ZOO, _TORCHVISION):
            if all(name in outputs for name in names):
                return names
        if any(len(shape_of(value)) == 4 for value in outputs.values()):
            return None
        return next((names for names in (_TENSORFLOW, _ZOO) if names[0] in outputs), _TORCHVISION)
