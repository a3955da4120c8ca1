"""examples/snapshots.yaml on the video that ships: each picture is the part of the frame that its event says."""

import json
import sqlite3
from base64 import b64decode
from contextlib import closing
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from support.example_runs import run_example

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The outputs of a run."""
    run_folder = tmp_path_factory.mktemp("snapshots")
    run_example("snapshots.yaml", run_folder, "--limit", LIMIT, "--report", "report.json")
    return run_folder


@pytest.fixture(scope="module")
def records(folder):
    return [json.loads(line) for line in (folder / "out" / "street-snapshots.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def video():
    with av.open(str(ROOT / "samples" / "street.mp4")) as file:
        return [frame.to_ndarray(format="bgr24") for _, frame in zip(range(LIMIT), file.decode(video=0), strict=False)]


def events(records, kind, stage):
    return [(record, e) for record in records for e in record["events"] if (e["kind"], e["stage"]) == (kind, stage)]


def apart(picture, other):
    """How far two pictures of one size are from each other, in levels."""
    return np.abs(picture.astype(float) - other).mean()


def cut(picture, box, pad=0.1):
    x1, y1, x2, y2 = box
    px = pad * (x2 - x1)
    py = pad * (y2 - y1)
    left, top = (int(max(0, np.floor(value))) // 2 * 2 for value in (x1 - px, y1 - py))
    return picture[top : int(np.ceil(y2 + py)), left : int(np.ceil(x2 + px))]


def test_each_snapshot_shows_the_best_view_of_the_object(folder, records, video):
    saved_events = events(records, "saved", "snapshot")
    assert saved_events
    for record, event in saved_events:
        data = event["data"]
        shown = records[data["frame"]]
        (shown_object,) = [
            detection for detection in shown["objects"] if detection.get("track_id") == event["track_id"]
        ]
        assert (shown_object["box"], shown_object["label"]) == (data["box"], data["label"])
        picture = cv2.imread(str(folder / data["path"]))
        expected = cut(video[data["frame"]], data["box"])
        assert picture.shape == expected.shape
        assert apart(picture, expected) < 5
        crossed = records[data["of"]["frame"]]
        assert any((e["kind"], e["track_id"]) == ("crossed", event["track_id"]) for e in crossed["events"])
        assert record["pts_s"] - crossed["pts_s"] == pytest.approx(1.0, abs=0.05)
        assert shown["pts_s"] <= record["pts_s"]
        # nothing much larger was seen meanwhile: sharpness decides among views of about one size
        seen = [
            (detection["box"][2] - detection["box"][0]) * (detection["box"][3] - detection["box"][1])
            for other in records[: record["frame"] + 1]
            for detection in other["objects"]
            if detection.get("track_id") == event["track_id"]
        ]
        assert (shown_object["box"][2] - shown_object["box"][0]) * (
            shown_object["box"][3] - shown_object["box"][1]
        ) > 0.3 * max(seen)


def test_the_frames_of_events_are_saved_with_boxes(folder, records, video):
    crossed = {record["pts_s"]: record["frame"] for record, _ in events(records, "crossed", "crossing")}
    names = sorted(path.name for path in (folder / "out" / "frames" / "street").iterdir())
    stems = {name[: len("000000.000s")] for name in names}
    assert stems == {f"{pts_s:010.3f}s" for pts_s in crossed}
    for pts_s, index in crossed.items():
        picture = cv2.imread(str(folder / "out" / "frames" / "street" / f"{pts_s:010.3f}s.jpg"))
        assert picture.shape == (360, 640, 3)
        assert 0.5 < apart(picture, video[index]) < 30, "the frame, and something is drawn on it"
        assert apart(picture, video[index]) < apart(picture, video[index - 20])


def test_the_database_has_the_crops_of_the_objects(folder, records, video):
    with closing(sqlite3.connect(folder / "out" / "crossings.db")) as database:
        rows = [json.loads(row[0]) for row in database.execute("select record from events order by rowid")]
    assert [row["frame"] for row in rows] == [record["frame"] for record, _ in events(records, "crossed", "crossing")]
    for row in rows:
        jpeg = b64decode(row["event"]["crop"], validate=True)
        picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        shown = records[row["frame"]]["objects"]
        (box,) = [o["box"] for o in shown if o.get("track_id") == row["event"]["track_id"]]
        assert max(picture.shape) <= 128
        expected = cut(video[row["frame"]], box)
        assert apart(picture, cv2.resize(expected, picture.shape[1::-1], interpolation=cv2.INTER_AREA)) < 8


def test_written_snapshots_are_counted(folder, records):
    counts = json.loads((folder / "report.json").read_text())["counts"]
    files = len(list((folder / "out").rglob("*.jpg")))
    assert counts["snapshots written"] == files
    assert counts["crops sent"] == len(events(records, "crossed", "crossing"))
