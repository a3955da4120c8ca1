"""Which worker gets which job: exactly, without processes. `test_worker_pool.py` has the same with real ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from streamkit.batch.job import BatchJob, Outcome, VideoFile
from streamkit.batch.worker import FileProgress
from streamkit.batch.worker_pool import PooledWorker, WorkerDied, WorkerPool
from streamkit.core.errors import StreamkitError


def job(name: str) -> BatchJob:
    return BatchJob(VideoFile(f"/v/{name}", name, 1, "1"), name)


class Child:
    """A worker that does what the test says."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.words: list[tuple[str, Any]] = []
        self.over = self.killed = self.joined = False
        self.how_it_died = "was killed by SIGKILL"

    def tell(self, kind: str, value: Any = None) -> None:
        self.told.append(value.key if kind == "job" else kind)

    def hear(self) -> Iterable[tuple[str, Any]]:
        words, self.words = self.words, []
        return words

    def kill(self) -> None:
        self.killed = True

    def join(self, within_s: float) -> None:
        self.joined = True


class Made(WorkerPool):
    """A pool of such workers."""

    def __init__(self, count: int = 2, slots: int = 2) -> None:
        self.said: list[str] = []
        super().__init__(slots, 10.0, self.said.append)
        for number in range(count):
            self.add(number)

    def begin(self, number: int) -> Child:
        return Child()

    def listen(self, children: Sequence[Child], timeout_s: float) -> None:
        pass

    def place(self, hand: PooledWorker) -> str:
        return "cpu"

    def hears(self, number: int, kind: str, value: Any = None) -> list[Outcome | WorkerDied]:
        """A worker says something, and what waits is handed out."""
        self.pooled[number].child.words.append((kind, value))
        return self.wait(0.001)

    def ready(self) -> Made:
        for number in range(len(self.pooled)):
            self.hears(number, "ready")
        return self

    def told(self) -> list[list[str]]:
        return [hand.child.told for hand in self.pooled]


def test_nothing_is_given_before_a_worker_is_ready():
    pool = Made(1)
    pool.give(job("a"))
    assert pool.told() == [[]]
    pool.hears(0, "ready")
    assert pool.told() == [["a"]]


def test_jobs_go_to_the_worker_with_most_room_and_no_worker_reads_more_than_its_slots():
    pool = Made().ready()
    for name in "abcde":
        pool.give(job(name))
    assert pool.told() == [["a", "c"], ["b", "d"]]
    assert [one.key for one, _ in pool.queue] == ["e"]
    pool.hears(1, "read", "b")  # the rest of its pipeline is still at work on b
    assert pool.told() == [["a", "c"], ["b", "d", "e"]]


def test_of_two_workers_that_read_as_much_the_one_with_less_in_hand_gets_the_job():
    pool = Made().ready()
    for name in "ab":
        pool.give(job(name))
    pool.hears(0, "read", "a")
    pool.hears(1, "outcome", Outcome(job("b"), "done"))
    pool.give(job("c"))
    assert pool.told() == [["a"], ["b", "c"]]


def test_a_job_that_is_to_be_alone_waits_for_an_empty_worker_and_keeps_it():
    pool = Made().ready()
    pool.give(job("a"))
    pool.give(job("b"))
    pool.give(job("suspect"), alone=True)
    pool.give(job("c"))
    assert pool.told() == [["a"], ["b"]]  # and what comes behind it waits, too
    pool.hears(1, "read", "b")  # read, but still in hand
    assert pool.told() == [["a"], ["b"]]
    pool.hears(1, "outcome", Outcome(job("b"), "done"))
    assert pool.told() == [["a", "c"], ["b", "suspect"]]
    pool.give(job("d"))
    pool.give(job("e"))
    assert pool.told() == [["a", "c"], ["b", "suspect"]]
    pool.hears(1, "read", "suspect")
    assert pool.told() == [["a", "c"], ["b", "suspect"]], "also while the rest of its pipeline is at work"
    pool.hears(1, "outcome", Outcome(job("suspect"), "done"))
    assert pool.told() == [["a", "c"], ["b", "suspect", "d", "e"]]


def test_a_worker_that_leaves_gets_nothing_more_and_its_end_costs_nothing():
    pool = Made(1).ready()
    pool.give(job("a"))
    pool.hears(0, "leaving")
    assert [one.job.key for one in pool.hears(0, "outcome", Outcome(job("a"), "done"))] == ["a"]
    pool.give(job("b"))
    assert pool.told() == [["a"]]
    old = pool.pooled[0]
    old.child.over = True
    assert pool.wait(0.001) == []
    assert (old.child.joined, pool.pooled[0] is old, pool.pooled[0].done, pool.said) == (True, False, 1, [])
    pool.hears(0, "ready")
    assert pool.told() == [["b"]]


def test_a_worker_that_dies_tells_what_it_had_in_hand():
    pool = Made().ready()
    for name in "abc":
        pool.give(job(name))
    pool.pooled[0].child.over = True
    (died,) = pool.wait(0.001)
    assert isinstance(died, WorkerDied)
    assert ([one.key for one in died.jobs], died.kind) == (["a", "c"], "killed")
    assert died.how == "the worker was killed by SIGKILL"
    assert pool.said == ["the worker was killed by SIGKILL; a new worker replaces it"]
    assert not pool.pooled[0].ready


def test_an_outcome_that_comes_twice_counts_once():
    pool = Made(1).ready()
    pool.give(job("a"))
    assert len(pool.hears(0, "outcome", Outcome(job("a"), "done"))) == 1
    assert pool.hears(0, "outcome", Outcome(job("a"), "done")) == []


def test_a_worker_whose_file_gives_no_frame_for_so_long_is_ended():
    pool = Made(1).ready()
    pool.give(job("a"))
    assert pool.gone(pool.pooled[0].moved["a"][1] + 10.0) == []
    assert not pool.pooled[0].child.killed
    moved_s = 3.0
    pool.pooled[0].moved["a"] = -1, moved_s
    for now_s, killed in ((moved_s + 10.0, False), (moved_s + 10.01, True)):
        assert pool.gone(now_s) == []
        assert pool.pooled[0].child.killed is killed
    pool.give(job("b"))
    assert pool.told() == [["a"]]
    pool.pooled[0].child.over = True
    (died,) = pool.gone(moved_s + 11)
    assert (died.kind, died.how) == ("timeout", "no frame of a for 10 s: its worker was stopped")
    assert [one.key for one in died.jobs] == ["a"]


def test_frames_that_come_put_the_end_off_and_the_same_number_again_does_not():
    pool = Made(1).ready()
    pool.give(job("a"))
    hand = pool.pooled[0]
    hand.moved["a"] = hand.moved["a"][0], 0.0
    pool.hears(0, "progress", (FileProgress("a", "a", 0, 0.0),))
    frames, moved_s = hand.moved["a"]
    assert frames == 0
    assert moved_s > 0.0
    hand.moved["a"] = 0, 5.0
    pool.hears(0, "progress", (FileProgress("a", "a", 0, 0.0),))
    assert hand.moved["a"] == (0, 5.0)
    pool.hears(0, "progress", (FileProgress("a", "a", 1, 0.1),))
    assert hand.moved["a"][0] == 1
    assert hand.moved["a"][1] > 5.0


def test_of_a_file_that_is_done_nothing_is_remembered():
    pool = Made(1).ready()
    pool.give(job("a"))
    pool.hears(0, "outcome", Outcome(job("a"), "done"))
    pool.hears(0, "progress", (FileProgress("a", "a", 1, 0.1),))  # sent before the outcome was
    hand = pool.pooled[0]
    assert (hand.jobs, hand.reading, hand.moved, hand.done) == ({}, set(), {}, 1)


def test_three_workers_in_a_row_that_die_before_they_are_ready_end_the_run():
    pool = Made(1)
    for _ in range(2):
        pool.pooled[0].child.over = True
        assert len(pool.wait(0.001)) == 1
    pool.hears(0, "ready")  # one that came up: the count begins again
    for _ in range(3):
        pool.pooled[0].child.over = True
        assert len(pool.gone(0.0)) == 1
    pool.pooled[0].child.over = True
    with pytest.raises(StreamkitError, match="workers repeatedly die before they have opened the pipeline"):
        pool.gone(0.0)


def test_what_no_worker_has_is_taken_back():
    pool = Made(1, slots=1).ready()
    for name in "abc":
        pool.give(job(name))
    assert [one.key for one in pool.recall()] == ["b", "c"]
    assert pool.recall() == []
    assert pool.told() == [["a"]]
