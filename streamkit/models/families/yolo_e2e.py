"""YOLO networks that need no NMS (v10, v26): (N, K, 6) rows of x1, y1, x2, y2 in network pixels, score and class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families import base, shapes
from streamkit.ops.candidates import given_class
from streamkit.ops.nms import Packed


class YoloEndToEnd(base.Plain):
    """Rows that the network itself has selected; the number of classes is not in the shapes."""

    name = "yolo_e2e"
    layout = "(N, rows, 6)"

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        name, shape = shapes.only(self.name, outputs, 3, self.layout)
        shapes.check_size(self.name, name, shape, 2, 6, "x1, y1, x2, y2, score, class")

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
        candidates = given_class(output[:, :, :4], output[:, :, 4], output[:, :, 5], min_score=options.min_score)
        return base.finish(candidates, geometry, sizes_wh, options, suppress=False)


FAMILY = YoloEndToEnd()
