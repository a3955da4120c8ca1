"""YOLOv8-pose: (N, 4 + C + 3 K, A), an anchor's cx, cy, w, h, a score per class, and K points x, y, score.

Boxes and points are in network pixels; sigmoid is applied to scores (https://github.com/ultralytics/ultralytics).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamkit.models.families import base, shapes
from streamkit.models.families.yolov8 import Yolov8


class Yolov8Pose(Yolov8):
    """Columns of anchors; the column `keypoints`."""

    name = "yolov8_pose"
    task = "pose"
    columns: base.Columns = {"keypoints": (-1, 3)}  # noqa: RUF012  # never changed
    layout = "(N, 4 + classes + 3 x points, anchors)"
    step = 3

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        name, shape = shapes.only(self.name, outputs, 3, self.layout)
        values = shape[1] - 4 - classes if isinstance(shape[1], int) and shape[1] > 0 else 3
        if values < 3 or values % 3:
            raise ValueError(
                f"family {self.name}: output {name!r} of shape {tuple(shape)} has {shape[1]} values an anchor, which "
                f"are not 4, a score for each of the card's {classes} labels, and 3 a point; give the card the labels "
                "or the family of this network"
            )

    def points(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> int | None:
        """See `Family.points`."""
        size = shapes.only(self.name, outputs, 3, self.layout)[1][1]
        return (size - 4 - classes) // 3 if isinstance(size, int) and size > 0 else None


FAMILY = Yolov8Pose()
