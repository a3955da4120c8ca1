"""`collect` in pipelines: the example, what is hidden, real networks that disagree, and several processes."""

import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.cards import card_of
from support.collecting import lines
from support.example_runs import LIMIT, ROOT, command_fixture, folder_fixture, records, street  # noqa: F401  a fixture

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.core.stage import default_registry
from streamkit.ops.perceptual_hash import hash_distances


def as_recorded(detection):
    """An object of a line as in a record with one detector."""
    return {name: value for name, value in detection.items() if name not in ("stage", "reasons", "hash", "vector")}


def test_the_example_collects_frames_with_the_objects_of_their_records(folder, here):
    example = ROOT / "examples" / "collect.yaml"
    assert (
        here("run", example, "--device", "cpu", "--limit", LIMIT, "--report", "report.json", cwd=folder).returncode == 0
    )
    frame_records = records(folder / "out" / "street-collected.jsonl")
    collected_lines = lines("out/collected")
    assert {"low_score", "random"} <= {line["reason"] for line in collected_lines}
    for line in collected_lines:
        record = frame_records[line["frame"]]
        assert [as_recorded(o) for o in line["objects"]] == record["objects"]
        assert line["models"] == {"detect": "demo"}
        weak = [o for o in line["objects"] if "low_score" in o.get("reasons", ())]
        assert bool(weak) == ("low_score" in line["reasons"])
        assert all(0.3 <= o["score"] <= 0.5 and o["label"] != "person" for o in weak)
        assert ("collected", f"out/collected/{line['image']}") in [
            (e["kind"], e["data"].get("path")) for e in record["events"]
        ]
    assert len(os.listdir("out/collected/images")) == len(collected_lines)
    counts = json.loads((folder / "report.json").read_text())["counts"]
    assert sum(n for name, n in counts.items() if name.startswith("images collected")) == len(collected_lines)


HIDDEN = """
device: cpu
sources: {a: samples/street.mp4}
stages:
  detect: {model: demo}
  draw: {blur: [person], pixelate: {zone: [[0, 0], [200, 0], [200, 180], [0, 180]]}, only: [none], analytics: false}
  whole: {stage: collect, path: whole, random: 600/s, duplicates: keep}
  each: {stage: collect, path: each, random: 600/s, capture: object, duplicates: keep}
  jsonl: {path: all.jsonl}
"""


def fine_detail(picture):
    return cv2.Laplacian(picture.astype(np.float64), cv2.CV_64F).var()


def test_no_image_shows_hidden_objects(folder, here):
    """Every file that is written, against the video: fine detail is gone where it is hidden, and is there elsewhere."""
    Path("p.yaml").write_text(HIDDEN)
    assert here("run", "p.yaml", "--limit", LIMIT, cwd=folder).returncode == 0
    clear, _ = street(LIMIT)
    boxes = [[o["box"] for o in record["objects"] if o["label"] == "person"] for record in records(Path("all.jsonl"))]
    seen = 0
    files = {path.as_posix() for path in Path().rglob("*.jpg") if "samples" not in path.parts}
    assert len(files) > LIMIT
    for name in ("whole", "each"):
        for line in lines(name):
            path = f"{name}/{line['image']}"
            files.remove(path)
            image = cv2.imread(path, cv2.IMREAD_GRAYSCALE)
            left, top, right, bottom = line.get("part", (0, 0, 640, 360))
            mask = np.zeros((360, 640), bool)
            mask[:180, :200] = True
            hidden = [(0, 0, 200, 180), *boxes[line["frame"]]]
            for x1, y1, x2, y2 in (map(round, box) for box in hidden):
                mask[y1:y2, x1:x2] = True
                x1 = max(x1, left) + 2
                y1 = max(y1, top) + 2
                x2 = min(x2, right) - 2
                y2 = min(y2, bottom) - 2
                if (x2 - x1) * (y2 - y1) > 400 and min(x2 - x1, y2 - y1) > 8:
                    part = image[y1 - top : y2 - top, x1 - left : x2 - left]
                    assert fine_detail(part) < 0.3 * fine_detail(clear[line["frame"]][y1:y2, x1:x2])
                    seen += 1
            mask = cv2.dilate(mask.astype(np.uint8), np.ones((25, 25)))[top:bottom, left:right] == 0
            if mask.any():
                expected = clear[line["frame"]][top:bottom, left:right]
                assert np.abs(image[mask] - expected[mask]).mean() < 8, "the rest is as it was, without a drawing"
    assert not files
    assert seen > LIMIT


@pytest.mark.parametrize("above", ["detect", "[detect, draw]"])
def test_check_refuses_collect_above_the_hiding_stage(root, above):
    text = HIDDEN.replace("path: each,", f"path: each, from: {above},")
    with pytest.raises(ConfigError, match="each would show what draw hides; write from: draw"):
        build(read_text(text, folder=root, registry=default_registry()))


REAL = """
device: cpu
sources: {{walk: {{uri: {data}/videos/vtest_480x360.mp4, fps: 1}}}}
stages:
  detect: {{model: nano.yaml}}
  second: {{stage: detect, model: atto.yaml}}
  embed: {{model: reid.yaml, of: detect.person, record: true}}
  weak: {{stage: collect, path: weak, low_score: [0.3, 0.5], of: detect.person, every: 0s, duplicates: keep}}
  differ: {{stage: collect, path: differ, disagreement: {{between: [detect, second]}}, every: 0s, duplicates: keep}}
  novel: {{stage: collect, path: novel, novelty: 0.3, every: 0s, duplicates: keep}}
  jsonl: {{path: all.jsonl}}
"""


@pytest.fixture
def real(folder, test_data, command):
    """A folder with the results of three networks on a video of people."""
    card_of("nano", test_data, folder)
    Path("atto.yaml").write_text(
        f"task: detect\nfamily: detr\nfile: {test_data}/models/deimv2_hgnetv2_atto_coco.onnx\nscore: 0.4\n"
        "labels: coco\ninput: {size: [320, 320], resize: stretch, antialias: true, scale: 1/255}\n"
    )
    Path("reid.yaml").write_text(
        f"task: embed\nfamily: embedding\nfile: {test_data}/models/person-reidentification-retail-0288.onnx\n"
        "input: {size: [128, 256], resize: stretch, color: bgr, scale: 1}\n"
    )
    Path("p.yaml").write_text(REAL.format(data=test_data))
    command("run", "p.yaml", "--limit", "8")
    return records(Path("all.jsonl"))


def iou(a, b):
    width, height = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    both = max(width, 0) * max(height, 0)
    return (
        both / sum((x[2] - x[0]) * (x[3] - x[1]) for x in (a, b))
        if not both
        else both / (sum((x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)) - both)
    )


def marked(folder):
    """By frame, the boxes for which its image was collected."""
    return {
        line["frame"]: [(o["stage"], o["box"]) for o in line["objects"] if "reasons" in o] for line in lines(folder)
    }


@pytest.mark.long
def test_real_networks_trigger_every_reason_to_collect(real):
    by_frame = {line["frame"]: line["objects"] for line in real}
    assert marked("weak") == {
        frame: marks
        for frame, objects in by_frame.items()
        if (
            marks := [
                ("detect", o["box"])
                for o in objects
                if o["stage"] == "detect" and o["label"] == "person" and 0.3 <= o["score"] <= 0.5
            ]
        )
    }
    for frame, marks in marked("differ").items():  # nobody of the other network is there, or there are more than it has
        for stage, box in marks:
            theirs = [o for o in by_frame[frame] if o["stage"] != stage and iou(o["box"], box) >= 0.5]
            same_stage = [
                o
                for o in by_frame[frame]
                if o["stage"] == stage and any(iou(o["box"], t["box"]) >= 0.5 for t in theirs)
            ]
            (marked_object,) = [o for o in by_frame[frame] if o["stage"] == stage and o["box"] == box]
            assert marked_object["score"] >= 0.5
            assert (
                not theirs or len(same_stage) > len(theirs) or any(t["label"] != marked_object["label"] for t in theirs)
            )
    for frame, objects in by_frame.items():  # and whoever is all alone is among them
        for o in objects:
            alone = not any(p["stage"] != o["stage"] and iou(p["box"], o["box"]) >= 0.5 for p in objects)
            if alone and o["score"] >= 0.5:
                assert (o["stage"], o["box"]) in marked("differ")[frame]
    assert len(marked("differ")) > 3
    seen_vectors = []
    expected = {}
    for frame, objects in by_frame.items():
        seen = [(o["box"], np.array(o["embedding"])) for o in objects if "embedding" in o]
        new = [box for box, v in seen if all(1 - v @ w > 0.3 for w in seen_vectors)]
        if new:
            expected[frame] = [("detect", box) for box in new]
            for _, v in seen:
                if all(1 - v @ w > 0.3 for w in seen_vectors):
                    seen_vectors.append(v)
    assert marked("novel") == expected
    assert 0 < len(expected) < len(by_frame), "in the end everyone is known"


SHARED = """
device: {use: cpu, processes: 2}
sources: {SOURCES}
stages:
  every: {stage: collect, path: every, random: 9000/s, duplicates: keep, at_most: 30/day}
  unlike: {stage: collect, path: unlike, random: 9000/s}
"""


@pytest.mark.long
def test_two_processes_share_the_budget_and_detect_each_others_duplicates(folder, command):
    sources = ", ".join(f'{name}: "test://?frames=20&width=160&height=120"' for name in "abcd")
    Path("p.yaml").write_text(SHARED.replace("SOURCES", sources))
    command("run", "p.yaml", "--report", "report.json")
    counts = json.loads(Path("report.json").read_text())["counts"]
    assert counts["images collected: random"] == len(lines("every")) + len(lines("unlike"))
    assert len(lines("every")) == 30
    assert counts["images over budget: random"] == 4 * 19 - 30
    assert len({line["source"] for line in lines("every")}) > 1
    hashes = [int(line["hash"], 16) for line in lines("unlike")]
    assert counts["duplicate images: random"] == 4 * 19 - len(hashes)
    for i, image_hash in enumerate(hashes[1:], 1):
        assert hash_distances(image_hash, hashes[:i]).min() > 6
    command("run", "p.yaml", "--report", "report.json")
    counts = json.loads(Path("report.json").read_text())["counts"]
    assert counts["images over budget: random"] == 4 * 19, "the budget is used up after a restart, too"
    assert counts["duplicate images: random"] == 4 * 19
