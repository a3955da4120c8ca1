# SPDX-License-Identifier: Apache-2.0
"""YOLO as DeepStream-Yolo exports it: the best class of each anchor, before non-max suppression.

Newer exports have one output of rows x1, y1, x2, y2, score and class, older ones `boxes`, `scores` and `classes`. Rows
that a network has selected itself look alike, but are not as many as the anchors of a feature pyramid.
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
    network_family,
)
from streamkit.models.families.rules import (
    SINGLE,
    STRIDES,
    anchors,
    not_selected,
    without_map,
)
from streamkit.ops.candidates import labeled_class

_PARTS = ("boxes", "scores", "classes")
_PYRAMIDS = (*SINGLE, *((3, strides) for strides in STRIDES))


def _are_parts(outputs: Mapping[str, Any]) -> bool:
    return all(name in outputs for name in _PARTS)


def _columns(outputs: Mapping[str, Any], rank: int) -> tuple[Any, Any, Any]:
    """Return boxes (..., 4), scores (...) and classes (...) of one output of that rank, or of three."""
    if _are_parts(outputs):
        boxes, scores, classes = (outputs[name] for name in _PARTS)
        return boxes, scores[..., 0], classes[..., 0]
    rows = next(output for output in outputs.values() if output.ndim == rank)
    return rows[..., :4], rows[..., 4], rows[..., 5]


def _not_best_classes(values: Values, size: Size, classes: int | None) -> str:
    boxes, scores, labels = (np.asarray(column[0], np.float64) for column in _columns(values, 3))
    return not_selected(boxes, scores, labels)


def _reference_deepstream(image: PlainImage) -> np.ndarray:
    return np.column_stack(_columns(image.outputs, 2))


@network_family(
    "deepstream_yolo",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, A, 6)",
                "x1, y1, x2, y2 in network pixels; score; class; not suppressed. DeepStream-Yolo, as its "
                "scripts for YOLO11 write them; in older versions as `boxes` (N, A, 4), `scores` (N, A, 1) and "
                "`classes` (N, A, 1). Exports unverified",
            ),
        ),
        plausible=without_map(anchors(1, _PYRAMIDS)),
        doubt=_not_best_classes,
        input_hint="DeepStream-Yolo exports YOLOv5 to v13 (rgb, 1/255, padded in the middle), YOLOX (bgr, scale 1, top "
        "left) and others with these outputs; ",
        reference=_reference_deepstream,
    ),
)
class DeepstreamYolo(Family):
    """Anchors with the best class of each; the number of classes is not in the shapes."""

    layout = "(N, anchors, 6)"
    sizes = ((2, 6, "x1, y1, x2, y2, score, class"),)
    suppress = True

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        if not _are_parts(outputs):
            super().check(outputs, classes)
            return
        for name, size in zip(_PARTS, (4, 1, 1), strict=True):
            self._check_size(name, outputs[name], 2, size, "a box, its score and its class")

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(_PARTS) if _are_parts(outputs) else super().claims(outputs, classes)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        boxes, scores, labels = (column[:n] for column in _columns(outputs, 3))
        return labeled_class(boxes, scores, labels, min_score=min_score)
