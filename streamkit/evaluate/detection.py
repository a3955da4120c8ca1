# SPDX-License-Identifier: Apache-2.0
"""Average precision, precision and recall, by pycocotools."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.evaluate.boxes import HIT_IOU, EvaluatedFrame, FlatBoxes, as_xywh

_MAX_BOXES = 100_000  # boxes of a class in a frame: all, for precision and recall
_STATS = {"ap": 0, "ap50": 1, "ap75": 2, "ap_small": 3, "ap_medium": 4, "ap_large": 5}


@dataclass(slots=True, eq=False)
class Matches:
    """What each box is, at IoU 0.5 and with all boxes of the pipeline.

    Attributes:
        hit: (n,) bool of the pipeline's boxes.
        false: (n,) bool, false positives; a box on an ignored region is neither.
        missed: (m,) bool of the truth's boxes.
        of: (m,) int64, the pipeline's box on each truth box; -1 if missed.
    """

    hit: np.ndarray
    false: np.ndarray
    missed: np.ndarray
    of: np.ndarray


def average_precision(
    truth: FlatBoxes, detections: FlatBoxes, frames: Sequence[EvaluatedFrame], classes: Sequence[str]
) -> dict[str, Any]:
    """COCO's average precision of all classes, and of each: `ap`, `ap50`, ..., `per_class`; None without truth."""
    run = _coco_run(truth, detections, frames, classes)
    with contextlib.redirect_stdout(io.StringIO()):
        run.evaluate()
        run.accumulate()
        run.summarize()
    per_class = {}
    for number, name in enumerate(classes):
        curve = run.eval["precision"][:, :, number, 0, -1]
        per_class[name] = {"ap": _mean(curve), "ap50": _mean(curve[0])}
    totals = {name: None if run.stats[place] < 0 else float(run.stats[place]) for name, place in _STATS.items()}
    return {**totals, "per_class": per_class}


def match(truth: FlatBoxes, detections: FlatBoxes, frames: Sequence[EvaluatedFrame], classes: Sequence[str]) -> Matches:
    """Match the pipeline's boxes with the truth as COCO does, at IoU 0.5."""
    run = _coco_run(truth, detections, frames, classes)
    run.params.iouThrs = np.array([HIT_IOU])
    run.params.areaRng = [run.params.areaRng[0]]
    run.params.areaRngLbl = ["all"]
    run.params.maxDets = [_MAX_BOXES]
    with contextlib.redirect_stdout(io.StringIO()):
        run.evaluate()
    matches = Matches(
        np.zeros(len(detections), bool),
        np.zeros(len(detections), bool),
        np.zeros(len(truth), bool),
        np.full(len(truth), -1),
    )
    for image in filter(None, run.evalImgs):
        boxes = np.array(image["dtIds"], np.int64) - 1
        real = np.array(image["gtIds"], np.int64) - 1
        on = image["dtMatches"][0] > 0
        left_out = image["dtIgnore"][0].astype(bool)
        matches.hit[boxes] = on & ~left_out
        matches.false[boxes] = ~on & ~left_out
        by = image["gtMatches"][0].astype(np.int64)
        counted = ~np.array(image["gtIgnore"], bool)
        matches.missed[real] = (by == 0) & counted
        matches.of[real] = np.where(counted, by - 1, -1)
    return matches


def rates(truth: FlatBoxes, detections: FlatBoxes, matches: Matches, classes: Sequence[str]) -> dict[str, Any]:
    """Precision and recall of all classes, and of each; None where nothing was found, or nothing is there."""

    def of(real: np.ndarray, boxes: np.ndarray) -> dict[str, Any]:
        hits = int(matches.hit[boxes].sum())
        false = int(matches.false[boxes].sum())
        missed = int(matches.missed[real].sum())
        return {
            "truth": hits + missed,
            "hits": hits,
            "false": false,
            "missed": missed,
            "precision": hits / (hits + false) if hits + false else None,
            "recall": hits / (hits + missed) if hits + missed else None,
        }

    each = {name: of(truth.class_id == n, detections.class_id == n) for n, name in enumerate(classes)}
    return {**of(np.ones(len(truth), bool), np.ones(len(detections), bool)), "per_class": each}


def _mean(values: np.ndarray) -> float | None:
    measured = values[values > -1]
    return float(measured.mean()) if len(measured) else None


def _coco_run(truth: FlatBoxes, detections: FlatBoxes, frames: Sequence[EvaluatedFrame], classes: Sequence[str]) -> Any:
    """COCOeval of boxes; row n has the id n + 1, since 0 means no match there."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    base = {
        "images": [{"id": n + 1, "width": frame.width, "height": frame.height} for n, frame in enumerate(frames)],
        "categories": [{"id": n + 1, "name": name} for n, name in enumerate(classes)],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        real = COCO()
        results = COCO()
        real.dataset = {**base, "annotations": _annotations(truth)}
        results.dataset = {**base, "annotations": _annotations(detections)}
        real.createIndex()
        results.createIndex()
        return COCOeval(real, results, "bbox")


def _annotations(boxes: FlatBoxes) -> list[dict[str, Any]]:
    xywh = as_xywh(boxes.xyxy)
    area = xywh[:, 2] * xywh[:, 3]
    if boxes.area is not None:
        area = np.where(np.isnan(boxes.area), area, boxes.area)
    columns = (boxes.frame + 1, boxes.class_id + 1, xywh, area, boxes.score, boxes.ignore)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        {
            "id": n,
            "image_id": image,
            "category_id": category,
            "bbox": box,
            "area": area,
            "score": score,
            "iscrowd": int(ignore),
        }
        for n, (image, category, box, area, score, ignore) in enumerate(rows, 1)
    ]
