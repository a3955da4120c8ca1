"""A running source is quiet when no frame has come for three times the usual time between its frames."""

import pytest

from streamkit.runtime.ingest.source_status import SourceState
from streamkit.serve.frame_gaps import FrameGaps


class Sampled:
    """One source that is sampled once a second."""

    def __init__(self):
        self.gaps = FrameGaps()
        self.now_s = 100.0
        self.state = SourceState(state="running")

    def seconds(self, *frames):
        """Sample after each second, in which so many frames came."""
        for count in frames:
            self.now_s += 1
            self.state.frames += count
            self.gaps.sample(self.now_s, {"gate": self.state})

    @property
    def quiet_s(self):
        return self.gaps.quiet_s("gate", self.now_s)


@pytest.fixture(name="gate")
def gate_fixture():
    return Sampled()


def test_a_camera_is_quiet_after_three_seconds_without_a_frame(gate):
    gate.seconds(25, 25, 25, 0, 0, 0)
    assert gate.quiet_s is None
    gate.seconds(0)
    assert gate.quiet_s == 4
    gate.seconds(25)
    assert gate.quiet_s is None


def test_a_slow_camera_is_measured_against_its_own_rate(gate):
    slow = [1, 0, 0, 0]  # a frame every four seconds
    gate.seconds(*slow * 3)
    gate.seconds(*[0] * 9)
    assert gate.quiet_s is None
    gate.seconds(0)
    assert gate.quiet_s == 13


def test_an_outage_does_not_change_the_usual_interval(gate):
    gate.seconds(25, 25, 25, *[0] * 20, 25, 25, 0, 0, 0, 0)
    assert gate.quiet_s == 4


def test_the_rate_is_that_of_the_last_frames(gate):
    gate.seconds(*[1, 0, 0, 0] * 4, *[25] * 6, 0, 0, 0, 0)
    assert gate.quiet_s == 4


def test_a_source_with_a_single_frame_has_no_rate_yet(gate):
    gate.seconds(0, 0, 1, *[0] * 60)
    assert gate.quiet_s is None


@pytest.mark.parametrize("state", ["paused", "reconnecting", "ended", "failed", "connecting"])
def test_only_running_sources_are_quiet(gate, state):
    gate.seconds(25, 25, 0, 0, 0, 0)
    gate.state.state = state
    gate.seconds(0)
    assert gate.quiet_s is None
    gate.state.state = "running"
    gate.seconds(*[0] * 60)  # it begins again: its rate is not known
    assert gate.quiet_s is None


def test_removed_and_unknown_sources_are_not_quiet(gate):
    gate.seconds(25, 25, 0, 0, 0, 0)
    gate.state.removed = True
    gate.seconds(0)
    assert gate.quiet_s is None
    assert gate.gaps.quiet_s("yard", gate.now_s) is None
