"""Batches of several sources: when they leave, what is in them, and that no frame is lost, doubled or reordered."""

import random
import threading
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest

from streamkit.data import Batch, Event, Frame
from streamkit.runtime.batcher import QUEUE_FULL, TOO_OLD, Batcher
from streamkit.runtime.channel import Aborted

LONG_S = 30.0  # no test waits so long: it is there where only something else may send a batch off


def frame(source: str, index: int = 0, error: str | None = None) -> Frame:
    return Frame(source, index, index / 25, 64, 48, error=error)


def made(size: int, max_wait_s: float, *sources: str, ahead: int = 2) -> Batcher:
    batcher = Batcher(size, max_wait_s, np, ahead)
    batcher.expect(len(sources))
    for source in sources:
        batcher.begin(source)
    return batcher


def drain(batcher: Batcher) -> list[Batch]:
    batches = []
    while (batch := batcher.next()) is not None:
        batches.append(batch)
    return batches


def names(batch: Batch) -> list[str]:
    return [one.source for one in batch.frames]


def in_thread(target) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


@pytest.mark.alone
def test_a_full_batch_leaves_at_once():
    batcher = made(2, LONG_S, "a", "b", "idle")
    batcher.inlets["a"].put(frame("a"))
    batcher.inlets["b"].put(frame("b"))
    begun = time.monotonic()
    assert names(batcher.next()) == ["a", "b"]
    assert time.monotonic() - begun < 1


def test_a_waiting_batch_leaves_as_soon_as_another_thread_fills_it():
    batcher = made(2, LONG_S, "a", "b", "idle")
    batcher.inlets["a"].put(frame("a"))
    later = threading.Timer(0.05, lambda: batcher.inlets["b"].put(frame("b")))
    later.start()
    assert names(batcher.next()) == ["a", "b"]
    later.join()


def test_a_partial_batch_leaves_when_its_oldest_frame_has_waited():
    batcher = made(8, 0.1, "a", "idle")
    begun = time.monotonic()
    batcher.inlets["a"].put(frame("a"))
    assert names(batcher.next()) == ["a"]
    assert 0.09 < time.monotonic() - begun < 5


@pytest.mark.alone
def test_the_wait_counts_from_the_oldest_frame_of_all_sources():
    batcher = made(8, 1.0, "a", "b", "idle")
    begun = time.monotonic()
    batcher.inlets["b"].put(frame("b"))
    time.sleep(0.6)
    batcher.inlets["a"].put(frame("a"))
    assert sorted(names(batcher.next())) == ["a", "b"]
    assert 0.99 < time.monotonic() - begun < 1.5


def test_the_wait_holds_also_while_a_source_has_yet_to_begin():
    batcher = Batcher(8, 0.05, np)
    batcher.expect(2)
    batcher.begin("a")
    batcher.inlets["a"].put(frame("a"))
    batcher.inlets["a"].end()
    found: list[Batch | None] = []
    reader = in_thread(lambda: found.append(batcher.next()))
    reader.join(5)
    assert not reader.is_alive()
    assert names(found[0]) == ["a"]
    reader = in_thread(lambda: found.append(batcher.next()))
    reader.join(0.1)
    assert reader.is_alive()  # the second source is still to come
    batcher.begin("b")
    batcher.inlets["b"].end()
    reader.join(5)
    assert found[1].ended == ("b",)
    assert batcher.next() is None


def test_one_frame_of_each_ready_source_in_turn():
    batcher = made(4, LONG_S, "quick", "b", "c", ahead=3)
    for index in range(4):
        batcher.inlets["quick"].put(frame("quick", index))
    batcher.inlets["b"].put(frame("b"))
    batcher.inlets["c"].put(frame("c"))
    batch = batcher.next()
    assert names(batch) == ["quick", "b", "c", "quick"]
    assert [one.index for one in batch.frames if one.source == "quick"] == [0, 1]


def test_a_source_that_is_ahead_waits_and_nobody_else_does():
    batcher = made(4, LONG_S, "quick", "b", ahead=1)
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
    batcher = made(100, LONG_S, "a", "b", ahead=0)  # a share of 2 frames
    for source in "ab":
        for index in range(2):
            batcher.inlets[source].put(frame(source, index))
    assert names(batcher.next()) == ["a", "b", "a", "b"]


def test_a_slow_source_costs_the_others_nothing():
    batcher = made(3, 0.01, "quick", "slow")
    over = threading.Event()

    def quick() -> None:
        for index in range(200):
            batcher.inlets["quick"].put(frame("quick", index))
        batcher.inlets["quick"].end()

    def slow() -> None:
        over.wait(20)
        batcher.inlets["slow"].end()

    threads = [in_thread(quick), in_thread(slow)]
    got = 0
    begun = time.monotonic()
    while got < 200:
        got += len(batcher.next())
    assert time.monotonic() - begun < 10
    over.set()
    drain(batcher)
    for thread in threads:
        thread.join(5)


def test_unlike_rates_keep_the_share_of_each():
    """While both are ready, the quick source gets no more of the batches than the other."""
    batcher = made(4, LONG_S, "quick", "other", ahead=4)
    for index in range(6):
        batcher.inlets["quick"].put(frame("quick", index))
    for index in range(4):
        batcher.inlets["other"].put(frame("other", index))
    assert [Counter(names(batcher.next())) for _ in range(2)] == [Counter(quick=2, other=2)] * 2


def test_each_source_is_told_ended_once_behind_its_last_frame():
    batcher = made(2, LONG_S, "a", "b", ahead=4)
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
        told = next(i for i, batch in enumerate(batches) if source in batch.ended)
        assert told >= last
    assert [batch.sequence for batch in batches] == list(range(len(batches)))


def test_a_source_without_a_frame_is_told_too():
    batcher = made(4, LONG_S, "none")
    batcher.inlets["none"].end()
    (batch,) = drain(batcher)
    assert (batch.frames, batch.failed, batch.ended) == ([], [], ("none",))


def test_no_sources_no_batches():
    assert Batcher(4, LONG_S, np).next() is None


def test_failed_frames_go_beside_the_rows_and_keep_their_position():
    batcher = made(3, LONG_S, "a")
    for index, error in enumerate([None, "broken", None]):
        batcher.inlets["a"].put(frame("a", index, error))
    batch = batcher.next()
    assert [one.index for one in batch.frames] == [0, 2]
    assert [one.index for one in batch.failed] == [1]
    assert [one.position for one in [*batch.frames, *batch.failed]] == [0, 2, 1]


def test_abort_wakes_the_one_that_takes_and_those_that_put():
    batcher = made(4, LONG_S, "a", "b", ahead=0)
    raised: list[str] = []

    def put() -> None:
        try:
            for index in range(10):
                batcher.inlets["a"].put(frame("a", index))
        except Aborted:
            raised.append("put")

    other = made(4, LONG_S, "x")

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

    def run(source: str, n: int, own: random.Random) -> None:
        if own.random() < 0.5:
            time.sleep(own.random() * 0.01)
        batcher.begin(source)
        for index in range(n):
            if own.random() < 0.1:
                time.sleep(own.random() * 0.004)
            batcher.inlets[source].put(frame(source, index, "bad" if own.random() < 0.1 else None))
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
    told: list[str] = []
    for batch in batches:
        rows = sorted([*batch.frames, *batch.failed], key=lambda one: one.position)
        assert len(rows) <= size
        assert [one.position for one in rows] == list(range(len(rows)))
        assert all((one.error is not None) == (one in batch.failed) for one in rows)
        for one in rows:
            assert one.source not in told
            seen[one.source].append(one.index)
        told.extend(batch.ended)
    assert seen == {source: list(range(n)) for source, n in counts.items()}
    assert sorted(told) == sorted(counts)
    assert [batch.sequence for batch in batches] == list(range(len(batches)))


# ------------------------------------------------------------------------------------------------- live sources


def live(source: str, index: int, age_s: float = 0.0) -> Frame:
    made = frame(source, index)
    made.due_s = time.monotonic() - age_s
    return made


def test_live_frames_that_are_too_old_are_dropped_and_counted():
    batcher = Batcher(4, LONG_S, np, 2, 0.5)
    batcher.expect(2)
    inlets = [batcher.begin(source) for source in "ab"]
    for index, age_s in enumerate([9.0, 3.0, 0.6, 0.0]):
        inlets[0].put(live("a", index, age_s))
    for index in range(2):
        inlets[1].put(frame("b", index))  # a file's frames have no age
    batch = batcher.next()
    assert [(one.source, one.index) for one in batch.frames] == [("a", 3), ("b", 0), ("b", 1)]
    assert [one.position for one in batch.frames] == [0, 1, 2]
    assert [one.ordinal for one in batch.frames] == [0, 0, 1]  # of each source, dropped ones not counted
    assert (dict(inlets[0].drops.values), dict(inlets[1].drops.values)) == ({TOO_OLD: 3}, {})


def test_a_batch_of_old_frames_alone_does_not_leave_and_ends_nothing():
    batcher = Batcher(2, LONG_S, np, 2, 0.1)
    batcher.expect(1)
    inlet = batcher.begin("a")
    for index in range(2):
        inlet.put(live("a", index, 5.0))
    found: list[Batch | None] = []
    reader = in_thread(lambda: found.extend([batcher.next(), batcher.next()]))
    reader.join(0.2)
    assert reader.is_alive()
    inlet.put(live("a", 2))
    inlet.end()
    reader.join(5)
    assert [one.index for one in found[0].frames] == [2]
    assert found[1] is None or found[1].ended == ("a",)
    assert inlet.drops[TOO_OLD] == 2


def test_a_live_source_never_waits_and_loses_its_oldest():
    batcher = Batcher(4, LONG_S, np, 1, LONG_S)
    batcher.expect(2)
    inlet, other = batcher.begin("a"), batcher.begin("b")
    begun = time.monotonic()
    for index in range(100):
        inlet.put(live("a", index))
    assert time.monotonic() - begun < 5
    other.put(frame("b"))
    assert batcher.waiting == 5
    other.put(frame("b", 1))
    batch = batcher.next()
    assert [(one.source, one.index) for one in batch.frames] == [("a", 96), ("b", 0), ("a", 97), ("b", 1)]
    assert (inlet.drops[QUEUE_FULL], other.drops[QUEUE_FULL]) == (96, 0)


@pytest.mark.parametrize(("age_s", "count", "cause"), [(5.0, 4, TOO_OLD), (0.0, 6, QUEUE_FULL)])
def test_what_a_source_has_told_with_a_frame_outlives_it(age_s, count, cause):
    batcher = Batcher(4, LONG_S, np, 1, 1.0)
    batcher.expect(1)
    inlet = batcher.begin("a")
    for index in range(2):
        dropped = live("a", index, age_s)
        dropped.events.append(Event(f"told{index}", "decode", "a", index, 0.0))
        inlet.put(dropped)
    for index in range(2, count):
        inlet.put(live("a", index))
    inlet.end()
    first, *others = batcher.next().frames
    assert inlet.drops[cause] == 2
    assert [event.kind for event in first.events] == ["told0", "told1"]
    assert not any(one.events for one in others)


def test_in_is_out_and_dropped_with_a_slow_reader_and_unlike_rates():
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
    assert [(one.index, "a" in batch.ended) for batch in batches for one in batch.frames] == [(7, True), (0, True)]


def test_nothing_begins_when_all_is_over():
    batcher = Batcher(4, LONG_S, np)
    assert batcher.expect(1)
    assert batcher.expect(-1)
    assert batcher.next() is None
    assert not batcher.expect(1)


def test_what_the_way_to_the_end_takes_is_taken_off_the_age_allowed():
    batcher = Batcher(1, 0.01, np, max_latency_s=1.0)
    batcher.expect(1)
    inlet = batcher.begin("a")

    def left_with(ages_s):
        """Which of frames of these ages leave."""
        now_s = time.monotonic()
        for index, age_s in enumerate(ages_s):
            made = frame("a", index)
            made.due_s = now_s - age_s
            inlet.put(made)
        batch = batcher.next()
        return batch.frames[0].index, batch.sequence

    index, sequence = left_with([0.6])
    assert index == 0, "nothing is known of the way yet"
    time.sleep(0.5)
    batcher.through(sequence)
    index, sequence = left_with([0.6, 0.1])
    assert index == 1
    assert inlet.drops["dropped: too old"] == 1
    for _ in range(40):  # the way gets short again, and is believed to slowly
        batcher.through(sequence)
        index, sequence = left_with([0.0])
    batcher.through(sequence)
    assert left_with([0.6])[0] == 0
    batcher.through(12_345)  # of a batch that was never made here: no harm


def test_a_way_that_takes_longer_than_is_allowed_leaves_new_frames_a_chance():
    batcher = Batcher(1, 0.01, np, max_latency_s=0.2)
    batcher.expect(1)
    inlet = batcher.begin("a")
    for _ in range(2):
        made = frame("a", 0)
        made.due_s = time.monotonic()
        inlet.put(made)
        batch = batcher.next()
        assert len(batch.frames) == 1
        time.sleep(0.3)
        batcher.through(batch.sequence)
    assert not inlet.drops.values


def apart(size: int, *sources: str) -> Batcher:
    batcher = Batcher(size, 0.0, np, 4, apart=True)
    batcher.expect(len(sources))
    for source in sources:
        batcher.begin(source)
    return batcher


def test_apart_a_batch_is_one_sources_and_full_however_long_that_takes():
    batcher = apart(3, "a", "b")
    for index in range(2):
        batcher.inlets["a"].put(frame("a", index))
        batcher.inlets["b"].put(frame("b", index))
    taken: list[Batch] = []
    waiting = in_thread(lambda: taken.append(batcher.next()))
    waiting.join(0.2)  # four frames wait, and have waited longer than any may elsewhere
    assert waiting.is_alive()
    batcher.inlets["b"].put(frame("b", 2))
    waiting.join(10)
    assert names(taken[0]) == ["b", "b", "b"]


def test_apart_a_source_that_has_ended_leaves_with_what_it_has():
    batcher = apart(3, "a", "b")
    for index in range(4):
        batcher.inlets["a"].put(frame("a", index))
    batcher.inlets["b"].put(frame("b"))
    batcher.inlets["a"].end()
    batches = [batcher.next(), batcher.next()]
    assert [names(batch) for batch in batches] == [["a", "a", "a"], ["a"]]
    assert [batch.ended for batch in batches] == [(), ("a",)]
    batcher.inlets["b"].end()
    assert [names(batch) for batch in drain(batcher)] == [["b"]]


@pytest.mark.parametrize("seed", range(3))
def test_apart_batches_are_the_same_whatever_the_timing(seed):
    lengths = {"a": 10, "b": 3, "c": 0, "d": 7}
    batcher = apart(4, *lengths)
    chance = random.Random(seed)

    def bring(source: str, inlet) -> None:
        for index in range(lengths[source]):
            time.sleep(chance.random() / 500)
            inlet.put(frame(source, index))
        inlet.end()

    threads = [in_thread(partial(bring, *item)) for item in list(batcher.inlets.items())]
    batches = drain(batcher)
    for thread in threads:
        thread.join()
    found: dict[str, list[list[int]]] = {}
    for batch in batches:
        assert len(set(names(batch))) <= 1
        for source in set(names(batch)):
            found.setdefault(source, []).append([one.index for one in batch.frames])
    assert found == {
        "a": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], "b": [[0, 1, 2]], "d": [[0, 1, 2, 3], [4, 5, 6]],
    }  # fmt: skip
    assert Counter(source for batch in batches for source in batch.ended) == Counter(list(lengths))
