"""Every example, and the pipeline that ships: passes `check`, runs on what ships, and does what it says."""

import json
import os

import numpy as np
import pytest
from support.example_runs import (  # noqa: F401  a fixture
    LIMIT,
    ROOT,
    command_fixture,
    command_in_subprocess,
    folder_fixture,
    hits,
    iou,
    pictures,
    records,
    run_fixture,
    run_words,
    street,
)

EXAMPLES = [ROOT / "pipeline.yaml", *sorted((ROOT / "examples").glob("*.yaml"))]


def test_every_use_case_has_an_example():
    assert {path.stem for path in EXAMPLES} == {
        "pipeline",
        "detect",
        "annotated_video",
        "several_sources",
        "branches",
        "plugin",
        "line_counter",
        "csv",
        "insert",
        "actions",
        "colors",
        "small_objects",
        "region",
        "count_people",
        "cars",
        "queue",
        "loitering",
        "blurred",
        "shown",
        "track_every_third",
        "boxes_from_file",
        "snapshots",
        "kafka_avro",
        "alarm_mail",
        "rules",
        "home_assistant",
        "postgres_grafana",
        "collect",
        "ask",
        "read_plates",
        "identify",
        "open_vocabulary",
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_pass_check_without_a_warning(path, monkeypatch):
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read

    monkeypatch.chdir(ROOT)
    config = read(path)
    assert config.problems == []
    assert config.warnings == []
    assert build(config).ends


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_begin_with_a_description(path):
    text = path.read_text()
    assert text.startswith("# ")
    assert len(text.partition("\ntests:\n")[0].splitlines()) <= 60


def test_the_command_check_accepts_an_example(monkeypatch, command):
    monkeypatch.chdir(ROOT)
    completed = command("check", "pipeline.yaml")
    assert completed.stdout == "pipeline.yaml: ok, 1 source, 4 stages (2 on the device)\n"


def test_the_included_pipeline_runs(folder):
    command_in_subprocess(*run_words("pipeline.yaml", folder))
    assert sorted(os.listdir("out")) == ["street.jsonl", "street.mp4"]
    frame_records = records(folder / "out" / "street.jsonl")
    assert [record["frame"] for record in frame_records] == list(range(LIMIT))
    assert {(record["schema"], record["source"], record["width"], record["height"]) for record in frame_records} == {
        ("streamkit/1", "street", 640, 360)
    }
    assert hits(frame_records) > 0.9
    drawn, times = pictures(folder / "out" / "street.mp4")
    source, source_times = street()
    assert times == pytest.approx(source_times, abs=1e-4)
    # Where a car was found there is a frame around it, and where nothing was found the picture is the source's.
    changed = np.abs(drawn - source) > 60
    boxes = np.zeros_like(changed)
    for mask, record in zip(boxes, frame_records, strict=True):
        for detection in record["objects"]:
            x1, y1, x2, y2 = map(round, detection["box"])
            # a label stands above its box, or beside it where another is in the way
            mask[max(0, y1 - 24) : y2 + 24, max(0, x1 - 90) : max(x2 + 6, x1 + 90)] = True
    assert changed[boxes].mean() > 0.02
    assert changed[~boxes].mean() < 0.001
    report = json.loads((folder / "report.json").read_text())
    assert report["frames"] == LIMIT
    assert report["exit_code"] == 0
    assert report["detections"] == {"detect": sum(len(record["objects"]) for record in frame_records)}


def test_detect_prints_only_records(folder, run):
    completed = run("examples/detect.yaml", folder)
    frame_records = [json.loads(text) for text in completed.stdout.splitlines()]
    assert [record["frame"] for record in frame_records] == list(range(LIMIT))
    assert min(detection["score"] for record in frame_records for detection in record["objects"]) >= 0.5
    assert hits(frame_records) > 0.9
    assert "20 frames" in completed.stderr
    assert not (folder / "out").exists()


def test_set_replaces_a_value(folder, run):
    completed = run("examples/detect.yaml", folder, "--set", "stages.detect.min_score=0.9")
    scores = [detection["score"] for text in completed.stdout.splitlines() for detection in json.loads(text)["objects"]]
    assert scores
    assert min(scores) >= 0.9


def test_the_example_annotated_video_writes_a_video(folder, run):
    run("examples/annotated_video.yaml", folder)
    drawn, times = pictures(folder / "out" / "street-annotated.mp4")
    source, source_times = street()
    assert times == pytest.approx(source_times, abs=1e-4)
    assert (np.abs(drawn - source) > 60).mean() > 0.005
    assert os.listdir("out") == ["street-annotated.mp4"]


def test_the_example_several_sources_writes_a_file_each(folder, run):
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
    for name, source_records in by_source.items():
        assert [r for r in together if r["source"] == name] == source_records


def test_the_example_branches_detects_cars_and_walkers_on_two_branches(folder, run):
    run("examples/branches.yaml", folder)
    assert sorted(os.listdir("out")) == ["street-all.jsonl", "street-cars.mp4", "street-clean.mp4"]
    frame_records = records(folder / "out" / "street-all.jsonl")
    assert len(frame_records) == LIMIT
    assert {(entry["stage"], entry["label"]) for record in frame_records for entry in record["objects"]} == {
        ("cars", "car"),
        ("cars", "bike"),
        ("walkers", "person"),
    }
    assert hits(frame_records) > 0.9
    source, _ = street()
    drawn, _ = pictures(folder / "out" / "street-cars.mp4")
    clean, _ = pictures(folder / "out" / "street-clean.mp4")
    assert (np.abs(drawn - source) > 60).mean() > 0.005
    assert (np.abs(clean - source) > 60).mean() < 1e-4  # what one branch draws is not seen in another


def test_the_example_plugin_emits_crowded_above_its_limit(folder, run):
    run("examples/plugin.yaml", folder)
    frame_records = records(folder / "out" / "street-busy.jsonl")
    events = [(record["frame"], event) for record in frame_records for event in record["events"]]
    assert events
    assert {event["stage"] for _, event in events} == {"busy"}
    for frame, event in events:
        people = sum(detection["label"] == "person" for detection in frame_records[frame]["objects"])
        assert event["data"]["count"] == people
        assert (people > 6) == (event["kind"] == "crowded")
    assert json.loads((folder / "report.json").read_text())["events"]["crowded"] >= 1


TESTED = {"plugin": 2, "line_counter": 2, "count_people": 1, "cars": 1, "queue": 1, "loitering": 1, "rules": 3}


@pytest.mark.parametrize(("name", "tests"), TESTED.items())
def test_tests_in_examples_pass(name, tests, monkeypatch, command):
    monkeypatch.chdir(ROOT)
    completed = command("test", f"examples/{name}.yaml")
    assert completed.stdout.splitlines()[-1] == f"{tests} of {tests} tests passed"


def test_a_pipeline_without_tests_is_reported(monkeypatch, command):
    monkeypatch.chdir(ROOT)
    completed = command("test", "pipeline.yaml", expect=2)
    assert "pipeline.yaml has no tests" in completed.stderr


def test_the_example_csv_writes_rows(folder, run):
    import csv

    run("examples/csv.yaml", folder)
    rows = list(csv.DictReader((folder / "out" / "street.csv").read_text().splitlines()))
    times = [float(row["pts_s"]) for row in rows]
    assert sorted(set(times)) == pytest.approx([i / 5 for i in range(LIMIT)], abs=0.03)
    for row in rows:
        if row["label"]:
            width = float(row["x2"]) - float(row["x1"])
            height = float(row["y2"]) - float(row["y1"])
            assert min(width, height) >= 7.9
            assert float(row["score"]) >= (0.5 if row["label"] == "person" else 0.35)
    assert {"car", "person"} <= {row["label"] for row in rows}


def test_the_example_insert_hides_the_covered_part_from_the_detector(folder, run):
    run("examples/insert.yaml", folder)
    frame_records = records(folder / "out" / "street-hidden.jsonl")
    assert hits(frame_records) < 0.95
    boxes = [detection["box"] for record in frame_records for detection in record["objects"]]
    assert boxes
    assert min(box[3] for box in boxes) > 120  # nothing lies wholly in the part that is painted over
    run("pipeline.yaml", folder)
    plain = [detection["box"] for record in records(folder / "out" / "street.jsonl") for detection in record["objects"]]
    assert sum(box[3] <= 110 for box in plain) > LIMIT


def test_the_example_actions_tells_which_cars_move(folder, run):
    run("examples/actions.yaml", folder, "--limit", 60)
    rows = records(folder / "out" / "street-actions.jsonl")
    cars = [item for row in rows for item in row["objects"] if item["label"] == "car"]
    actions = [car["attributes"]["action"] for car in cars if "attributes" in car]
    assert len(actions) > 20
    assert {action["label"] for action in actions} <= {"still", "moves"}
    assert not any("attributes" in item for row in rows for item in row["objects"] if item["label"] != "car")
    started = [event for row in rows for event in row["events"] if event["kind"] == "started"]
    assert started
    assert {event["data"]["label"] for event in started} == {"car"}
    assert json.loads((folder / "report.json").read_text())["counts"]["clips inferred"] >= len(started)


def test_the_example_colors_gives_cars_a_color(folder, run):
    run("examples/colors.yaml", folder)
    frame_records = records(folder / "out" / "street-colors.jsonl")
    cars = [detection for record in frame_records for detection in record["objects"] if detection["label"] == "car"]
    colors = [car["attributes"]["color"] for car in cars if "attributes" in car]
    assert len(colors) > len(cars) / 2
    from streamkit.models.card import find_card, load_card

    assert {color["label"] for color in colors} <= set(load_card(find_card("color")).labels)
    assert min(color["score"] for color in colors) >= 0.3
    assert not any(
        "attributes" in detection
        for record in frame_records
        for detection in record["objects"]
        if detection["label"] != "car"
    )
    # Below 20 pixels there is no answer, and the report says how many that were.
    small = [car for car in cars if min(np.diff(np.reshape(car["box"], (2, 2)), axis=0)[0]) < 19.9]
    assert not any("attributes" in car for car in small)
    counts = json.loads((folder / "report.json").read_text())["counts"]
    assert counts["objects inferred"] + counts.get("objects skipped: too small", 0) == len(cars)
    assert len(pictures(folder / "out" / "street-colors.mp4")[0]) == LIMIT


def test_the_example_small_objects_detects_smaller_objects_in_tiles(folder, run):
    run("examples/small_objects.yaml", folder)
    tiled = records(folder / "out" / "street-small.jsonl")
    assert hits(tiled) == 1
    assert len(pictures(folder / "out" / "street-small.mp4")[0]) == LIMIT
    counts = json.loads((folder / "report.json").read_text())["counts"]
    assert counts["regions inferred"] == 5 * LIMIT
    run("examples/small_objects.yaml", folder, "--set", "stages.detect.tiles.size=[640, 360]")
    whole = records(folder / "out" / "street-small.jsonl")
    assert small(tiled) > small(whole)


def small(frame_records, n=LIMIT):
    """How many objects of the ground truth that are well in sight and under 20 pixels were found."""
    truth = records(ROOT / "samples" / "street.truth.jsonl")[:n]
    hit = 0
    for true, record in zip(truth, frame_records, strict=True):
        for detection in true["objects"]:
            x1, y1, x2, y2 = detection["box"]
            if detection["visible"] > 0.9 and (x2 - x1) * (y2 - y1) < 400:
                hit += any(iou(o["box"], detection["box"]) > 0.5 for o in record["objects"])
    return hit


def test_the_example_region_reports_objects_of_its_region_only(folder, run):
    run("examples/region.yaml", folder)
    feet = [
        detection["box"][3]
        for record in records(folder / "out" / "street-region.jsonl")
        for detection in record["objects"]
    ]
    assert len(feet) > LIMIT
    assert min(feet) >= 0.45 * 360
    assert max(feet) <= 0.8 * 360
    assert json.loads((folder / "report.json").read_text())["counts"]["regions inferred"] == LIMIT


def test_the_example_blurred_hides_objects(folder, run):
    run("examples/blurred.yaml", folder, "--set", "stages.draw.only=[nothing]")
    run("examples/detect.yaml", folder, "--set", "stages.jsonl.path=out/found.jsonl")
    frame_records = records(folder / "out" / "found.jsonl")
    blurred, _ = pictures(folder / "out" / "street-blurred.mp4")
    source, _ = street()

    def detail(picture, x1, y1, x2, y2):
        part = picture[y1:y2, x1:x2]
        return np.abs(np.diff(part, axis=0)).mean() + np.abs(np.diff(part, axis=1)).mean()

    shares = []
    for before, after, record in zip(source, blurred, frame_records, strict=True):
        for detection in record["objects"]:
            box = [round(value) for value in detection["box"]]
            if detection["label"] == "person" and box[3] - box[1] > 30:
                shares.append(detail(after, *box) / detail(before, *box))
    assert len(shares) > LIMIT
    assert np.median(shares) < 0.25
    assert max(shares) < 0.6
    assert detail(blurred[5], 0, 0, 204, 92) < 0.4 * detail(source[5], 0, 0, 204, 92)
    assert detail(blurred[5], 220, 0, 640, 90) > 0.8 * detail(source[5], 220, 0, 640, 90)
