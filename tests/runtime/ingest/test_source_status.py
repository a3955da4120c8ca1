"""What is known of a source."""

import time

import pytest

from streamkit.runtime.ingest.source_status import Rate, RemovedSources, SourceState


def test_states_times_and_returns():
    state = SourceState()
    begun = state.since_s
    assert (state.state, state.cause, state.words) == ("connecting", None, "")
    time.sleep(0.01)
    state.tell("connecting", words="asks for the stream")
    assert (state.since_s, state.words) == (begun, "asks for the stream")
    state.tell("running")
    assert state.since_s > begun
    assert state.reconnects == 0
    for _ in range(3):
        state.tell("reconnecting", "lost", "the connection was lost")
    state.tell("connecting")
    state.tell("running")
    assert state.reconnects == 1
    state.tell("reconnecting", "timeout")
    assert (state.state, state.cause) == ("reconnecting", "timeout")
    state.tell("running")
    assert state.reconnects == 2


def test_a_rate_is_that_of_the_last_seconds():
    rate = Rate()
    assert rate.per_s == 0.0
    for second in range(100):
        rate.see(float(second), second * (10 if second < 50 else 25))
    assert rate.per_s == pytest.approx(25.0)
    for second in range(100, 110):
        rate.see(float(second), 2475)
    assert rate.per_s == 0.0


def test_reports_and_sums():
    state = SourceState(frames=5)
    assert state.report() == {"frames": 5}
    state.live, state.out = True, 3
    state.drops.add("frames dropped: over age", 2)
    state.error = "gone"
    assert not state.settled
    state.done = True
    assert state.settled
    assert state.report() == {"frames": 5, "out": 3, "dropped": {"over_age": 2}, "error": "gone"}
    removed = RemovedSources()
    removed.add(state)
    removed.add(state)
    assert removed.report() == {"sources": 2, "frames": 10, "out": 6, "dropped": {"over_age": 4}, "failed": 2}
