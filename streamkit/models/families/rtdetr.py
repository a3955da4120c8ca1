# SPDX-License-Identifier: Apache-2.0
"""RT-DETR as Ultralytics exports it: one output, boxes as shares of the input, scores after the sigmoid.

See https://github.com/ultralytics/ultralytics, RTDETRDecoder and RTDETRPredictor. Boxes are cx, cy, w, h.

- `rtdetr_e2e`, (N, K, 6): the best pairs of query and class, as box, score and class.
- `rtdetr`, (N, Q, 4 + C), older exports: box and a score per class; the best class of each query is an object.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    Size,
    Values,
    authors_input,
    network_family,
)
from streamkit.models.families.rules import (
    best_rows,
    first_rows,
    in_shares,
    matrix,
    not_classes,
    not_scores,
    selected_rows,
    without_map,
)
from streamkit.ops.candidates import Coding, best_class, labeled_class

_SHARES = "cx, cy, w, h in shares of the input"
_LINE = authors_input("RT-DETR of Ultralytics", 0.25, resize="stretch")


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
