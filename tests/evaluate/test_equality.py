"""The whole command on the sample: its scores are those of the official evaluators on files of another run."""

import json
import time

import numpy as np
import pytest
from support.commands import Here, write
from support.official_scores import coco_stats, trackeval_scores

import streamkit

LABELS = ["car", "person", "bike"]
LIMIT_S = 60


def boxes_of(root, stages):
    """Frame, class, track, score, and x, y, w, h of each object of a run in a Python loop."""
    source = {"street": str(root / "samples" / "street.mp4")}
    rows = []
    for frame in streamkit.run({"device": "cpu", "sources": source, "stages": stages}):
        table = frame.detections
        tracks = [-1] * len(table) if table.track_id is None else table.track_id.tolist()
        for (x1, y1, x2, y2), score, label, track in zip(
            table.xyxy.tolist(), table.score.tolist(), table.label, tracks, strict=True
        ):
            rows.append((frame.index, LABELS.index(label), track, score, x1, y1, x2 - x1, y2 - y1))
    return rows


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.long
def test_eval_equals_pycocotools_and_trackeval_on_the_sample(here: Here, root, tmp_path):
    pytest.importorskip("trackeval")
    street = root / "samples" / "street.mp4"
    lines = (root / "samples" / "street.truth.jsonl").read_text().splitlines()
    truth = [
        (frame, LABELS.index(truth_object["label"]), truth_object["id"], 1.0, x1, y1, x2 - x1, y2 - y1)
        for frame, line in enumerate(lines)
        for truth_object in json.loads(line)["objects"]
        for x1, y1, x2, y2 in [truth_object["box"]]
    ]
    yaml = write(
        tmp_path, f"device: cpu\nsources: {{street: {street}}}\nstages: {{detect: {{model: demo}}, track: {{}}}}"
    )
    words = ["--truth", root / "samples" / "street.truth.jsonl", "--json", "r.json", "--worst", "w.png"]
    start_s = time.monotonic()
    completed = here("eval", yaml, *words, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert time.monotonic() - start_s < LIMIT_S
    report = json.loads((tmp_path / "r.json").read_text())

    whole = {
        "images": [{"id": n, "width": 640, "height": 360} for n in range(len(lines))],
        "categories": [{"id": n, "name": name} for n, name in enumerate(LABELS)],
        "annotations": [
            {"id": n, "image_id": f, "category_id": c, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
            for n, (f, c, _, _, *box) in enumerate(truth, 1)
        ],
    }
    results = [
        {"image_id": f, "category_id": c, "bbox": box, "score": score}
        for f, c, _, score, *box in boxes_of(root, {"detect": {"model": "demo", "min_score": 0.001}})
    ]
    names = ["ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large"]
    scores = [report["detection"][name] for name in names]
    assert scores == pytest.approx(coco_stats(tmp_path, whole, results)[:6].tolist(), abs=1e-6)

    tracks = boxes_of(root, {"detect": {"model": "demo"}, "track": {}})
    for number, name in enumerate(LABELS):
        both = [
            np.array([(f + 1, track, *box) for f, c, track, _, *box in rows if c == number and track >= 0])
            for rows in (truth, tracks)
        ]
        (folder := tmp_path / name).mkdir()
        official = trackeval_scores(folder, [("street", *both, len(lines))])
        class_scores = report["tracking"]["per_class"][name]
        assert [class_scores[key] for key in ("hota", "deta", "assa", "mota", "idf1")] == pytest.approx(
            [
                *(official["HOTA"][key].mean() for key in ("HOTA", "DetA", "AssA")),
                official["CLEAR"]["MOTA"],
                official["Identity"]["IDF1"],
            ],
            abs=1e-6,
        )
        assert (class_scores["switches"], class_scores["fragments"]) == (
            official["CLEAR"]["IDSW"],
            official["CLEAR"]["Frag"],
        )
