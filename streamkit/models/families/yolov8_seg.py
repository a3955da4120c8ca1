"""YOLOv8-seg: boxes and classes as in YOLOv8, and instance masks.

(N, 4 + C + M, A): M coefficients after each anchor's class scores; (N, M, h, w): the frame's prototypes. A mask is the
sum of the prototypes times the coefficients, cut at the box, as in the authors' `process_mask_native`
(https://github.com/ultralytics/ultralytics).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamkit.core.data import Array, Detections
from streamkit.models.families import base, shapes
from streamkit.models.families.yolov8 import Yolov8
from streamkit.ops import masks
from streamkit.ops.nms import Packed


class Yolov8Seg(Yolov8):
    """Columns of anchors and a map of prototypes; the column `mask`, COCO's run-length encoding in source pixels."""

    name = "yolov8_seg"
    task = "segment"
    columns: base.Columns = {"coefficients": (-1,)}  # noqa: RUF012  # never changed
    layout = "(N, 4 + classes + coefficients, anchors)"
    step = 0

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        name, shape = shapes.only(self.name, outputs, 3, self.layout)
        _, prototypes = shapes.only(self.name, outputs, 4, "(N, coefficients, height, width)")
        if isinstance(prototypes[1], int) and prototypes[1] > 0:
            shapes.check_classes(self.name, name, shape, 1, 4 + prototypes[1], classes)

    def rest(
        self,
        outputs: Mapping[str, Array],
        packed: Packed,
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
    ) -> base.Rest | None:
        """See `Family.rest`: the cropped coefficients and prototypes of the masks."""
        _, prototypes = shapes.only(self.name, outputs, 4, "(N, coefficients, height, width)")
        found = masks.pieces(packed.rows, packed.counts, prototypes[: len(geometry)], geometry, input_size)
        map_size = prototypes.shape[3], prototypes.shape[2]

        def complete(table: Detections, arrays: Sequence[np.ndarray]) -> Detections:
            frame = table.batch_row
            rank = np.arange(len(table)) - np.searchsorted(frame, frame)
            here = masks.Pieces(*arrays)
            made = masks.instance_masks(table.xyxy, frame, rank, here, map_size, geometry, sizes_wh, input_size)
            return replace(table, extra={"mask": made})

        return base.Rest(found, complete)


FAMILY = Yolov8Seg()
