"""Every example, and the pipeline that ships: passes `check`, runs on what ships, and does what it says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = [ROOT / "pipeline.yaml", *sorted((ROOT / "examples").glob("*.yaml"))]
LIMIT = 20


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder in which `samples/` is where it is in the checkout, and outputs are the test's own."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*args, expect=0):
    done = subprocess.run(
        [sys.executable, ROOT / "run.py", *map(str, args)], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == expect, done.stderr
    return done


def run(name, folder, *more):
    path = ROOT / name
    return command("run", path, "--device", "cpu", "--limit", LIMIT, "--report", folder / "report.json", *more)


def records(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def pictures(path):
    """The luma of every picture, (n, 360, 640) float32, and their times in seconds."""
    import av

    with av.open(str(path)) as file:
        found = [(frame.to_ndarray(format="gray"), frame.time) for frame in file.decode(video=0)]
    return np.array([luma for luma, _ in found], np.float32), [time for _, time in found]


def street(n=LIMIT):
    luma, times = [], []
    import av

    with av.open(str(ROOT / "samples" / "street.mp4")) as file:
        for frame in file.decode(video=0):
            luma.append(frame.to_ndarray(format="gray"))
            times.append(frame.time)
            if len(luma) == n:
                break
    return np.array(luma, np.float32), times


def hits(found, n=LIMIT):
    """The share of the cars of the ground truth, fully in sight and not small, that were found."""
    truth = records(ROOT / "samples" / "street.truth.jsonl")[:n]
    wanted = got = 0
    for true, record in zip(truth, found, strict=True):
        for car in true["objects"]:
            x1, _, x2, _ = car["box"]
            if car["label"] == "car" and car["visible"] > 0.9 and x2 - x1 > 30:
                wanted += 1
                got += any(o["label"] == "car" and iou(o["box"], car["box"]) > 0.5 for o in record["objects"])
    assert wanted > 10
    return got / wanted


def iou(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0, width) * max(0, height)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def test_there_is_an_example_for_each_idea():
    assert {path.stem for path in EXAMPLES} == {
        "pipeline", "detect", "annotated_video", "several_sources", "branches", "plugin", "line_counter",
        "csv", "insert",
    }  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_passes_check_without_a_warning(path, monkeypatch):
    from streamkit.config import read
    from streamkit.graph import build

    monkeypatch.chdir(ROOT)
    config = read(path)
    assert config.problems == []
    assert config.warnings == []
    assert build(config).ends


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_begins_with_words_for_who_reads_it(path):
    text = path.read_text()
    assert text.startswith("# ")
    assert len(text.splitlines()) <= 60


def test_check_as_a_command(monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("check", "pipeline.yaml")
    assert done.stdout == "pipeline.yaml: ok, 1 source, 6 stages (4 on the device)\n"


def test_the_pipeline_that_ships(folder):
    run("pipeline.yaml", folder)
    assert sorted(os.listdir("out")) == ["street.jsonl", "street.mp4"]
    found = records(folder / "out" / "street.jsonl")
    assert [record["frame"] for record in found] == list(range(LIMIT))
    assert {(record["schema"], record["source"], record["width"], record["height"]) for record in found} == {
        ("streamkit/1", "street", 640, 360)
    }
    assert hits(found) > 0.9
    drawn, times = pictures(folder / "out" / "street.mp4")
    source, source_times = street()
    assert times == pytest.approx(source_times, abs=1e-4)
    # Where a car was found there is a frame around it, and where nothing was found the picture is the source's.
    changed = np.abs(drawn - source) > 60
    boxes = np.zeros_like(changed)
    for mask, record in zip(boxes, found, strict=True):
        for one in record["objects"]:
            x1, y1, x2, y2 = map(round, one["box"])
            mask[max(0, y1 - 24) : y2 + 6, max(0, x1 - 6) : max(x2 + 6, x1 + 90)] = True
    assert changed[boxes].mean() > 0.02
    assert changed[~boxes].mean() < 0.001
    report = json.loads((folder / "report.json").read_text())
    assert report["frames"] == LIMIT
    assert report["exit_code"] == 0
    assert report["detections"] == {"detect": sum(len(record["objects"]) for record in found)}


def test_detect_prints_records_and_nothing_else(folder):
    done = run("examples/detect.yaml", folder)
    found = [json.loads(text) for text in done.stdout.splitlines()]
    assert [record["frame"] for record in found] == list(range(LIMIT))
    assert min(one["score"] for record in found for one in record["objects"]) >= 0.5
    assert hits(found) > 0.9
    assert "20 frames" in done.stderr
    assert not (folder / "out").exists()


def test_set_replaces_a_value(folder):
    done = run("examples/detect.yaml", folder, "--set", "stages.detect.min_score=0.9")
    scores = [one["score"] for text in done.stdout.splitlines() for one in json.loads(text)["objects"]]
    assert scores
    assert min(scores) >= 0.9


def test_annotated_video(folder):
    run("examples/annotated_video.yaml", folder)
    drawn, times = pictures(folder / "out" / "street-annotated.mp4")
    source, source_times = street()
    assert times == pytest.approx(source_times, abs=1e-4)
    assert (np.abs(drawn - source) > 60).mean() > 0.005
    assert os.listdir("out") == ["street-annotated.mp4"]


def test_several_sources(folder):
    run("examples/several_sources.yaml", folder)
    assert sorted(os.listdir("out")) == ["all.jsonl", "pattern.jsonl", "street.jsonl", "thinned.jsonl"]
    by_source = {name: records(folder / "out" / f"{name}.jsonl") for name in ("street", "thinned", "pattern")}
    assert [r["frame"] for r in by_source["street"]] == list(range(LIMIT))
    assert [r["frame"] for r in by_source["thinned"]] == list(range(0, LIMIT * 5, 5))
    assert [r["frame"] for r in by_source["pattern"]] == list(range(LIMIT))
    assert {(r["width"], r["height"]) for r in by_source["pattern"]} == {(320, 240)}
    # The same picture has the same objects, whichever source and batch it came in.
    assert by_source["thinned"][2]["objects"] == by_source["street"][10]["objects"]
    together = records(folder / "out" / "all.jsonl")
    for name, found in by_source.items():
        assert [r for r in together if r["source"] == name] == found


def test_branches(folder):
    run("examples/branches.yaml", folder)
    assert sorted(os.listdir("out")) == ["street-all.jsonl", "street-cars.mp4", "street-clean.mp4"]
    found = records(folder / "out" / "street-all.jsonl")
    assert len(found) == LIMIT
    assert {(one["stage"], one["label"]) for record in found for one in record["objects"]} == {
        ("cars", "car"), ("cars", "bike"), ("walkers", "person"),
    }  # fmt: skip
    assert hits(found) > 0.9
    source, _ = street()
    drawn, _ = pictures(folder / "out" / "street-cars.mp4")
    clean, _ = pictures(folder / "out" / "street-clean.mp4")
    assert (np.abs(drawn - source) > 60).mean() > 0.005
    assert (np.abs(clean - source) > 60).mean() < 1e-4  # what one branch draws is not seen in another


def test_plugin(folder):
    run("examples/plugin.yaml", folder)
    found = records(folder / "out" / "street-busy.jsonl")
    events = [(record["frame"], event) for record in found for event in record["events"]]
    assert events
    assert {event["stage"] for _, event in events} == {"busy"}
    for frame, event in events:
        people = sum(one["label"] == "person" for one in found[frame]["objects"])
        assert event["data"]["count"] == people
        assert (people > 6) == (event["kind"] == "crowded")
    assert json.loads((folder / "report.json").read_text())["events"]["crowded"] >= 1


@pytest.mark.parametrize("name", ["plugin", "line_counter"])
def test_the_tests_in_an_example_pass(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("test", f"examples/{name}.yaml")
    assert done.stdout.splitlines()[-1] == "2 of 2 tests passed"


def test_a_pipeline_without_tests_says_so(monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("test", "pipeline.yaml", expect=2)
    assert "pipeline.yaml has no tests" in done.stderr


def test_line_counter(folder):
    run("examples/line_counter.yaml", folder, "--limit", "60")
    found = records(folder / "out" / "street-lines.jsonl")
    assert len(found) == 60
    tracks = [[one["track_id"] for one in record["objects"]] for record in found]
    assert all(len(set(ids)) == len(ids) for ids in tracks)
    assert len({i for ids in tracks for i in ids}) < 80  # tracks last
    feet: dict[int, float] = {}
    crossed = []
    for record in found:
        for one in record["objects"]:
            x = (one["box"][0] + one["box"][2]) / 2
            before = feet.get(one["track_id"], x)
            if (before < 320) != (x < 320) and one["box"][3] > 62:
                crossed.append((record["frame"], one["track_id"], "in" if x < 320 else "out"))
            feet[one["track_id"]] = x
    events = [(r["frame"], e["track_id"], e["data"]["direction"]) for r in found for e in r["events"]]
    assert events
    assert sorted(events) == sorted(crossed)
    assert len(pictures(folder / "out" / "street-lines.mp4")[0]) == 60


def test_csv(folder):
    import csv

    run("examples/csv.yaml", folder)
    rows = list(csv.DictReader((folder / "out" / "street.csv").read_text().splitlines()))
    times = [float(row["pts_s"]) for row in rows]
    assert sorted(set(times)) == pytest.approx([i / 5 for i in range(LIMIT)], abs=0.03)
    for row in rows:
        if row["label"]:
            width, height = float(row["x2"]) - float(row["x1"]), float(row["y2"]) - float(row["y1"])
            assert min(width, height) >= 7.9
            assert float(row["score"]) >= (0.5 if row["label"] == "person" else 0.35)
    assert {"car", "person"} <= {row["label"] for row in rows}


def test_insert(folder):
    run("examples/insert.yaml", folder)
    found = records(folder / "out" / "street-hidden.jsonl")
    assert hits(found) < 0.95
    boxes = [one["box"] for record in found for one in record["objects"]]
    assert boxes
    assert min(box[3] for box in boxes) > 120  # nothing lies wholly in the part that is painted over
    run("pipeline.yaml", folder)
    plain = [one["box"] for record in records(folder / "out" / "street.jsonl") for one in record["objects"]]
    assert sum(box[3] <= 110 for box in plain) > LIMIT
