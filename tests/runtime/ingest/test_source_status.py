"""What is known of a source."""

import time

import pytest

from streamkit.core.counters import Counters
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState


def test_a_state_change_sets_its_time_and_counts_reconnects():
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


def test_a_first_connection_is_no_reconnection():
    state = SourceState()
    for _ in range(2):
        state.set_state("connecting")
        state.set_state("running")
    assert state.reconnects == 0


@pytest.mark.parametrize(
    ("done", "frames", "out", "dropped", "complete"),
    [
        (True, 5, 5, 0, True), (True, 5, 3, 2, True), (True, 5, 3, 1, False), (True, 5, 0, 5, True),
        (False, 5, 5, 0, False), (True, 0, 0, 0, True), (True, 5, 6, 0, True),
    ],
)  # fmt: skip
def test_a_source_is_complete_when_it_has_ended_and_all_its_frames_are_accounted_for(
    done, frames, out, dropped, complete
):
    state = SourceState(done=done, frames=frames, out=out)
    state.drops.add("frames dropped: over age", dropped)
    assert state.dropped == dropped
    assert state.complete is complete


def test_rates_are_over_the_last_five_intervals():
    state = SourceState()
    for second, (frames, out) in enumerate([(0, 0), (100, 50), (110, 60), (120, 64), (130, 68), (140, 72), (150, 80)]):
        state.frames = frames
        state.out = out
        state.sample(10.0 + 2 * second)
    assert (state.fps_in, state.fps_out) == (50 / 10, 30 / 10)


def test_two_samples_at_the_same_time_give_no_rate():
    state = SourceState()
    state.sample(3.0)
    assert (state.rated, state.fps_in, state.fps_out) == (False, 0.0, 0.0)
    state.frames = 7
    state.sample(3.0)
    assert (state.rated, state.fps_in, state.fps_out) == (True, 0.0, 0.0)
    state.sample(4.0)
    assert (state.fps_in, state.fps_out) == (7.0, 0.0)


def test_a_report_omits_empty_fields():
    state = SourceState(frames=5, out=4)
    state.live = True
    assert state.report() == {"frames": 5, "out": 4, "dropped": {}}
    state.live = False
    state.drops.add("frames dropped: queue full")
    assert state.report() == {"frames": 5, "out": 4, "dropped": {"queue_full": 1}}
    state.latency = Histogram()
    state.reconnects = 2
    state.error = "gone"
    state.latency.add(1.0)
    assert state.report() == {
        "frames": 5,
        "out": 4,
        "dropped": {"queue_full": 1},
        "latency": state.latency.summary(),
        "reconnects": 2,
        "error": "gone",
    }


def test_counts_of_removed_sources_are_summed():
    removed = RemovedSources()
    assert removed.report() == {"sources": 0, "frames": 0, "out": 0, "dropped": {}}
    for number, error in enumerate([None, "gone", None], 1):
        state = SourceState(frames=10 * number, out=number, error=error)
        state.drops.add("frames dropped: over age", number)
        state.counters.add("reconnects", 2 * number)
        removed.add(state)
        assert removed.failed_sources == (number > 1)
    assert removed.report() == {"sources": 3, "frames": 60, "out": 6, "dropped": {"over_age": 6}, "failed": 1}
    assert (removed.counters.values, removed.counters["reconnects"]) == ({"reconnects": 12}, 12)
    assert isinstance(removed.drops, Counters)
    assert removed.drops is not removed.counters
