"""Mean average precision at IoU 0.5, with objects that are ignored.

The measure is that of PASCAL VOC from 2010 on: per class, detections of all frames are sorted by score; each takes
the free object of its frame with the highest IoU if that is at least 0.5, and is a hit, else a false alarm; the
average precision is the whole area under the precision-recall curve, precision made monotonic (Everingham et al.,
"The PASCAL Visual Object Classes Challenge: a retrospective", IJCV 2015). mAP is the mean over the classes that have
objects.

Ignored objects follow COCO's evaluation (Lin et al., ECCV 2014): a detection that matches no counted object but an
ignored one is left out, neither hit nor false alarm; an ignored object that is not found is no miss. See `ignored`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from samples.scene import box_iou

MIN_VISIBLE = 0.3  # share of the object's area
MIN_SIDE = 12.0  # pixels, longer side of the box


def ignored(item: dict) -> bool:
    """Whether a truth object is neither hit nor miss: too little of it to be seen, or too small."""
    x1, y1, x2, y2 = item["box"]
    return item["visible"] < MIN_VISIBLE or max(x2 - x1, y2 - y1) < MIN_SIDE


def mean_average_precision(
    truth: Sequence[dict], detections: Iterable[np.ndarray], classes: int = 3, iou: float = 0.5
) -> tuple[float, list[float]]:
    """MAP and the average precision of each class (nan where a class has no objects).

    `truth`: one record a frame, as `draw_street.py` writes them. `found`: for each frame in the same order the
    detections, (n, 6) of x1, y1, x2, y2 in source pixels, score, class.
    """
    per_class: list[list[tuple[float, bool]]] = [[] for _ in range(classes)]
    total = [0] * classes
    for record, rows in zip(truth, detections, strict=True):
        for c in range(classes):
            items = [o for o in record["objects"] if o["class_id"] == c]
            counted = np.array([not ignored(o) for o in items], bool)
            boxes = np.array([o["box"] for o in items], float).reshape(-1, 4)
            total[c] += int(counted.sum())
            class_rows = rows[rows[:, 5] == c]
            per_class[c] += _match(class_rows[np.argsort(-class_rows[:, 4], kind="stable")], boxes, counted, iou)
    aps = [_area(per_class[c], total[c]) if total[c] else float("nan") for c in range(classes)]
    return float(np.nanmean(aps)), aps


def _match(rows: np.ndarray, boxes: np.ndarray, counted: np.ndarray, iou: float) -> list[tuple[float, bool]]:
    """(score, hit) of the detections of one class in one frame, best first; those on ignored objects are left out."""
    overlap = box_iou(rows[:, :4], boxes)
    free = counted.copy()
    marks = []
    for row, over in zip(rows, overlap, strict=True):
        best = int(np.argmax(np.where(free, over, -1.0))) if free.any() else -1
        if best >= 0 and over[best] >= iou:
            free[best] = False
            marks.append((float(row[4]), True))
        elif not (~counted & (over >= iou)).any():
            marks.append((float(row[4]), False))
    return marks


def _area(marks: list[tuple[float, bool]], total: int) -> float:
    """The area under the monotonic precision-recall curve of (score, hit) marks."""
    marks = sorted(marks, key=lambda m: -m[0])
    hits = np.cumsum([hit for _, hit in marks]) if marks else np.zeros(0)
    precision = hits / np.arange(1, len(hits) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    recall = np.concatenate([[0.0], hits / total])
    return float((np.diff(recall) * precision).sum())
