# SPDX-License-Identifier: Apache-2.0
"""The DETR line (RT-DETR, D-FINE, DEIMv2): queries, no NMS. `detr` reads two output formats.

- With the authors' postprocessor in the network: `labels` (N, Q), `boxes` (N, Q, 4) x1, y1, x2, y2, `scores` (N, Q).
  The network scales the boxes by its input `orig_target_sizes` (width, height), so they are in source pixels.
- Raw, as exported by Hugging Face, RF-DETR and others: class logits (N, Q, C) and boxes (N, Q, 4), cx, cy, w, h as
  shares of the input. The card's `select` determines what becomes an object:

  - `top_k`, the default: the best pairs of query and class by sigmoid(logit), so a query may yield several objects, as
    in Deformable DETR, DINO, RT-DETR, D-FINE, DEIM, LW-DETR and RF-DETR.
  - `best_class`: the best class of each query, by sigmoid(logit).
  - `softmax`: the best class of each query, by the softmax over C + 1 classes, the last of which is no object, as in
    the first DETR (github.com/facebookresearch/detr, models/detr.py, PostProcess).

RT-DETR as exported by Ultralytics (https://github.com/ultralytics/ultralytics, RTDETRDecoder and RTDETRPredictor) has
one output, with boxes cx, cy, w, h as shares of the input and scores after the sigmoid:

- `rtdetr_e2e`, (N, K, 6): the best pairs of query and class, as box, score and class.
- `rtdetr`, (N, Q, 4 + C), older exports: box and a score per class; the best class of each query is an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families.base import Family, Outputs, ReadOptions, Shapes, Size, is_inner, listed, shape_of
from streamkit.ops.candidates import Coding, best_class, each_class, labeled_class, upload
from streamkit.ops.nms import Packed

_NAMES = ("labels", "boxes", "scores")
_BOXES = ("pred_boxes", "boxes", "dets")


@dataclass(frozen=True)
class Detr(Family):
    """Queries, each with a box and a score per class.

    Attributes:
        select: what becomes an object of raw outputs, one of `card_keys.SELECTS`; empty for the default.
    """

    select: str = ""
    name = "detr"

    def selecting(self, select: str) -> Detr:
        """See `Family.selecting`."""
        return Detr(select)

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        if self._is_raw(outputs):
            logits, boxes = self._raw_names(outputs)
            self._check_size(boxes, outputs[boxes], 2, 4, "cx, cy, w, h")
            self._check_logits(logits, outputs[logits], classes)
        else:
            if self.select:
                raise ValueError(
                    f"select: {self.select} is for class logits, and this network selects by itself "
                    f"({', '.join(_NAMES)}); leave select out"
                )
            self._check_size("boxes", self._named(outputs, _NAMES)[1], 2, 4, "x1, y1, x2, y2")

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: beside raw outputs, the features and the objectness that OWLv2 does not select by."""
        if not self._is_raw(outputs):
            return frozenset(_NAMES)
        inner = [name for name in outputs if is_inner(name) or name == "objectness_logits"]
        return frozenset([*self._raw_names(outputs), *inner])

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """Return `orig_target_sizes`, (B, 2) int64: each frame's width and height."""
        sizes = np.array(sizes_wh, np.int64)
        if xp is not np:
            sizes = upload(sizes)
        return {"orig_target_sizes": sizes}

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        if not self._is_raw(outputs):
            labels, boxes, scores = (array[:n] for array in self._named(outputs, _NAMES))
            return labeled_class(boxes, scores, labels, min_score=min_score)
        logits, boxes = (outputs[name][:n] for name in self._raw_names(outputs))
        how: dict[str, Any] = {"min_score": min_score, "coding": Coding.CXCYWH, "unit": input_size}
        if self.select in ("softmax", "best_class"):
            softmax = self.select == "softmax"
            return best_class(boxes, logits, input_size=input_size, softmax=softmax, logits=not softmax, **how)
        return each_class(boxes, logits, **how)

    def read(
        self, outputs: Outputs, geometry: np.ndarray, sizes_wh: np.ndarray, input_size: Size, options: ReadOptions
    ) -> Packed:
        """See `Family.read`."""
        if not self._is_raw(outputs):
            # The network has stretched its input over the whole frame. For a letterboxed input, these are not yet
            # source pixels; for a stretched frame, this is 1 and 0.
            stretch = np.asarray(sizes_wh, np.float64) / np.array(input_size)
            geometry = (geometry.astype(np.float64) * np.tile(stretch, 2)).astype(np.float32)
        return super().read(outputs, geometry, sizes_wh, input_size, options)

    def _check_logits(self, name: str, shape: Sequence[Any], classes: int) -> None:
        """Check the number of classes against the card's labels; explain one class more."""
        more = self.select == "softmax"
        if not more and len(shape) == 3 and shape[2] == classes + 1:
            raise ValueError(
                f"family {self.name}: output {name!r} has {shape[2]} classes, one more than the card has labels. Where "
                "the last is no object, as in the first DETR, write select: softmax; else labels lack one"
            )
        self._check_classes(name, shape, 2, int(more), classes)

    def _is_raw(self, outputs: Mapping[str, Any]) -> bool:
        return not all(name in outputs for name in _NAMES) and sum(len(shape_of(v)) == 3 for v in outputs.values()) > 1

    def _raw_names(self, outputs: Mapping[str, Any]) -> tuple[str, str]:
        """Return the names of the logits and the boxes; further outputs may be beside an output called `logits`."""
        names = [name for name, output in outputs.items() if len(shape_of(output)) == 3]
        boxes = next((name for name in _BOXES if name in names), None)
        if boxes is not None and "logits" in names:
            return "logits", boxes
        if boxes is None or len(names) != 2:
            raise ValueError(
                f"family {self.name} reads the outputs {', '.join(_NAMES)}, or class logits beside boxes called "
                f"{' or '.join(_BOXES)}; the network has {listed(outputs)}"
            )
        return next(name for name in names if name != boxes), boxes


class RtdetrQueries(Family):
    """Queries in one output, each with a box as shares of the input and a score per class."""

    name = "rtdetr"
    layout = "(N, queries, 4 + classes)"

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        self._check_classes(*self._only(outputs), 2, 4, classes)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows = self._only(outputs)[1][:n]
        how: dict[str, Any] = {"coding": Coding.CXCYWH, "input_size": input_size, "unit": input_size}
        return best_class(rows[:, :, :4], rows[:, :, 4:], min_score=min_score, **how)


class RtdetrEndToEnd(Family):
    """Rows that the network itself has selected, with boxes as shares of the input."""

    name = "rtdetr_e2e"
    layout = "(N, rows, 6)"
    sizes = ((2, 6, "cx, cy, w, h, score, class"),)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows = self._only(outputs)[1][:n]
        how: dict[str, Any] = {"coding": Coding.CXCYWH, "unit": input_size}
        return labeled_class(rows[:, :, :4], rows[:, :, 4], rows[:, :, 5], min_score=min_score, **how)


FAMILIES: tuple[Family, ...] = (Detr(), RtdetrQueries(), RtdetrEndToEnd())
