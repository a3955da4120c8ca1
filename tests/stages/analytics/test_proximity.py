import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.walks import stage_events, walk

from streamkit.stages.analytics.proximity import Proximity

FLAT = {"points": ((0, 0), (640, 0), (640, 360), (0, 360)), "ground": ((0, 0), (64, 0), (64, 36), (0, 36))}


def line(*gaps, y=100.0):
    """Two tracks, the second so many pixels to the right of the first; None where it is not seen."""
    return {3: [(100.0, y)] * len(gaps), 9: [None if gap is None else (100.0 + gap, y) for gap in gaps]}


def test_a_pair_meets_and_parts_once():
    events = stage_events(Proximity(distance=50), walk(line(90, 60, 50, 40, 53, 40, 56, 40), step_s=1.0))
    assert events == [
        (2, "met", 3, {"other": 9, "labels": ["person", "person"], "distance": 50.0, "since_s": 2.0}),
        (6, "parted", 3, {"other": 9, "labels": ["person", "person"], "together_s": 4.0}),
        (7, "met", 3, {"other": 9, "labels": ["person", "person"], "distance": 40.0, "since_s": 7.0}),
    ]


def test_objects_meet_after_the_minimum_time():
    gaps = [40, 40, 90, 40, 40, 40, 40, 90]
    events = stage_events(Proximity(distance=50, near_for=2.0), walk(line(*gaps), step_s=1.0))
    assert [(f, k, d.get("since_s"), d.get("together_s")) for f, k, _, d in events] == [
        (5, "met", 3.0, None),
        (7, "parted", None, 4.0),
    ]


def test_a_lost_object_parted_when_last_seen():
    events = stage_events(
        Proximity(distance=50, track_ttl=1.5), walk(line(40, 40, None, 40, None, None, None), step_s=1.0)
    )
    assert [(f, k, d.get("together_s")) for f, k, _, d in events] == [(0, "met", None), (5, "parted", 3.0)]


def test_a_time_jump_back_parts_all_pairs_when_last_seen():
    events = stage_events(Proximity(distance=50), walk(line(40, 40, 40, 40, 40), times=[10.0, 11.0, 12.0, 1.0, 2.0]))
    assert [(f, k, d.get("together_s"), d.get("since_s")) for f, k, _, d in events] == [
        (0, "met", None, 10.0),
        (3, "parted", 2.0, None),
        (3, "met", None, 1.0),
    ]


def test_distances_may_be_in_meters_or_shares():
    meters = stage_events(Proximity(distance=5.0, **FLAT), walk(line(60, 40)))
    assert [(f, d["distance"]) for f, _, _, d in meters] == [(1, 4.0)]
    share = stage_events(Proximity(distance=0.12, units="share"), walk(line(60, 36)))
    assert [(f, d["distance"]) for f, _, _, d in share] == [(1, 0.1)]


def test_pairs_are_limited_to_selected_classes():
    tracks = {1: [(100.0, 100.0)], 2: [(110.0, 100.0)], 3: [(120.0, 100.0)]}
    labels = {1: "person", 2: "person", 3: "car"}
    both = stage_events(Proximity(distance=50, labels=("person",), others=("car",)), walk(tracks, label=labels))
    assert [(t, d["other"], d["labels"]) for _, _, t, d in both] == [
        (1, 3, ["person", "car"]),
        (2, 3, ["person", "car"]),
    ]
    people = stage_events(Proximity(distance=50, labels=("person",)), walk(tracks, label=labels))
    assert [(t, d["other"]) for _, _, t, d in people] == [(1, 2)]
    with pytest.raises(ValueError, match="others needs labels"):
        Proximity(distance=50, others=("car",))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_every_pair_meets_before_it_parts_and_is_near_when_it_meets(seed, sizes):
    rng = np.random.default_rng(seed)
    tracks = {}
    for track in range(1, 7):
        at = rng.uniform([100, 100], [400, 300]) + np.cumsum(rng.normal(0, 25, (25, 2)), axis=0)
        at = np.clip(at, [10, 30], [630, 350])
        tracks[track] = [tuple(p) if s else None for p, s in zip(at.tolist(), rng.random(25) < 0.8, strict=True)]
    near = set()
    for frame, kind, first, data in stage_events(Proximity(distance=80, track_ttl=0.1), walk(tracks), batch=sizes):
        pair = first, data["other"]
        assert first < data["other"]
        if kind == "met":
            assert pair not in near
            near.add(pair)
            a, b = (tracks[t][frame] for t in pair)
            assert np.hypot(a[0] - b[0], a[1] - b[1]) == pytest.approx(data["distance"], abs=1e-3)
            assert data["distance"] <= 80
        else:
            near.remove(pair)
            assert data["together_s"] >= 0
