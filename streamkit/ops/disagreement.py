# SPDX-License-Identifier: Apache-2.0
"""Where two detectors disagree on a frame: objects that only one finds, and objects whose labels differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamkit.core.detections import Detections
from streamkit.ops.boxes import iou_matrix


class Disagreements(NamedTuple):
    """Rows of two tables on which they disagree.

    Attributes:
        first: rows of the first table: objects that the second does not find, or to which it gives another label.
        second: rows of the second table: objects that the first does not find.
    """

    first: list[int]
    second: list[int]


def disagreements(first: Detections, second: Detections, iou: float, min_score: float) -> Disagreements:
    """Return where two tables of one frame disagree.

    Boxes are matched one to one, those of the same label first, the largest IoU first. Objects of a label that the
    other detector does not know are left out.

    Args:
        first: the objects of one detector, on the host.
        second: those of the other.
        iou: minimum IoU of two boxes of one object.
        min_score: minimum score of an object that counts; weaker ones only confirm those of the other detector.
    """
    pairs = dict(_matched(first, second, iou))
    confirmed = set(pairs.values())
    sure = [table.score >= min_score for table in (first, second)]
    first_labels = first.label
    second_labels = second.label
    of_first = [
        row
        for row in np.flatnonzero(sure[0] & _detectable(first, second)).tolist()
        if row not in pairs or (first_labels[row] != second_labels[pairs[row]] and sure[1][pairs[row]])
    ]
    of_second = [row for row in np.flatnonzero(sure[1] & _detectable(second, first)).tolist() if row not in confirmed]
    return Disagreements(of_first, of_second)


def _matched(first: Detections, second: Detections, iou: float) -> Iterator[tuple[int, int]]:
    """Yield pairs of rows whose boxes are of one object."""
    if not len(first) or not len(second):
        return
    overlap = iou_matrix(first.xyxy, second.xyxy)
    same = np.array(first.label)[:, None] == np.array(second.label)
    rows, columns = np.nonzero(overlap >= iou)
    order = np.lexsort((-overlap[rows, columns], ~same[rows, columns]))
    used: tuple[set[int], set[int]] = set(), set()
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if row not in used[0] and column not in used[1]:
            used[0].add(row)
            used[1].add(column)
            yield row, column


def _detectable(table: Detections, other: Detections) -> np.ndarray:
    """Return (n,) bool: the rows whose label the other detector knows; all if its labels are unknown."""
    if not other.labels:
        return np.ones(len(table), bool)
    return np.isin(np.array(table.label, dtype=str), other.labels)
