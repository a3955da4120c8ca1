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

RT-DETR as Ultralytics exports it: one output, boxes as shares of the input, scores after the sigmoid.

See https://github.com/ultralytics/ultralytics, RTDETRDecoder and RTDETRPredictor. Boxes are cx, cy, w, h.

- `rtdetr_e2e`, (N, K, 6): the best pairs of query and class, as box, score and class.
- `rtdetr`, (N, Q, 4 + C), older exports: box and a score per class; the best class of each query is an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.facts import IMAGENET_MEAN, IMAGENET_STD, CardFacts
from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    ReadOptions,
    Shapes,
    Size,
    Values,
    authors_input,
    is_inner,
    listed,
    network_family,
    shape_of,
)
from streamkit.models.families.rules import (
    best_rows,
    first_rows,
    in_shares,
    matrix,
    not_classes,
    not_scores,
    selected_rows,
    softmax,
    without_map,
)
from streamkit.models.network_file import ModelInfo, names_a_layer
from streamkit.ops.candidates import Coding, best_class, each_class, labeled_class, upload
from streamkit.ops.nms import Packed

_NAMES = ("labels", "boxes", "scores")
_BOXES = ("pred_boxes", "boxes", "dets")
DETR_LINE = authors_input("RT-DETR, D-FINE, DEIM, DEIMv2 without DINOv3", 0.4, resize="stretch", antialias=True)
_DINOV3 = authors_input(
    "DEIMv2 with DINOv3, by the names of its layers",
    0.4,
    resize="stretch",
    antialias=True,
    mean=IMAGENET_MEAN,
    std=IMAGENET_STD,
)
RF_DETR_LINE = authors_input("RF-DETR", 0.5, resize="stretch", mean=IMAGENET_MEAN, std=IMAGENET_STD)
_SHARES = "cx, cy, w, h in shares of the input"
_LINE = authors_input("RT-DETR of Ultralytics", 0.25, resize="stretch")


def target_sizes(sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
    """Return the input `orig_target_sizes`, (B, 2) int64: each frame's width and height."""
    sizes = np.array(sizes_wh, np.int64)
    if xp is not np:
        sizes = upload(sizes)
    return {"orig_target_sizes": sizes}


def stretched(geometry: np.ndarray, sizes_wh: np.ndarray, input_size: Size) -> np.ndarray:
    """Return the geometry of outputs that the network has stretched from its whole input over the frame.

    For a letterboxed input, these are not yet source pixels; for a stretched frame, this is 1 and 0.
    """
    stretch = np.asarray(sizes_wh, np.float64) / np.array(input_size)
    return np.asarray(geometry.astype(np.float64) * np.tile(stretch, 2), np.float32)


def are_logits(info: ModelInfo, size: Size) -> bool:
    """Whether raw outputs are logits of queries: an output called scores has been through a sigmoid or softmax."""
    raw = [name.lower() for name, dims in info.output_dims.items() if len(dims) == 3]
    return len(raw) == 1 or not any("score" in name for name in raw)


def reference_detr(image: PlainImage) -> np.ndarray:
    """Read `detr` plainly, see `FamilyTraits.reference`."""
    outputs = image.outputs
    whole = (*image.input_size, *image.input_size)
    if set(_NAMES) <= outputs.keys():  # the network has stretched its whole input to the frame
        stretched = outputs["boxes"] / (*image.frame_size, *image.frame_size) * whole
        return np.column_stack([stretched, outputs["scores"], outputs["labels"]])
    if "logits" in outputs:  # others may be beside them
        outputs = {name: output for name, output in outputs.items() if name in ("logits", "pred_boxes", "boxes")}
    boxes, logits = sorted(outputs.values(), key=lambda output: output.shape[1] != 4)
    scores = softmax(logits)[:, :-1] if image.select == "softmax" else 1 / (1 + np.exp(-logits))
    queries, class_count = scores.shape
    several = image.select in ("", "top_k")
    if several:
        boxes = np.repeat(boxes, class_count, axis=0)
        scores = scores.reshape(-1, 1)
    rows = best_rows(boxes[:, :2], boxes[:, 2:], scores)
    rows[:, :4] *= whole
    if several:
        rows[:, 5] = np.tile(np.arange(class_count), queries)
    return rows


@network_family(
    "detr",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`labels` (N, Q), `boxes` (N, Q, 4), `scores` (N, Q)",
                "x1, y1, x2, y2 in pixels of the frame, whose size the network takes as the input `orig_target_sizes`: "
                "the authors' postprocessor",
            ),
            OutputFormat(
                "logits (N, Q, C), boxes (N, Q, 4)",
                "class logits; cx, cy, w, h in shares of the input, in an output called `pred_boxes`, `boxes` or "
                "`dets`. The card's `select` says what is an object; with `softmax`, C + 1 logits. Features beside "
                "them, called `..._embeds` or `...hidden_state`, and OWLv2's `objectness_logits` are not needed",
            ),
        ),
        plausible=are_logits,
        hugging_face="ObjectDetection",
        selects=True,
        reference=reference_detr,
    ),
)
@dataclass(frozen=True)
class Detr(Family):
    """Queries, each with a box and a score per class.

    Attributes:
        select: what becomes an object of raw outputs, one of `card_keys.SELECTS`; empty for the default.
    """

    select: str = ""

    def selecting(self, select: str) -> Detr:
        """See `Family.selecting`."""
        return type(self)(select)

    def line(self, info: ModelInfo, size: Size | None) -> CardFacts:
        """See `Family.line`: by the names of inputs, outputs and layers."""
        if "orig_target_sizes" in info.inputs:
            return _DINOV3 if names_a_layer(info.file, "backbone/dinov3", "backbone.dinov3") else DETR_LINE
        return RF_DETR_LINE if {"dets", "labels"} <= info.outputs.keys() else CardFacts()

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
        return target_sizes(sizes_wh, xp)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        if not self._is_raw(outputs):
            labels, boxes, scores = (array[:n] for array in self._named(outputs, _NAMES))
            return labeled_class(boxes, scores, labels, min_score=min_score)
        logits, boxes = (outputs[name][:n] for name in self._raw_names(outputs))
        how: dict[str, Any] = {"min_score": min_score, "coding": Coding.CXCYWH, "unit": input_size}
        how |= self._further(boxes)
        if self.select in ("softmax", "best_class"):
            softmax = self.select == "softmax"
            return best_class(boxes, logits, input_size=input_size, softmax=softmax, logits=not softmax, **how)
        return each_class(boxes, logits, **how)

    def read(
        self, outputs: Outputs, geometry: np.ndarray, sizes_wh: np.ndarray, input_size: Size, options: ReadOptions
    ) -> Packed:
        """See `Family.read`."""
        if not self._is_raw(outputs):
            geometry = stretched(geometry, sizes_wh, input_size)
        return super().read(outputs, geometry, sizes_wh, input_size, options)

    def _further(self, boxes: Array) -> dict[str, Any]:
        """Return `points` and `step` of `ops.candidates`, for families whose queries have further values."""
        return {}

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


def _not_queries(values: Values, size: Size, classes: int | None) -> str:
    rows = first_rows(values)
    if not rows.any():
        return "it has no rows"
    if rows.shape[1] == 6 and not not_classes(rows[:, 5]):
        return "its last column is the class"
    return "" if in_shares(rows[:, :4]) and not not_scores(rows[:, 4:]) else "its rows are not shares and scores"


def _not_selected_queries(values: Values, size: Size, classes: int | None) -> str:
    rows = first_rows(values)
    if not rows.any():
        return "it has no rows"
    if not in_shares(rows[:, :4]):
        return "its boxes are in network pixels"
    return not_scores(rows[:, 4]) or not_classes(rows[:, 5])


def _in_pixels(rows: np.ndarray, input_size: Size) -> np.ndarray:
    rows[:, :4] *= (*input_size, *input_size)
    return rows


def _reference_rtdetr(image: PlainImage) -> np.ndarray:
    values = matrix(image.outputs)
    return _in_pixels(best_rows(values[:, :2], values[:, 2:4], values[:, 4:]), image.input_size)


@network_family(
    "rtdetr",
    FamilyTraits(
        formats=(OutputFormat("(N, Q, 4 + C)", f"{_SHARES}; a score for each class. RT-DETR of Ultralytics"),),
        line=_LINE,
        plausible=without_map(selected_rows(5, 1000, 50)),
        doubt=_not_queries,
        meaning="if each row is a box and the scores of all classes, not of one, as of RT-DETR",
        ultralytics=("detect",),
        reference=_reference_rtdetr,
    ),
)
class RtdetrQueries(Family):
    """Queries in one output, each with a box as shares of the input and a score per class."""

    layout = "(N, queries, 4 + classes)"

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        self._check_classes(*self._only(outputs), 2, 4, classes)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows = self._only(outputs)[1][:n]
        how: dict[str, Any] = {"coding": Coding.CXCYWH, "input_size": input_size, "unit": input_size}
        return best_class(rows[:, :, :4], rows[:, :, 4:], min_score=min_score, **how)


def _reference_rtdetr_e2e(image: PlainImage) -> np.ndarray:
    values = matrix(image.outputs)
    rows = _in_pixels(best_rows(values[:, :2], values[:, 2:4], values[:, 4:5]), image.input_size)
    return np.column_stack([rows[:, :5], values[:, 5]])


@network_family(
    "rtdetr_e2e",
    FamilyTraits(
        formats=(OutputFormat("(N, K, 6)", f"{_SHARES}; score; class. RT-DETR of Ultralytics since version 8.4"),),
        line=_LINE,
        plausible=without_map(selected_rows(6, 6)),
        doubt=_not_selected_queries,
        ultralytics=("detect",),
        reference=_reference_rtdetr_e2e,
    ),
)
class RtdetrEndToEnd(Family):
    """Rows that the network itself has selected, with boxes as shares of the input."""

    layout = "(N, rows, 6)"
    sizes = ((2, 6, "cx, cy, w, h, score, class"),)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        rows = self._only(outputs)[1][:n]
        how: dict[str, Any] = {"coding": Coding.CXCYWH, "unit": input_size}
        return labeled_class(rows[:, :, :4], rows[:, :, 4], rows[:, :, 5], min_score=min_score, **how)
