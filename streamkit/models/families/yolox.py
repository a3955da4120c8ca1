"""YOLOX: (N, A, 5 + C) raw values of a feature pyramid with strides 8, 16 and 32.

centre = (value + cell) x stride, size = exp(value) x stride; sigmoid is already applied to objectness and classes.
Follows the authors' `demo_postprocess` (https://github.com/Megvii-BaseDetection/YOLOX), with an anchor's best class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families import base, shapes
from streamkit.ops.candidates import Coding, best_class
from streamkit.ops.nms import Packed


class ObjectnessRows(base.Plain):
    """Rows of box, objectness and a score per class: YOLOX and YOLOv5."""

    layout = "(N, anchors, 5 + classes)"

    def __init__(self, name: str, coding: Coding) -> None:
        self.name = name
        self.coding = coding

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        name, shape = shapes.only(self.name, outputs, 3, self.layout)
        shapes.check_classes(self.name, name, shape, 2, 5, classes)

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
        output = output[: len(geometry)]
        candidates = best_class(
            output[:, :, :4],
            output[:, :, 5:],
            output[:, :, 4],
            min_score=options.min_score,
            coding=self.coding,
            input_size=input_size,
        )
        return base.finish(candidates, geometry, sizes_wh, options, suppress=True)


FAMILY = ObjectnessRows("yolox", Coding.GRID)
