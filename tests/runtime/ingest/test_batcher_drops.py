"""Batches of live sources: what is too old is dropped and counted, and what a source has told outlives it."""

import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
from support.batches import LONG_S, BatcherClock, begin_inlets, frame, in_thread, live_due, names

from streamkit.core.data import Batch, Event, Frame
from streamkit.runtime.execution.channel import Aborted
from streamkit.runtime.ingest.batcher import QUEUE_FULL, TOO_OLD, Batcher


@pytest.fixture
def clock(monkeypatch):
    return BatcherClock(monkeypatch)


def live(source: str, index: int, age_s: float = 0.0) -> Frame:
    live_frame = frame(source, index)
    live_frame.due_s = time.monotonic() - age_s
    return live_frame


def test_live_frames_that_are_too_old_are_dropped_and_counted():
    batcher = Batcher(4, LONG_S, np, 2, 0.5)
    batcher.expect(2)
    inlets = [batcher.begin(source) for source in "ab"]
    for index, age_s in enumerate([9.0, 3.0, 0.6, 0.0]):
        inlets[0].put(live("a", index, age_s))
    for index in range(2):
        inlets[1].put(frame("b", index))  # a file's frames have no age
    batch = batcher.next()
    assert [(batched.source, batched.index) for batched in batch.frames] == [("a", 3), ("b", 0), ("b", 1)]
    assert [batched._state.position for batched in batch.frames] == [0, 1, 2]
    assert [batched._state.ordinal for batched in batch.frames] == [0, 0, 1]  # of each source, dropped ones not counted
    assert (dict(inlets[0].drops.values), dict(inlets[1].drops.values)) == ({TOO_OLD: 3}, {})


def test_too_old_frames_alone_make_no_batch():
    batcher = Batcher(2, LONG_S, np, 2, 0.1)
    batcher.expect(1)
    inlet = batcher.begin("a")
    for index in range(2):
        inlet.put(live("a", index, 5.0))
    batches: list[Batch | None] = []
    reader = in_thread(lambda: batches.extend([batcher.next(), batcher.next()]))
    reader.join(0.2)
    assert reader.is_alive()
    inlet.put(live("a", 2))
    inlet.end()
    reader.join(5)
    assert [frame.index for frame in batches[0].frames] == [2]
    assert batches[0].ended == ("a",)
    assert batches[1] is None
    assert inlet.drops[TOO_OLD] == 2


def test_a_live_source_never_waits_and_drops_its_oldest_frames():
    batcher = Batcher(4, LONG_S, np, 1, LONG_S)
    batcher.expect(2)
    inlet = batcher.begin("a")
    other = batcher.begin("b")
    for index in range(100):
        inlet.put(live("a", index))
    other.put(frame("b"))
    assert batcher.waiting == 5
    other.put(frame("b", 1))
    batch = batcher.next()
    assert [(batched.source, batched.index) for batched in batch.frames] == [("a", 96), ("a", 97), ("a", 98), ("a", 99)]
    assert (inlet.drops[QUEUE_FULL], other.drops[QUEUE_FULL]) == (96, 0)


@pytest.mark.parametrize(("age_s", "count", "cause", "dropped"), [(5.0, 4, TOO_OLD, 2), (0.0, 18, QUEUE_FULL, 3)])
def test_events_of_dropped_frames_precede_those_of_the_next_frame(age_s, count, cause, dropped):
    batcher = Batcher(4, LONG_S, np, 1, 1.0)
    batcher.expect(1)
    inlet = batcher.begin("a")
    for index in range(count):
        pushed = live("a", index, age_s if index < 2 else 0.0)
        pushed.events.append(Event("seen", "decode", "a", index, 0.0))
        inlet.put(pushed)
    inlet.end()
    first, *others = batcher.next().frames
    assert inlet.drops[cause] == dropped
    assert [event.frame for event in first.events] == list(range(dropped + 1))
    assert [[event.frame for event in frame.events] for frame in others] == [[frame.index] for frame in others]


def test_frames_in_equal_frames_out_and_dropped_with_a_slow_reader():
    batcher = Batcher(4, 0.005, np, 2, 0.05)
    rates = {"quick": 0.0005, "other": 0.002, "file": 0.0}
    counts = {"quick": 600, "other": 150, "file": 200}
    batcher.expect(3)
    inlets = {source: batcher.begin(source) for source in rates}

    def run(source: str) -> None:
        for index in range(counts[source]):
            inlets[source].put(frame(source, index) if source == "file" else live(source, index))
            time.sleep(rates[source])
        inlets[source].end()

    threads = [in_thread(partial(run, source)) for source in rates]
    out = Counter[str]()
    while (batch := batcher.next()) is not None:
        out.update(names(batch))
        time.sleep(0.01)
    for thread in threads:
        thread.join(5)
    for source, inlet in inlets.items():
        assert counts[source] == out[source] + inlet.drops.values.total(), source
    assert inlets["quick"].drops.values.total() > 0  # the reader was slow
    assert inlets["file"].drops.values.total() == 0
    assert min(out.values()) > 0.2 * max(out.values())  # nobody starves


def test_live_frames_go_before_those_of_files():
    """A file waits without harm, and a camera does not: what a file has ready never takes a live frame's place."""
    batcher = Batcher(4, LONG_S, np, 4, LONG_S)
    batcher.expect(4)
    film, gate, other, yard = (batcher.begin(source) for source in ("film", "gate", "other", "yard"))
    for index in range(3):
        film.put(frame("film", index))
    other.put(frame("other"))
    gate.put(live("gate", 0))
    gate.put(live("gate", 1))
    yard.put(live("yard", 0))
    assert [(batched.source, batched.index) for batched in batcher.next().frames] == [
        ("gate", 0),
        ("yard", 0),
        ("gate", 1),
        ("film", 0),
    ]
    yard.put(live("yard", 1))
    assert [(batched.source, batched.index) for batched in batcher.next().frames] == [
        ("yard", 1),
        ("other", 0),
        ("film", 1),
        ("film", 2),
    ]
    assert not gate.drops.values
    assert batcher.waiting == 0


@pytest.mark.alone
def test_a_file_that_fills_every_batch_drops_no_frame_of_a_camera():
    """Three frames in ten milliseconds is what goes through; the file alone would take all of that."""
    batcher = Batcher(3, 0.005, np, 2, 0.5)
    batcher.expect(2)
    film = batcher.begin("film")
    gate = batcher.begin("gate")
    over = False

    def fill() -> None:
        index = 0
        while not over:
            film.put(frame("film", index))
            index += 1
        film.end()

    def show() -> None:
        for index in range(60):
            gate.put(live("gate", index))
            time.sleep(0.005)
        gate.end()

    threads = [in_thread(fill), in_thread(show)]
    out = Counter[str]()
    while (batch := batcher.next()) is not None:
        out.update(names(batch))
        if out["gate"]:
            behind = [batched.source for batched in batch.frames]
            assert sorted(behind, key=lambda source: source == "film") == behind
        time.sleep(0.01)
        over = over or "gate" in batch.ended
    for thread in threads:
        thread.join(5)
    assert (out["gate"], dict(gate.drops.values)) == (60, {})
    assert out["film"] > 30


def test_a_batcher_is_live_if_any_source_is():
    batcher = Batcher(8, 0.01, np)
    batcher.expect(2)
    film = batcher.begin("film")
    gate = batcher.begin("gate")
    film.put(frame("film"))
    assert not batcher.live
    gate.put(live("gate", 0))
    film.put(frame("film", 1))  # the last frame that came is a file's
    assert batcher.live
    batcher.next()
    assert batcher.live
    gate.end()
    assert batcher.next().ended == ("gate",)
    assert not batcher.live


def test_the_last_frame_of_a_source_decides_whether_it_is_live_until_it_ends():
    batcher = Batcher(8, 0.01, np)
    batcher.expect(1)
    gate = batcher.begin("gate")
    for arriving, expected in ((live("gate", 0), True), (frame("gate", 1), False), (frame("gate", 2), False)):
        gate.put(arriving)
        assert batcher.live is expected
    gate.end()
    for _ in range(2):  # a frame that comes too late
        with pytest.raises(Aborted):
            gate.put(live("gate", 3))
        assert not batcher.live
        batcher.next()


@pytest.mark.parametrize("first_live", [False, True])
def test_the_wait_starts_with_the_oldest_frame_of_files_and_cameras(clock, first_live):
    batcher = Batcher(8, 1.0, np, 2, LONG_S)
    film, gate, _ = begin_inlets(batcher, "film", "gate", "idle")
    waited_s = clock.waits(batcher)
    gate.put(live_due("gate", 0, clock.now_s)) if first_live else film.put(frame("film"))
    clock.now_s += 0.6
    film.put(frame("film", 1)) if first_live else gate.put(live_due("gate", 0, clock.now_s))
    assert sorted(names(batcher.next())) == ["film", "gate"]
    assert waited_s == [pytest.approx(0.4)]


FHD = (1920, 1080)
UHD = (3840, 2160)


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
def test_the_queue_of_a_live_source_holds_at_least_four_frames_and_more_with_memory(
    size, ahead, pixels, live_bytes, expected
):
    batcher = Batcher(size, LONG_S, np, ahead, live_bytes=lambda: live_bytes)
    (gate,) = begin_inlets(batcher, "gate")
    frames = [live_due("gate", index, 0.0) for index in range(expected + 1)]
    for live_frame in frames:
        live_frame.width, live_frame.height = pixels
    for live_frame in frames[:-1]:
        gate.put(live_frame)
    assert (batcher.waiting, dict(gate.drops.values)) == (expected, {})
    gate.put(frames[-1])
    assert (batcher.waiting, dict(gate.drops.values)) == (expected, {QUEUE_FULL: 1})
    assert gate.waiting[0][1].index == 1


def test_live_sources_share_the_memory_for_queued_frames():
    batcher = Batcher(2, LONG_S, np, 0, live_bytes=lambda: 24 * 3110400)
    sources = begin_inlets(batcher, "a", "b", "c")
    for index in range(9):
        for source in sources:
            live_frame = live_due(source.source, index, 0.0)
            live_frame.width, live_frame.height = FHD
            source.put(live_frame)
    assert [(len(source.waiting), source.drops[QUEUE_FULL]) for source in sources] == [(8, 1)] * 3


def test_the_queue_of_a_live_source_shrinks_while_it_drops_and_grows_afterwards(clock):
    batcher = Batcher(4, LONG_S, np, 0)
    (gate,) = begin_inlets(batcher, "gate")

    def put(count):
        for _ in range(count):
            gate.put(live_due("gate", 0, 0.0))
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
def test_the_latency_of_an_overloaded_pipeline_does_not_grow(fps, max_latency_s, clock):
    batcher = Batcher(1, LONG_S, np, 0, max_latency_s)
    (gate,) = begin_inlets(batcher, "gate")
    ages = []
    taken_s = clock.now_s
    for index in range(fps * 60):
        clock.now_s += 1 / fps
        gate.put(live_due("gate", index, clock.now_s))
        if clock.now_s >= taken_s + 1.25 / fps:  # it manages four of five frames
            taken_s = clock.now_s
            ages += [clock.now_s - batched.due_s for batched in batcher.next().frames]
    ages = sorted(ages[len(ages) // 2 :])
    assert ages[len(ages) // 2] <= 4 / fps


def left(batcher, inlet, clock, *ages_s) -> list[float]:
    """The ages of the frames that leave."""
    for index, age_s in enumerate(ages_s):
        inlet.put(live_due(inlet.source, index, clock.now_s - age_s))
    batch = batcher.next()
    batcher._sent_s.pop(batch.sequence, None)
    return [clock.now_s - batched.due_s for batched in batch.frames]


def took(batcher, inlet, clock, seconds) -> None:
    """A batch takes so long through the graph."""
    inlet.put(live_due(inlet.source, 0, clock.now_s))
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
def test_the_maximum_age_of_a_frame_leaves_time_for_the_graph(clock, transits_s, allowed_s):
    batcher = Batcher(4, 0.0, np, max_latency_s=8.0)
    (gate,) = begin_inlets(batcher, "gate")
    for seconds in transits_s:
        took(batcher, gate, clock, seconds)
    assert left(batcher, gate, clock, allowed_s + 0.01, allowed_s - 0.01) == pytest.approx([allowed_s - 0.01])
    assert dict(gate.drops.values) == {TOO_OLD: 1}


def test_a_frame_of_exactly_the_maximum_age_is_not_dropped(clock):
    batcher = Batcher(4, 0.0, np, max_latency_s=8.0)
    (gate,) = begin_inlets(batcher, "gate")
    took(batcher, gate, clock, 4.0)
    assert left(batcher, gate, clock, 4.0, 1.0) == [4.0, 1.0]
    assert not gate.drops.values
