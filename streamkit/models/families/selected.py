# SPDX-License-Identifier: Apache-2.0
"""Boxes, scores and classes in outputs of their own, selected by non-max suppression in the network.

| family | outputs | by |
| --- | --- | --- |
| `efficient_nms` | a number of objects, boxes, scores, classes | EfficientNMS, mmyolo, super-gradients (YOLO-NAS) |
| `mmdeploy` | `dets`, a score behind each box; `labels` | mmdeploy: RTMDet and others of MMDetection |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import array_module
from streamkit.models.facts import CardFacts
from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    Shapes,
    Size,
    Values,
    authors_input,
    listed,
    network_family,
)
from streamkit.models.families.rules import not_selected
from streamkit.models.families.yolo import yolo_nas_line
from streamkit.models.network_file import ModelInfo, names_a_layer
from streamkit.ops.candidates import labeled_class

_COUNTED = (
    ("num_dets", "det_boxes", "det_scores", "det_classes"),
    ("num_det", "det_boxes", "det_scores", "det_classes"),
    ("num_dets", "bboxes", "scores", "labels"),
    ("num_dets", "boxes", "scores", "labels"),
    ("num_predictions", "pred_boxes", "pred_scores", "pred_classes"),
    ("graph2_num_predictions", "graph2_pred_boxes", "graph2_pred_scores", "graph2_pred_classes"),
)
"""Names of the number of objects, the boxes, the scores and the classes."""
_RTMDET = authors_input(
    "RTMDet, by the names of its layers",
    0.3,
    anchor="top_left",
    pad=114,
    color="bgr",
    scale=1,
    mean=[103.53, 116.28, 123.675],
    std=[57.375, 57.12, 58.395],
)


def _counted_names(outputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the four outputs; empty if they are not there."""
    return next((names for names in _COUNTED if all(name in outputs for name in names)), ())


def _counted_rows(outputs: Values) -> tuple[np.ndarray, ...]:
    """Return the boxes, scores and classes of an image that count."""
    count, boxes, scores, classes = (outputs[name] for name in _counted_names(outputs))
    number = int(count.reshape(-1)[0])
    return boxes[:number], scores[:number], classes[:number]


def _not_counted(values: Values, size: Size, classes: int | None) -> str:
    return not_selected(*_counted_rows({name: array[0] for name, array in values.items()}))


@network_family(
    "efficient_nms",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`num_dets` (N, 1), `det_boxes` (N, K, 4), `det_scores` (N, K), `det_classes` (N, K)",
                "the number of objects; x1, y1, x2, y2 in network pixels. EfficientNMS and exports that replace it: "
                "mmyolo (`num_dets`, `boxes`, `scores`, `labels`); both unverified, since TensorRT alone runs the "
                "operator. "
                "YOLO-NAS of super-gradients 3.7 "
                "(`num_predictions`, `pred_boxes`, `pred_scores`, `pred_classes`)",
            ),
        ),
        doubt=_not_counted,
        input_hint="YOLOv6 to v8 (rgb, 1/255, padded in the middle), mmyolo and YOLO-NAS have these outputs; ",
        reference=lambda image: np.column_stack(_counted_rows(image.outputs)),
    ),
)
class EfficientNms(Family):
    """Rows that the network itself has selected, and their number; what is behind it has no meaning."""

    def line(self, info: ModelInfo, size: Size | None) -> CardFacts:
        """See `Family.line`."""
        return yolo_nas_line(info)

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        names = _counted_names(outputs)
        if not names:
            raise ValueError(
                f"family {self.name} reads the outputs {' or '.join(', '.join(names) for names in _COUNTED)}; the "
                f"network has {listed(outputs)}"
            )
        for name, rank in zip(names[1:], (3, 2, 2), strict=True):
            if len(outputs[name]) != rank:
                raise ValueError(f"family {self.name}: output {name!r} must have {rank} dimensions, as (N, K, ...)")
        self._check_size(names[1], outputs[names[1]], 2, 4, "x1, y1, x2, y2")
        if len(outputs[names[0]]) > 1:
            self._check_size(names[0], outputs[names[0]], 1, 1, "the number of objects")

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(_counted_names(outputs))

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        count, boxes, scores, labels = (outputs[name][:n] for name in _counted_names(outputs))
        xp = array_module(scores)
        counts = xp.arange(scores.shape[1]) < count.reshape(n, 1)
        return labeled_class(boxes, xp.where(counts, scores, scores.dtype.type(-1)), labels, min_score=min_score)


def _not_dets(values: Values, size: Size, classes: int | None) -> str:
    dets = values["dets"][0]
    return not_selected(dets[:, :4], dets[:, 4], values["labels"][0])


@network_family(
    "mmdeploy",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`dets` (N, K, 5), `labels` (N, K)",
                "x1, y1, x2, y2 in network pixels and a score; the class. RTMDet and other detectors of MMDetection, "
                "as the sources of mmdeploy 1.3.1 write them; exports unverified",
            ),
        ),
        doubt=_not_dets,
        input_hint="RTMDet (bgr, padded at the top left, mean [103.53, 116.28, 123.675], std [57.375, 57.12, 58.395]) "
        "and other detectors of MMDetection have these outputs; its pipeline.json says the values, or ",
        reference=lambda image: np.column_stack([image.outputs["dets"], image.outputs["labels"]]),
    ),
)
class Mmdeploy(Family):
    """Rows that the network itself has selected, with the classes in a second output."""

    def line(self, info: ModelInfo, size: Size | None) -> CardFacts:
        """See `Family.line`: RTMDet by the names of its layers; the inputs of other detectors differ."""
        return _RTMDET if names_a_layer(info.file, "rtm_cls") else CardFacts()

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        dets, labels = self._named(outputs, ("dets", "labels"))
        if (len(dets), len(labels)) != (3, 2):
            raise ValueError(
                f"family {self.name} reads dets (N, K, 5) and labels (N, K); the network has {listed(outputs)}"
            )
        self._check_size("dets", dets, 2, 5, "x1, y1, x2, y2, score")

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(["dets", "labels"])

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        dets = outputs["dets"][:n]
        return labeled_class(dets[:, :, :4], dets[:, :, 4], outputs["labels"][:n], min_score=min_score)
