"""The examples with tracks: they count, watch places and follow objects as the street's scene says."""

import json

import numpy as np
from support.example_runs import LIMIT, command_fixture, folder_fixture, pictures, records, run_fixture  # noqa: F401  a fixture
from support.walks import crossings, feet


def test_the_example_line_counter_counts_crossings(folder, run):
    run("examples/line_counter.yaml", folder, "--limit", "60")
    frame_records = records(folder / "out" / "street-lines.jsonl")
    assert len(frame_records) == 60
    tracks = [[detection["track_id"] for detection in record["objects"]] for record in frame_records]
    assert all(len(set(ids)) == len(ids) for ids in tracks)
    assert len({i for ids in tracks for i in ids}) < 80  # tracks last
    expected = []
    for track, places in places_of(frame_records).items():
        times = [record["pts_s"] for record in frame_records]
        for frame, way in crossings([(320, 60), (320, 360)], places, times, margin=3.6):
            expected.append((frame, track, "in" if way > 0 else "out"))
    events = [(r["frame"], e["track_id"], e["data"]["direction"]) for r in frame_records for e in r["events"]]
    assert events
    assert sorted(events) == sorted(expected)
    assert len(pictures(folder / "out" / "street-lines.mp4")[0]) == 60


def places_of(frame_records, label=None):
    """The foot points of each track by frame, None where it is not seen."""
    tracks: dict[int, list] = {}
    for i, record in enumerate(frame_records):
        for detection in record["objects"]:
            if label in (None, detection["label"]):
                tracks.setdefault(detection["track_id"], [None] * len(frame_records))[i] = detection["box"]
    return {track: feet(boxes) for track, boxes in tracks.items()}


def events_of(frame_records, *kinds):
    return [(record, event) for record in frame_records for event in record["events"] if event["kind"] in kinds]


def test_the_example_count_people_counts_people(folder, run):
    run("examples/count_people.yaml", folder, "--limit", "400")
    frame_records = records(folder / "out" / "street-people.jsonl")
    crossed = [event["data"] for _, event in events_of(frame_records, "crossed")]
    assert {event["label"] for event in crossed} == {"person"}
    counted = [event["data"] for _, event in events_of(frame_records, "counted")]
    assert [(window["from_s"], window["to_s"]) for window in counted] == [(0, 5), (5, 10), (10, 15)]
    late = [data["at_s"] >= 15 for data in crossed]
    for way in ("in", "out"):
        total = sum(data["direction"] == way for data in crossed)
        assert sum(window[way] for window in counted) == total - sum(
            data["direction"] == way for data, last in zip(crossed, late, strict=True) if last
        )
        counts = json.loads((folder / "report.json").read_text())["counts"]
        assert counts.get(f"door {way}: person", 0) == total
    assert {data["direction"] for data in crossed} == {"in", "out"}  # people cross the street both ways


def test_the_example_cars_counts_lines_with_color_and_heading(folder, run):
    run("examples/cars.yaml", folder, "--limit", "120")
    frame_records = records(folder / "out" / "street-cars.jsonl")
    crossed = [event["data"] for _, event in events_of(frame_records, "crossed")]
    assert {data["line"] for data in crossed} == {"near lane", "far road"}
    assert any(data.get("attributes", {}).get("color") for data in crossed)
    headings = [detection.get("heading_deg") for record in frame_records for detection in record["objects"]]
    valid_headings = [heading for heading in headings if heading is not None]
    assert len(valid_headings) > len(headings) / 3
    level = [min(abs(heading - side) for side in (90, 270)) < 25 for heading in valid_headings]
    assert np.mean(level) > 0.9  # cars go to the left and to the right


def test_the_example_queue_reports_occupancy_and_overcrowding(folder, run):
    run("examples/queue.yaml", folder, "--limit", "120")
    frame_records = records(folder / "out" / "street-queue.jsonl")
    windows = [event["data"] for _, event in events_of(frame_records, "occupancy")]
    assert [(window["from_s"], window["to_s"]) for window in windows] == [(0, 2), (2, 4)]
    assert all(0 <= window["mean"] <= window["max"] for window in windows)
    count = 0
    for _, event in events_of(frame_records, "entered", "left", "overcrowded", "cleared"):
        count += {"entered": 1, "left": -1}.get(event["kind"], 0)
        assert event["data"]["count"] == count or event["kind"] in ("overcrowded", "cleared")


def test_the_example_loitering_reports_long_stays(folder, run):
    run("examples/loitering.yaml", folder, "--limit", "200")
    frame_records = records(folder / "out" / "street-loitering.jsonl")
    loitering_events = events_of(frame_records, "loitering")
    assert loitering_events
    entered = {}
    for record in frame_records:
        for event in record["events"]:
            key = event["track_id"], event["data"]["zone"]
            if event["kind"] == "entered":
                entered[key] = event["data"]["at_s"]
            elif event["kind"] == "loitering":
                assert 3 <= record["pts_s"] - entered[key] < 3.2
    import cv2

    assert cv2.imread(str(folder / "out" / "street-heat.png")).shape == (360, 640, 3)


def test_tracks_continue_on_frames_skipped_by_the_detector(folder, run):
    run("examples/track_every_third.yaml", folder)
    frame_records = records(folder / "out" / "street-tracks.jsonl")
    assert len(frame_records) == LIMIT
    for record in frame_records:
        assert {o.get("predicted", False) for o in record["objects"]} == {record["frame"] % 3 != 0}
    first, last = (
        {o["track_id"] for o in record["objects"] if "track_id" in o}
        for record in (frame_records[0], frame_records[-1])
    )
    assert len(first & last) >= 8
    report = json.loads((folder / "report.json").read_text())
    assert report["counts"]["frames skipped: every"] == LIMIT - len(range(0, LIMIT, 3))
    assert (folder / "out" / "street-tracks.mp4").exists()


def test_the_example_identify_links_tracks(folder, run):
    run("examples/identify.yaml", folder, "--limit", "30")
    by_camera = {camera: records(folder / "out" / f"{camera}-identities.jsonl") for camera in ("north", "south")}
    ids = {
        camera: {item["identity"] for record in camera_records for item in record["objects"] if "identity" in item}
        for camera, camera_records in by_camera.items()
    }
    assert len(ids["north"] & ids["south"]) >= 2
    seen_events = [event for camera_records in by_camera.values() for _, event in events_of(camera_records, "seen")]
    assert seen_events
    assert {event["data"]["label"] for event in seen_events} <= {"person", "car"}
    raised = [
        event["data"] for camera_records in by_camera.values() for _, event in events_of(camera_records, "raised")
    ]
    assert raised, "a rule about an identity"
    assert len(pictures(folder / "out" / "south-identities.mp4")[0]) == 30
