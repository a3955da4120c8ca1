"""Which way tracks go; tests/analytics has the fit."""

import pytest
from support.walks import stage_events, walk

from streamkit.stages.analytics.motion import Direction
from streamkit.testing.kit import run_stage


def test_direction_names_the_sides_and_arrows():
    right = [(100 + 4 * i, 100) for i in range(60)]
    places = {1: right, 2: [(300, 300 - 3 * i) for i in range(60)], 3: [(200, 200)] * 60}
    events = stage_events(Direction(), walk(places))
    assert [(kind, track, data["direction"]) for _, kind, track, data in events] == [
        ("changed", 1, "right"),
        ("changed", 2, "up"),
    ]
    arrows = {"in": ((0, 0), (100, 5)), "out": ((100, 5), (0, 0))}
    events = stage_events(
        Direction(directions=arrows, wrong=("out",), tolerance=20), walk({1: right + right[::-1], 2: places[2]})
    )
    changes = [(kind, track, data["direction"], data.get("before")) for _, kind, track, data in events]
    assert changes == [
        ("changed", 1, "in", None),
        ("changed", 1, "out", "in"),
        ("wrong_way", 1, "out", "in"),
    ]


def test_a_track_at_the_tolerance_moves_in_the_direction():
    right = walk({1: [(100 + 4 * i, 100) for i in range(40)]})
    upward = {"up": ((0, 9), (0, 0))}
    assert [data["direction"] for *_, data in stage_events(Direction(directions=upward, tolerance=90), right)] == ["up"]
    assert stage_events(Direction(directions=upward, tolerance=89.9), right) == []


def test_the_heading_is_in_compass_degrees_of_the_image_also_with_shares():
    places = {1: [(100 + 4 * i, 300 - 4 * i) for i in range(40)]}
    for units in ("pixels", "share"):
        processed = run_stage(Direction(units=units), walk(places))
        assert processed[-1].detections.extra["heading_deg"][0] == pytest.approx(45, abs=0.1)


def test_a_standing_track_keeps_its_direction():
    places = [(100 + 4 * i, 100) for i in range(40)] + [(256, 100)] * 200 + [(256 + 4 * i, 100) for i in range(40)]
    assert len(stage_events(Direction(), walk({1: places}))) == 1
