# SPDX-License-Identifier: Apache-2.0
"""Boxes of all frames in flat arrays: of the truth, of the pipeline, of its candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

HIT_IOU = 0.5
"""Minimum overlap of a box with the truth that makes it a hit."""


@dataclass(slots=True, frozen=True)
class EvaluatedFrame:
    """A frame that the pipeline processed and the truth describes."""

    source: str
    index: int
    pts_s: float
    width: int
    height: int
    shape_scale: tuple[float, float] = (1.0, 1.0)


@dataclass(slots=True, eq=False)
class FlatBoxes:
    """Boxes, ascending by frame.

    Attributes:
        frame: (n,) int64, index into a list of `EvaluatedFrame`.
        xyxy: (n, 4) float64, source pixels.
        score: (n,) float64.
        class_id: (n,) int64, index into the names of the evaluation.
        track_id: (n,) int64, -1 for none.
        ignore: (n,) bool, of the truth: neither hit nor miss.
        area: (n,) float64, of the truth: the area that COCO's sizes go by; NaN for that of the box. None likewise.
    """

    frame: np.ndarray
    xyxy: np.ndarray
    score: np.ndarray
    class_id: np.ndarray
    track_id: np.ndarray
    ignore: np.ndarray
    area: np.ndarray | None = None

    @classmethod
    def of(cls, parts: Iterable[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]) -> FlatBoxes:
        """Concatenate parts, each of one frame: its number, xyxy, score, class_id, track_id and ignore."""
        sorted_parts = sorted(parts, key=lambda part: part[0])
        frame = [np.full(len(part[1]), part[0], np.int64) for part in sorted_parts]
        columns = list(zip(*(part[1:] for part in sorted_parts), strict=True)) or [()] * 5
        kinds = (np.float64, np.float64, np.int64, np.int64, bool)
        arrays = [
            np.concatenate([np.zeros((0, 4) if not k else 0, kind), *column]).astype(kind)
            for k, (column, kind) in enumerate(zip(columns, kinds, strict=True))
        ]
        return cls(np.concatenate([np.zeros(0, np.int64), *frame]), *arrays)

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, rows: np.ndarray | slice) -> FlatBoxes:
        """Select rows by a mask, indices or a slice."""
        return FlatBoxes(
            self.frame[rows],
            self.xyxy[rows],
            self.score[rows],
            self.class_id[rows],
            self.track_id[rows],
            self.ignore[rows],
            None if self.area is None else self.area[rows],
        )

    def rows_of(self, frame: int) -> slice:
        """The rows of a frame."""
        first, end = np.searchsorted(self.frame, [frame, frame + 1])
        return slice(int(first), int(end))


def overlaps(a: np.ndarray, b: np.ndarray, crowd: Sequence[bool] | np.ndarray | None = None) -> np.ndarray:
    """(n, m) IoU of boxes x1, y1, x2, y2, by pycocotools; of a crowd in b, the share of a's area that is inside."""
    from pycocotools import mask

    if not len(a) or not len(b):
        return np.zeros((len(a), len(b)))
    flags = np.zeros(len(b), np.uint8) if crowd is None else np.asarray(crowd, np.uint8)
    return np.asarray(mask.iou(as_xywh(a), as_xywh(b), flags))


def as_xywh(xyxy: np.ndarray) -> np.ndarray:
    """(n, 4) float64 x, y, width, height."""
    return np.ascontiguousarray(np.hstack([xyxy[:, :2], xyxy[:, 2:] - xyxy[:, :2]]), np.float64)
