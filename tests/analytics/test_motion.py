import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.walks import walk

from streamkit.analytics.motion import Motion
from streamkit.analytics.per_source_steps import Clocks, Labels, PositionOptions, source_steps
from streamkit.core.data import Batch


def velocities(places, times, smoothing_s=1.0):
    motion = Motion(smoothing_s, 5.0)
    labels = Labels()
    clocks = Clocks()
    velocity_rows = []
    for frame in walk({7: places}, times=times):
        batch = Batch([frame], tables={"detect": frame.detections})
        for step in source_steps(batch, {"test": 0}, PositionOptions(), labels, clocks):
            _, velocity = motion.update(step, step.xy)
            velocity_rows += velocity.tolist()
    return np.array(velocity_rows)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.02, 0.5), min_size=6, max_size=30),
    st.tuples(st.floats(-20, 20), st.floats(-10, 10)),
    st.sampled_from([0.3, 1.0, 3.0]),
)
def test_constant_motion_is_measured_exactly_at_any_frame_rate(steps, velocity, smoothing_s):
    times = np.cumsum(steps)
    places = [(320 + velocity[0] * (t - times[0]), 200 + velocity[1] * (t - times[0])) for t in times]
    places = [(float(np.clip(x, 10, 630)), float(np.clip(y, 30, 350))) for x, y in places]
    if places[-1] != pytest.approx(
        (320 + velocity[0] * (times[-1] - times[0]), 200 + velocity[1] * (times[-1] - times[0]))
    ):
        return  # it would leave the picture
    measured = velocities(places, times.tolist(), smoothing_s)
    is_measured = ~np.isnan(measured[:, 0])
    assert np.allclose(measured[is_measured], velocity, atol=2e-3)  # boxes are float32
    assert is_measured.tolist() == [i >= 2 and t - times[0] >= smoothing_s / 2 for i, t in enumerate(times)]


def test_the_estimate_equals_weighted_least_squares():
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.uniform(0.02, 0.3, 40))
    places = [tuple(p) for p in (rng.uniform(50, 300, 2) + np.cumsum(rng.normal(0, 4, (40, 2)), axis=0)).tolist()]
    measured = velocities(places, times.tolist(), 1.0)
    at = np.array([(np.float32(x - 4) / 2 + np.float32(x + 4) / 2, np.float32(y)) for x, y in places])
    for i in range(15, 40):
        age = times[i] - times[: i + 1]
        slope = np.polynomial.polynomial.polyfit(-age, at[: i + 1], 1, w=np.sqrt(np.exp(-age)))[1]
        assert np.allclose(measured[i], slope, atol=1e-3)


def test_a_state_changes_after_an_uninterrupted_duration():
    motion = Motion(1.0, 10.0)
    rows, _ = motion.tracks.find(np.zeros(2, np.int64), np.array([7, 8]))

    def turned(now_s, *state):
        return motion.turned(rows, np.array(state), np.full(2, now_s), 1.0).tolist()

    assert turned(0.0, 3, 3) == [False, False]
    assert turned(0.75, 3, -1) == [False, False]  # the second falls back to what it was
    assert turned(1.0, 3, 3) == [True, False]  # exactly as long as it must last
    assert turned(1.75, 3, 3) == [False, False]
    assert turned(2.0, 3, 3) == [False, True]
    assert motion.tracks["state"][rows].tolist() == [3, 3]
    assert turned(2.25, 5, 3) == [False, False]
    assert turned(3.25, 5, 3) == [True, False]
