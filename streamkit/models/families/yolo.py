# SPDX-License-Identifier: Apache-2.0
"""YOLO with anchors: an anchor each with a box and a score per class, before non-max suppression.

| family | output | boxes |
| --- | --- | --- |
| `yolox` | (N, A, 5 + C), objectness after the box | raw values of a feature pyramid with strides 8, 16 and 32 |
| `yolov5` (and v7) | (N, A, 5 + C), objectness after the box | cx, cy, w, h in network pixels |
| `yolov8`, v9, v11 and v12 | (N, 4 + C, A) | cx, cy, w, h in network pixels |
| `yolov8_pose` | (N, 4 + C + 3 K, A), K points x, y, score after the scores | as in `yolov8` |
| `yolov8_obb` | (N, 4 + C + 1, A), an angle after the scores | cx, cy, w, h in network pixels, rotated |
| `yolo_world`, YOLO-NAS | (N, A, C) scores; (N, A, 4) boxes | x1, y1, x2, y2 in network pixels |
| `yolov8_seg` | (N, 4 + C + M, A), M mask coefficients after the scores; (N, M, h, w) prototypes | as in `yolov8` |

YOLOv8-pose and -seg follow https://github.com/ultralytics/ultralytics: points are in network pixels with sigmoid
applied to their scores; a mask is the sum of the prototypes times the coefficients, cut at the box, as in
`process_mask_native`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Detections
from streamkit.core.lazy_column import LazyColumn
from streamkit.models.facts import CardFacts
from streamkit.models.families.base import (
    CENTERED_ON_GRAY,
    Columns,
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Rest,
    Shapes,
    Size,
    Values,
    authors_input,
    listed,
    network_family,
    shape_of,
)
from streamkit.models.families.rules import (
    SINGLE,
    STRIDES,
    USUAL,
    anchors,
    are_corners,
    best_rows,
    cell_count,
    column_rows,
    doubt_of_columns,
    first_rows,
    grid_cells,
    in_shares,
    matrix,
    not_corners,
    not_scores,
    rotated_boxes,
    rows_of,
    without_map,
)
from streamkit.models.network_file import ModelInfo, names_a_layer
from streamkit.ops import masks
from streamkit.ops.candidates import Coding, best_class, best_pairs
from streamkit.ops.nms import Packed
from streamkit.ops.transfer import LateArray

BOX = "cx, cy, w, h in network pixels"
PROTOTYPES = "prototypes, whose sum by the coefficients is a mask"
_LINE = authors_input("YOLOv8, v9, v11, v12", 0.25, 0.7, **CENTERED_ON_GRAY)
_YOLO_NAS = authors_input("YOLO-NAS, by the names of its layers", 0.25, 0.7, **CENTERED_ON_GRAY)
_DECODED = ((1, USUAL), (1, (8, 16, 32, 64)), *((3, strides) for strides in STRIDES))


@network_family(
    "yolov8",
    FamilyTraits(
        formats=(OutputFormat("(N, 4 + C, A)", f"{BOX}; a score for each class. YOLOv8, v9, v11 and v12"),),
        line=_LINE,
        plausible=without_map(anchors(2, SINGLE)),
        doubt=doubt_of_columns(lambda behind, _: behind),
        ultralytics=("detect", ""),
        reference=lambda image: column_rows(image.outputs),
    ),
)
class Yolov8(Family):
    """Columns of anchors, without objectness; an anchor may have further values after its scores.

    Attributes:
        before, after: number of an anchor's values before its scores, and of those behind that `step` does not lay out.
        axis: dimension of an anchor's values in the output.
        coding: how the boxes are encoded.
        step: layout of the further values, as in `Candidates.step`; None if there are none.
    """

    layout = "(N, 4 + classes, anchors)"
    suppress = True
    several = True
    before = 4
    axis = 1
    after = 0
    coding = Coding.CXCYWH
    step: int | None = None

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        self._check_classes(*self._only(outputs), self.axis, self.before + self.after, classes)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        anchors, points = self._anchors(outputs, n, len(min_score))
        how: dict[str, Any] = {"coding": self.coding, "points": points, "step": self.step or 0}
        return best_class(*anchors, min_score=min_score, input_size=input_size, **how)

    def pairs(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.pairs`."""
        anchors, points = self._anchors(outputs, n, len(min_score))
        return best_pairs(*anchors, min_score=min_score, coding=self.coding, points=points, step=self.step or 0)

    def _anchors(self, outputs: Outputs, n: int, classes: int) -> tuple[tuple[Any, Any, Any], Any]:
        """Return boxes, scores and objectness of the anchors, and their further values; None for what is not there."""
        output = self._only(outputs)[1][:n]
        rows = output.transpose(0, 2, 1) if self.axis == 1 else output
        end = None if self.step is None else self.before + classes
        objectness = rows[:, :, 4] if self.before == 5 else None
        anchors = rows[:, :, :4], rows[:, :, self.before : end], objectness
        return anchors, None if end is None else rows[:, :, end:]


def _point_scores(behind: np.ndarray, classes: int | None) -> np.ndarray:
    """Return the scores of objects and of keypoints, (anchors, values); those of objects alone if it is unknown."""
    if classes is None:
        return behind[:, :1]
    return np.concatenate([behind[:, :classes], behind[:, classes + 2 :: 3]], axis=1)


@network_family(
    "yolov8_pose",
    FamilyTraits(
        formats=(
            OutputFormat("(N, 4 + C + 3 P, A)", "as yolov8, then x, y in network pixels and a score for each keypoint"),
        ),
        line=authors_input("YOLOv8-pose, v11-pose", 0.25, 0.7, **CENTERED_ON_GRAY),
        plausible=without_map(anchors(2, SINGLE)),
        doubt=doubt_of_columns(_point_scores),
        ultralytics=("pose",),
        reference=lambda image: column_rows(image.outputs, image.classes),
    ),
)
class Yolov8Pose(Yolov8):
    """Columns of anchors; the column `keypoints`."""

    task = "pose"
    columns: Columns = {"keypoints": (-1, 3)}  # noqa: RUF012  # never changed
    layout = "(N, 4 + classes + 3 x points, anchors)"
    step = 3

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._only(outputs)
        values = shape[1] - 4 - classes if isinstance(shape[1], int) and shape[1] > 0 else 3
        if values < 3 or values % 3:
            raise ValueError(
                f"family {self.name}: output {name!r} of shape {tuple(shape)} has {shape[1]} values per anchor, which "
                f"are not 4, a score for each of the card's {classes} labels, and 3 per point; give the card the "
                "labels or the family of this network"
            )

    def points(self, outputs: Shapes, classes: int) -> int | None:
        """See `Family.points`."""
        size = self._only(outputs)[1][1]
        return (size - 4 - classes) // 3 if isinstance(size, int) and size > 0 else None


class Masked(Family):
    """Objects with mask coefficients, and a map of prototypes; the column `mask`, COCO's run-length encoding.

    Masks are in source pixels.

    Attributes:
        own_map: whether each object has a map of its own, whose number is its only value, in place of coefficients.
    """

    task = "segment"
    columns: Columns = {"coefficients": (-1,)}  # noqa: RUF012  # never changed
    own_map = False

    def rest(
        self, outputs: Outputs, packed: Packed, geometry: np.ndarray, sizes_wh: np.ndarray, input_size: Size
    ) -> Rest | None:
        """See `Family.rest`: the masks."""
        prototypes = self._prototypes(outputs)[1]
        rows = packed.rows
        counts = packed.counts
        maps = prototypes[: len(geometry)]
        late = LateArray(masks.crop_logits(rows, counts, maps, geometry, input_size, own_map=self.own_map))
        map_size = prototypes.shape[3], prototypes.shape[2]

        def build(table: Detections) -> tuple[dict[str, LazyColumn], int]:
            boxes = table.xyxy
            frame = table.batch_row
            instance_masks = masks.InstanceMasks(boxes, frame, late, map_size, geometry, sizes_wh, input_size)
            return {"mask": LazyColumn(instance_masks.rows, np.arange(len(table)), object)}, instance_masks.lost

        return Rest(late, build)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: the rows and the prototypes."""
        return super().claims(outputs, classes) | {self._prototypes(outputs)[0]}

    def _prototypes(self, outputs: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the prototypes' name, and their shape or array."""
        return self._only(outputs, 4, "(N, coefficients, height, width)")


def _without_coefficients(values: Values, size: Size, classes: int | None) -> str:
    coefficients = next(array.shape[1] for array in values.values() if array.ndim == 4)
    return doubt_of_columns(lambda behind, _: behind[:, :-coefficients])(values, size, classes)


def _reference_yolov8_seg(image: PlainImage) -> np.ndarray:
    coefficients = next(output for output in image.outputs.values() if output.ndim == 3).shape[0]
    return column_rows(image.outputs, len(matrix(image.outputs)) - 4 - coefficients)


@network_family(
    "yolov8_seg",
    FamilyTraits(
        formats=(
            OutputFormat("(N, 4 + C + M, A) and (N, M, h, w)", f"as yolov8, then mask coefficients; {PROTOTYPES}"),
        ),
        line=authors_input("YOLOv8-seg, v11-seg", 0.25, 0.7, **CENTERED_ON_GRAY),
        plausible=anchors(2, SINGLE),
        doubt=_without_coefficients,
        ultralytics=("segment",),
        reference=_reference_yolov8_seg,
    ),
)
class Yolov8Seg(Masked, Yolov8):
    """Columns of anchors with masks."""

    layout = "(N, 4 + classes + coefficients, anchors)"
    step = 0

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        anchors = self._only(outputs)
        prototypes = self._prototypes(outputs)[1]
        if isinstance(prototypes[1], int) and prototypes[1] > 0:
            self._check_classes(*anchors, 1, 4 + prototypes[1], classes)


def _reference_yolov8_obb(image: PlainImage) -> np.ndarray:
    values = matrix(image.outputs).T
    scores = values[:, 4:-1]
    hulls, corners = rotated_boxes(values[:, :4], values[:, -1])
    return np.column_stack([hulls, scores.max(1), scores.argmax(1), corners])


@network_family(
    "yolov8_obb",
    FamilyTraits(
        formats=(OutputFormat("(N, 4 + C + 1, A)", "as yolov8, then the angle in radians"),),
        line=_LINE,
        plausible=without_map(anchors(2, SINGLE)),
        by_shape=False,
        ultralytics=("obb",),
        reference=_reference_yolov8_obb,
    ),
)
class Yolov8Obb(Yolov8):
    """Columns of anchors with rotated boxes; the column `corners`, (4, 2) source pixels. A box is the corners' hull.

    The angle is in radians from the x axis to the width, clockwise in the image. Non-max suppression is greedy, as in
    all families, by the probabilistic IoU of the authors (`streamkit.ops.rotated`); in the authors' own, boxes that
    are suppressed suppress others too.
    """

    several = False
    after = 1
    columns: Columns = {"corners": (4, 2)}  # noqa: RUF012  # never changed
    layout = "(N, 4 + classes + 1, anchors)"

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows = self._only(outputs)[1][:n].transpose(0, 2, 1)
        boxes = rows[:, :, :4]
        scores = rows[:, :, 4:-1]
        angle = rows[:, :, -1]
        how: dict[str, Any] = {"coding": Coding.ROTATED, "input_size": input_size}
        return best_class(boxes, scores, min_score=min_score, angle=angle, **how)


class ObjectnessRows(Yolov8):
    """Rows of anchors, with an objectness after the box: YOLOX and YOLOv5."""

    layout = "(N, anchors, 5 + classes)"
    before = 5
    axis = 2

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


def _row_per_anchor(info: ModelInfo, size: Size) -> bool:
    """Whether the outputs have a row for each anchor of a feature pyramid."""
    rows = {dims[1] for dims in info.output_dims.values() if len(dims) == 3}
    counts = {count for count in rows if isinstance(count, int)}
    return counts <= {cell_count(size, strides) for strides in STRIDES}


def yolo_nas_line(info: ModelInfo) -> CardFacts:
    """Return the input and thresholds of YOLO-NAS by the names of its layers; empty for other networks.

    An export that takes whole numbers has steps of the input inside.
    """
    is_nas = info.dtype != "u8" and names_a_layer(info.file, "heads/head1/", "heads.head1.")
    return _YOLO_NAS if is_nas else CardFacts()


def _scores_and_boxes(outputs: Mapping[str, Any], rank: int = 3) -> tuple[str, ...]:
    """Return the names of the scores and of the boxes; of outputs with numbers for names, by their shapes.

    Empty if they are not there.
    """
    shapes = {name: shape_of(output) for name, output in outputs.items() if len(shape_of(output)) == rank}
    parts = [[name for name in shapes if part in name.lower()] for part in ("score", "box")]
    if len(shapes) == 2 and all(name.isdecimal() for name in shapes):
        parts = [[name for name in shapes if (shapes[name][-1] == 4) is is_box] for is_box in (False, True)]
    return tuple(names[0] for names in parts) if all(len(names) == 1 for names in parts) else ()


def _not_boxes_and_scores(values: Values, size: Size, classes: int | None) -> str:
    scores, boxes = (values[name][0] for name in _scores_and_boxes(values))
    if not boxes.any():
        return ""
    if in_shares(boxes):
        return "its boxes are shares of the input"
    return not_corners(boxes) or not_scores(scores)


def _reference_yolo_world(image: PlainImage) -> np.ndarray:
    scores, boxes = (image.outputs[name] for name in _scores_and_boxes(image.outputs, rank=2))
    return np.column_stack([boxes, scores.max(axis=1), scores.argmax(axis=1)])


@network_family(
    "yolo_world",
    FamilyTraits(
        formats=(
            OutputFormat(
                "scores (N, A, C), boxes (N, A, 4)",
                "a score for each class; x1, y1, x2, y2 in network pixels. YOLO-World as its authors export it, and "
                "YOLO-NAS of super-gradients 3.7, whose outputs have numbers for names, without non-max suppression",
            ),
        ),
        plausible=_row_per_anchor,
        doubt=_not_boxes_and_scores,
        input_hint="YOLO-World and YOLO-NAS have these outputs; ",
        reference=_reference_yolo_world,
    ),
)
class YoloWorld(Yolov8):
    """Scores and boxes of anchors in two outputs, told apart by their names, or by shapes where those are numbers.

    See https://github.com/AILab-CVC/YOLO-World, deploy/export_onnx.py.
    """

    coding = Coding.XYXY

    def line(self, info: ModelInfo, size: Size | None) -> CardFacts:
        """See `Family.line`."""
        return yolo_nas_line(info)

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        names = _scores_and_boxes(outputs)
        if not names:
            raise ValueError(
                f"family {self.name} reads scores (N, anchors, classes) and boxes (N, anchors, 4), by these names; the "
                f"network has {listed(outputs)}"
            )
        scores, boxes = names
        self._check_size(boxes, outputs[boxes], 2, 4, "x1, y1, x2, y2")
        self._check_classes(scores, outputs[scores], 2, 0, classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(_scores_and_boxes(outputs))

    def _anchors(self, outputs: Outputs, n: int, classes: int) -> tuple[tuple[Any, Any, Any], Any]:
        scores, boxes = (outputs[name][:n] for name in _scores_and_boxes(outputs))
        return (boxes, scores, None), None
