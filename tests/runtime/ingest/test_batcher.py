"""Batches of several sources: when they leave, what is in them, and that no frame is lost, doubled or reordered."""

import random
import threading
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
from support.batches import LONG_S, drain, frame, in_thread, make_batcher, names

from streamkit.core.data import Batch
from streamkit.runtime.execution.channel import Aborted
from streamkit.runtime.ingest.batcher import Batcher


@pytest.mark.alone
def test_a_full_batch_leaves_at_once():
    batcher = make_batcher(2, LONG_S, "a", "b", "idle")
    batcher.inlets["a"].put(frame("a"))
    batcher.inlets["b"].put(frame("b"))
    start_s = time.monotonic()
    assert names(batcher.next()) == ["a", "b"]
    assert time.monotonic() - start_s < 1


def test_a_waiting_batch_leaves_as_soon_as_another_thread_fills_it():
    batcher = make_batcher(2, LONG_S, "a", "b", "idle")
    batcher.inlets["a"].put(frame("a"))
    later = threading.Timer(0.05, lambda: batcher.inlets["b"].put(frame("b")))
    later.start()
    assert names(batcher.next()) == ["a", "b"]
    later.join()


def test_a_partial_batch_leaves_when_its_oldest_frame_has_waited():
    batcher = make_batcher(8, 0.1, "a", "idle")
    start_s = time.monotonic()
    batcher.inlets["a"].put(frame("a"))
    assert names(batcher.next()) == ["a"]
    assert time.monotonic() - start_s > 0.09


@pytest.mark.alone
def test_the_wait_counts_from_the_oldest_frame_of_all_sources():
    batcher = make_batcher(8, 1.0, "a", "b", "idle")
    start_s = time.monotonic()
    batcher.inlets["b"].put(frame("b"))
    time.sleep(0.6)
    batcher.inlets["a"].put(frame("a"))
    assert sorted(names(batcher.next())) == ["a", "b"]
    assert 0.99 < time.monotonic() - start_s < 1.5


@pytest.mark.alone
def test_the_wait_counts_from_the_oldest_frame_not_from_that_of_the_source_whose_turn_it_is():
    batcher = make_batcher(3, 1.0, "a", "b", "idle", ahead=4)
    start_s = time.monotonic()
    for index in range(2):
        batcher.inlets["a"].put(frame("a", index))
    time.sleep(0.6)
    for index in range(3):
        batcher.inlets["b"].put(frame("b", index))
    assert names(batcher.next()) == ["a", "b", "a"]
    batcher.inlets["a"].put(frame("a", 2))
    assert names(batcher.next()) == ["b", "a", "b"]  # full: at once
    assert time.monotonic() - start_s < 0.95

    start_s = time.monotonic()
    for index in range(3):
        batcher.inlets["a"].put(frame("a", index))
    time.sleep(0.6)
    for index in range(2):
        batcher.inlets["b"].put(frame("b", index))
    assert names(batcher.next()) == ["a", "b", "a"]  # what is left: b's turn comes first, and a's frame is older
    assert sorted(names(batcher.next())) == ["a", "b"]
    assert 0.99 < time.monotonic() - start_s < 1.5


def test_the_wait_holds_also_while_a_source_has_yet_to_begin():
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


def test_one_frame_of_each_ready_source_in_turn():
    batcher = make_batcher(4, LONG_S, "quick", "b", "c", ahead=3)
    for index in range(4):
        batcher.inlets["quick"].put(frame("quick", index))
    batcher.inlets["b"].put(frame("b"))
    batcher.inlets["c"].put(frame("c"))
    batch = batcher.next()
    assert names(batch) == ["quick", "b", "c", "quick"]
    assert [batched.index for batched in batch.frames if batched.source == "quick"] == [0, 1]


def test_a_source_that_is_ahead_waits_and_nobody_else_does():
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


def test_when_every_source_waits_for_room_the_batch_leaves():
    batcher = make_batcher(100, LONG_S, "a", "b", ahead=0)  # a share of 2 frames
    for source in "ab":
        for index in range(2):
            batcher.inlets[source].put(frame(source, index))
    assert names(batcher.next()) == ["a", "b", "a", "b"]


def test_a_slow_source_costs_the_others_nothing():
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
    got = 0
    while got < 200:
        got += len(batcher.next())
    over.set()
    drain(batcher)
    for thread in threads:
        thread.join(5)


def test_unlike_rates_keep_the_share_of_each():
    """While both are ready, the quick source gets no more of the batches than the other."""
    batcher = make_batcher(4, LONG_S, "quick", "other", ahead=4)
    for index in range(6):
        batcher.inlets["quick"].put(frame("quick", index))
    for index in range(4):
        batcher.inlets["other"].put(frame("other", index))
    assert [Counter(names(batcher.next())) for _ in range(2)] == [Counter(quick=2, other=2)] * 2


def test_each_source_is_told_ended_once_behind_its_last_frame():
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


def test_a_source_without_a_frame_is_told_too():
    batcher = make_batcher(4, LONG_S, "none")
    batcher.inlets["none"].end()
    (batch,) = drain(batcher)
    assert (batch.frames, batch.failed, batch.ended) == ([], [], ("none",))


def test_no_sources_no_batches():
    assert Batcher(4, LONG_S, np).next() is None


def test_failed_frames_go_beside_the_rows_and_keep_their_position():
    batcher = make_batcher(3, LONG_S, "a")
    for index, error in enumerate([None, "broken", None]):
        batcher.inlets["a"].put(frame("a", index, error))
    batch = batcher.next()
    assert [batched.index for batched in batch.frames] == [0, 2]
    assert [batched.index for batched in batch.failed] == [1]
    assert [batched._state.position for batched in [*batch.frames, *batch.failed]] == [0, 2, 1]


def test_abort_wakes_the_one_that_takes_and_those_that_put():
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
def test_nothing_is_lost_doubled_or_reordered(seed):
    rng = random.Random(seed)
    size, ahead = rng.randint(1, 9), rng.randint(0, 3)
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


def test_a_source_that_takes_an_id_again_waits_until_the_earlier_one_is_through():
    batcher = Batcher(8, 0.05, np)
    batcher.expect(3)
    first, other = batcher.begin("a"), batcher.begin("b")
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


def test_nothing_begins_when_all_is_over():
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
