# SPDX-License-Identifier: Apache-2.0
"""YuNet: faces with five landmarks, from cls, obj, bbox and kps at strides 8, 16 and 32.

score = sqrt(cls x obj), center and landmark = (value + cell) x stride, size = exp(value) x stride, as in
OpenCV's FaceDetectorYN (https://github.com/opencv/opencv_zoo/tree/main/models/face_detection_yunet).
Landmarks: right eye, left eye, nose, right and left corner of the mouth; source pixels, not clipped. The network has no
scores for landmarks, so they get the face's score.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.models.families.base import (
    Columns,
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    Size,
    authors_input,
    network_family,
)
from streamkit.models.families.rules import best_rows, grid_cells
from streamkit.ops.candidates import FACE_OUTPUTS, faces

_WIDTHS = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}


def _reference_yunet(image: PlainImage) -> np.ndarray:
    per_stride = []
    for stride in (8, 16, 32):
        cls, obj, box = (image.outputs[f"{kind}_{stride}"] for kind in ("cls", "obj", "bbox"))
        center = (grid_cells(image.input_size, stride) + box[:, :2]) * stride
        extent = np.exp(box[:, 2:]) * stride
        per_stride.append(best_rows(center, extent, np.sqrt(cls.clip(0, 1) * obj.clip(0, 1))))
    return np.concatenate(per_stride)


@network_family(
    "yunet",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`cls_S` (N, A, 1), `obj_S` (N, A, 1), `bbox_S` (N, A, 4), `kps_S` (N, A, 10), with S = 8, 16 and 32",
                "faces: two parts of the score; dx, dy, log w, log h in strides from the cell; five landmarks",
            ),
        ),
        line=authors_input("YuNet", 0.6, 0.3, anchor="top_left", pad=0, color="bgr", scale=1),
        keypoints="face",
        reference=_reference_yunet,
    ),
)
class Yunet(Family):
    """One class, face, and the column `keypoints`."""

    columns: Columns = {"keypoints": (5, 3)}  # noqa: RUF012  # never changed
    suppress = True
    label = "face"

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        for name, shape in zip(FACE_OUTPUTS, self._named(outputs, FACE_OUTPUTS), strict=True):
            kind = name.split("_")[0]
            self._check_size(name, shape, 2, _WIDTHS[kind], f"values of {kind}")
        self._check_single_class(classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(FACE_OUTPUTS)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        return faces(outputs, n, min_score=min_score, input_size=input_size)
