"""Faults by a made-up clock: when each begins and ends, and what it does to frames, packets and counts."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Frame, Surface
from streamkit.core.errors import SourceError
from streamkit.core.fault_schedule import Fault
from streamkit.core.retry import Retry
from streamkit.core.stage import Context, Source
from streamkit.media import corruption
from streamkit.runtime.ingest import fault_injector
from streamkit.runtime.ingest.fault_injector import FaultInjector, FaultySource, faults_message, faults_of


class Clock:
    """The clock of the faults; a sleep moves it on, and does what a test gives."""

    def __init__(self, monkeypatch):
        self.now_s, self.sleeps, self.then = 1000.0, [], lambda: None
        monkeypatch.setattr(
            fault_injector, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep)
        )  # fmt: skip

    def _sleep(self, seconds):
        self.sleeps.append(seconds)
        assert len(self.sleeps) < 10_000
        self.now_s += seconds
        self.then()


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class ScriptedSource(Source):
    """Yields what a test gives; notes the calls."""

    unbounded = "its own"
    retry = Retry(max_wait_s=7.0)

    def __init__(self, frames=()):
        self._frames, self.calls = frames, []

    def open(self):
        self.calls.append("open")

    def close(self):
        self.calls.append("close")

    def stop(self):
        self.calls.append("stop")

    def frames(self):
        yield from self._frames


class Video(ScriptedSource, reads_packets=True):
    """The same with packets."""


def picture(index, pts_s, value=None, size=(16, 16), **fields):
    """A frame, with a surface of one gray if `value` is given."""
    width, height = size
    surface = None if value is None else Surface(np.full((height * 3 // 2, width), value, np.uint8), Color())
    return Frame("cam", index, pts_s, width, height, surface, **fields)


def start_injector(**fault):
    faults = FaultInjector(Fault(**fault), "cam")
    faults.begin()
    return faults


def faulty(inner, **fault):
    source = FaultySource(inner, FaultInjector(Fault(**fault), "cam"))
    source.context = Context("cam", counters=Counters())
    return source


def counts(source):
    return dict(source.context.counters.values)


# ------------------------------------------------------------------------------------------------------------- clocks


def test_times_of_a_file_are_those_of_its_frames_from_the_first_on(clock):
    faults = start_injector(fail={"at": 99.0})
    times_s = []
    for pts_s in (5.0, 6.5, 5.0, 5.5, 5.5, 0.0, 4.0):  # goes back at the start of each loop
        clock.now_s += 100.0
        faults.advance(picture(0, pts_s))
        times_s.append(faults.time_s)
    assert times_s == [0.0, 1.5, 1.5, 2.0, 2.0, 2.0, 6.0]
    assert not faults.realtime


def test_times_of_a_live_source_are_those_of_the_clock_from_the_first_opening_on(clock):
    faults = start_injector(fail={"at": 99.0})
    clock.now_s += 2.0
    faults.advance(picture(0, 50.0, due_s=1.0))
    assert faults.realtime
    assert faults.time_s == 2.0
    faults.begin()
    clock.now_s += 0.5
    assert faults.time_s == 2.5


def test_there_is_no_time_before_the_first_opening():
    faults = FaultInjector(Fault(away={"at": 1.0, "for": 1.0}), "cam")
    with pytest.raises(AssertionError, match="call begin first"):
        _ = faults.time_s
    with pytest.raises(AssertionError, match="call begin first"):
        faults.outage_left_s(Counters())


def test_times_of_packets_are_those_of_their_decoding(clock):
    faults = start_injector(corrupt={"at": 99.0, "for": 1.0})
    faults.advance(picture(0, 0.0))
    faults.advance(picture(1, 7.0))

    def packet_s(pts, dts, time_base=Fraction(1, 10)):
        return faults.packet_s(SimpleNamespace(pts=pts, dts=dts, time_base=time_base))

    assert packet_s(99, 0) == 0.0
    assert packet_s(99, 20) == 2.0
    assert packet_s(35, None) == 3.5
    assert packet_s(None, None) == 7.0, "that of the frames"
    assert packet_s(50, 50, None) == 3.5, "no time of its own"
    assert packet_s(55, 55) == 5.5
    faults.realtime = True
    clock.now_s += 0.25
    assert packet_s(90, 90) == 0.25


@pytest.mark.parametrize("realtime", [False, True])
def test_what_was_due_while_a_live_source_was_closed_is_skipped(clock, realtime):
    window = {"at": 1.0, "for": 0.5}
    faults = start_injector(fail={"at": 1.0}, freeze=window, still=window, corrupt=window, away=window)
    faults.realtime = realtime
    clock.now_s += 3.0
    faults.begin()
    schedules = (faults.fail, faults.freeze, faults.still, faults.corrupt)
    assert [schedule.spans_started for schedule in schedules] == [realtime] * 4
    assert faults.away.spans_started == 0
    if realtime:
        assert not faults.fails(0)


def test_a_source_fails_at_each_number_and_at_each_time(clock):
    faults = start_injector(fail={"frame": [3, 5, 6], "at": 10.0})
    faults.advance(picture(0, 0.0))
    assert [faults.fails(index) for index in (0, 2, 3, 4, 7, 8)] == [False, False, True, False, True, False]
    faults.advance(picture(9, 10.0))
    assert [faults.fails(9), faults.fails(9)] == [True, False]
    assert faults.fault.frame_numbers == [3, 5, 6]


def test_a_file_is_away_for_so_long_from_the_frame_on(clock):
    faults, counters = start_injector(away={"at": 1.0, "for": 0.5}), Counters()
    faults.advance(picture(0, 0.0))
    assert faults.outage_left_s(counters) <= 0
    faults.advance(picture(30, 1.25))
    assert faults.outage_left_s(counters) == 0.5
    clock.now_s += 0.125
    assert faults.outage_left_s(counters) == 0.375
    clock.now_s += 0.5
    assert faults.outage_left_s(counters) == -0.125
    assert counters.values == {"fault: times away": 1}


@pytest.mark.parametrize(("later_s", "left_s", "times"), [(1.25, 0.25, 1), (1.5, 0.0, 0), (3.0, -1.5, 0)])
def test_a_live_source_is_away_at_its_time_of_the_clock(clock, later_s, left_s, times):
    faults, counters = start_injector(away={"at": 1.0, "for": 0.5}), Counters()
    faults.realtime = True
    clock.now_s += later_s
    assert faults.outage_left_s(counters) == left_s
    assert counters["fault: times away"] == times


# ------------------------------------------------------------------------------------------------------------- source


def test_a_faulty_source_is_opened_and_read_as_the_source_itself(clock):
    inner = ScriptedSource([picture(0, 0.0), picture(1, 0.5)])
    source = faulty(inner, fail={"at": 99.0})
    assert (source.unbounded, source.retry) == ("its own", Retry(max_wait_s=7.0))
    source.open()
    assert inner.context is source.context
    assert [frame.index for frame in source.frames()] == [0, 1]
    source.close()
    source.stop()
    assert inner.calls == ["open", "close", "stop"]
    assert counts(source) == {}


@pytest.mark.parametrize(
    ("kind", "fault", "damages"), [(Video, "corrupt", 1), (Video, "still", 0), (ScriptedSource, "corrupt", 0)]
)
def test_packets_are_damaged_where_there_are_packets(clock, monkeypatch, kind, fault, damages):
    damaged = []
    monkeypatch.setattr(corruption, "flip_bytes", lambda *call: damaged.append(call))
    inner = kind([picture(0, 0.0, 50)])
    source = faulty(inner, **{fault: {"at": 1.0, "for": 0.5}})
    source.open()
    assert (inner.context is source.context) == (not damages)
    assert (inner.context.runtime.on_packet is not None) == bool(damages)
    assert source.context.runtime.on_packet is None
    packets = [SimpleNamespace(pts=None, dts=ticks, time_base=Fraction(1, 10)) for ticks in (0, 10, 14, 15, 30)]
    for packet in packets if damages else ():
        inner.context.runtime.on_packet(packet)
    if damages:
        assert [packet for packet, _, _ in damaged] == packets[1:3]
        assert {(share, chance) for _, share, chance in damaged} == {(0.01, source._faults.chance)}
        assert counts(source) == {"fault: packets corrupted": 2}
        (frame,) = source.frames()
        assert (frame.surface.data == 50).all(), "a video's frames are left alone"


def test_a_source_that_is_away_refuses_to_open_until_it_is_back(clock):
    inner = ScriptedSource()
    source = faulty(inner, away={"at": 0.0, "for": 2.5})
    with pytest.raises(SourceError) as raised:
        source.open()
    assert str(raised.value) == "connection refused: injected outage for another 2.5 s (fault: away)"
    assert (raised.value.cause, inner.calls) == ("refused", [])
    assert counts(source) == {"fault: times away": 1, "fault: openings refused": 1}
    clock.now_s += 2.5
    source.open()
    assert inner.calls == ["open"]
    assert counts(source) == {"fault: times away": 1, "fault: openings refused": 1}


@pytest.mark.parametrize(
    ("fault", "message", "counted"),
    [
        ({"fail": {"at": 1.0}}, "injected failure at 1.50 s, frame 9 (fault: fail)", {"fault: failures": 1}),
        (
            {"away": {"at": 1.0, "for": 2.5}}, "connection lost: injected outage for 2.5 s (fault: away)",
            {"fault: times away": 1},
        ),
    ],
)  # fmt: skip
def test_a_failure_and_an_outage_are_lost_connections(clock, fault, message, counted):
    source = faulty(ScriptedSource([picture(8, 3.0), picture(9, 4.5), picture(10, 5.0)]), **fault)
    source.open()
    frames = source.frames()
    assert next(frames).index == 8
    with pytest.raises(SourceError) as raised:
        next(frames)
    assert (str(raised.value), raised.value.cause) == (message, "lost")
    assert counts(source) == counted


# ------------------------------------------------------------------------------------------------------------- freeze


def test_frames_of_a_live_source_are_missed_in_a_freeze(clock):
    def frames():
        for index in range(9):
            yield picture(index, 0.0, due_s=clock.now_s)
            clock.now_s += 0.25

    source = faulty(ScriptedSource(frames()), freeze={"at": 0.5, "for": 0.75})
    source.open()
    assert [frame.index for frame in source.frames()] == [0, 1, 5, 6, 7, 8]
    assert counts(source) == {"fault: freezes": 1, "fault: frames missed": 3}
    assert clock.sleeps == []


def test_a_file_waits_in_each_freeze_and_misses_nothing(clock):
    source = faulty(
        ScriptedSource([picture(n, n / 4) for n in range(5)]), freeze={"at": [0.5, 0.9, 0.95], "for": 0.125}
    )
    source.open()
    waited = []
    for frame in source.frames():
        waited.append((frame.index, round(sum(clock.sleeps), 6)))
        clock.sleeps.clear()
    assert waited == [(0, 0), (1, 0), (2, 0.125), (3, 0), (4, 0.25)]
    assert counts(source) == {"fault: freezes": 3}


def test_a_wait_in_a_freeze_is_left_soon_after_a_stop(clock):
    inner = ScriptedSource([picture(n, n / 4) for n in range(5)])
    source = faulty(inner, freeze={"at": 0.5, "for": 60.0})
    source.open()
    clock.then = lambda: source.stop() if len(clock.sleeps) == 3 else None
    assert [frame.index for frame in source.frames()] == [0, 1]
    assert clock.sleeps == [0.05] * 3
    assert inner.calls == ["open", "stop"]


def test_no_frame_follows_a_stop(clock):
    source = faulty(ScriptedSource([picture(n, n / 4) for n in range(5)]), fail={"at": 99.0})
    source.open()
    frames = source.frames()
    next(frames)
    source.stop()
    assert list(frames) == []


# ------------------------------------------------------------------------------------------------------------- images


def test_a_still_image_is_that_of_its_first_frame_at_this_size(clock):
    frames = [
        picture(0, 0.0, 10), picture(1, 1.0, 11), picture(2, 1.1, 12), picture(3, 1.2, 13, (32, 16)),
        picture(4, 1.3, 14, (32, 16)), picture(5, 1.4, 15, (32, 32)), picture(6, 1.5), picture(7, 1.6, 17),
        picture(8, 1.7, 18), picture(9, 2.0, 19),
    ]  # fmt: skip
    source = faulty(ScriptedSource(frames), still={"at": 1.0, "for": 1.0})
    source.open()
    values = [None if frame.surface is None else int(frame.surface.data[0, 0]) for frame in source.frames()]
    assert values == [10, 11, 11, 13, 13, 15, None, 17, 17, 19]
    assert counts(source) == {"fault: frames repeated": 3}


def test_images_are_damaged_in_their_time_only_and_on_copies(clock):
    frames = [picture(n, n / 2, 50) for n in range(5)] + [picture(5, 1.0)]
    surfaces = [frame.surface for frame in frames]
    source = faulty(ScriptedSource(frames), corrupt={"at": 1.0, "for": 0.75, "share": 0.5})
    source.open()
    damaged = [frame.surface is not None and bool((frame.surface.data != 50).any()) for frame in source.frames()]
    assert damaged == [False, False, True, True, False, False]
    assert all((surface.data == 50).all() for surface in surfaces if surface is not None)
    assert counts(source) == {"fault: frames damaged": 2}


# ----------------------------------------------------------------------------------------------------------- messages


def test_faults_by_source():
    fail = Fault(fail={"at": 1.0})
    configs = [SimpleNamespace(id="a", fault=fail), SimpleNamespace(id="b", fault=None)]
    faults = faults_of(configs)
    assert list(faults) == ["a"]
    assert faults["a"].fault is fail
    assert isinstance(faults["a"], FaultInjector)


@pytest.mark.parametrize(
    ("count", "listed"),
    [
        (1, "s0 (fail, still)"),
        (5, "s0 (fail, still), s1 (fail, still), s2 (fail, still), s3 (fail, still), s4 (fail, still)"),
        (6, "s0 (fail, still), s1 (fail, still), s2 (fail, still), s3 (fail, still), s4 (fail, still) and 1 more"),
        (
            17,
            "s0 (fail, still), s1 (fail, still), s2 (fail, still), s3 (fail, still), s4 (fail, still) and 12 more",
        ),
    ],
)
def test_the_message_names_up_to_five_sources(count, listed):
    fault = Fault(fail={"at": 1.0}, still={"at": 1.0, "for": 1.0})
    faults = {f"s{number}": FaultInjector(fault, f"s{number}") for number in range(count)}
    assert faults_message(faults) == f"faults are injected, because the YAML sets `fault`, into {listed}"
