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

from streamkit.models.families.base import Columns, Family, Outputs, Shapes, Size
from streamkit.ops.candidates import FACE_OUTPUTS, faces

_WIDTHS = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}


class Yunet(Family):
    """One class, face, and the column `keypoints`."""

    name = "yunet"
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
