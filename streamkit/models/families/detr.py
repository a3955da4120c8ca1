"""The DETR line (RT-DETR, D-FINE, DEIMv2): queries, no NMS. Two forms of output are read.

- With the authors' postprocessor inside: `labels` (N, Q), `boxes` (N, Q, 4) x1, y1, x2, y2, `scores` (N, Q). The
  network scales the boxes by its input `orig_target_sizes` (width, height), so it gives source pixels.
- Raw, as Hugging Face and others export: class logits (N, Q, C) and boxes (N, Q, 4), cx, cy, w, h in parts of the
  input. Score = sigmoid(logit), of the best class of each query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.data import Array
from streamkit.models.families import base, shapes
from streamkit.ops.candidates import Coding, best_class, given_class
from streamkit.ops.nms import Packed

_NAMES = ("labels", "boxes", "scores")
_BOXES = ("pred_boxes", "boxes", "dets")


class Detr(base.Plain):
    """Queries, each with a box and a class."""

    name = "detr"

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        if self._is_raw(outputs):
            logits, boxes = self._raw_names(outputs)
            shapes.check_size(self.name, boxes, outputs[boxes], 2, 4, "cx, cy, w, h")
            shapes.check_classes(self.name, logits, outputs[logits], 2, 0, classes)
        else:
            _, boxes_shape, _ = shapes.named(self.name, outputs, _NAMES)
            shapes.check_size(self.name, "boxes", boxes_shape, 2, 4, "x1, y1, x2, y2")

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """`orig_target_sizes`, (B, 2) int64: each picture's width and height."""
        sizes = np.array(sizes_wh, np.int64)
        if xp is not np:
            from streamkit.ops.cuda.readers import upload

            sizes = upload(sizes)
        return {"orig_target_sizes": sizes}

    def read(
        self,
        outputs: Mapping[str, Array],
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
        options: base.ReadOptions,
    ) -> Packed:
        """See `Family.read`."""
        n = len(geometry)
        if self._is_raw(outputs):
            logits, boxes = self._raw_names(outputs)
            candidates = best_class(
                outputs[boxes][:n],
                outputs[logits][:n],
                min_score=options.min_score,
                coding=Coding.CXCYWH,
                input_size=input_size,
                unit=input_size,
                logits=True,
            )
        else:
            labels, boxes_out, scores = (array[:n] for array in shapes.named(self.name, outputs, _NAMES))
            candidates = given_class(boxes_out, scores, labels, min_score=options.min_score)
            # The network stretched its own view over the whole picture. Where it saw a letterboxed one, that is not
            # yet the source; for a stretched picture this is 1 and 0.
            stretch = np.asarray(sizes_wh, np.float64) / np.array(input_size)
            geometry = (geometry.astype(np.float64) * np.tile(stretch, 2)).astype(np.float32)
        return base.finish(candidates, geometry, sizes_wh, options, suppress=False)

    def _is_raw(self, outputs: Mapping[str, Any]) -> bool:
        return not all(name in outputs for name in _NAMES) and sum(shapes.rank(v) == 3 for v in outputs.values()) > 1

    def _raw_names(self, outputs: Mapping[str, Any]) -> tuple[str, str]:
        """The names of the logits and the boxes."""
        names = [name for name, value in outputs.items() if shapes.rank(value) == 3]
        boxes = next((name for name in _BOXES if name in names), None)
        if boxes is None or len(names) != 2:
            raise ValueError(
                f"family {self.name} reads the outputs {', '.join(_NAMES)}, or class logits beside boxes called "
                f"{' or '.join(_BOXES)}; the network has {shapes.listed(outputs)}"
            )
        return next(name for name in names if name != boxes), boxes


FAMILY = Detr()
