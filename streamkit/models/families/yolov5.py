# SPDX-License-Identifier: Apache-2.0
"""YOLOX, YOLOv5 and v7: one output (N, A, 5 + C) of rows, an anchor each, with an objectness after the box."""

from __future__ import annotations

import math

import numpy as np

from streamkit.models.facts import CardFacts
from streamkit.models.families.base import (
    CENTERED_ON_GRAY,
    FamilyTraits,
    OutputFormat,
    PlainImage,
    Shapes,
    Size,
    Values,
    authors_input,
    network_family,
)
from streamkit.models.families.rules import (
    STRIDES,
    USUAL,
    anchors,
    are_corners,
    best_rows,
    cell_count,
    first_rows,
    grid_cells,
    matrix,
    not_scores,
    rows_of,
    without_map,
)
from streamkit.models.families.yolov8 import BOX, Yolov8
from streamkit.models.network_file import ModelInfo
from streamkit.ops.candidates import Coding

_DECODED = ((1, USUAL), (1, (8, 16, 32, 64)), *((3, strides) for strides in STRIDES))


class ObjectnessRows(Yolov8):
    """Rows of anchors, with an objectness after the box: YOLOX and YOLOv5."""

    layout = "(N, anchors, 5 + classes)"
    before, axis = 5, 2

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: older exports of YOLOv5 also have the raw values of each stride, before decoding."""
        name, (_, anchors, values) = self._only(outputs)
        raw = {key: shape[1:4] for key, shape in outputs.items() if len(shape) == 5 and shape[4] == values}
        sizes = [size for shape in raw.values() for size in (*shape, anchors)]
        closed = all(isinstance(size, int) for size in sizes)
        same = not closed or sum(math.prod(shape) for shape in raw.values()) == anchors
        return frozenset([name, *(raw if same else ())])


def _not_raw(values: Values, size: Size, classes: int | None) -> str:
    rows = first_rows(values)
    if (np.abs(rows[:, :2]).max(axis=0, initial=0.0) > 0.75 * np.array(size)).all():
        return "its box centers are in network pixels"
    return not_scores(rows[:, 4:])


def _reference_yolox(image: PlainImage) -> np.ndarray:
    (values,) = image.outputs.values()
    cells = np.concatenate([grid_cells(image.input_size, stride) for stride in USUAL])
    strides = np.concatenate([np.full((len(grid_cells(image.input_size, stride)), 1), stride) for stride in USUAL])
    center = (values[:, :2] + cells) * strides
    return best_rows(center, np.exp(values[:, 2:4]) * strides, values[:, 4:5] * values[:, 5:])


@network_family(
    "yolox",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, A, 5 + C)",
                "cx, cy, w, h as raw values of the strides 8, 16 and 32; objectness; a score for each class",
            ),
        ),
        line=authors_input("YOLOX", 0.25, 0.45, anchor="top_left", pad=114, color="bgr", scale=1),
        plausible=without_map(anchors(1, ((1, USUAL),))),
        doubt=_not_raw,
        reference=_reference_yolox,
    ),
)
class Yolox(ObjectnessRows):
    """Raw values of a feature pyramid.

    center = (value + cell) x stride, size = exp(value) x stride; sigmoid is already applied to objectness and classes.
    Follows the authors' `demo_postprocess` (https://github.com/Megvii-BaseDetection/YOLOX), with an anchor's best
    class.
    """

    several = False
    coding = Coding.GRID


def _not_decoded(values: Values, size: Size, classes: int | None) -> str:
    rows = first_rows(values)
    if not rows.any():
        return ""
    if (np.abs(rows[:, :2]).max(axis=0) < 0.25 * np.array(size)).all():
        return "its box centers are raw offsets"
    if are_corners(rows[:, :4]):
        return "its boxes are corners, not center and size"
    return not_scores(rows[:, 4:])


def _reference_yolov5(image: PlainImage) -> np.ndarray:
    values = matrix(image.outputs)
    return best_rows(values[:, :2], values[:, 2:4], values[:, 4:5] * values[:, 5:])


@network_family(
    "yolov5",
    FamilyTraits(
        formats=(OutputFormat("(N, A, 5 + C)", f"{BOX}; objectness; a score for each class. YOLOv5 and v7"),),
        line=authors_input("YOLOv5 and v7", 0.25, 0.45, **CENTERED_ON_GRAY),
        plausible=without_map(anchors(1, _DECODED)),
        doubt=_not_decoded,
        input_hint="YOLOX exported with --decode_in_inference (bgr, scale 1, anchor top_left) and YOLOv6 (rgb, 1/255, "
        "centered) have these outputs; ",
        ultralytics=("detect", ""),
        reference=_reference_yolov5,
    ),
)
class Yolov5(ObjectnessRows):
    """Boxes in network pixels."""

    def line(self, info: ModelInfo, size: Size | None) -> CardFacts:
        """See `Family.line`: with a box per cell, it may also be YOLOX or YOLOv6, which differ in their inputs."""
        rows = rows_of(info)[1]
        per_cell = size is not None and isinstance(rows, int) and rows == cell_count(size, USUAL)
        return CardFacts() if per_cell else super().line(info, size)
