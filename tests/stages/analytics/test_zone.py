"""The stage in a pipeline; tests/analytics has the rules."""

import pytest

from streamkit.stages.analytics.zone import Zone
from streamkit.testing.kit import detections, frames, run_stage


def test_a_pipeline_reports_the_events_of_a_zone(run_pipeline):
    outcome = run_pipeline(
        """
plugins: [plugins]
sources: {street: samples/street.mp4}
stages:
  detect: {model: demo}
  track: {stage: simple_track}
  zone:
    polygon: {all: [[0, 0], [1, 0], [1, 1], [0, 1]], left: [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}
    units: share
    labels: [car]
    more_than: 1
    loitering: 1s
  collect: {}
""",
        limit=60,
    )
    assert outcome.code == 0
    count = {"all": 0, "left": 0}
    kinds = set()
    for record in outcome.records["street"]:
        for event in record["events"]:
            kinds.add(event["kind"])
            count[event["data"]["zone"]] = event["data"]["count"]
        assert count["all"] >= count["left"] >= 0
    assert {"entered", "loitering", "overcrowded"} <= kinds
    counters = outcome.report["counts"]
    entered = counters["zone all entered: car"]
    left = counters.get("zone all left: car", 0)
    assert counters["zone all inside at the end"] == entered - left == count["all"]


def test_a_zone_outside_the_image_is_reported_once(run_pipeline):
    outcome = run_pipeline(
        """
sources: {street: samples/street.mp4, small: "test://?width=320&height=240&frames=12"}
stages:
  detect: {model: demo}
  track: {stage: track}
  zone: {polygon: {near: [[400, 10], [500, 10], [500, 90]], far: [[5000, 10], [5100, 10], [5100, 90]]}}
  line: {stage: line_counter, line: [[1.2, 0], [1.2, 1]], units: share}
  draw: {pixelate: {zone: [[700, 10], [800, 10], [800, 90]]}}
  collect: {}
""",
        limit=24,
    )
    assert outcome.code == 0
    warnings = [
        f"{what} is outside of the frame, {picture}: no object can be in it"
        for what, pictures in (
            ("zone.polygon.near", ["320x240 of small"]),
            ("zone.polygon.far", ["320x240 of small", "640x360 of street"]),
            ("line.line", ["320x240 of small", "640x360 of street"]),
            ("draw.pixelate.zone", ["320x240 of small", "640x360 of street"]),
        )
        for picture in pictures
    ]
    assert sorted(text for text in outcome.logged if "outside" in text) == sorted(warnings)


def test_each_kind_of_event_has_its_fields():
    """A car comes into the zone after 0.3 s, stays for two seconds, and leaves it."""
    stay = frames(30, "gate", step_s=0.1)
    for frame in stay:
        x = 20 if frame.index < 3 or frame.index >= 23 else 100
        frame.tables = {"detect": detections([[x - 5, 80, x + 5, 100]], track_id=[7], label=["car"])}
    zone = Zone(polygon={"till": ((60, 0), (200, 0), (200, 200), (60, 200))}, loitering=1.0, debounce=0.0)
    events = {event.kind: event for frame in run_stage(zone, stay) for event in frame.events}
    assert {kind: event.frame for kind, event in events.items()} == {"entered": 3, "loitering": 13, "left": 23}
    assert {kind: event.data["count"] for kind, event in events.items()} == {"entered": 1, "loitering": 1, "left": 0}
    assert all((event.data["zone"], event.data["label"]) == ("till", "car") for event in events.values())
    assert "dwell_s" not in events["entered"].data
    assert events["loitering"].data["dwell_s"] == pytest.approx(1.0)
    assert events["left"].data["dwell_s"] == pytest.approx(2.0, abs=0.11)
    assert events["entered"].data["at_s"] == pytest.approx(0.3, abs=0.11)
    assert "at_s" not in events["loitering"].data
    assert events["left"].data["at_s"] == pytest.approx(2.3, abs=0.11)
    assert not {"appeared", "lost"} & {key for event in events.values() for key in event.data}


@pytest.mark.parametrize("begin", [0, 5])
def test_appearing_and_lost_objects_are_marked_in_zone_events(begin):
    stay = frames(60, "gate", step_s=0.1)
    for frame in stay:
        there = [[95, 80, 105, 100]] if begin <= frame.index < 10 else []
        frame.tables = {"detect": detections(there, track_id=[7] * len(there), label=["car"] * len(there))}
    zone = Zone(polygon={"till": ((60, 0), (200, 0), (200, 200), (60, 200))}, debounce=0.0, track_ttl=2.0)
    events = {event.kind: event for frame in run_stage(zone, stay) for event in frame.events}
    facts = {kind: {"appeared", "lost"} & event.data.keys() for kind, event in events.items()}
    assert facts == {"entered": {"appeared"}, "left": {"lost"}}
