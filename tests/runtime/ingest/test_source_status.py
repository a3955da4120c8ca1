"""What is known of a source."""

import time

import pytest

from streamkit.runtime.ingest.source_status import RemovedSources, SourceState


def test_states_times_and_returns():
    state = SourceState()
    connecting_since_s = state.since_s
    assert (state.state, state.cause, state.message) == ("connecting", None, "")
    time.sleep(0.01)
    state.set_state("connecting", message="asks for the stream")
    assert (state.since_s, state.message) == (connecting_since_s, "asks for the stream")
    state.set_state("running")
    assert state.since_s > connecting_since_s
    assert state.reconnects == 0
    for _ in range(3):
        state.set_state("reconnecting", "lost", "the connection was lost")
    state.set_state("connecting")
    state.set_state("running")
    assert state.reconnects == 1
    state.set_state("reconnecting", "timeout")
    assert (state.state, state.cause) == ("reconnecting", "timeout")
    state.set_state("running")
    assert state.reconnects == 2


def test_a_new_source_has_counted_nothing():
    state = SourceState()
    assert (state.frames, state.out, state.dropped, state.failed, state.failures, state.objects) == (0,) * 6
    assert (state.reconnects, state.pts_s, state.error) == (0, 0.0, None)
    assert not state.begun
    assert not state.done


def test_a_rate_is_that_of_the_last_seconds():
    state = SourceState()
    assert (state.fps_in, state.fps_out, state.rated) == (0.0, 0.0, False)
    for second in range(100):
        state.frames, state.out = second * (10 if second < 50 else 25), 2 * second
        state.sample(float(second))
        assert state.rated == (second > 0)
    assert (state.fps_in, state.fps_out) == (pytest.approx(25.0), pytest.approx(2.0))
    for second in range(100, 110):
        state.sample(float(second))
    assert (state.fps_in, state.fps_out) == (0.0, 0.0)


def test_reports_and_sums():
    state = SourceState(frames=5)
    assert state.report() == {"frames": 5}
    state.live, state.out = True, 3
    state.drops.add("frames dropped: over age", 2)
    state.error = "gone"
    assert not state.complete
    state.done = True
    assert state.complete
    assert state.report() == {"frames": 5, "out": 3, "dropped": {"over_age": 2}, "error": "gone"}
    removed = RemovedSources()
    removed.add(state)
    removed.add(state)
    assert removed.report() == {"sources": 2, "frames": 10, "out": 6, "dropped": {"over_age": 4}, "failed": 2}
