# SPDX-License-Identifier: Apache-2.0
"""YOLO-World as its authors export it without non-max suppression, and YOLO-NAS: scores and boxes in two outputs.

`yolo_world`: (N, A, C) scores; (N, A, 4) boxes, x1, y1, x2, y2 in network pixels. See
https://github.com/AILab-CVC/YOLO-World, deploy/export_onnx.py. The boxes are the output whose last dimension is 4 and
whose name has `box` in it.
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
    Values,
    listed,
    network_family,
    shape_of,
)
from streamkit.models.families.rules import STRIDES, cell_count, in_shares, not_corners, not_scores
from streamkit.models.network_file import ModelInfo
from streamkit.ops.candidates import Coding, best_class, best_pairs


def _row_per_anchor(info: ModelInfo, size: Size) -> bool:
    """Whether the outputs have a row for each anchor of a feature pyramid."""
    rows = {dims[1] for dims in info.output_dims.values() if len(dims) == 3}
    counts = {count for count in rows if isinstance(count, int)}
    return counts <= {cell_count(size, strides) for strides in STRIDES}


def _not_boxes_and_scores(values: Values, size: Size, classes: int | None) -> str:
    boxes = next(array[0] for name, array in values.items() if "box" in name.lower())
    scores = next(array[0] for name, array in values.items() if "score" in name.lower())
    if not boxes.any():
        return ""
    if in_shares(boxes):
        return "its boxes are shares of the input"
    return not_corners(boxes) or not_scores(scores)


def _reference_yolo_world(image: PlainImage) -> np.ndarray:
    scores = next(output for name, output in image.outputs.items() if "score" in name.lower())
    boxes = next(output for name, output in image.outputs.items() if "box" in name.lower())
    return np.column_stack([boxes, scores.max(axis=1), scores.argmax(axis=1)])


@network_family(
    "yolo_world",
    FamilyTraits(
        formats=(
            OutputFormat(
                "scores (N, A, C), boxes (N, A, 4)",
                "a score for each class; x1, y1, x2, y2 in network pixels. YOLO-World as its authors export it, and "
                "YOLO-NAS, without non-max suppression",
            ),
        ),
        plausible=_row_per_anchor,
        doubt=_not_boxes_and_scores,
        input_hint="YOLO-World and YOLO-NAS have these outputs; ",
        reference=_reference_yolo_world,
    ),
)
class YoloWorld(Family):
    """Scores and boxes of anchors in two outputs."""

    suppress = True
    several = True

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        scores, boxes = self._pair(outputs)
        self._check_size(boxes[0], shape_of(boxes[1]), 2, 4, "x1, y1, x2, y2")
        self._check_classes(scores[0], shape_of(scores[1]), 2, 0, classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        scores, boxes = self._pair(outputs)
        return frozenset([scores[0], boxes[0]])

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        (_, scores), (_, boxes) = self._pair(outputs)
        return best_class(boxes[:n], scores[:n], min_score=min_score, coding=Coding.XYXY, input_size=input_size)

    def pairs(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.pairs`."""
        (_, scores), (_, boxes) = self._pair(outputs)
        return best_pairs(boxes[:n], scores[:n], None, min_score=min_score, coding=Coding.XYXY)

    def _pair(self, outputs: Mapping[str, Any]) -> tuple[tuple[str, Any], tuple[str, Any]]:
        """Return the scores and the boxes, each with its name."""
        rank_3 = [(name, output) for name, output in outputs.items() if len(shape_of(output)) == 3]
        boxes = [output for output in rank_3 if "box" in output[0].lower()]
        scores = [output for output in rank_3 if "score" in output[0].lower()]
        if len(boxes) != 1 or len(scores) != 1:
            raise ValueError(
                f"family {self.name} reads scores (N, anchors, classes) and boxes (N, anchors, 4), by these names; the "
                f"network has {listed(outputs)}"
            )
        return scores[0], boxes[0]
