# SPDX-License-Identifier: Apache-2.0
"""PP-YOLOE and other detectors of PaddleDetection, as Paddle2ONNX exports them.

| family | outputs | boxes |
| --- | --- | --- |
| `ppyoloe` | (N, A, 4) boxes; (N, C, A) scores: `exclude_nms=True` | x1, y1, x2, y2 |
| `ppyoloe_e2e` | (K, 6) rows of class, score and box; (1) their number | x1, y1, x2, y2 |

The network divides the boxes by its input `scale_factor`, the scale from the frame to its own pixels, height first.
It gets 1, so that the boxes stay in network pixels and are placed in the frame like those of other networks, also in a
letterbox. The overlap of boxes in its non-max suppression does not depend on the scale.

The rows are of one image: Paddle2ONNX's non-max suppression takes no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.models.facts import CardFacts
from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    Size,
    Values,
    fits,
    listed,
    network_family,
    shape_of,
)
from streamkit.models.families.rules import SINGLE, cell_count, in_shares, not_corners, not_scores, not_selected
from streamkit.models.families.yolo import Yolov8
from streamkit.models.network_file import ModelInfo
from streamkit.ops.candidates import Coding, labeled_class, upload

_INPUT_HINT = (
    "put infer_cfg.yml of PaddleDetection's export beside it (PP-YOLOE+ takes 1/255, PP-YOLOE also "
    "ImageNet's mean and deviation), or "
)


def _line() -> CardFacts:
    """Return what is alike in all networks: not the values, which PP-YOLOE+ and PP-YOLOE scale in other ways."""
    facts = CardFacts()
    facts.add("PaddleDetection: the authors' input", input_resize="stretch", input_color="rgb")
    facts.add("PaddleDetection: the authors' threshold", score=0.5, iou=0.7)
    return facts


def _scale_factor(count: int, xp: Any) -> dict[str, Array]:
    """Return the input `scale_factor`, (count, 2) float32."""
    factors = np.ones((count, 2), np.float32)
    return {"scale_factor": factors if xp is np else upload(factors)}


def _boxes_and_scores(outputs: Mapping[str, Any], rank: int = 3) -> tuple[str, ...]:
    """Return the names of boxes (..., A, 4) and scores (..., C, A); empty if they are not there."""
    shapes = {name: shape_of(output) for name, output in outputs.items()}
    dense = [name for name, shape in shapes.items() if len(shape) == rank]
    boxes = [name for name in dense if shapes[name][-1] == 4]
    return (*boxes, *(name for name in dense if name not in boxes)) if len(dense) == len(boxes) + 1 == 2 else ()


def _has_cells(info: ModelInfo, size: Size) -> bool:
    """Whether there are as many anchors as cells of a feature pyramid."""
    boxes, scores = (info.output_dims[name] for name in _boxes_and_scores(info.output_dims))
    counts = {count for count in (boxes[1], scores[2]) if isinstance(count, int)}
    return counts <= {cell_count(size, strides) for _, strides in SINGLE}


def _not_boxes_and_scores(values: Values, size: Size, classes: int | None) -> str:
    boxes, scores = (values[name][0] for name in _boxes_and_scores(values))
    if not boxes.any():
        return ""
    if in_shares(boxes):
        return "its boxes are shares of the input"
    return not_corners(boxes) or not_scores(scores)


def _reference_ppyoloe(image: PlainImage) -> np.ndarray:
    boxes, scores = (image.outputs[name] for name in _boxes_and_scores(image.outputs, 2))
    return np.column_stack([boxes, scores.max(axis=0), scores.argmax(axis=0)])


@network_family(
    "ppyoloe",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, A, 4) and (N, C, A)",
                "x1, y1, x2, y2 in network pixels, as the input `scale_factor` is 1; a score for each class. PP-YOLOE "
                "of PaddleDetection 2.6 with `exclude_nms=True`",
            ),
        ),
        line=_line(),
        plausible=_has_cells,
        doubt=_not_boxes_and_scores,
        input_hint=_INPUT_HINT,
        reference=_reference_ppyoloe,
    ),
)
class PpYoloe(Yolov8):
    """Boxes and scores of anchors in two outputs, told apart by their shapes."""

    several = False
    coding = Coding.XYXY

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        names = _boxes_and_scores(outputs)
        anchors = {outputs[names[0]][1], outputs[names[1]][2]} if names else set()
        if not names or sum(isinstance(size, int) for size in anchors) > 1:
            raise ValueError(
                f"family {self.name} reads boxes (N, anchors, 4) and scores (N, classes, anchors); the network has "
                f"{listed(outputs)}"
            )
        self._check_classes(names[1], outputs[names[1]], 1, 0, classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(_boxes_and_scores(outputs))

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """See `Family.extra_inputs`: `scale_factor` is 1."""
        return _scale_factor(len(sizes_wh), xp)

    def _anchors(self, outputs: Outputs, n: int, classes: int) -> tuple[tuple[Any, Any, Any], Any]:
        boxes, scores = (outputs[name][:n] for name in _boxes_and_scores(outputs))
        return (boxes, scores.transpose(0, 2, 1), None), None


def _rows_and_count(outputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of rows (..., 6) and of their number; empty if they are not there."""
    shapes = {name: shape_of(output) for name, output in outputs.items()}
    rows = [name for name, shape in shapes.items() if len(shape) in (2, 3) and shape[-1] == 6]
    counts = [name for name, shape in shapes.items() if len(shape) in (1, 2) and fits(shape[-1], 1)]
    return (rows[0], counts[0]) if len(rows) == len(counts) == 1 else ()


def _columns(outputs: Values) -> tuple[np.ndarray, ...]:
    """Return the boxes, scores and classes of an image."""
    rows, count = (outputs[name] for name in _rows_and_count(outputs))
    rows = rows[: int(count.reshape(-1)[0])]
    return rows[:, 2:], rows[:, 1], rows[:, 0]


@network_family(
    "ppyoloe_e2e",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(K, 6) and (1)",
                "class, score, x1, y1, x2, y2 in network pixels, as the input `scale_factor` is 1; the number of "
                "objects. PP-YOLOE and PicoDet of PaddleDetection 2.6; one image at a time",
            ),
        ),
        line=_line(),
        plausible=lambda info, size: "scale_factor" in info.inputs,
        doubt=lambda values, size, classes: not_selected(*_columns(values)),
        input_hint=_INPUT_HINT,
        reference=lambda image: np.column_stack(_columns(image.outputs)),
    ),
)
class PpYoloeEndToEnd(Family):
    """Rows that the network itself has selected, and their number; those behind it have no meaning."""

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        if not _rows_and_count(outputs):
            raise ValueError(
                f"family {self.name} reads rows (K, 6) of class, score and box, and their number (1); the network has "
                f"{listed(outputs)}"
            )

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(_rows_and_count(outputs))

    def single_image(self, outputs: Shapes) -> bool:
        """See `Family.single_image`."""
        return len(outputs[_rows_and_count(outputs)[0]]) == 2

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """See `Family.extra_inputs`: `scale_factor` is 1."""
        return _scale_factor(len(sizes_wh), xp)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows, count = (outputs[name] for name in _rows_and_count(outputs))
        if rows.ndim == 2:
            rows = rows[None]
        if len(rows) < n:
            raise ValueError(f"{n} frames gave one list of objects; run this network with batches of 1")
        rows = rows[:n]
        xp = array_module(rows)
        counts = xp.arange(rows.shape[1]) < count.reshape(len(count), -1)[:n, :1]
        scores = xp.where(counts, rows[:, :, 1], rows.dtype.type(-1))
        return labeled_class(rows[:, :, 2:], scores, rows[:, :, 0], min_score=min_score)
