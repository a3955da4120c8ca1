"""Areas: who is in, since when and how many, by example, by properties, and against counting the plain way."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.walks import changing, stage_events, stays, walk

from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.stages.analytics.zone import Zone
from streamkit.testing.kit import run_stage

BOX = ((100.0, 100.0), (200.0, 100.0), (200.0, 200.0), (100.0, 200.0))
NOTCH = ((100.0, 60.0), (300.0, 60.0), (300.0, 300.0), (200.0, 120.0), (100.0, 300.0))
# the last is outside, and within 5 pixels
IN = (150, 150)
OUT = (50, 150)
EDGE = (97, 150)


def zone_events(places, times=None, polygon=BOX, **options):
    options.setdefault("margin", 5.0)
    return stage_events(Zone(polygon=polygon, **options), walk({7: places}, times=times))


def kinds(events):
    return [(frame, kind) for frame, kind, _, _ in events]


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([OUT, IN, OUT], [(1, "entered"), (2, "left")]),
        ([IN, IN], [(0, "entered")]),  # first seen in there
        ([IN, EDGE, IN, EDGE, IN, OUT], [(0, "entered"), (5, "left")]),  # trembles on the edge
        ([OUT, EDGE, OUT], []),
        ([OUT, IN, OUT, IN], [(1, "entered"), (2, "left"), (3, "entered")]),
        ([OUT, IN, None, None, IN, OUT], [(1, "entered"), (5, "left")]),  # not seen for a moment
        ([OUT, (250, 150)], []),  # in between nobody knows
    ],
)
def test_stays_are_counted(places, expected):
    assert kinds(zone_events(places)) == expected


def test_events_have_all_fields_of_a_stay():
    places = {1: [OUT, IN, IN, IN, OUT], 2: [IN, IN, None, None, None]}
    footage = walk(places, times=[0, 1, 2, 3, 4.5], label={1: "person", 2: "dog"})
    zones = {"till": BOX, "door": tuple((x + 300, y) for x, y in BOX)}
    assert stage_events(Zone(polygon=zones, margin=5), footage) == [
        (0, "entered", 2, {"zone": "till", "label": "dog", "count": 1, "at_s": 0.0, "appeared": True}),
        (1, "entered", 1, {"zone": "till", "label": "person", "count": 2, "at_s": 1.0}),
        (4, "left", 2, {"zone": "till", "label": "dog", "count": 1, "dwell_s": 1.0, "at_s": 1.0, "lost": True}),
        (4, "left", 1, {"zone": "till", "label": "person", "count": 0, "dwell_s": 3.5, "at_s": 4.5}),
    ]


def test_a_lost_object_that_returns_enters_again():
    events = zone_events([IN, IN, None, IN, OUT], times=[0, 1, 3.5, 4, 5], track_ttl=2.0)
    assert [(f, k, d.get("lost"), d.get("dwell_s")) for f, k, _, d in events] == [
        (0, "entered", None, None),
        (2, "left", True, 1.0),
        (3, "entered", None, None),
        (4, "left", None, 1.0),
    ]
    assert kinds(zone_events([IN, IN, None, IN, OUT], times=[0, 1, 3.5, 4, 5], track_ttl=3.0)) == [
        (0, "entered"),
        (4, "left"),
    ]


def test_debounce_delays_events_and_counts_from_the_start():
    times = [0.0, 1.0, 1.2, 2.0, 3.0, 4.0, 4.2, 5.0, 6.0]
    places = [OUT, IN, OUT, IN, IN, IN, OUT, OUT, OUT]
    events = zone_events(places, times=times, debounce=0.9)
    assert [(f, k, d["at_s"]) for f, k, _, d in events] == [(4, "entered", 2.0), (8, "left", 4.2)]
    assert events[1][3]["dwell_s"] == pytest.approx(2.2)


def test_loitering_is_reported_once_per_stay():
    times = [0, 1, 2, 3, 4, 5, 6, 7, 8]
    places = [IN, IN, IN, IN, OUT, IN, IN, IN, IN]
    loitering = [
        (f, d["dwell_s"]) for f, k, _, d in zone_events(places, times=times, loitering=2.0) if k == "loitering"
    ]
    assert loitering == [(2, 2.0), (7, 2.0)]
    unseen_events = zone_events([IN, None, None, None], times=[0, 1, 2, 3], loitering=2.0)
    assert kinds(unseen_events) == [(0, "entered"), (3, "left")], "nobody is told of whom nobody sees"


def test_a_crowd_is_reported_after_its_duration():
    three = {1: [IN] * 12, 2: [OUT, IN, OUT] + [IN] * 9, 3: [OUT] * 4 + [IN] * 4 + [OUT] * 4}
    footage = walk(three, times=list(range(12)))
    stage = Zone(polygon=BOX, margin=5, more_than=1, crowded_for=2.0)
    events = [(f, k, d) for f, k, _, d in stage_events(stage, footage) if k in ("overcrowded", "cleared")]
    assert events == [(5, "overcrowded", {"count": 3, "since_s": 3.0})]
    stage = Zone(polygon=BOX, margin=5, more_than=2, crowded_for=2.0)
    events = [(f, k, d) for f, k, _, d in stage_events(stage, footage) if k in ("overcrowded", "cleared")]
    assert events == [
        (6, "overcrowded", {"count": 3, "since_s": 4.0}),
        (10, "cleared", {"count": 2, "since_s": 8.0}),
    ]


def test_occupancy_is_reported_per_window():
    two = {1: [OUT, IN, IN, IN, OUT, OUT], 2: [OUT, OUT, IN, OUT, OUT, OUT]}
    footage = walk(two, times=[0, 1, 2, 3, 6, 11])
    events = [(f, d) for f, k, _, d in stage_events(Zone(polygon=BOX, margin=5, window=5), footage) if k == "occupancy"]
    assert events == [
        (4, {"mean": 1.0, "max": 2, "entered": 2, "left": 1, "from_s": 0.0, "to_s": 5.0}),  # 1 + 2 + 1 + 1 of 5
        (5, {"mean": 0.2, "max": 1, "entered": 0, "left": 1, "from_s": 5.0, "to_s": 10.0}),
    ]


def test_an_area_reaching_the_image_border_includes_cut_off_objects():
    whole = ((0.0, 0.0), (640.0, 0.0), (640.0, 360.0), (0.0, 360.0))
    places = [(320, 360), (640, 360), (0, 10), (330, 500), (700, 100)]
    assert kinds(zone_events(places, polygon=whole)) == [(0, "entered")]


# ------------------------------------------------------------------------------------------------------- properties

PLACE = st.one_of(st.none(), st.tuples(st.integers(60, 330), st.integers(30, 330)))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(PLACE, max_size=25),
    st.lists(st.floats(0.01, 1.5), min_size=25, max_size=25),
    st.sampled_from([0.0, 3.0, 40.0]),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from([BOX, NOTCH, NOTCH[::-1]]),
)
def test_stays_equal_those_of_the_plain_reference(places, steps, margin, hold, polygon):
    times = np.round(np.cumsum(steps), 6)[: len(places)].tolist()
    events = stage_events(
        Zone(polygon=polygon, margin=margin, debounce=hold), walk({7: places}, times=times), batch=(1, 3, 7)
    )
    entered = [d["at_s"] for _, k, _, d in events if k == "entered"]
    left = [(d["at_s"], d.get("lost", False)) for _, k, _, d in events if k == "left"]
    counted = [(a, *b) for a, b in zip(entered, [*left, (None, False)], strict=False)]
    assert counted == stays(polygon, places, times, margin=margin, debounce=hold)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([0.0, 0.2]), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_entered_minus_left_is_the_count(seed, hold, sizes):
    """Whatever tracks do, in an area are those who entered less those who left, and nobody does either twice."""
    rng = np.random.default_rng(seed)
    sources = {}
    for source in "ab":
        places = {}
        for track in range(1, 8):
            at = rng.uniform([60, 30], [330, 330]) + np.cumsum(rng.normal(0, 30, (30, 2)), axis=0)
            places[track] = [tuple(p) if s else None for p, s in zip(at.tolist(), rng.random(30) < 0.8, strict=True)]
        sources[source] = walk(places, source=source, step_s=0.3)
    mixed = [frame for pair in zip(*sources.values(), strict=True) for frame in pair]
    zones = {"box": BOX, "notch": NOTCH}
    stage = Zone(polygon=zones, debounce=hold, track_ttl=0.7, more_than=3, window=1.0)
    inside = {}
    since = {}
    for frame in run_stage(stage, mixed, batch=sizes):
        for event in frame.events:
            zone = (frame.source, event.data["zone"])
            if event.kind not in ("entered", "left"):
                continue
            there = inside.setdefault(zone, set())
            if event.kind == "entered":
                assert event.track_id not in there
                there.add(event.track_id)
                since[zone, event.track_id] = event.data["at_s"]
            else:
                there.remove(event.track_id)
                assert event.data["dwell_s"] == pytest.approx(
                    event.data["at_s"] - since[zone, event.track_id], abs=2e-6
                )
                assert event.data["dwell_s"] >= 0
            assert event.data["count"] == len(there)
            assert event.data["at_s"] <= frame.pts_s + 1e-6


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000))
def test_two_areas_that_share_an_edge_count_each_track_once(seed):
    rng = np.random.default_rng(seed)
    left = BOX
    right = tuple((x + 100, y) for x, y in BOX)
    both = ((100.0, 100.0), (300.0, 100.0), (300.0, 200.0), (100.0, 200.0))
    places = {t: [tuple(p) for p in rng.integers([90, 90], [310, 210], (12, 2)).tolist()] for t in range(1, 9)}
    stage = Zone(polygon={"left": left, "right": right, "both": both}, margin=0)
    count = {"left": 0, "right": 0, "both": 0}
    for frame in run_stage(stage, walk(places), batch=1):
        for event in frame.events:
            count[event.data["zone"]] = event.data["count"]
        assert count["left"] + count["right"] == count["both"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([5, 10, 30]), st.floats(0, 0.4))
def test_any_frame_rate_with_noise_and_lost_frames_gives_the_same_stays(seed, fps, lost):
    rng = np.random.default_rng(seed)
    times = np.arange(0, 24, 1 / fps)
    x = np.interp(times, [0, 4, 8, 12, 16, 24], [40, 150, 150, 40, 150, 150]) + rng.uniform(-3, 3, len(times))
    is_seen = rng.random(len(times)) >= lost
    is_seen[0] = is_seen[-1] = True
    places = [(float(a), 150.0) if k else None for a, k in zip(x, is_seen, strict=True)]
    events = zone_events(places, times=times.tolist(), margin=7.0, track_ttl=5.0)
    assert [kind for _, kind, _, _ in events] == ["entered", "left", "entered"]
    near = 8 / 27.5 + 1.5  # noise and margin, and the frames that may be missing
    for (_, _, _, data), middle in zip(events, (4 * 60 / 110, 8 + 4 * 50 / 110, 12 + 4 * 60 / 110), strict=True):
        assert abs(data["at_s"] - middle) < near


def test_a_step_back_into_the_margin_restarts_the_debounce():
    places = [IN, OUT, EDGE, OUT, OUT, OUT]
    times = [0, 1, 1.25, 1.5, 1.75, 2.0]
    events = zone_events([IN, *places], times=[-1, *times], debounce=0.5)
    assert [(f, k, d["at_s"]) for f, k, _, d in events] == [(1, "entered", -1.0), (6, "left", 1.5)]
    assert events[1][3]["dwell_s"] == 2.5
    later = zone_events([IN, *places], times=[-1, *times[:-1], 1.9375], debounce=0.5)
    assert kinds(later) == [(1, "entered")]


def test_a_step_back_into_the_area_restarts_the_debounce():
    places = [OUT, IN, OUT, IN, IN, IN]
    times = [0, 1, 1.25, 1.5, 1.75, 2.0]
    assert [(f, d["at_s"]) for f, _, _, d in zone_events(places, times=times, debounce=0.5)] == [(5, 1.5)]


def test_a_distance_of_exactly_the_margin_is_outside():
    assert kinds(zone_events([IN, (95, 150)])) == [(0, "entered"), (1, "left")]
    assert kinds(zone_events([IN, (95.5, 150)])) == [(0, "entered")]


def test_a_leaving_object_is_not_loitering():
    times = [0, 1, 1.5, 2.0, 2.5]
    events = zone_events([IN, IN, OUT, OUT, OUT], times=times, debounce=1.0, loitering=2.0)
    assert [(f, k, d["at_s"]) for f, k, _, d in events] == [(1, "entered", 0.0), (4, "left", 1.5)]
    back = zone_events([IN, IN, OUT, OUT, IN], times=times, debounce=1.0, loitering=2.0)
    assert [(f, k) for f, k, _, _ in back] == [(1, "entered"), (4, "loitering")], "it did not leave after all"
    assert back[1][3]["dwell_s"] == 2.5


def test_loitering_starts_at_its_exact_time():
    assert kinds(zone_events([IN, IN], times=[0, 2], loitering=2.0)) == [(0, "entered"), (1, "loitering")]
    assert kinds(zone_events([IN, IN], times=[0, 1.9375], loitering=2.0)) == [(0, "entered")]


def test_a_crowd_exceeds_the_number():
    two = {1: [IN] * 2, 2: [IN] * 2}
    for limit, expected in ((1, ["overcrowded"]), (2, [])):
        events = stage_events(Zone(polygon=BOX, margin=5, more_than=limit), walk(two, times=[0, 1]))
        assert [k for _, k, _, _ in events if k == "overcrowded"] == expected


def test_a_window_starts_with_the_present_objects():
    footage = walk({1: [IN, IN, IN, OUT]}, times=[0, 5.5, 10, 11])
    stage = Zone(polygon=BOX, margin=5, window=5, track_ttl=20.0)
    events = [d for _, kind, _, d in stage_events(stage, footage) if kind == "occupancy"]
    assert [(d["mean"], d["max"], d["entered"], d["left"]) for d in events] == [(1.0, 1, 1, 0), (1.0, 1, 0, 0)]


DAY_AND_MORE = 2**33 / 90_000  # the range of the clock of an MPEG transport stream, in seconds


def windows(places, times, window, batch=4, **options):
    """(frame, data) of a zone's windows."""
    stage = Zone(polygon=BOX, margin=5, window=window, **options)
    return [(f, d) for f, k, _, d in stage_events(stage, walk({7: places}, times=times), batch) if k == "occupancy"]


def spans(events):
    return [(frame, data["from_s"], data["to_s"]) for frame, data in events]


def test_each_elapsed_window_is_reported():
    assert spans(windows([OUT] * 3, [0, 1, 11], 5.0)) == [(2, 0.0, 5.0), (2, 5.0, 10.0)]
    assert len(windows([OUT] * 3, [0, 1, 50], 5.0)) == 10


@pytest.mark.parametrize("leap_s", [50.1, DAY_AND_MORE])
def test_a_time_jump_ahead_reports_the_open_window_and_starts_over(leap_s):
    events = windows([IN, OUT, OUT, IN, OUT], [0, 2, leap_s, leap_s + 1, leap_s + 5], 5.0)
    assert spans(events) == [(2, 0.0, 5.0), (4, round(leap_s, 6), round(leap_s + 5, 6))]
    assert [(d["mean"], d["max"], d["entered"], d["left"]) for _, d in events] == [(0.4, 1, 1, 1), (0.8, 1, 1, 0)]
    stage = LineCounter(line=((0, 100), (640, 100)), window=5.0)
    times = [0, 2, leap_s, leap_s + 5]
    counted = stage_events(stage, walk({7: [(9, 50), (9, 150), (9, 150), (9, 150)]}, times=times))
    assert [(f, d["in"]) for f, k, _, d in counted if k == "counted"] == [(2, 1), (3, 0)]


def test_a_time_jump_back_shortens_the_window():
    events = windows([IN, IN, OUT, OUT, IN, OUT], [10, 11, 12, 2, 3, 7], 5.0)
    assert spans(events) == [(3, 10.0, 12.0), (5, 2.0, 7.0)]
    assert [(d["mean"], d["max"], d["entered"], d["left"]) for _, d in events] == [(1.0, 1, 1, 1), (0.8, 1, 1, 0)]


def test_the_mean_of_a_single_frame_window_is_its_count():
    assert windows([IN, OUT], [10, 2], 5.0) == [
        (1, {"mean": 1.0, "max": 1, "entered": 1, "left": 0, "from_s": 10.0, "to_s": 10.0})
    ]


STEPS = st.lists(st.sampled_from([0.25, 0.25, 0.5, 1.0, 7.0, 40.0, -0.5, -30.0]), max_size=25)


@settings(max_examples=80, deadline=None)
@given(STEPS, st.integers(0, 1000), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_each_event_is_reported_exactly_once(steps, seed, sizes):
    rng = np.random.default_rng(seed)
    times = np.cumsum([100.0, *steps]).tolist()
    places = [IN if is_inside else OUT for is_inside in rng.random(len(times)) < 0.5]
    footage = walk({7: places}, times=times)
    stage = Zone(polygon=BOX, margin=5, window=2.0)
    events = stage_events(stage, footage, batch=sizes)
    assert events == stage_events(Zone(polygon=BOX, margin=5, window=2.0), walk({7: places}, times=times), batch=32)
    waiting = {"entered": 0, "left": 0}
    later: dict[str, int] = {}  # what the frame tells itself is of the next window
    at = -1
    for frame, kind, _, data in events:
        if frame != at:
            waiting = {name: n + later.get(name, 0) for name, n in waiting.items()}
            at = frame
            later = {}
        if kind == "occupancy":
            assert {name: data[name] for name in waiting} == waiting
            assert 0 <= data["to_s"] - data["from_s"] <= 2.0
            assert 0 <= data["mean"] <= data["max"] <= 1
            waiting = dict.fromkeys(waiting, 0)
        else:
            later[kind] = later.get(kind, 0) + 1
    windows_s = [(data["from_s"], data["to_s"]) for _, kind, _, data in events if kind == "occupancy"]
    for (_, before), (after, _) in itertools.pairwise(windows_s):
        assert after in (before, *times)


# ------------------------------------------------------------------------------------------------- areas that change

SIDE = tuple((x + 300, y) for x, y in BOX)
BESIDE = (450, 150)


@pytest.mark.parametrize("first", [{"till": BOX}, {"gone": SIDE, "till": BOX}])
@pytest.mark.parametrize("then", [{"till": BOX, "door": SIDE}, {"door": SIDE, "till": BOX}])
def test_an_unchanged_area_continues_and_a_new_area_is_entered(first, then):
    footage = walk({1: [IN] * 4 + [OUT], 2: [OUT] * 2 + [BESIDE] * 3}, times=[0, 1, 2, 3, 4])
    events = stage_events(changing(Zone(polygon=first, margin=5), 3, polygon=then), footage, batch=1)
    shown = [(f, kind, d["zone"], d["count"], d.get("dwell_s")) for f, kind, _, d in events if d["zone"] != "gone"]
    assert shown == [(0, "entered", "till", 1, None), (3, "entered", "door", 1, None), (4, "left", "till", 0, 4.0)]
    assert [d.get("appeared") for _, kind, _, d in events if d["zone"] == "door"] == [None]


def test_a_moved_area_starts_empty():
    footage = walk({1: [IN] * 5, 2: [BESIDE] * 5}, times=[0, 1, 2, 3, 4])
    stage = Zone(polygon={"a": BOX}, margin=5, more_than=0, window=2.0)
    events = stage_events(changing(stage, 1, polygon={"a": SIDE}), footage, batch=1)
    assert [(f, kind, t, d.get("count")) for f, kind, t, d in events if kind != "occupancy"] == [
        (0, "entered", 1, 1),
        (0, "overcrowded", None, 1),
        (1, "entered", 2, 1),
        (1, "overcrowded", None, 1),
    ]
    assert [(d["from_s"], d["entered"], d["left"]) for _, kind, _, d in events if kind == "occupancy"] == [
        (0.0, 1, 0),
        (2.0, 0, 0),
    ]


@pytest.mark.parametrize("areas", [{"door": SIDE, "till": BOX}, {"door": SIDE}])
def test_a_window_follows_its_area_when_areas_are_reordered(areas):
    walked = walk({1: [IN] * 5, 2: [IN, OUT, OUT, OUT, OUT], 3: [BESIDE] * 5}, times=[0, 0.5, 1, 1.5, 2])
    zone = Zone(polygon={"till": BOX, "door": SIDE}, margin=5, window=2.0)
    events = stage_events(changing(zone, 2, polygon=areas), walked, batch=1)
    windows_by_area = {
        data["zone"]: [data[key] for key in ("mean", "max", "entered", "left")]
        for _, kind, _, data in events
        if kind == "occupancy"
    }
    expected = {"till": [1.25, 2, 2, 1], "door": [1.0, 1, 1, 0]}
    assert windows_by_area == {name: expected[name] for name in areas}


def test_an_area_counts_only_its_sources():
    zones = {"a": BOX, "b": BOX}
    footage = [frame for source in ("gate", "yard") for frame in walk({1: [OUT, IN, IN, OUT]}, source=source, step_s=1)]
    stage = Zone(polygon=zones, margin=5, more_than=0, window=2.0, loitering=0.5, sources={"a": ("gate",)})
    processed = run_stage(stage, footage)
    assert {(f.source, e.data["zone"]) for f in processed for e in f.events} == {
        ("gate", "a"),
        ("gate", "b"),
        ("yard", "b"),
    }
    kinds_ = [e.kind for f in processed if f.source == "gate" for e in f.events if e.data["zone"] == "a"]
    assert kinds_ == ["entered", "overcrowded", "loitering", "occupancy", "left", "cleared"]
    assert [[label.text for label in f.shown.values()] for f in processed if f.source == "yard"][1] == ["b 1"]


def test_an_area_removed_from_a_source_is_empty_there():
    footage = walk({1: [IN] * 4}, source="gate", times=[0, 1, 2, 3])
    events = stage_events(changing(Zone(polygon={"a": BOX}, margin=5), 1, sources={"a": ("yard",)}), footage, batch=1)
    assert kinds(events) == [(0, "entered")]
    events = stage_events(
        changing(changing(Zone(polygon={"a": BOX}, margin=5), 1, sources={"a": ("yard",)}), 3, sources=()),
        footage,
        batch=1,
    )
    assert kinds(events) == [(0, "entered"), (3, "entered")]
