"""Batches of several sources: when they leave, what is in them, and that no frame is lost, doubled or reordered."""

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from support.batches import LONG_S, BatcherClock, begin_inlets, drain, frame, in_thread, live_due, make_batcher, names

from streamkit.core.data import Batch
from streamkit.runtime.execution.channel import Aborted
from streamkit.runtime.ingest.batcher import Batcher


@pytest.fixture
def clock(monkeypatch):
    return BatcherClock(monkeypatch)


def test_a_full_batch_leaves_at_once():
    batcher = make_batcher(2, LONG_S, "a", "b", "idle")
    batcher.inlets["a"].put(frame("a"))
    batcher.inlets["b"].put(frame("b"))
    assert names(batcher.next()) == ["a", "b"]


def test_a_waiting_batch_leaves_as_soon_as_another_thread_fills_it():
    batcher = make_batcher(2, LONG_S, "a", "b", "idle")
    batcher.inlets["a"].put(frame("a"))
    later = threading.Timer(0.05, lambda: batcher.inlets["b"].put(frame("b")))
    later.start()
    assert names(batcher.next()) == ["a", "b"]
    later.join()


def test_the_wait_starts_with_the_oldest_frame_of_all_sources(clock):
    batcher = make_batcher(3, 1.0, "a", "b", "idle", ahead=4)
    waited_s = clock.waits(batcher)
    for index in range(2):
        batcher.inlets["a"].put(frame("a", index))
    clock.now_s += 0.6
    for index in range(3):
        batcher.inlets["b"].put(frame("b", index))
    assert names(batcher.next()) == ["a", "b", "a"]
    batcher.inlets["a"].put(frame("a", 2))
    assert names(batcher.next()) == ["b", "a", "b"]
    assert waited_s == [], "full batches leave at once"
    for index in range(3):
        batcher.inlets["a"].put(frame("a", index))
    clock.now_s += 0.6
    for index in range(2):
        batcher.inlets["b"].put(frame("b", index))
    assert names(batcher.next()) == ["a", "b", "a"]  # what is left: b's turn comes first, and a's frame is older
    assert sorted(names(batcher.next())) == ["a", "b"]
    assert waited_s == [pytest.approx(0.4)]


def test_the_wait_is_bounded_although_an_expected_source_has_not_begun():
    batcher = Batcher(8, 0.05, np)
    batcher.expect(2)
    batcher.begin("a")
    batcher.inlets["a"].put(frame("a"))
    batcher.inlets["a"].end()
    batches: list[Batch | None] = []
    reader = in_thread(lambda: batches.append(batcher.next()))
    reader.join(5)
    assert not reader.is_alive()
    assert names(batches[0]) == ["a"]
    reader = in_thread(lambda: batches.append(batcher.next()))
    reader.join(0.1)
    assert reader.is_alive()  # the second source is still to come
    batcher.begin("b")
    batcher.inlets["b"].end()
    reader.join(5)
    assert batches[1].ended == ("b",)
    assert batcher.next() is None


def test_ready_sources_contribute_frames_in_turn():
    batcher = make_batcher(4, LONG_S, "quick", "b", "c", ahead=3)
    for index in range(4):
        batcher.inlets["quick"].put(frame("quick", index))
    batcher.inlets["b"].put(frame("b"))
    batcher.inlets["c"].put(frame("c"))
    batch = batcher.next()
    assert names(batch) == ["quick", "b", "c", "quick"]
    assert [batched.index for batched in batch.frames if batched.source == "quick"] == [0, 1]


def test_only_a_source_that_is_ahead_waits():
    batcher = make_batcher(4, LONG_S, "quick", "b", ahead=1)
    put: list[int] = []

    def run() -> None:
        for index in range(5):
            batcher.inlets["quick"].put(frame("quick", index))
            put.append(index)

    thread = in_thread(run)
    while len(put) < 2:
        time.sleep(0.001)
    time.sleep(0.05)
    assert put == [0, 1]  # a share of ahead * size / sources frames
    batcher.inlets["b"].put(frame("b"))  # does not wait
    batcher.inlets["b"].put(frame("b", 1))
    assert names(batcher.next()) == ["quick", "b", "quick", "b"]
    while len(put) < 4:
        time.sleep(0.001)
    batcher.inlets["b"].end()  # now the whole share is the quick one's
    thread.join(5)
    assert put == [0, 1, 2, 3, 4]


def test_a_partial_batch_leaves_when_every_source_waits_for_room():
    batcher = make_batcher(100, LONG_S, "a", "b", ahead=0)  # a share of 2 frames
    for source in "ab":
        for index in range(2):
            batcher.inlets[source].put(frame(source, index))
    assert names(batcher.next()) == ["a", "b", "a", "b"]


def test_a_slow_source_does_not_delay_the_others():
    batcher = make_batcher(3, 0.01, "quick", "slow")
    over = threading.Event()

    def quick() -> None:
        for index in range(200):
            batcher.inlets["quick"].put(frame("quick", index))
        batcher.inlets["quick"].end()

    def slow() -> None:
        over.wait()
        batcher.inlets["slow"].end()

    threads = [in_thread(quick), in_thread(slow)]
    frame_count = 0
    while frame_count < 200:
        frame_count += len(batcher.next())
    over.set()
    drain(batcher)
    for thread in threads:
        thread.join(5)


def test_sources_of_different_rates_get_equal_shares_of_batches():
    """While both are ready, the quick source gets no more of the batches than the other."""
    batcher = make_batcher(4, LONG_S, "quick", "other", ahead=4)
    for index in range(6):
        batcher.inlets["quick"].put(frame("quick", index))
    for index in range(4):
        batcher.inlets["other"].put(frame("other", index))
    assert [Counter(names(batcher.next())) for _ in range(2)] == [Counter(quick=2, other=2)] * 2


def test_the_end_of_a_source_is_reported_once_after_its_last_frame():
    batcher = make_batcher(2, LONG_S, "a", "b", ahead=4)
    for index in range(3):
        batcher.inlets["a"].put(frame("a", index))
    batcher.inlets["a"].end()
    batcher.inlets["b"].put(frame("b"))
    batcher.inlets["b"].end()
    batches = drain(batcher)
    assert [name for batch in batches for name in batch.ended].count("a") == 1
    assert sorted(name for batch in batches for name in batch.ended) == ["a", "b"]
    for source in "ab":
        last = max(i for i, batch in enumerate(batches) if source in names(batch))
        end = next(i for i, batch in enumerate(batches) if source in batch.ended)
        assert end >= last
    assert [batch.sequence for batch in batches] == list(range(len(batches)))


def test_the_end_of_a_source_without_frames_is_reported():
    batcher = make_batcher(4, LONG_S, "none")
    batcher.inlets["none"].end()
    (batch,) = drain(batcher)
    assert (batch.frames, batch.failed, batch.ended) == ([], [], ("none",))


def test_a_batcher_without_sources_gives_no_batch():
    assert Batcher(4, LONG_S, np).next() is None


def test_failed_frames_are_separate_and_keep_their_position():
    batcher = make_batcher(3, LONG_S, "a")
    for index, error in enumerate([None, "broken", None]):
        batcher.inlets["a"].put(frame("a", index, error))
    batch = batcher.next()
    assert [batched.index for batched in batch.frames] == [0, 2]
    assert [batched.index for batched in batch.failed] == [1]
    assert [batched._state.position for batched in [*batch.frames, *batch.failed]] == [0, 2, 1]


def test_abort_wakes_the_reader_and_the_writers():
    batcher = make_batcher(4, LONG_S, "a", "b", ahead=0)
    raised: list[str] = []

    def put() -> None:
        try:
            for index in range(10):
                batcher.inlets["a"].put(frame("a", index))
        except Aborted:
            raised.append("put")

    other = make_batcher(4, LONG_S, "x")

    def take() -> None:
        try:
            other.next()
        except Aborted:
            raised.append("next")

    threads = [in_thread(put), in_thread(take)]
    time.sleep(0.05)
    assert all(thread.is_alive() for thread in threads)
    batcher.abort()
    other.abort()
    for thread in threads:
        thread.join(5)
    assert sorted(raised) == ["next", "put"]
    with pytest.raises(Aborted):
        batcher.next()
    with pytest.raises(Aborted):
        batcher.inlets["b"].put(frame("b"))


@pytest.mark.parametrize("seed", range(12))
def test_no_frame_is_lost_duplicated_or_reordered(seed):
    rng = random.Random(seed)
    size = rng.randint(1, 9)
    ahead = rng.randint(0, 3)
    counts = {f"s{i}": rng.choice([0, 1, rng.randint(2, 60)]) for i in range(rng.randint(1, 8))}
    batcher = Batcher(size, rng.choice([0.0, 0.001, 0.01]), np, ahead)
    batcher.expect(len(counts))

    def run(source: str, n: int, chance: random.Random) -> None:
        if chance.random() < 0.5:
            time.sleep(chance.random() * 0.01)
        batcher.begin(source)
        for index in range(n):
            if chance.random() < 0.1:
                time.sleep(chance.random() * 0.004)
            batcher.inlets[source].put(frame(source, index, "bad" if chance.random() < 0.1 else None))
        batcher.inlets[source].end()

    threads = [in_thread(partial(run, source, n, random.Random(f"{seed}{source}"))) for source, n in counts.items()]
    batches: list[Batch] = []
    reader = in_thread(lambda: batches.extend(drain(batcher)))
    reader.join(30)
    assert not reader.is_alive()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    seen: dict[str, list[int]] = {source: [] for source in counts}
    ended_sources: list[str] = []
    for batch in batches:
        rows = sorted([*batch.frames, *batch.failed], key=lambda batched: batched._state.position)
        assert len(rows) <= size
        assert [batched._state.position for batched in rows] == list(range(len(rows)))
        assert all((batched.error is not None) == (batched in batch.failed) for batched in rows)
        for batched in rows:
            assert batched.source not in ended_sources
            seen[batched.source].append(batched.index)
        ended_sources.extend(batch.ended)
    assert seen == {source: list(range(n)) for source, n in counts.items()}
    assert sorted(ended_sources) == sorted(counts)
    assert [batch.sequence for batch in batches] == list(range(len(batches)))


def test_a_source_with_a_reused_id_waits_for_the_frames_of_the_earlier_source():
    batcher = Batcher(8, 0.05, np)
    batcher.expect(3)
    first = batcher.begin("a")
    other = batcher.begin("b")
    first.put(frame("a", 7))
    first.end()
    with pytest.raises(Aborted):
        first.put(frame("a", 8))
    second = in_thread(lambda: batcher.begin("a").put(frame("a", 0)))
    second.join(0.1)
    assert second.is_alive()
    other.end()
    batches = [batcher.next()]
    second.join(5)
    assert not second.is_alive()
    batcher.inlets["a"].end()
    batches += drain(batcher)
    assert [(batched.index, "a" in batch.ended) for batch in batches for batched in batch.frames] == [
        (7, True),
        (0, True),
    ]


def test_no_source_can_be_expected_after_the_end():
    batcher = Batcher(4, LONG_S, np)
    assert batcher.expect(1)
    assert batcher.expect(-1)
    assert batcher.next() is None
    assert not batcher.expect(1)


def test_the_first_two_batches_may_be_smaller():
    batcher = make_batcher(4, LONG_S, "a", "b", ahead=4, first_size=2)
    for index in range(4):
        batcher.inlets["a"].put(frame("a", index))
        batcher.inlets["b"].put(frame("b", index))
    assert [len(batcher.next().frames) for _ in range(3)] == [2, 2, 4]


class Full(Exception):
    """A source had to wait for room."""


def never(timeout=None):
    raise Full


def room(inlet) -> int:
    """How many frames of a file the inlet takes before the source has to wait."""
    inlet.room.wait = never
    with suppress(Full):
        for index in range(1000):
            inlet.put(frame(inlet.source, index))
    return len(inlet.waiting)


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


@pytest.mark.parametrize(("size", "ahead", "expected"), [(5, 0, 5), (3, 1, 3), (3, 2, 6)])
def test_each_source_has_room_for_a_full_batch_with_per_source_batches(size, ahead, expected):
    (film,) = begin_inlets(Batcher(size, LONG_S, np, ahead, per_source=True), "film")
    assert room(film) == expected


def test_the_room_of_a_source_grows_once_per_ended_source():
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


def test_an_ended_source_cannot_add_frames():
    batcher = Batcher(4, LONG_S, np)
    film, gate = begin_inlets(batcher, "film", "gate")
    film.end()
    gate.end()
    for inlet, late_frame in ((film, frame("film")), (gate, live_due("gate", 0, 0.0))):
        with pytest.raises(Aborted):
            inlet.put(late_frame)
    assert batcher.waiting == 0


def test_a_frame_waits_for_others_exactly_the_maximum_wait(clock):
    batcher = Batcher(8, 0.5, np)
    film, _ = begin_inlets(batcher, "film", "idle")
    film.put(frame("film"))
    clock.now_s += 0.125
    waited_s = clock.waits(batcher)
    assert names(batcher.next()) == ["film"]
    assert waited_s == [0.375]
    film.put(frame("film", 1))
    clock.now_s += 0.5
    assert names(batcher.next()) == ["film"]
    film.put(frame("film", 2))
    clock.now_s += 7.0
    assert names(batcher.next()) == ["film"]
    assert waited_s == [0.375]


def test_a_waiting_reader_ends_when_the_expected_source_is_canceled():
    batcher = Batcher(4, LONG_S, np)
    assert batcher.expect(1) is True
    batches = []
    taker = in_thread(lambda: batches.append(batcher.next()))
    assert batcher.expect(-1) is True
    taker.join(30)
    assert batches == [None]
    assert batcher.expect(1) is False


def test_sources_with_full_per_source_batches_take_turns():
    batcher = Batcher(2, LONG_S, np, 8, per_source=True)
    for inlet in begin_inlets(batcher, "film", "other"):
        for index in range(4):
            inlet.put(frame(inlet.source, index))
    assert [names(batcher.next())[0] for _ in range(4)] == ["film", "other", "film", "other"]
