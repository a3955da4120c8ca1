"""YOLOv8, v9 and v11: (N, 4 + C, A), the anchors' cx, cy, w, h in network pixels, then a score per class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families import base, shapes
from streamkit.ops.candidates import Coding, best_class
from streamkit.ops.nms import Packed


class Yolov8(base.Plain):
    """Columns of anchors, without objectness; an anchor may have further values after its scores.

    Attributes:
        step: layout of the further values, as in `Candidates.step`; None if there are none.
    """

    name = "yolov8"
    layout = "(N, 4 + classes, anchors)"
    step: int | None = None

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        name, shape = shapes.only(self.name, outputs, 3, self.layout)
        shapes.check_classes(self.name, name, shape, 1, 4, classes)

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
            output[:, :, 4:] if self.step is None else output[:, :, 4:end],
            min_score=options.min_score,
            coding=Coding.CXCYWH,
            input_size=input_size,
            points=None if self.step is None else output[:, :, end:],
            step=self.step or 0,
        )
        return base.finish(candidates, geometry, sizes_wh, options, suppress=True)


FAMILY = Yolov8()
