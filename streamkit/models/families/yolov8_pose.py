"""YOLOv8-pose: (N, 4 + C + 3 K, A), an anchor's cx, cy, w, h, a score a class, and K points x, y, score.

Boxes and points are in network pixels; scores have been through the sigmoid (https://github.com/ultralytics/ultralytics).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.data import Array
from streamkit.models.families import base, shapes
from streamkit.ops.candidates import Coding, best_class
from streamkit.ops.nms import Packed


class Yolov8Pose(base.Plain):
    """Columns of anchors; the column `keypoints`."""

    name = "yolov8_pose"
    task = "pose"
    columns: base.Columns = {"keypoints": (-1, 3)}  # noqa: RUF012  # never changed
    layout = "(N, 4 + classes + 3 x points, anchors)"

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

    def read(
        self,
        outputs: Mapping[str, Array],
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
        options: base.ReadOptions,
    ) -> Packed:
        """See `Family.read`."""
        _, output = shapes.only(self.name, outputs, 3, self.layout)
        output, end = output[: len(geometry)].transpose(0, 2, 1), 4 + len(options.min_score)
        candidates = best_class(
            output[:, :, :4],
            output[:, :, 4:end],
            min_score=options.min_score,
            coding=Coding.CXCYWH,
            input_size=input_size,
            points=output[:, :, end:],
            step=3,
        )
        return base.finish(candidates, geometry, sizes_wh, options, suppress=True)


FAMILY = Yolov8Pose()
