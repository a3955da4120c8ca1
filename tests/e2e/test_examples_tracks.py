"""The examples with tracks: they count, watch places and follow objects as the street's scene says."""

import json

import numpy as np
from support.example_runs import LIMIT, folder_fixture, pictures, records, run  # noqa: F401  a fixture
from support.walks import crossings, feet


def test_line_counter(folder):
    run("examples/line_counter.yaml", folder, "--limit", "60")
    found = records(folder / "out" / "street-lines.jsonl")
    assert len(found) == 60
    tracks = [[one["track_id"] for one in record["objects"]] for record in found]
    assert all(len(set(ids)) == len(ids) for ids in tracks)
    assert len({i for ids in tracks for i in ids}) < 80  # tracks last
    expected = []
    for track, places in places_of(found).items():
        times = [record["pts_s"] for record in found]
        for frame, way in crossings([(320, 60), (320, 360)], places, times, margin=3.6):
            expected.append((frame, track, "in" if way > 0 else "out"))
    events = [(r["frame"], e["track_id"], e["data"]["direction"]) for r in found for e in r["events"]]
    assert events
    assert sorted(events) == sorted(expected)
    assert len(pictures(folder / "out" / "street-lines.mp4")[0]) == 60


def places_of(found, label=None):
    """The foot points of each track by frame, None where it is not seen."""
    tracks: dict[int, list] = {}
    for i, record in enumerate(found):
        for one in record["objects"]:
            if label in (None, one["label"]):
                tracks.setdefault(one["track_id"], [None] * len(found))[i] = one["box"]
    return {track: feet(boxes) for track, boxes in tracks.items()}


def events_of(found, *kinds):
    return [(record, event) for record in found for event in record["events"] if event["kind"] in kinds]


def test_count_people(folder):
    run("examples/count_people.yaml", folder, "--limit", "400")
    found = records(folder / "out" / "street-people.jsonl")
    crossed = [event["data"] for _, event in events_of(found, "crossed")]
    assert {event["label"] for event in crossed} == {"person"}
    counted = [event["data"] for _, event in events_of(found, "counted")]
    assert [(one["from_s"], one["to_s"]) for one in counted] == [(0, 5), (5, 10), (10, 15)]
    late = [data["at_s"] >= 15 for data in crossed]
    for way in ("in", "out"):
        total = sum(data["direction"] == way for data in crossed)
        assert sum(one[way] for one in counted) == total - sum(
            data["direction"] == way for data, last in zip(crossed, late, strict=True) if last
        )
        counts = json.loads((folder / "report.json").read_text())["counts"]
        assert counts.get(f"door {way}: person", 0) == total
    assert {data["direction"] for data in crossed} == {"in", "out"}  # people cross the street both ways


def test_cars(folder):
    run("examples/cars.yaml", folder, "--limit", "120")
    found = records(folder / "out" / "street-cars.jsonl")
    crossed = [event["data"] for _, event in events_of(found, "crossed")]
    assert {data["line"] for data in crossed} == {"near lane", "far road"}
    assert any(data.get("attributes", {}).get("color") for data in crossed)
    headings = [one.get("heading_deg") for record in found for one in record["objects"]]
    known = [heading for heading in headings if heading is not None]
    assert len(known) > len(headings) / 3
    level = [min(abs(heading - side) for side in (90, 270)) < 25 for heading in known]
    assert np.mean(level) > 0.9  # cars go to the left and to the right


def test_queue(folder):
    run("examples/queue.yaml", folder, "--limit", "120")
    found = records(folder / "out" / "street-queue.jsonl")
    windows = [event["data"] for _, event in events_of(found, "occupancy")]
    assert [(one["from_s"], one["to_s"]) for one in windows] == [(0, 2), (2, 4)]
    assert all(0 <= one["mean"] <= one["max"] for one in windows)
    count = 0
    for _, event in events_of(found, "entered", "left", "overcrowded", "cleared"):
        count += {"entered": 1, "left": -1}.get(event["kind"], 0)
        assert event["data"]["count"] == count or event["kind"] in ("overcrowded", "cleared")


def test_loitering(folder):
    run("examples/loitering.yaml", folder, "--limit", "200")
    found = records(folder / "out" / "street-loitering.jsonl")
    told = events_of(found, "loitering")
    assert told
    entered = {}
    for record in found:
        for event in record["events"]:
            key = event["track_id"], event["data"]["zone"]
            if event["kind"] == "entered":
                entered[key] = event["data"]["at_s"]
            elif event["kind"] == "loitering":
                assert 3 <= record["pts_s"] - entered[key] < 3.2
    import cv2

    assert cv2.imread(str(folder / "out" / "street-heat.png")).shape == (360, 640, 3)


def test_tracks_go_on_between_the_frames_that_the_network_sees(folder):
    run("examples/track_every_third.yaml", folder)
    found = records(folder / "out" / "street-tracks.jsonl")
    assert len(found) == LIMIT
    for record in found:
        assert {o.get("predicted", False) for o in record["objects"]} == {record["frame"] % 3 != 0}
    first, last = ({o["track_id"] for o in record["objects"] if "track_id" in o} for record in (found[0], found[-1]))
    assert len(first & last) >= 8
    report = json.loads((folder / "report.json").read_text())
    assert report["counts"]["frames skipped: every"] == LIMIT - len(range(0, LIMIT, 3))
    assert (folder / "out" / "street-tracks.mp4").exists()


def test_identify(folder):
    run("examples/identify.yaml", folder, "--limit", "30")
    by_camera = {one: records(folder / "out" / f"{one}-identities.jsonl") for one in ("north", "south")}
    ids = {
        one: {item["identity"] for record in found for item in record["objects"] if "identity" in item}
        for one, found in by_camera.items()
    }
    assert len(ids["north"] & ids["south"]) >= 2
    told = [event for found in by_camera.values() for _, event in events_of(found, "seen")]
    assert told
    assert {event["data"]["label"] for event in told} <= {"person", "car"}
    raised = [event["data"] for found in by_camera.values() for _, event in events_of(found, "raised")]
    assert raised, "a rule about an identity"
    assert len(pictures(folder / "out" / "south-identities.mp4")[0]) == 30
