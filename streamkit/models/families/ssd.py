"""SSD and other detectors that end in their own NMS. The output's names and rank determine the format:

| outputs | format | boxes |
| --- | --- | --- |
| one of (N, 1, K, 7) | OpenVINO's DetectionOutput: image, label, score, box | x1, y1, x2, y2 as shares of the input |
| `detection_boxes`, `detection_scores`, `detection_classes` | TensorFlow | y1, x1, y2, x2 as shares of the input |
| `bboxes`, `scores`, `labels` | ONNX model zoo | x1, y1, x2, y2 as shares of the input |
| `boxes`, `scores`, `labels` | torchvision | x1, y1, x2, y2 in network pixels |

Boxes are (N, K, 4), scores and labels (N, K); torchvision's format without N is read for batches of one. Most of these
networks count classes from 1: the card's label list then begins with `background`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families import base, shapes
from streamkit.ops.candidates import Coding, given_class
from streamkit.ops.nms import Packed

_TENSORFLOW = ("detection_boxes", "detection_scores", "detection_classes")
_ZOO = ("bboxes", "scores", "labels")
_TORCHVISION = ("boxes", "scores", "labels")


class Ssd(base.Plain):
    """Rows that the network itself has selected; the number of classes is not in the shapes."""

    name = "ssd"

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        names = self._names(outputs)
        if names is None:
            name, shape = shapes.only(self.name, outputs, 4, "(N, 1, rows, 7)")
            shapes.check_size(self.name, name, shape, 1, 1, "one list a frame")
            shapes.check_size(self.name, name, shape, 3, 7, "picture, label, score, x1, y1, x2, y2")
        else:
            shape = shapes.named(self.name, outputs, names)[0]
            shapes.check_size(self.name, names[0], shape, len(shape) - 1, 4, "the box")

    def read(
        self,
        outputs: Mapping[str, Array],
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
        options: base.ReadOptions,
    ) -> Packed:
        """See `Family.read`."""
        n, names = len(geometry), self._names(outputs)
        if names is None:
            output = shapes.only(self.name, outputs, 4, "(N, 1, rows, 7)")[1][:n, 0]
            boxes, scores, labels = output[:, :, 3:], output[:, :, 2], output[:, :, 1]
        else:
            boxes, scores, labels = shapes.named(self.name, outputs, names)
            if boxes.ndim == 2:
                boxes, scores, labels = boxes[None], scores[None], labels[None]
            boxes, scores, labels = boxes[:n], scores[:n], labels[:n]
        if len(boxes) < n:
            raise ValueError(f"{n} frames gave one list of objects; run this network with batches of 1")
        candidates = given_class(
            boxes,
            scores,
            labels,
            min_score=options.min_score,
            coding=Coding.YXYX if names == _TENSORFLOW else Coding.XYXY,
            unit=(1.0, 1.0) if names == _TORCHVISION else input_size,
        )
        return base.finish(candidates, geometry, sizes_wh, options, suppress=False)

    def _names(self, outputs: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the three outputs' names; None for OpenVINO's format."""
        if any(shapes.rank(value) == 4 for value in outputs.values()):
            return None
        return next((names for names in (_TENSORFLOW, _ZOO) if names[0] in outputs), _TORCHVISION)


FAMILY = Ssd()
