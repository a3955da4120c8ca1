"""The batcher by a made-up clock, on one thread: who has room, who waits and how long, and what is too old."""

from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from support.batches import LONG_S, frame, in_thread, names

from streamkit.core.counters import Counters
from streamkit.core.data import Frame
from streamkit.runtime.execution.channel import Aborted
from streamkit.runtime.ingest import batcher as batcher_module
from streamkit.runtime.ingest.batcher import LIVE_LATENCY_S, QUEUE_FULL, TOO_OLD, Batcher


class Full(Exception):
    """A source had to wait for room."""


class Clock:
    def __init__(self, monkeypatch):
        self.now_s = 1000.0
        monkeypatch.setattr(batcher_module, "time", SimpleNamespace(monotonic=lambda: self.now_s))


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def begin_inlets(batcher: Batcher, *sources: str, expected: int = 0) -> list:
    batcher.expect(len(sources) + expected)
    return [batcher.begin(source) for source in sources]


def waits(batcher: Batcher, clock: Clock) -> list[float | None]:
    """The waits of `next`, which move the clock on instead; one without an end fails."""
    noted: list[float | None] = []

    def wait(timeout=None):
        noted.append(timeout)
        assert timeout is not None, "it waits for ever"
        assert len(noted) < 100
        clock.now_s += timeout

    batcher._changed.wait = wait
    return noted


def never(timeout=None):
    raise Full


def room(inlet) -> int:
    """How many frames of a file the inlet takes before the source has to wait."""
    inlet.room.wait = never
    with suppress(Full):
        for index in range(1000):
            inlet.put(frame(inlet.source, index))
    return len(inlet.waiting)


def live(source: str, index: int, due_s: float) -> Frame:
    live_frame = frame(source, index)
    live_frame.due_s = due_s
    return live_frame


# ----------------------------------------------------------------------------------------------------------- room


@pytest.mark.parametrize(
    ("size", "ahead", "sources", "expected"),
    [
        (4, 2, 1, 8), (4, 3, 1, 12), (4, 2, 2, 4), (4, 2, 3, 3), (4, 1, 3, 2), (5, 1, 2, 3), (4, 0, 1, 2), (1, 1, 1, 2),
        (3, 1, 1, 3), (9, 1, 4, 3),
    ],
)  # fmt: skip
def test_the_room_of_a_source_is_its_share_of_the_batches_ahead(size, ahead, sources, expected):
    first, *_ = begin_inlets(Batcher(size, LONG_S, np, ahead), *map(str, range(sources)))
    assert room(first) == expected


def test_two_batches_may_wait_by_default_and_no_frame_is_older_than_a_second(clock):
    assert LIVE_LATENCY_S == 1.0
    batcher = Batcher(4, LONG_S, np)
    (film,) = begin_inlets(batcher, "film")
    assert room(film) == 8
    for due_s, leaves in ((clock.now_s - 1.25, False), (clock.now_s - 1.0, True)):
        batcher = Batcher(1, 0.0, np)
        (gate,) = begin_inlets(batcher, "gate")
        gate.put(live("gate", 0, due_s))
        gate.end()
        assert len(batcher.next()) == leaves


@pytest.mark.parametrize(("size", "ahead", "expected"), [(5, 0, 5), (3, 1, 3), (3, 2, 6)])
def test_in_batches_of_one_source_each_source_has_room_for_a_full_one(size, ahead, expected):
    (film,) = begin_inlets(Batcher(size, LONG_S, np, ahead, per_source=True), "film")
    assert room(film) == expected


def test_the_room_of_a_source_grows_when_another_has_ended_once():
    batcher = Batcher(6, LONG_S, np, 1)
    film, other, _ = begin_inlets(batcher, "film", "other", "third")
    assert room(film) == 2
    for _ in range(3):
        other.end()
    film.room.wait = never
    film.put(frame("film", 2))
    with pytest.raises(Full):
        film.put(frame("film", 3))
    assert batcher.waiting == 3


FHD, UHD = (1920, 1080), (3840, 2160)


@pytest.mark.parametrize(
    ("size", "ahead", "pixels", "live_bytes", "expected"),
    [
        (4, 0, (64, 48), 10**9, 16),
        (4, 2, FHD, 16 * 3110400, 16),
        (4, 2, FHD, 9 * 3110400, 9),
        (4, 2, FHD, 9 * 3110400 - 1, 8),
        (4, 2, UHD, 0, 8),
        (5, 1, FHD, 4 * 3110400, 5),
        (3, 1, UHD, 4 * 3110400, 4),
    ],
)
def test_a_live_source_keeps_four_frames_or_more_if_there_is_memory_and_loses_the_oldest(
    size, ahead, pixels, live_bytes, expected
):
    batcher = Batcher(size, LONG_S, np, ahead, live_bytes=lambda: live_bytes)
    (gate,) = begin_inlets(batcher, "gate")
    frames = [live("gate", index, 0.0) for index in range(expected + 1)]
    for live_frame in frames:
        live_frame.width, live_frame.height = pixels
    for live_frame in frames[:-1]:
        gate.put(live_frame)
    assert (batcher.waiting, dict(gate.drops.values)) == (expected, {})
    gate.put(frames[-1])
    assert (batcher.waiting, dict(gate.drops.values)) == (expected, {QUEUE_FULL: 1})
    assert gate.waiting[0][1].index == 1


def test_live_sources_share_the_memory_of_frames_that_wait():
    batcher = Batcher(2, LONG_S, np, 0, live_bytes=lambda: 24 * 3110400)
    sources = begin_inlets(batcher, "a", "b", "c")
    for index in range(9):
        for source in sources:
            live_frame = live(source.source, index, 0.0)
            live_frame.width, live_frame.height = FHD
            source.put(live_frame)
    assert [(len(source.waiting), source.drops[QUEUE_FULL]) for source in sources] == [(8, 1)] * 3


def test_the_queue_of_a_live_source_becomes_short_while_frames_are_dropped_and_long_again_afterwards(clock):
    batcher = Batcher(4, LONG_S, np, 0)
    (gate,) = begin_inlets(batcher, "gate")

    def put(count):
        for _ in range(count):
            gate.put(live("gate", 0, 0.0))
        return batcher.waiting, gate.drops[QUEUE_FULL]

    assert put(16) == (16, 0)
    assert put(1) == (16, 1)
    assert put(1) == (15, 3)
    assert put(11) == (4, 25)
    assert put(1) == (4, 26)
    clock.now_s += 9
    assert put(1) == (4, 27)
    clock.now_s += 10
    assert put(12) == (16, 27)


@pytest.mark.parametrize(("fps", "max_latency_s"), [(30, 1.0), (30, 0.4), (10, 1.0)])
def test_a_pipeline_that_is_always_too_slow_does_not_delay_its_frames_more(fps, max_latency_s, clock):
    batcher = Batcher(1, LONG_S, np, 0, max_latency_s)
    (gate,) = begin_inlets(batcher, "gate")
    ages, taken_s = [], clock.now_s
    for index in range(fps * 60):
        clock.now_s += 1 / fps
        gate.put(live("gate", index, clock.now_s))
        if clock.now_s >= taken_s + 1.25 / fps:  # it manages four of five frames
            taken_s = clock.now_s
            ages += [clock.now_s - batched.due_s for batched in batcher.next().frames]
    ages = sorted(ages[len(ages) // 2 :])
    assert ages[len(ages) // 2] <= 4 / fps


@pytest.mark.parametrize("how", ["abort", "end"])
def test_a_source_that_waits_for_room_is_let_go(how):
    batcher = Batcher(1, LONG_S, np, 0)
    (film,) = begin_inlets(batcher, "film")
    calls = []

    def wait():
        calls.append(how)
        assert len(calls) == 1, "it waits on"
        # the lock is held here, and `end` and `abort` take it
        if how == "abort":
            batcher._aborted = True
        else:
            film.ended = True

    film.room.wait = wait
    for index in range(2):
        film.put(frame("film", index))
    with pytest.raises(Aborted):
        film.put(frame("film", 2))
    assert (calls, batcher.waiting) == ([how], 2)


def test_a_source_that_has_ended_brings_nothing_more_even_with_room():
    batcher = Batcher(4, LONG_S, np)
    film, gate = begin_inlets(batcher, "film", "gate")
    film.end()
    gate.end()
    for inlet, late_frame in ((film, frame("film")), (gate, live("gate", 0, 0.0))):
        with pytest.raises(Aborted):
            inlet.put(late_frame)
    assert batcher.waiting == 0


def test_a_waiting_taker_is_woken_when_a_batch_may_leave():
    batcher = Batcher(6, LONG_S, np, 1)
    film, other = begin_inlets(batcher, "film", "other")  # a share of three frames
    woken = []
    batcher._changed.awaited = True
    batcher._changed.notify_all = lambda: woken.append(batcher.waiting)
    for index in range(2):
        film.put(frame("film", index))
    assert woken == [1], "the first frame has a time by which it leaves"
    film.put(frame("film", 2))
    assert woken == [1, 3], "one source has no more room"
    for index in range(2):
        other.put(frame("other", index))
    assert woken == [1, 3]
    other.put(frame("other", 2))
    assert woken == [1, 3, 6]


def test_a_full_batch_wakes_the_taker_before_any_source_is_out_of_room():
    batcher = Batcher(2, LONG_S, np, 4)
    film, other = begin_inlets(batcher, "film", "other")
    woken = []
    batcher._changed.awaited = True
    batcher._changed.notify_all = lambda: woken.append(batcher.waiting)
    film.put(frame("film"))
    other.put(frame("other"))
    assert woken == [1, 2]


# ---------------------------------------------------------------------------------------------------------- when


def test_a_frame_waits_for_others_exactly_as_long_as_is_allowed(clock):
    batcher = Batcher(8, 0.5, np)
    film, _ = begin_inlets(batcher, "film", "idle")
    film.put(frame("film"))
    clock.now_s += 0.125
    noted = waits(batcher, clock)
    assert names(batcher.next()) == ["film"]
    assert noted == [0.375]
    film.put(frame("film", 1))
    clock.now_s += 0.5
    assert names(batcher.next()) == ["film"]
    film.put(frame("film", 2))
    clock.now_s += 7.0
    assert names(batcher.next()) == ["film"]
    assert noted == [0.375]


def test_the_wait_is_never_less_than_nothing(clock):
    batcher = Batcher(8, 0.5, np)
    film, _ = begin_inlets(batcher, "film", "idle")
    assert batcher._patience() is None
    film.put(frame("film"))
    assert batcher._patience() == 0.5
    clock.now_s += 2.0
    assert batcher._patience() == 0.0


def test_the_wait_of_the_oldest_frame_counts_whoever_brought_it(clock):
    batcher = Batcher(8, 1.0, np)
    film, gate, _ = begin_inlets(batcher, "film", "gate", "idle")
    gate.put(live("gate", 0, clock.now_s))
    clock.now_s += 0.25
    film.put(frame("film"))
    assert batcher._patience() == 0.75
    noted = waits(batcher, clock)
    assert names(batcher.next()) == ["gate", "film"]
    assert noted == [0.75]


def test_frames_of_ended_sources_wait_too_while_a_source_has_yet_to_begin(clock):
    batcher = Batcher(8, 0.5, np)
    (film,) = begin_inlets(batcher, "film", expected=1)
    film.put(frame("film"))
    film.end()
    noted = waits(batcher, clock)
    batch = batcher.next()
    assert (names(batch), batch.ended, noted) == (["film"], ("film",), [0.5])


def test_a_batch_leaves_at_once_when_every_running_source_is_out_of_room():
    batcher = Batcher(10, LONG_S, np, 0)
    film, other, third = begin_inlets(batcher, "film", "other", "third")
    batcher._changed.wait = never
    third.put(frame("third"))
    third.end()
    for inlet in (film, other):
        inlet.put(frame(inlet.source))
        with pytest.raises(Full):
            batcher.next()
    film.put(frame("film", 1))
    with pytest.raises(Full):
        batcher.next()
    other.put(frame("other", 1))
    batch = batcher.next()
    assert names(batch) == ["third", "film", "other", "film", "other"]
    assert batch.ended == ("third",)


def test_the_end_of_a_source_is_told_at_once_though_others_run():
    batcher = Batcher(4, LONG_S, np)
    begin_inlets(batcher, "film", "other")[0].end()
    batcher._changed.wait = never
    batch = batcher.next()
    assert (batch.frames, batch.ended, list(batcher.inlets)) == ([], ("film",), ["other"])
    with pytest.raises(Full):
        batcher.next()


def test_a_source_is_told_ended_behind_its_last_frame_only():
    batcher = Batcher(2, LONG_S, np, 4)
    film, other = begin_inlets(batcher, "film", "other")
    for index in range(3):
        film.put(frame("film", index))
    film.end()
    other.end()
    batches = [batcher.next(), batcher.next()]
    assert [(names(batch), batch.ended) for batch in batches] == [(["film", "film"], ("other",)), (["film"], ("film",))]
    assert [batch.sequence for batch in batches] == [0, 1]
    assert batcher.next() is None


def test_the_last_batch_leaves_at_once(clock):
    batcher = Batcher(8, LONG_S, np)
    (film,) = begin_inlets(batcher, "film")
    film.put(frame("film"))
    film.end()
    batcher._changed.wait = never
    assert names(batcher.next()) == ["film"]
    assert batcher.next() is None


def test_a_taker_learns_that_an_expected_source_does_not_come():
    batcher = Batcher(4, LONG_S, np)
    assert batcher.expect(1) is True
    batches = []
    taker = in_thread(lambda: batches.append(batcher.next()))
    assert batcher.expect(-1) is True
    taker.join(30)
    assert batches == [None]
    assert batcher.expect(1) is False


def test_a_source_that_waits_for_its_id_is_let_go_by_an_abort():
    batcher = Batcher(4, LONG_S, np)
    begin_inlets(batcher, "film", expected=1)

    def abort():
        batcher._aborted = True

    batcher._changed.wait = abort
    for _ in range(2):
        with pytest.raises(Aborted):
            batcher.begin("film")
    with pytest.raises(Aborted):
        batcher.begin("other")


def test_a_source_keeps_its_own_counts():
    batcher = Batcher(4, LONG_S, np)
    batcher.expect(2)
    drops = Counters()
    film = batcher.begin("film", drops)
    assert film.drops is drops
    assert batcher.begin("other").drops is not drops
    assert (film.source, film.taken, film.live, film.ended, film.events) == ("film", 0, False, False, [])


# ------------------------------------------------------------------------------------------- of one source each


def test_batches_of_one_source_do_not_depend_on_the_clock(clock):
    batcher = Batcher(3, 0.5, np, 4, per_source=True)
    film, other = begin_inlets(batcher, "film", "other")
    for index in range(2):
        film.put(frame("film", index))
        other.put(frame("other", index))
    clock.now_s += 100.0
    assert batcher._patience() is None
    batcher._changed.wait = never
    with pytest.raises(Full):
        batcher.next()
    other.put(frame("other", 2))
    assert names(batcher.next()) == ["other"] * 3


def test_batches_of_one_source_are_full_and_live_sources_come_first():
    batcher = Batcher(2, LONG_S, np, 8, per_source=True)
    film, gate = begin_inlets(batcher, "film", "gate")
    for index in range(5):
        film.put(frame("film", index))
    for index in range(2):
        gate.put(live("gate", index, 0.0))
    batches = [batcher.next() for _ in range(3)]
    assert [names(batch) for batch in batches] == [["gate"] * 2, ["film"] * 2, ["film"] * 2]
    assert [batched.index for batch in batches for batched in batch.frames] == [0, 1, 0, 1, 2, 3]
    batcher._changed.wait = never
    with pytest.raises(Full):
        batcher.next()
    film.end()
    batch = batcher.next()
    assert (names(batch), batch.ended, batcher.waiting) == (["film"], ("film",), 0)


def test_full_batches_of_one_source_take_turns():
    batcher = Batcher(2, LONG_S, np, 8, per_source=True)
    for inlet in begin_inlets(batcher, "film", "other"):
        for index in range(4):
            inlet.put(frame(inlet.source, index))
    assert [names(batcher.next())[0] for _ in range(4)] == ["film", "other", "film", "other"]


def test_the_end_of_an_empty_source_is_told_beside_frames_that_wait_for_their_batch():
    batcher = Batcher(3, LONG_S, np, per_source=True)
    film, other = begin_inlets(batcher, "film", "other")
    film.put(frame("film"))
    other.end()
    batcher._changed.wait = never
    batch = batcher.next()
    assert (batch.frames, batch.ended) == ([], ("other",))
    with pytest.raises(Full):
        batcher.next()


# ------------------------------------------------------------------------------------------------------------- age


def left(batcher, inlet, clock, *ages_s) -> list[float]:
    """The ages of the frames that leave."""
    for index, age_s in enumerate(ages_s):
        inlet.put(live(inlet.source, index, clock.now_s - age_s))
    batch = batcher.next()
    batcher._sent_s.pop(batch.sequence, None)
    return [clock.now_s - batched.due_s for batched in batch.frames]


def took(batcher, inlet, clock, seconds) -> None:
    """A batch takes so long through the graph."""
    inlet.put(live(inlet.source, 0, clock.now_s))
    sequence = batcher.next().sequence
    clock.now_s += seconds
    batcher.batch_done(sequence)


@pytest.mark.parametrize(
    ("transits_s", "allowed_s"),
    [
        ((), 8.0),
        ((4.0,), 4.0),
        ((0.0,), 8.0),
        ((2.0, 4.0), 4.0),  # rises at once
        ((4.0, 2.0), 4.2),  # falls slowly: 0.9 x 4 + 0.1 x 2
        ((4.0, 0.0), 4.4),
        ((7.5,), 0.8),  # a tenth of the latency is always left
        ((20.0,), 0.8),
    ],
)
def test_a_frame_may_be_as_old_as_the_way_through_the_graph_allows(clock, transits_s, allowed_s):
    batcher = Batcher(4, 0.0, np, max_latency_s=8.0)
    (gate,) = begin_inlets(batcher, "gate")
    for seconds in transits_s:
        took(batcher, gate, clock, seconds)
    assert left(batcher, gate, clock, allowed_s + 0.01, allowed_s - 0.01) == pytest.approx([allowed_s - 0.01])
    assert dict(gate.drops.values) == {TOO_OLD: 1}


def test_a_frame_of_exactly_the_age_allowed_leaves(clock):
    batcher = Batcher(4, 0.0, np, max_latency_s=8.0)
    (gate,) = begin_inlets(batcher, "gate")
    took(batcher, gate, clock, 4.0)
    assert left(batcher, gate, clock, 4.0, 1.0) == [4.0, 1.0]
    assert not gate.drops.values


def test_batches_that_never_reach_the_end_are_not_remembered_without_end(clock):
    batcher = Batcher(1, 0.0, np)
    (gate,) = begin_inlets(batcher, "gate")
    for _ in range(1003):
        gate.put(live("gate", 0, clock.now_s))
        batcher.next()
    assert list(batcher._sent_s) == list(range(1000))
    clock.now_s += 0.5
    batcher.batch_done(1002)
    assert batcher._transit_s == 0.0
    batcher.batch_done(999)
    assert batcher._transit_s == 0.5
    assert len(batcher._sent_s) == 999
