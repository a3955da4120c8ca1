"""Playing a file as a camera would."""

import time

import pytest

from streamkit.core.data import Frame
from streamkit.media import pacing
from streamkit.media.pacing import Pacer


def handed_out(pacer: Pacer, index: int) -> Frame:
    due_s = pacer.due_s(index, index / 10)
    pacer.wait(due_s)
    assert time.monotonic() >= due_s
    return Frame("a", index, index / 10, 16, 16, due_s=due_s)


def test_delaying_a_frame_delays_the_following():
    pacer = Pacer(100.0, 0.1, 0, "a")
    pacer.absorb_delay(Frame("a", 0, 0.0, 16, 16, due_s=5.0))  # of a live source, which has no pace
    first = handed_out(pacer, 0)
    pacer.absorb_delay(first)
    second = handed_out(pacer, 1)
    assert abs(second.due_s - first.due_s - 0.01) < 1e-9
    second.due_s += 0.5  # as by a pause
    pacer.absorb_delay(second)
    third = pacer.due_s(2, 0.2)
    fourth = pacer.due_s(3, 0.3)
    assert abs(third - first.due_s - 0.52) < 1e-9
    assert abs(fourth - third - 0.01) < 1e-9


class Clock:
    """The monotonic clock, in seconds, that a test moves."""

    def __init__(self, now_s=1000.0):
        self.now_s = now_s

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        assert 0 < seconds <= 0.05, "short naps, so that a source ends soon when it is stopped"
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    test_clock = Clock()
    monkeypatch.setattr(pacing, "time", test_clock)
    return test_clock


def start_pacer(pacer, clock):
    """A pacer whose first frame is due now."""
    first = pacer.due_s(0, 5.0)
    clock.now_s = first
    return first


@pytest.mark.parametrize("hole_s", [9.9, 0.5, 0.0, -0.5, -9.9])
def test_a_short_gap_is_waited_for(clock, hole_s):
    pacer = Pacer("realtime", 0.04, 7, "a")
    first = start_pacer(pacer, clock)
    assert pacer.due_s(1, 5.0 + hole_s) == pytest.approx(first + hole_s)
    assert pacer.due_s(2, 5.04 + hole_s) == pytest.approx(first + hole_s + 0.04)


@pytest.mark.parametrize("hole_s", [10.0, 10.1, 3600.0, -10.0, -3600.0])
def test_a_long_gap_is_skipped(clock, hole_s):
    """Time that jumps, as where files were joined, is no pause: the next frame is due at once."""
    pacer = Pacer("realtime", 0.04, 7, "a")
    phase_s = start_pacer(pacer, clock) - 1000.0
    clock.now_s += 3.0
    again = clock.now_s + phase_s
    assert pacer.due_s(1, 5.0 + hole_s) == pytest.approx(again)
    assert pacer.due_s(2, 5.04 + hole_s) == pytest.approx(again + 0.04)
    assert pacer.due_s(3, 14.9 + hole_s) == pytest.approx(again + 9.9)
    assert pacer.due_s(4, 24.8 + hole_s) == pytest.approx(again + 19.8), "a hole is measured from frame to frame"


def test_a_rate_paces_by_frames_and_not_by_media_time(clock):
    pacer = Pacer(4.0, 0.04, 7, "a")
    first = start_pacer(pacer, clock)
    assert [pacer.due_s(n, 1000.0 * n) - first for n in range(1, 5)] == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_a_phase_is_below_a_frame_time_and_differs_by_source(clock):
    def phases(pace, phase, names):
        return [Pacer(pace, 0.04, phase, name).due_s(0, 0.0) - 1000.0 for name in names]

    names = [f"cam-{n}" for n in range(50)]
    delays = phases("realtime", 1, names)
    assert all(0 <= delay_s < 0.04 for delay_s in delays)
    assert max(delays) > 0.03
    assert delays == phases("realtime", 1, names)
    assert delays != phases("realtime", 2, names)
    assert len(set(delays)) == 50
    assert max(phases(2.0, 1, names)) > 0.4, "of the pace's own step"
    assert len(set(phases("realtime", None, ["a"] * 20))) == 20


def test_a_wait_ends_at_its_time_or_when_stopped(clock):
    pacer = Pacer("realtime", 0.04, 7, "a")
    pacer.wait(clock.now_s - 1)
    assert clock.now_s == 1000.0
    pacer.wait(1000.12)
    assert clock.now_s == pytest.approx(1000.12)
    pacer.stopped = True
    pacer.wait(2000.0)
    assert clock.now_s == pytest.approx(1000.12)
