# SPDX-License-Identifier: Apache-2.0
"""The YOLO line: one output of anchors, each with a box and a score per class.

| family | output | boxes |
| --- | --- | --- |
| `yolox` | (N, A, 5 + C), objectness after the box | raw values of a feature pyramid with strides 8, 16 and 32 |
| `yolov5` (and v7) | (N, A, 5 + C), objectness after the box | cx, cy, w, h in network pixels |
| `yolov8`, v9 and v11 | (N, 4 + C, A) | cx, cy, w, h in network pixels |
| `yolov8_pose` | (N, 4 + C + 3 K, A), K points x, y, score after the scores | as in `yolov8` |
| `yolov8_obb` | (N, 4 + C + 1, A), an angle after the scores | cx, cy, w, h in network pixels, rotated |
| `yolov8_seg` | (N, 4 + C + M, A), M mask coefficients after the scores; (N, M, h, w) prototypes | as in `yolov8` |
| `yolo_world` | (N, A, C) scores; (N, A, 4) boxes | x1, y1, x2, y2 in network pixels |
| `yolo_e2e` (v10, v26) | (N, K, 6) rows with score and class, no NMS | x1, y1, x2, y2 in network pixels |
| `yolo_e2e_pose` | (N, K, 6 + 3 K), points x, y, score after the class | as in `yolo_e2e` |
| `yolo_e2e_seg` | (N, K, 6 + M), M mask coefficients after the class; (N, M, h, w) prototypes | as in `yolo_e2e` |

YOLOX: center = (value + cell) x stride, size = exp(value) x stride; sigmoid is already applied to objectness and
classes. Follows the authors' `demo_postprocess` (https://github.com/Megvii-BaseDetection/YOLOX), with an anchor's best
class. YOLOv8-pose and -seg follow https://github.com/ultralytics/ultralytics: points are in network pixels with sigmoid
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
from streamkit.models.families.base import Columns, Family, Outputs, Rest, Shapes, Size, listed, shape_of
from streamkit.ops import masks
from streamkit.ops.candidates import Coding, best_class, best_pairs, labeled_class
from streamkit.ops.nms import Packed
from streamkit.ops.transfer import LateArray


class Yolov8(Family):
    """Columns of anchors, without objectness; an anchor may have further values after its scores.

    Attributes:
        before: number of an anchor's values before its scores.
        axis: dimension of an anchor's values in the output.
        coding: how the boxes are encoded.
        step: layout of the further values, as in `Candidates.step`; None if there are none.
    """

    name = "yolov8"
    layout = "(N, 4 + classes, anchors)"
    suppress = True
    several = True
    before, axis = 4, 1
    coding = Coding.CXCYWH
    step: int | None = None

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        self._check_classes(*self._only(outputs), self.axis, self.before, classes)

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


class ObjectnessRows(Yolov8):
    """Rows of anchors, with an objectness after the box: YOLOX and YOLOv5."""

    layout = "(N, anchors, 5 + classes)"
    before, axis = 5, 2

    def __init__(self, name: str, coding: Coding) -> None:
        self.name, self.coding, self.several = name, coding, coding != Coding.GRID

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: older exports of YOLOv5 also have the raw values of each stride, before decoding."""
        name, (_, anchors, values) = self._only(outputs)
        raw = {key: shape[1:4] for key, shape in outputs.items() if len(shape) == 5 and shape[4] == values}
        sizes = [size for shape in raw.values() for size in (*shape, anchors)]
        closed = all(isinstance(size, int) for size in sizes)
        same = not closed or sum(math.prod(shape) for shape in raw.values()) == anchors
        return frozenset([name, *(raw if same else ())])


class Yolov8Pose(Yolov8):
    """Columns of anchors; the column `keypoints`."""

    name = "yolov8_pose"
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


class _Masked(Family):
    """Objects with mask coefficients, and a map of prototypes; the column `mask`, COCO's run-length encoding.

    Masks are in source pixels.
    """

    task = "segment"
    columns: Columns = {"coefficients": (-1,)}  # noqa: RUF012  # never changed

    def rest(
        self, outputs: Outputs, packed: Packed, geometry: np.ndarray, sizes_wh: np.ndarray, input_size: Size
    ) -> Rest | None:
        """See `Family.rest`: the masks."""
        prototypes = self._prototypes(outputs)[1]
        rows = packed.rows
        counts = packed.counts
        late = LateArray(masks.crop_logits(rows, counts, prototypes[: len(geometry)], geometry, input_size))
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


class Yolov8Seg(_Masked, Yolov8):
    """Columns of anchors with masks."""

    name = "yolov8_seg"
    layout = "(N, 4 + classes + coefficients, anchors)"
    step = 0

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        anchors = self._only(outputs)
        prototypes = self._prototypes(outputs)[1]
        if isinstance(prototypes[1], int) and prototypes[1] > 0:
            self._check_classes(*anchors, 1, 4 + prototypes[1], classes)


class Yolov8Obb(Yolov8):
    """Columns of anchors with rotated boxes; the column `corners`, (4, 2) source pixels. A box is the corners' hull.

    The angle is in radians from the x axis to the width, clockwise in the image. Non-max suppression is greedy, as in
    all families, by the probabilistic IoU of the authors (`streamkit.ops.rotated`); in the authors' own, boxes that
    are suppressed suppress others too.
    """

    name = "yolov8_obb"
    several = False
    columns: Columns = {"corners": (4, 2)}  # noqa: RUF012  # never changed
    layout = "(N, 4 + classes + 1, anchors)"

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        self._check_classes(*self._only(outputs), 1, 5, classes)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows = self._only(outputs)[1][:n].transpose(0, 2, 1)
        boxes, scores, angle = rows[:, :, :4], rows[:, :, 4:-1], rows[:, :, -1]
        how: dict[str, Any] = {"coding": Coding.ROTATED, "input_size": input_size}
        return best_class(boxes, scores, min_score=min_score, angle=angle, **how)


class YoloWorld(Family):
    """Scores and boxes of anchors in two outputs, as YOLO-World's authors export it without non-max suppression.

    See https://github.com/AILab-CVC/YOLO-World, deploy/export_onnx.py. The boxes are the output whose last dimension is
    4 and whose name has `box` in it.
    """

    name = "yolo_world"
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


class YoloEndToEnd(Family):
    """Rows that the network itself has selected; the number of classes is not in the shapes.

    Attributes:
        step: layout of the values behind the class, as in `Candidates.step`; None if there are none.
    """

    name = "yolo_e2e"
    layout = "(N, rows, 6)"
    sizes = ((2, 6, "x1, y1, x2, y2, score, class"),)
    step: int | None = None

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows = self._only(outputs)[1][:n]
        more: dict[str, Any] = {} if self.step is None else {"points": rows[:, :, 6:], "step": self.step}
        return labeled_class(rows[:, :, :4], rows[:, :, 4], rows[:, :, 5], min_score=min_score, **more)


class YoloEndToEndPose(YoloEndToEnd):
    """Rows that the network itself has selected, with keypoints."""

    name = "yolo_e2e_pose"
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


class YoloEndToEndSeg(_Masked, YoloEndToEnd):
    """Rows that the network itself has selected, with masks."""

    name = "yolo_e2e_seg"
    layout = "(N, rows, 6 + coefficients)"
    step = 0

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._only(outputs)
        prototypes = self._prototypes(outputs)[1]
        if isinstance(prototypes[1], int) and prototypes[1] > 0:
            self._check_size(name, shape, 2, 6 + prototypes[1], "box, score, class and mask coefficients")


FAMILIES = (
    ObjectnessRows("yolox", Coding.GRID),
    ObjectnessRows("yolov5", Coding.CXCYWH),
    Yolov8(),
    YoloWorld(),
    YoloEndToEnd(),
    YoloEndToEndPose(),
    YoloEndToEndSeg(),
    Yolov8Pose(),
    Yolov8Obb(),
    Yolov8Seg(),
)
