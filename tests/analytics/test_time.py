"""Time that goes back, as in a file joined of several: what comes after is as if the source began there."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.walks import stage_events, walk

from streamkit.core.data import Batch
from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.stages.analytics.motion import Direction, Speed
from streamkit.stages.analytics.proximity import Proximity
from streamkit.stages.analytics.zone import Zone
from streamkit.testing.kit import run_stage

BOX = ((100.0, 100.0), (250.0, 100.0), (250.0, 250.0), (100.0, 250.0))
FLAT = {"points": ((0, 0), (640, 0), (640, 360), (0, 360)), "ground": ((0, 0), (64, 0), (64, 36), (0, 36))}
STAGES = {
    "zone": lambda: Zone(polygon=BOX, debounce=0.2, track_ttl=1.5, loitering=1.0),
    "line": lambda: LineCounter(line=((180.0, 0.0), (180.0, 360.0)), margin=5, debounce=0.2),
    "proximity": lambda: Proximity(distance=80, near_for=0.3, track_ttl=1.5),
    "direction": lambda: Direction(smoothing=0.5, debounce=0.2),
    "speed": lambda: Speed(**FLAT, smoothing=0.5, limit_kmh=10, debounce=0.2),
}


def wandering(rng, times, source, begin=0):
    """Five tracks that come and go."""
    places = {}
    for track in range(1, 6):
        at = rng.uniform([80, 80], [270, 270]) + np.cumsum(rng.normal(0, 20, (len(times), 2)), axis=0)
        seen = rng.random(len(times)) < 0.8
        places[track] = [tuple(p) if s else None for p, s in zip(at.tolist(), seen, strict=True)]
    footage = walk(places, source=source, times=times.tolist())
    for frame in footage:
        frame.index += begin
    return footage


def seen(done, stage):
    """By source what is told, frame by frame, without a line's counts, which go on; and the column, if any."""
    events_by_source = {}
    columns = {}
    for frame in done:
        frame_events = events_by_source.setdefault(frame.source, {}).setdefault(frame.index, [])
        for event in frame.events:
            data = {name: entry for name, entry in event.data.items() if name not in ("in", "out")}
            frame_events.append((event.kind, event.track_id, data))
        for column in stage.spec.columns:
            columns.setdefault(frame.source, []).extend(frame.detections.extra[column].tolist())
    return events_by_source, columns


def ends(first, frames):
    """What of a part was under way at its end, by the events of that part: who was in, and which pairs were near."""
    last = {track: f.pts_s for f in frames for track in f.detections.track_id.tolist()}
    both = {pair: f.pts_s for f in frames for pair in itertools.combinations(sorted(f.detections.track_id.tolist()), 2)}
    stays = {}
    pairs = {}
    for kind, track, data in itertools.chain.from_iterable(first.values()):
        if kind in ("entered", "left"):
            stays[track] = data["at_s"] if kind == "entered" else None
        elif kind in ("met", "parted"):
            pairs[track, data["other"]] = data["since_s"] if kind == "met" else None
    inside = sorted(track for track, entered_s in stays.items() if entered_s is not None)
    ending = []
    for left, track in enumerate(inside, 1):
        dwell_s, at_s = (pytest.approx(exact_s, abs=2e-6) for exact_s in (last[track] - stays[track], last[track]))
        data = {"label": "person", "count": len(inside) - left, "dwell_s": dwell_s, "at_s": at_s, "lost": True}
        ending.append(("left", track, data))
    for pair, since_s in pairs.items():
        if since_s is not None:
            together_s = pytest.approx(both[pair] - since_s, abs=2e-6)
            data = {"other": pair[1], "labels": ["person"] * 2, "together_s": together_s}
            ending.append(("parted", pair[0], data))
    return sorted(ending, key=by_track)


def by_track(event):
    kind, track, data = event
    return kind, track, data.get("other")


@pytest.mark.parametrize("name", STAGES)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 100_000), back=st.sampled_from([0.11, 1.0, 4.0, 100.0]), sizes=st.integers(2, 9))
def test_after_a_time_jump_back_events_equal_those_of_a_new_source(name, seed, back, sizes):
    """Two parts joined tell what each tells alone, with what was under way at the end of the first, in any batches."""
    times = np.round(np.arange(40) * 0.1, 6)

    def frames():
        rng = np.random.default_rng(seed)
        first, second = (wandering(rng, t, "a", begin) for t, begin in ((times[:23], 0), (times[23:] - back, 23)))
        return first, second, wandering(rng, times, "b")

    first, second, other = frames()
    alone = {"a1": seen(run_stage(STAGES[name](), first), STAGES[name]())}
    alone["a2"] = seen(run_stage(STAGES[name](), second), STAGES[name]())
    alone["b"] = seen(run_stage(STAGES[name](), other), STAGES[name]())
    expected = {**alone["a1"][0]["a"], **alone["a2"][0]["a"]}
    under_way = ends(alone["a1"][0]["a"], first)
    for size in (1, 32, [sizes, 1, 5]):
        first_part, second_part, other = frames()
        mixed = [frame for pair in zip(first_part + second_part, other, strict=True) for frame in pair]
        events_by_source, columns = seen(run_stage(STAGES[name](), mixed, batch=size), STAGES[name]())
        assert events_by_source["b"] == alone["b"][0]["b"]
        over = events_by_source["a"][23][: len(under_way)]
        events_by_source["a"][23] = events_by_source["a"][23][len(under_way) :]
        assert sorted(over, key=by_track) == under_way
        assert events_by_source["a"] == expected
        if columns:
            np.testing.assert_array_equal(columns["a"], alone["a1"][1]["a"] + alone["a2"][1]["a"])
            np.testing.assert_array_equal(columns["b"], alone["b"][1]["b"])


def test_an_overcrowded_area_stays_so_and_durations_restart():
    three = {t: [(150, 150)] * 8 for t in (1, 2, 3)}
    times = [10, 11, 12, 13, 1, 2, 3, 4]
    events = stage_events(Zone(polygon=BOX, more_than=2, crowded_for=2.0), walk(three, times=times))
    assert [(f, k, d["since_s"]) for f, k, _, d in events if "crowd" in k or k == "cleared"] == [
        (2, "overcrowded", 10.0)
    ]
    events = stage_events(Zone(polygon=BOX, more_than=2, crowded_for=4.0), walk(three, times=times))
    assert not [k for _, k, _, _ in events if k == "overcrowded"], "neither part lasts for long enough"
    longer = walk({t: [(150, 150)] * 7 for t in (1, 2, 3)}, times=[10, 11, 1, 2, 3, 3.75, 4])
    events = stage_events(Zone(polygon=BOX, more_than=2, crowded_for=3.0), longer)
    assert [(f, d["since_s"]) for f, k, _, d in events if k == "overcrowded"] == [(6, 1.0)], "from the new time on"
    fewer = {t: [(150, 150)] * (8 if t == 1 else 4) for t in (1, 2, 3)}
    events = stage_events(Zone(polygon=BOX, more_than=2, crowded_for=2.0), walk(fewer, times=times))
    assert [(f, d["since_s"]) for f, k, _, d in events if k == "cleared"] == [(6, 1.0)]


def test_counts_of_a_line_continue():
    across = [(100, 100), (300, 100)] * 3
    events = stage_events(LineCounter(line=((180, 0), (180, 360))), walk({1: across}, times=[10, 11, 12, 1, 2, 3]))
    assert [(f, d["direction"], d["in"], d["out"]) for f, _, _, d in events] == [
        (1, "out", 0, 1),
        (2, "in", 1, 1),
        (4, "in", 2, 1),
        (5, "out", 2, 2),
    ]


@pytest.mark.parametrize("name", STAGES)
def test_memory_does_not_grow_with_time_jumps(name):
    stage = STAGES[name]()
    stage.open()
    states = {"test": stage.new_state("test")}
    for turn in range(60):
        tracks = {t: [(150.0, 150.0)] * 3 for t in range(4 * turn, 4 * turn + 4)}
        for frame in walk(tracks, times=[0.0, 1.0, 2.0]):
            stage.process(Batch([frame], tables=frame.tables), states)
    memory = {
        "zone": lambda: len(stage._occupancy.tracks),
        "line": lambda: len(stage._crossings.tracks),
        "proximity": lambda: len(stage._pairs[states["test"]]),
    }.get(name, lambda: len(stage._motion.tracks))
    assert memory() <= 6
