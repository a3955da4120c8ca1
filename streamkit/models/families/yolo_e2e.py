# SPDX-License-Identifier: Apache-2.0
"""YOLOv10, YOLO26 and exports with `nms=True`: rows that the network itself has selected, so no NMS.

| family | output | boxes |
| --- | --- | --- |
| `yolo_e2e` | (N, K, 6) rows with score and class | x1, y1, x2, y2 in network pixels |
| `yolo_e2e_pose` | (N, K, 6 + 3 K), points x, y, score after the class | as in `yolo_e2e` |
| `yolo_e2e_obb` | (N, K, 7), an angle after the class | cx, cy, w, h in network pixels, rotated |
| `yolo_e2e_seg` | (N, K, 6 + M), M mask coefficients after the class; (N, M, h, w) prototypes | as in `yolo_e2e` |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.models.families.base import (
    CENTERED_ON_GRAY,
    Columns,
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    Size,
    Values,
    authors_input,
    network_family,
)
from streamkit.models.families.rules import (
    first_rows,
    in_shares,
    matrix,
    not_classes,
    not_corners,
    not_scores,
    rotated_boxes,
    selected_rows,
    without_map,
)
from streamkit.models.families.yolo import PROTOTYPES, Masked
from streamkit.ops.candidates import Coding, labeled_class

_MAX_POINT_VALUES = 6 + 3 * 150
_MAX_ANGLE = 2 * np.pi
"""Largest angle that most rows have: YOLO26 does not limit it, and learns angles from -pi/4 to 3 pi/4."""


def _not_selected(values: Values, size: Size, classes: int | None) -> str:
    rows = first_rows(values)
    if not rows.any():  # after non-max suppression, rows without an object are zeros
        return ""
    if in_shares(rows[:, :4]):
        return "its boxes are shares of the input"
    return not_scores(rows[:, 4]) or not_classes(rows[:, 5]) or not_corners(rows[:, :4])


def _not_selected_points(values: Values, size: Size, classes: int | None) -> str:
    return _not_selected(values, size, classes) or not_scores(first_rows(values)[:, 8::3])


@network_family(
    "yolo_e2e",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, K, 6)", "x1, y1, x2, y2 in network pixels; score; class. YOLOv10, 26, and exports with `nms=True`"
            ),
        ),
        line=authors_input("YOLOv10, 26", 0.25, **CENTERED_ON_GRAY),
        plausible=without_map(selected_rows(6, 6)),
        doubt=_not_selected,
        ultralytics=("detect", ""),
        reference=lambda image: matrix(image.outputs).copy(),
    ),
)
class YoloEndToEnd(Family):
    """Rows that the network itself has selected; the number of classes is not in the shapes.

    Attributes:
        step: layout of the values behind the class, as in `Candidates.step`; None if there are none.
    """

    layout = "(N, rows, 6)"
    sizes = ((2, 6, "x1, y1, x2, y2, score, class"),)
    step: int | None = None

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows = self._only(outputs)[1][:n]
        more: dict[str, Any] = {} if self.step is None else {"points": rows[:, :, 6:], "step": self.step}
        return labeled_class(rows[:, :, :4], rows[:, :, 4], rows[:, :, 5], min_score=min_score, **more)


@network_family(
    "yolo_e2e_pose",
    FamilyTraits(
        formats=(
            OutputFormat("(N, K, 6 + 3 P)", "as yolo_e2e, then x, y in network pixels and a score for each keypoint"),
        ),
        line=authors_input("YOLO26-pose", 0.25, **CENTERED_ON_GRAY),
        plausible=without_map(selected_rows(9, _MAX_POINT_VALUES)),
        doubt=_not_selected_points,
        ultralytics=("pose",),
        reference=lambda image: matrix(image.outputs).copy(),
    ),
)
class YoloEndToEndPose(YoloEndToEnd):
    """Rows that the network itself has selected, with keypoints."""

    task = "pose"
    columns: Columns = {"keypoints": (-1, 3)}  # noqa: RUF012  # never changed
    layout = "(N, rows, 6 + 3 x points)"
    step = 3

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._only(outputs)
        if isinstance(shape[2], int) and shape[2] > 0 and (shape[2] < 9 or shape[2] % 3):
            raise ValueError(
                f"family {self.name}: output {name!r} of shape {tuple(shape)} has {shape[2]} values per row, which are "
                "not box, score and class, and 3 per point"
            )

    def points(self, outputs: Shapes, classes: int) -> int | None:
        """See `Family.points`."""
        size = self._only(outputs)[1][2]
        return (size - 6) // 3 if isinstance(size, int) and size > 0 else None


@network_family(
    "yolo_e2e_seg",
    FamilyTraits(
        formats=(OutputFormat("(N, K, 6 + M) and (N, M, h, w)", f"as yolo_e2e, then mask coefficients; {PROTOTYPES}"),),
        line=authors_input("YOLO26-seg", 0.25, **CENTERED_ON_GRAY),
        plausible=selected_rows(7, 1000),
        doubt=_not_selected,
        ultralytics=("segment",),
        reference=lambda image: matrix(image.outputs).copy(),
    ),
)
class YoloEndToEndSeg(Masked, YoloEndToEnd):
    """Rows that the network itself has selected, with masks."""

    layout = "(N, rows, 6 + coefficients)"
    step = 0

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._only(outputs)
        prototypes = self._prototypes(outputs)[1]
        if isinstance(prototypes[1], int) and prototypes[1] > 0:
            self._check_size(name, shape, 2, 6 + prototypes[1], "box, score, class and mask coefficients")


def _not_selected_angles(values: Values, size: Size, classes: int | None) -> str:
    rows = first_rows(values)
    if not rows.any():
        return ""
    if in_shares(rows[:, :4]):
        return "its boxes are shares of the input"
    if np.median(np.abs(rows[:, 6])) > _MAX_ANGLE:
        return "its last column is no angle"
    return not_scores(rows[:, 4]) or not_classes(rows[:, 5])


def _reference_yolo_e2e_obb(image: PlainImage) -> np.ndarray:
    rows = matrix(image.outputs)
    hulls, corners = rotated_boxes(rows[:, :4], rows[:, 6])
    return np.column_stack([hulls, rows[:, 4:6], corners])


@network_family(
    "yolo_e2e_obb",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, K, 7)",
                "cx, cy, w, h in network pixels; score; class; angle in radians. YOLO26-obb with `nms=False`, and "
                "exports of oriented boxes with `nms=True`, by ultralytics 8.4",
            ),
        ),
        line=authors_input("YOLO26-obb", 0.25, **CENTERED_ON_GRAY),
        plausible=without_map(selected_rows(7, 7)),
        doubt=_not_selected_angles,
        ultralytics=("obb",),
        reference=_reference_yolo_e2e_obb,
    ),
)
class YoloEndToEndObb(Family):
    """Rotated boxes that the network itself has selected; the column `corners` as in `yolov8_obb`."""

    columns: Columns = {"corners": (4, 2)}  # noqa: RUF012  # never changed
    layout = "(N, rows, 7)"
    sizes = ((2, 7, "cx, cy, w, h, score, class, angle"),)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows = self._only(outputs)[1][:n]
        how: dict[str, Any] = {"coding": Coding.ROTATED, "angle": rows[:, :, 6]}
        return labeled_class(rows[:, :, :4], rows[:, :, 4], rows[:, :, 5], min_score=min_score, **how)
