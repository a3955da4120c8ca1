"""Lines: what counts as crossing, by example, by properties, and against counting the plain way."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.walks import changing, crossings, stage_events, walk

from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.testing.kit import run_stage

UP = ((100.0, 200.0), (100.0, 100.0))  # from below to above: the picture's left is on its left
BENT = ((100.0, 300.0), (200.0, 150.0), (300.0, 300.0), (320.0, 40.0))

STEP = st.tuples(st.floats(-40, 40), st.floats(-40, 40))
GRID = st.tuples(st.sampled_from([80, 90, 95, 100, 105, 110, 120]), st.sampled_from([90, 100, 150, 200, 210]))


def ways(events):
    return [(frame, data["direction"]) for frame, kind, _, data in events if kind == "crossed"]


def counted(places, line=UP, times=None, **options):
    options.setdefault("margin", 5.0)
    return ways(stage_events(LineCounter(line=line, **options), walk({7: places}, times=times)))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([(80, 150), (120, 150)], [(1, "in")]),
        ([(120, 150), (80, 150)], [(1, "out")]),
        ([(80, 150), (98, 150), (102, 150), (106, 150)], [(3, "in")]),  # when it is the margin away
        ([(80, 150), (102, 150), (98, 150), (102, 150), (99, 150), (110, 150)], [(5, "in")]),  # trembles: once
        ([(80, 150), (102, 150), (98, 150), (104, 150), (80, 150)], []),  # trembles, and turns back
        ([(80, 150), (120, 150), (80, 150), (120, 150)], [(1, "in"), (2, "out"), (3, "in")]),  # each real crossing
        ([(97, 150), (103, 150), (97, 150), (103, 150)], []),  # never away from the line
        ([(98, 150), (120, 150)], []),  # begins on the line: which side it came from is not known
        ([(98, 150), (120, 150), (80, 150)], [(2, "out")]),
        ([(80, 50), (120, 50)], []),  # beyond the line's end
        ([(80, 250), (120, 250)], []),
        ([(80, 150), None, None, (120, 150)], [(3, "in")]),  # lost, and found on the other side
        ([(80, 150), (100, 150), (120, 150)], [(2, "in")]),  # stood on the line
        (
            [(80, 150), (120, 150), (120, 250), (80, 250), (80, 150), (120, 150)],
            [(1, "in"), (5, "in")],
        ),  # around its end
    ],
)
def test_crossings_are_counted(places, expected):
    assert counted(places) == expected


def test_an_event_has_all_fields_of_a_crossing():
    stage = LineCounter(line={"door": UP, "wall": ((300, 0), (300, 360))}, margin=5)
    places = {1: [(80, 150), (99, 150), (101, 150), (120, 150), (120, 150)], 2: [(120, 160)] * 4 + [(80, 160)]}
    events = stage_events(stage, walk(places, label={1: "person", 2: "dog"}))
    assert events == [
        (3, "crossed", 1, {"line": "door", "direction": "in", "label": "person", "in": 1, "out": 0, "at_s": 0.08}),
        (4, "crossed", 2, {"line": "door", "direction": "out", "label": "dog", "in": 1, "out": 1, "at_s": 0.16}),
    ]


def test_reversing_a_line_swaps_in_and_out():
    assert counted([(80, 150), (120, 150)], line=UP[::-1]) == [(1, "out")]


def test_debounce_ignores_flicker():
    jump = [(80, 150)] * 5 + [(120, 150)] * 2 + [(80, 150)] * 5  # a box that is somewhere else for two frames
    assert counted(jump) == [(5, "in"), (7, "out")]
    assert counted(jump, debounce=0.1) == []
    stays = [(80, 150)] * 5 + [(120, 150)] * 5
    events = stage_events(LineCounter(line=UP, margin=5, debounce=0.1), walk({7: stays}))
    assert [(frame, data["at_s"]) for frame, _, _, data in events] == [(8, 0.2)]  # 0.12 s after it passed


def test_a_track_after_a_long_absence_starts_over():
    there = [(80, 150), (120, 150)]
    assert counted(there, times=[0, 9]) == [(1, "in")]
    assert counted(there, times=[0, 11]) == []
    assert counted(there, times=[0, 11], track_ttl=20.0) == [(1, "in")]


def test_only_selected_classes_are_counted():
    footage = walk({1: [(80, 150), (120, 150)], 2: [(80, 150), (120, 150)]}, label={1: "person", 2: "dog"})
    assert [track for _, _, track, _ in stage_events(LineCounter(line=UP, labels=("dog",)), footage)] == [2]


def test_counts_are_reported_per_window():
    places = [(80, 150), (120, 150)] * 5
    footage = walk({7: places}, times=[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 6.2, 6.5, 7.0, 7.2])
    events = stage_events(LineCounter(line=UP, window=2.0), footage)
    assert [(frame, data) for frame, kind, _, data in events if kind == "counted"] == [
        (4, {"in": 2, "out": 1, "from_s": 0.0, "to_s": 2.0}),
        (6, {"in": 1, "out": 1, "from_s": 2.0, "to_s": 4.0}),
        (6, {"in": 0, "out": 0, "from_s": 4.0, "to_s": 6.0}),
    ]


def test_predicted_objects_count_by_option():
    footage = walk({7: [(80, 150), (120, 150), (80, 150)]})
    for frame, guess in zip(footage, (0, 1, 0), strict=True):
        frame.detections = frame.detections.with_columns(predicted=np.array([guess], bool))
    assert ways(stage_events(LineCounter(line=UP), footage)) == [(1, "in"), (2, "out")]
    assert ways(stage_events(LineCounter(line=UP, predicted=False), footage)) == []


@pytest.mark.parametrize(
    ("anchor", "x", "y"), [("foot", 0, 0), ("center", 0, -10), ("top", 0, -20), ("left", -4, -10), ("right", 4, -10)]
)
def test_the_anchor_point_decides(anchor, x, y):
    beside = ((104.0 + x, 150.0 + y), (104.0 + x, 152.0 + y))  # only this point of the box passes between these ends
    at = (100, 151), (108, 151)
    assert len(counted(at, line=beside, anchor=anchor, margin=1.0)) == 1
    others = {"foot", "center", "top", "left", "right"} - {anchor}
    assert all(counted(at, line=beside, anchor=anchor_, margin=1.0) == [] for anchor_ in others)


# ------------------------------------------------------------------------------------------------------- properties


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.tuples(st.floats(60, 360), st.floats(30, 330))), max_size=25),
    st.lists(st.floats(0.01, 6), min_size=25, max_size=25),
    st.sampled_from([0.0, 3.0, 20.0]),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from([UP, BENT, BENT[::-1]]),
)
def test_counts_equal_those_of_the_plain_reference(places, steps, margin, hold, line):
    times = np.cumsum(steps)[: len(places)].tolist()
    box_exact = [None if p is None else (float(np.float32(p[0])), float(np.float32(p[1]))) for p in places]
    footage = walk({7: box_exact}, times=times)
    seen = [None if not len(f.detections) else tuple(f.detections.foot[0].astype(float).tolist()) for f in footage]
    crossed = counted_from(footage, line, margin, hold)
    assert crossed == [
        (i, "in" if way > 0 else "out") for i, way in crossings(line, seen, times, margin=margin, debounce=hold)
    ]


def counted_from(footage, line, margin, hold):
    return ways(stage_events(LineCounter(line=line, margin=margin, debounce=hold), footage, batch=(1, 3, 7)))


@settings(max_examples=150, deadline=None)
@given(st.lists(GRID, min_size=2, max_size=30))
def test_in_minus_out_is_the_change_of_side_on_a_full_line(places):
    """Also where places lie on the line: without a margin, every change of side is one crossing."""
    crossed = counted(places, line=((100, -500), (100, 500))[::-1], margin=0.0)
    right = [x > 100 or x == 100 for x, _ in places]  # a place on a line that goes up is on its right, by the rule
    assert [way for _, way in crossed] == [
        "in" if now else "out" for was, now in itertools.pairwise(right) if was != now
    ]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([5, 10, 30]), st.floats(0, 0.5))
def test_any_frame_rate_with_noise_and_lost_frames_counts_the_same(seed, fps, lost):
    """Somebody goes through the line five times, and is seen every 0.6 s at least."""
    rng = np.random.default_rng(seed)
    corners = [40.0, 160.0] * 3
    times = np.arange(0, 30, 1 / fps)
    x = np.interp(times, np.arange(6) * 6.0, corners) + rng.uniform(-4, 4, len(times))
    y = 150 + rng.uniform(-4, 4, len(times))
    is_seen = rng.random(len(times)) >= lost
    is_seen[:: max(1, int(0.6 * fps))] = True
    places = [(float(a), float(b)) if k else None for a, b, k in zip(x, y, is_seen, strict=True)]
    crossed = counted(places, times=times.tolist(), margin=9.0)
    assert [way for _, way in crossed] == ["in", "out", "in", "out", "in"]
    for (frame, _), middle in zip(crossed, (3, 9, 15, 21, 27), strict=True):
        assert abs(times[frame] - middle) < 2.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-4.9, 4.9), min_size=1, max_size=60), st.booleans())
def test_jitter_within_the_margin_counts_at_most_once(offsets, through):
    end = (130.0, 150.0) if through else (70.0, 150.0)
    crossed = counted([(70.0, 150.0), *[(100.0 + d, 150.0) for d in offsets], end])
    assert [way for _, way in crossed] == (["in"] if through else [])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_counts_do_not_depend_on_batches_other_sources_or_object_order(seed, sizes):
    rng = np.random.default_rng(seed)

    def places():
        at = rng.uniform([60, 30], [360, 330]) + np.cumsum(rng.normal(0, 25, (20, 2)), axis=0)
        return [tuple(p) if seen else None for p, seen in zip(at.tolist(), rng.random(20) < 0.9, strict=True)]

    sources = {name: walk({t: places() for t in range(1, 6)}, source=name) for name in "abc"}
    alone = {name: stage_events(LineCounter(line=BENT), footage, batch=1) for name, footage in sources.items()}
    for footage in sources.values():
        for frame in footage:
            frame.detections = frame.detections[rng.permutation(len(frame.detections))]
    left = {name: list(footage) for name, footage in sources.items()}
    mixed = []
    while any(left.values()):
        name = rng.choice([name for name, rest in left.items() if rest])
        mixed.append(left[name].pop(0))
    from streamkit.testing.kit import run_stage

    processed = run_stage(LineCounter(line=BENT), mixed, batch=sizes)
    for name, expected in alone.items():
        events = [
            (e.frame, e.kind, e.track_id, e.data["direction"]) for f in processed if f.source == name for e in f.events
        ]
        assert sorted(events) == sorted((f, k, t, d["direction"]) for f, k, t, d in expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_shares_count_like_pixels_at_any_resolution(seed):
    rng = np.random.default_rng(seed)
    at = rng.uniform([60, 30], [360, 330]) + np.cumsum(rng.normal(0, 25, (30, 2)), axis=0)
    at = np.clip(at, [5, 25], [630, 355])
    share = tuple((x / 640, y / 360) for x, y in BENT)
    expected = counted([tuple(p) for p in at.tolist()], line=BENT, margin=3.6)
    for scale in (1, 2, 3):
        footage = walk({7: [tuple(p) for p in (at * scale).tolist()]}, width=640 * scale, height=360 * scale)
        assert ways(stage_events(LineCounter(line=share, units="share", margin=0.01), footage)) == expected
    changes = walk({7: [tuple(p) for p in at.tolist()]})  # and where it changes on the way
    for frame in changes[15:]:
        frame.width = 1280
        frame.height = 720
        frame.detections = frame.detections.with_columns(xyxy=frame.detections.xyxy * np.float32(2))
    assert ways(stage_events(LineCounter(line=share, units="share", margin=0.01), changes)) == expected


def test_a_source_that_ends_is_forgotten_and_the_report_has_the_counts():
    from streamkit.core.counters import Counters
    from streamkit.core.data import Batch

    stage = LineCounter(line=UP)
    stage.context.counters = counters = Counters()
    stage.open()
    first = walk({7: [(80, 150), (120, 150)]})
    second = walk({7: [(80, 150), (120, 150)]})
    for round_ in range(100):
        source = f"camera {round_}"
        state = stage.new_state(source)
        for frame in first if round_ % 2 else second:
            frame.source = source
            stage.process(Batch([frame], tables={"detect": frame.detections}), {source: state})
        stage.end(source, state)
    assert counters["in: person"] == 100
    assert len(stage._crossings.tracks) == 0
    assert stage._crossings.tracks.rows <= 16, "rows are used again"


def test_memory_is_bounded_over_many_tracks():
    from streamkit.core.data import Batch

    stage = LineCounter(line=UP, track_ttl=1.0)
    stage.open()
    states = {"test": stage.new_state("test")}
    for i in range(400):
        (frame,) = walk({i + 1: [(80, 150)]})
        frame.pts_s = i * 0.5
        stage.process(Batch([frame], tables={"detect": frame.detections}), states)
        assert len(stage._crossings.tracks) <= 4


def test_a_step_back_into_the_margin_restarts_the_debounce():
    places = [(80, 150), (120, 150), (103, 150), (120, 150), (120, 150), (120, 150)]
    times = [0, 1, 1.25, 1.5, 1.75, 2.0]
    assert counted(places, times=times, debounce=0.5) == [(5, "in")]  # far since 1.5, and half a second later counts
    assert counted(places, times=[0, 1, 1.25, 1.5, 1.75, 1.9375], debounce=0.5) == []
    assert counted(places[:2] + places[3:], times=times[:2] + times[3:], debounce=0.5) == [(2, "in")]


def test_a_pass_back_and_forth_restarts_the_debounce():
    places = [(80, 150), (120, 150), (80, 150), (120, 150), (120, 150), (120, 150)]
    assert counted(places, times=[0, 1, 1.25, 1.5, 1.75, 2.0], debounce=0.5) == [(5, "in")]


def test_a_distance_of_exactly_the_margin_is_outside():
    assert counted([(95, 150), (105, 150)]) == [(1, "in")]
    assert counted([(95.5, 150), (105, 150)]) == []
    assert counted([(95, 150), (104.5, 150)]) == []


def test_movement_before_first_leaving_the_margin_is_ignored():
    assert counted([(98, 150), (102, 150), (120, 150), (120, 150)]) == []
    assert counted([(98, 150), (102, 150), (98, 150), (102, 150), (120, 150), (80, 150)]) == [(5, "out")]


# ------------------------------------------------------------------------------------------------- lines that change

FAR_UP = ((300.0, 200.0), (300.0, 100.0))


def data_of(events, *names):
    return [(frame, *(data.get(name) for name in names)) for frame, kind, _, data in events if kind == "crossed"]


@pytest.mark.parametrize("first", [{"door": UP}, {"wall": FAR_UP, "door": UP}])
@pytest.mark.parametrize("then", [{"door": UP, "new": FAR_UP}, {"new": FAR_UP, "door": UP}])
def test_an_unchanged_line_keeps_its_counts_and_a_new_line_starts(first, then):
    places = {7: [(80, 150), (120, 150), (80, 150), (120, 150), (250, 150), (350, 150)]}
    stage = changing(LineCounter(line=first, margin=5), 3, line=then)
    assert data_of(stage_events(stage, walk(places), batch=1), "line", "in", "out") == [
        (1, "door", 1, 0),
        (2, "door", 1, 1),
        (3, "door", 2, 1),
        (5, "new", 1, 0),
    ]


def test_a_moved_line_starts_at_zero_and_needs_the_margin_again():
    places = {7: [(80, 150), (120, 150), (298, 150), (310, 150), (280, 150)], 8: [(80, 120)] * 2 + [(120, 120)] * 3}
    stage = changing(LineCounter(line={"door": UP}, margin=5), 2, line={"door": FAR_UP})
    assert data_of(stage_events(stage, walk(places), batch=1), "in", "out") == [(1, 1, 0), (4, 0, 1)]


def test_counts_and_windows_continue_when_another_line_is_added():
    places = {7: [(80, 150), (120, 150), (80, 150), (120, 150), (80, 150), (120, 150)]}
    bent = ((100.0, 200.0), (100.0, 150.0), (100.0, 100.0), (90.0, 20.0))
    stage = changing(LineCounter(line={"a": UP}, margin=5, window=2.5), 3, line={"a": UP, "b": bent})
    events = stage_events(stage, walk(places, times=[0, 1, 2, 3, 4, 5]), batch=1)
    assert data_of(events, "line", "in", "out") == [
        (1, "a", 1, 0),
        (2, "a", 1, 1),
        (3, "a", 2, 1),
        (4, "a", 2, 2),
        (4, "b", 0, 1),
        (5, "a", 3, 2),
        (5, "b", 1, 1),
    ]
    counted_ = [(d["line"], d["from_s"], d["in"], d["out"]) for _, kind, _, d in events if kind == "counted"]
    assert counted_ == [("a", 0.0, 1, 1), ("b", 0.0, 0, 0), ("a", 2.5, 1, 1), ("b", 2.5, 0, 1)]


# ------------------------------------------------------------------------------------------------- sources of a line


def of_two(places):
    """The same places on two sources, a frame of each in turn."""
    return [
        frame for pair in zip(walk(places, source="gate"), walk(places, source="yard"), strict=True) for frame in pair
    ]


def source_of(stage, footage, batch=4):
    processed = run_stage(stage, footage, batch=batch)
    return [(f.source, e.kind, e.data.get("line")) for f in processed for e in f.events], processed


def test_a_line_counts_only_its_sources():
    places = {7: [(80, 150), (120, 150), (120, 150)]}
    lines = {"a": UP, "b": UP, "c": UP}
    stage = LineCounter(line=lines, margin=5, window=0.05, sources={"a": ("gate",), "b": ("gate", "yard")})
    events, done = source_of(stage, of_two(places))
    assert events == [
        ("gate", "crossed", "a"),
        ("gate", "crossed", "b"),
        ("gate", "crossed", "c"),
        ("yard", "crossed", "b"),
        ("yard", "crossed", "c"),
        ("gate", "counted", "a"),
        ("gate", "counted", "b"),
        ("gate", "counted", "c"),
        ("yard", "counted", "b"),
        ("yard", "counted", "c"),
    ]
    assert [[shown.text for shown in frame.shown.values()] for frame in done[-2:]] == [
        ["a in 1 out 0", "b in 1 out 0", "c in 1 out 0"],
        ["b in 1 out 0", "c in 1 out 0"],
    ]


def test_all_lines_of_a_stage_may_be_limited_to_sources():
    places = {7: [(80, 150), (120, 150)]}
    assert source_of(LineCounter(line=UP, margin=5, sources=("yard",)), of_two(places))[0] == [
        ("yard", "crossed", None)
    ]


def test_sources_of_a_line_may_change_live():
    places = {7: [(80, 150), (120, 150), (80, 150), (120, 150)]}
    stage = LineCounter(line={"a": UP}, margin=5, sources={"a": ("gate",)})
    events, _ = source_of(changing(stage, 2, sources={"a": ("yard",)}), of_two(places), batch=2)
    assert events == [("gate", "crossed", "a"), ("yard", "crossed", "a")]


def test_sources_of_an_unknown_line_are_refused():
    with pytest.raises(ValueError, match="there is no line named 'x'; these are there: a"):
        LineCounter(line={"a": UP}, sources={"x": ("gate",)})
