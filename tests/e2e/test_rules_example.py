"""examples/rules.yaml on the video that ships: what its rules tell follows from its records."""

import json
from pathlib import Path

import pytest
from support.example_runs import run_example

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120
MAX_GAP = 2.0


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules")
    run_example("rules.yaml", folder, "--limit", LIMIT)
    frame_records = [json.loads(line) for line in (folder / "out" / "street-rules.jsonl").read_text().splitlines()]
    assert len(frame_records) == LIMIT
    return frame_records


def rule_events(records, stage, rule=None):
    return [
        (record["frame"], event["kind"], event.get("track_id"))
        for record in records
        for event in record["events"]
        if event["stage"] == stage and event["data"].get("rule") == (rule or stage)
    ]


def pairs(events):
    return {(number, kind) for number, kind, _ in events}


def test_a_crowd_on_the_pavement_raises_a_rule(records):
    """Three or more for half a second, by what the zone counts."""
    expected = set()
    inside = 0
    since = None
    raised = False
    for record in records:
        for event in record["events"]:
            inside = event["data"]["count"] if event["kind"] in ("entered", "left") else inside
        true = inside < 2 if raised else inside >= 3
        since = (record["pts_s"] if since is None else since) if true else None
        if since is not None and record["pts_s"] - since >= 0.5:
            raised = not raised
            since = None
            expected.add((record["frame"], "raised" if raised else "cleared"))
    assert (13, "raised") in expected
    assert pairs(rule_events(records, "crowd")) == expected


def test_each_fast_car_raises_a_rule(records):
    expected = []
    raised = set()
    seen = {}
    for record in records:
        for track in [track for track, at in seen.items() if record["pts_s"] - at > MAX_GAP]:
            del seen[track]
            if track in raised:
                raised.remove(track)
                expected.append((record["frame"], "cleared", track))
        for detection in record["objects"]:
            track = detection.get("track_id")
            speed = detection.get("speed_kmh")
            if track is None:
                continue
            seen[track] = record["pts_s"]
            if speed is not None and track not in raised and detection["label"] == "car" and speed > 10:
                raised.add(track)
                expected.append((record["frame"], "raised", track))
            elif speed is not None and track in raised and speed < 8:
                raised.remove(track)
                expected.append((record["frame"], "cleared", track))
    assert len(expected) >= 5
    assert sorted(rule_events(records, "fast")) == sorted(expected)


def test_waiting_people_raise_a_rule(records):
    entered = {}
    expected = []
    for record in records:
        for event in record["events"]:
            if event["kind"] == "entered":
                entered[event["track_id"]] = event["data"]["at_s"]
            elif event["kind"] == "left":
                entered.pop(event["track_id"], None)
        here = {detection.get("track_id") for detection in record["objects"]}
        for track in [track for track, at in entered.items() if track in here and record["pts_s"] - at > 1.5]:
            expected.append((record["frame"], "raised", track))
            entered[track] = float("inf")
    assert expected
    assert sorted(rule_events(records, "others", "waiting")) == sorted(expected)
