"""YuNet: faces with five landmarks, from cls, obj, bbox and kps at strides 8, 16 and 32.

score = sqrt(cls x obj), centre and landmark = (value + cell) x stride, size = exp(value) x stride, as in
OpenCV's FaceDetectorYN (https://github.com/opencv/opencv_zoo/tree/main/models/face_detection_yunet).
Landmarks: right eye, left eye, nose, right and left corner of the mouth; source pixels, not clipped. They have no score
of their own, so they get the face's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families import base, shapes
from streamkit.ops.candidates import FACE_OUTPUTS, faces
from streamkit.ops.nms import Packed

_WIDTHS = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}


class Yunet(base.Plain):
    """One class, face, and the column `keypoints`."""

    name = "yunet"
    columns: base.Columns = {"keypoints": (5, 3)}  # noqa: RUF012  # never changed

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        for name, shape in zip(FACE_OUTPUTS, shapes.named(self.name, outputs, FACE_OUTPUTS), strict=True):
            kind = name.split("_")[0]
            shapes.check_size(self.name, name, shape, 2, _WIDTHS[kind], f"values of {kind}")
        if classes != 1:
            raise ValueError(f"family {self.name} finds one class, and the label list has {classes}; give it [face]")

    def points(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> int | None:
        """See `Family.points`."""
        return 5

    def read(
        self,
        outputs: Mapping[str, Array],
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
        options: base.ReadOptions,
    ) -> Packed:
        """See `Family.read`."""
        candidates = faces(outputs, len(geometry), min_score=options.min_score, input_size=input_size)
        return base.finish(candidates, geometry, sizes_wh, options, suppress=True)


FAMILY = Yunet()
