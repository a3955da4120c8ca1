"""Windows of time: which are told, when time goes on, leaps ahead or goes back."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.walks import told, walk

from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.stages.analytics.zone import Zone

BOX = ((100.0, 100.0), (200.0, 100.0), (200.0, 200.0), (100.0, 200.0))
IN, OUT = (150, 150), (50, 150)
DAY_AND_MORE = 2**33 / 90_000  # the range of the clock of an MPEG transport stream, in seconds


def windows(places, times, window, batch=4, **options):
    """(frame, data) of a zone's windows."""
    stage = Zone(polygon=BOX, margin=5, window=window, **options)
    return [(f, d) for f, k, _, d in told(stage, walk({7: places}, times=times), batch) if k == "occupancy"]


def spans(events):
    return [(frame, data["from_s"], data["to_s"]) for frame, data in events]


def test_each_of_several_that_are_over_is_told():
    assert spans(windows([OUT] * 3, [0, 1, 11], 5.0)) == [(2, 0.0, 5.0), (2, 5.0, 10.0)]
    assert len(windows([OUT] * 3, [0, 1, 50], 5.0)) == 10


@pytest.mark.parametrize("leap_s", [50.1, DAY_AND_MORE])
def test_a_leap_ahead_tells_the_one_that_was_open_and_begins_anew(leap_s):
    events = windows([IN, OUT, OUT, IN, OUT], [0, 2, leap_s, leap_s + 1, leap_s + 5], 5.0)
    assert spans(events) == [(2, 0.0, 5.0), (4, round(leap_s, 6), round(leap_s + 5, 6))]
    assert [(d["mean"], d["most"], d["entered"], d["left"]) for _, d in events] == [(0.4, 1, 1, 1), (0.8, 1, 1, 0)]
    stage = LineCounter(line=((0, 100), (640, 100)), window=5.0)
    times = [0, 2, leap_s, leap_s + 5]
    counted = told(stage, walk({7: [(9, 50), (9, 150), (9, 150), (9, 150)]}, times=times))
    assert [(f, d["in"]) for f, k, _, d in counted if k == "counted"] == [(2, 1), (3, 0)]


def test_time_that_goes_back_cuts_the_window_short():
    events = windows([IN, IN, OUT, OUT, IN, OUT], [10, 11, 12, 2, 3, 7], 5.0)
    assert spans(events) == [(3, 10.0, 12.0), (5, 2.0, 7.0)]
    assert [(d["mean"], d["most"], d["entered"], d["left"]) for _, d in events] == [(1.0, 1, 1, 1), (0.8, 1, 1, 0)]


def test_a_window_of_one_frame_has_its_number_as_mean():
    assert windows([IN, OUT], [10, 2], 5.0) == [
        (1, {"mean": 1.0, "most": 1, "entered": 1, "left": 0, "from_s": 10.0, "to_s": 10.0})
    ]


STEPS = st.lists(st.sampled_from([0.25, 0.25, 0.5, 1.0, 7.0, 40.0, -0.5, -30.0]), max_size=25)


@settings(max_examples=80, deadline=None)
@given(STEPS, st.integers(0, 1000), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_nothing_is_told_twice_and_nothing_is_left_out(steps, seed, sizes):
    rng = np.random.default_rng(seed)
    times = np.cumsum([100.0, *steps]).tolist()
    places = [IN if one else OUT for one in rng.random(len(times)) < 0.5]
    given_ = walk({7: places}, times=times)
    stage = Zone(polygon=BOX, margin=5, window=2.0)
    events = told(stage, given_, batch=sizes)
    assert events == told(Zone(polygon=BOX, margin=5, window=2.0), walk({7: places}, times=times), batch=32)
    waiting = {"entered": 0, "left": 0}
    later: dict[str, int] = {}  # what the frame tells itself is of the next window
    at = -1
    for frame, kind, _, data in events:
        if frame != at:
            waiting = {name: n + later.get(name, 0) for name, n in waiting.items()}
            at, later = frame, {}
        if kind == "occupancy":
            assert {name: data[name] for name in waiting} == waiting
            assert 0 <= data["to_s"] - data["from_s"] <= 2.0
            assert 0 <= data["mean"] <= data["most"] <= 1
            waiting = dict.fromkeys(waiting, 0)
        else:
            later[kind] = later.get(kind, 0) + 1
    told_s = [(data["from_s"], data["to_s"]) for _, kind, _, data in events if kind == "occupancy"]
    for (_, before), (after, _) in itertools.pairwise(told_s):
        assert after in (before, *times)
