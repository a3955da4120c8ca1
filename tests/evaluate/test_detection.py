"""Average precision equals that of pycocotools on files; precision and recall are those of COCO's matching."""

from dataclasses import replace

import numpy as np
import pytest
from support.official_scores import coco_stats

from streamkit.evaluate.boxes import EvaluatedFrame, FlatBoxes
from streamkit.evaluate.detection import average_precision, match, rates

CLASSES = ("car", "person", "bike")
FRAMES = [EvaluatedFrame("a", n, n / 25, 640, 480) for n in range(30)]


def truth_and_results(seed):
    """Truth and results as the rows of COCO's files."""
    rng = np.random.default_rng(seed)
    truth = []
    results = []
    for image in range(1, len(FRAMES) + 1):
        for _ in range(rng.integers(0, 9)):
            x = rng.uniform(0, 400)
            y = rng.uniform(0, 300)
            w, h = rng.uniform(8, 150, 2)
            crowd = int(rng.random() < 0.1)
            category = int(rng.integers(1, 4))
            truth.append(
                {
                    "id": len(truth) + 1,
                    "image_id": image,
                    "category_id": category,
                    "bbox": [x, y, w, h],
                    "area": w * h * rng.uniform(0.3, 1),
                    "iscrowd": crowd,
                }
            )
            for _ in range(rng.integers(0, 3)):
                dx, dy = rng.normal(0, 0.12, 2) * (w, h)
                results.append(
                    {
                        "image_id": image,
                        "category_id": category,
                        "bbox": [x + dx, y + dy, w, h],
                        "score": float(rng.random()),
                    }
                )
        results.append(
            {
                "image_id": image,
                "category_id": int(rng.integers(1, 4)),
                "bbox": [500, 20, 60, 60],
                "score": float(rng.random()),
            }
        )
    return truth, results


def flat_boxes(rows):
    boxes_by_frame = []
    for frame in range(len(FRAMES)):
        frame_rows = [row for row in rows if row["image_id"] == frame + 1]
        xywh = np.array([row["bbox"] for row in frame_rows]).reshape(-1, 4)
        xyxy = np.hstack([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]])
        scores = np.array([row.get("score", 1) for row in frame_rows])
        class_ids = np.array([row["category_id"] - 1 for row in frame_rows], int)
        track_ids = np.full(len(frame_rows), -1)
        is_crowd = np.array([row.get("iscrowd", 0) for row in frame_rows], bool)
        boxes_by_frame.append((frame, xyxy, scores, class_ids, track_ids, is_crowd))
    return FlatBoxes.of(boxes_by_frame)


@pytest.mark.parametrize("seed", range(3))
def test_average_precision_equals_pycocotools_on_files(tmp_path, seed):
    truth, results = truth_and_results(seed)
    whole = {
        "images": [{"id": n + 1, "width": 640, "height": 480} for n in range(len(FRAMES))],
        "categories": [{"id": n, "name": name} for n, name in enumerate(CLASSES, 1)],
        "annotations": truth,
    }

    def stats(categories):
        return coco_stats(tmp_path, whole, results, categories)

    real = replace(flat_boxes(truth), area=np.array([row["area"] for row in truth]))  # of a mask, smaller than the box
    scores = average_precision(real, flat_boxes(results), FRAMES, CLASSES)
    names = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
    for name, value in zip(names, stats([1, 2, 3])[:6], strict=True):
        assert scores[name] == pytest.approx(value, abs=1e-6)
    for number, name in enumerate(CLASSES, 1):
        assert scores["per_class"][name]["ap"] == pytest.approx(stats([number])[0], abs=1e-6)
        assert scores["per_class"][name]["ap50"] == pytest.approx(stats([number])[1], abs=1e-6)


def boxes(*rows):
    """Rows of frame, class, x, y, score and whether to ignore; boxes of 10 x 10."""
    return FlatBoxes.of(
        (f, np.array([[x, y, x + 10, y + 10]]), np.array([s]), np.array([c]), np.array([-1]), np.array([i]))
        for f, c, x, y, s, i in rows
    )


def test_precision_and_recall_count_hits_misses_and_false_positives():
    truth = boxes((0, 0, 0, 0, 1, False), (0, 0, 50, 0, 1, False), (1, 1, 0, 0, 1, False), (1, 0, 90, 0, 1, True))
    detections = boxes(
        (0, 0, 1, 0, 0.9, False), (0, 0, 200, 0, 0.8, False), (1, 0, 0, 0, 0.7, False), (1, 0, 90, 0, 0.6, False)
    )
    matches = match(truth, detections, FRAMES, CLASSES)
    assert matches.hit.tolist() == [True, False, False, False]
    assert matches.false.tolist() == [False, True, True, False]  # the last is on an ignored region
    assert matches.missed.tolist() == [False, True, True, False]
    assert matches.of.tolist() == [0, -1, -1, -1]
    overall_rates = rates(truth, detections, matches, CLASSES)
    assert (overall_rates["precision"], overall_rates["recall"]) == pytest.approx((1 / 3, 1 / 3))
    assert overall_rates["per_class"]["car"] == {
        "truth": 2,
        "hits": 1,
        "false": 2,
        "missed": 1,
        "precision": pytest.approx(1 / 3),
        "recall": 0.5,
    }
    assert overall_rates["per_class"]["bike"]["precision"] is None


def test_more_boxes_than_coco_keeps_are_all_counted():
    truth = boxes((0, 0, 0, 0, 1, False))
    detections = boxes(*((0, 0, 100 + n, 300, 0.9, False) for n in range(150)))
    assert match(truth, detections, FRAMES, CLASSES).false.sum() == 150


def test_without_detections_precision_is_undefined_and_ap_is_zero():
    truth = boxes((0, 0, 0, 0, 1, False))
    none = boxes()
    assert average_precision(truth, none, FRAMES, CLASSES)["ap"] == 0
    overall_rates = rates(truth, none, match(truth, none, FRAMES, CLASSES), CLASSES)
    assert (overall_rates["precision"], overall_rates["recall"]) == (None, 0)
