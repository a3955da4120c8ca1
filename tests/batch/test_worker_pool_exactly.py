"""Which worker gets which job: exactly, without processes. `test_worker_pool.py` has the same with real ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.messages import collect

from streamkit.batch.job import BatchJob, Outcome, VideoFile
from streamkit.batch.messages import FileProgress, FileRead, Leaving, Progress
from streamkit.batch.worker_pool import PooledWorker, WorkerDied, WorkerPool
from streamkit.core.errors import StreamkitError
from streamkit.runtime.multiprocess import children
from streamkit.runtime.multiprocess.messages import Ready, name_of


def job(name: str) -> BatchJob:
    return BatchJob(VideoFile(f"/v/{name}", name, 1, "1"), name)


class Child:
    """A worker that does what the test says."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.words: list[Any] = []
        self.exited = self.killed = self.joined = False
        self.exit_text = "was killed by SIGKILL"

    def send(self, order: Any) -> None:
        self.told.append(order.key if isinstance(order, BatchJob) else name_of(order))

    def receive(self) -> Iterable[Any]:
        words, self.words = self.words, []
        return words

    def kill(self) -> None:
        self.killed = True

    def join(self, within_s: float) -> None:
        self.joined = True


class Made(WorkerPool):
    """A pool of such workers."""

    def __init__(self, count: int = 2, slots: int = 2) -> None:
        self.logged = collect()
        super().__init__(slots, 10.0)
        for number in range(count):
            self.add(number)

    def start_worker(self, number: int) -> Child:
        return Child()

    def wait_messages(self, children: Sequence[Child], timeout_s: float) -> None:
        pass

    def location(self, hand: PooledWorker) -> str:
        return "cpu"

    def hears(self, number: int, message: Any) -> list[Outcome | WorkerDied]:
        """A worker sends a message, and what waits is handed out."""
        self.pooled[number].child.words.append(message)
        return self.wait(0.001)

    def ready(self) -> Made:
        for number in range(len(self.pooled)):
            self.hears(number, Ready())
        return self

    def told(self) -> list[list[str]]:
        return [hand.child.told for hand in self.pooled]


def test_nothing_is_given_before_a_worker_is_ready():
    pool = Made(1)
    pool.submit(job("a"))
    assert pool.told() == [[]]
    pool.hears(0, Ready())
    assert pool.told() == [["a"]]


def test_jobs_go_to_the_worker_with_most_room_and_no_worker_reads_more_than_its_slots():
    pool = Made().ready()
    for name in "abcde":
        pool.submit(job(name))
    assert pool.told() == [["a", "c"], ["b", "d"]]
    assert [one.key for one, _ in pool.queue] == ["e"]
    pool.hears(1, FileRead("b"))  # the rest of its pipeline is still at work on b
    assert pool.told() == [["a", "c"], ["b", "d", "e"]]


def test_of_two_workers_that_read_as_much_the_one_with_less_in_hand_gets_the_job():
    pool = Made().ready()
    for name in "ab":
        pool.submit(job(name))
    pool.hears(0, FileRead("a"))
    pool.hears(1, Outcome(job("b"), "done"))
    pool.submit(job("c"))
    assert pool.told() == [["a"], ["b", "c"]]


def test_a_job_that_is_to_be_alone_waits_for_an_empty_worker_and_keeps_it():
    pool = Made().ready()
    pool.submit(job("a"))
    pool.submit(job("b"))
    pool.submit(job("suspect"), alone=True)
    pool.submit(job("c"))
    assert pool.told() == [["a"], ["b"]]  # and what comes behind it waits, too
    pool.hears(1, FileRead("b"))  # read, but still in hand
    assert pool.told() == [["a"], ["b"]]
    pool.hears(1, Outcome(job("b"), "done"))
    assert pool.told() == [["a", "c"], ["b", "suspect"]]
    pool.submit(job("d"))
    pool.submit(job("e"))
    assert pool.told() == [["a", "c"], ["b", "suspect"]]
    pool.hears(1, FileRead("suspect"))
    assert pool.told() == [["a", "c"], ["b", "suspect"]], "also while the rest of its pipeline is at work"
    pool.hears(1, Outcome(job("suspect"), "done"))
    assert pool.told() == [["a", "c"], ["b", "suspect", "d", "e"]]


def test_a_worker_that_leaves_gets_nothing_more_and_its_end_costs_nothing():
    pool = Made(1).ready()
    pool.submit(job("a"))
    pool.hears(0, Leaving())
    assert [one.job.key for one in pool.hears(0, Outcome(job("a"), "done"))] == ["a"]
    pool.submit(job("b"))
    assert pool.told() == [["a"]]
    old = pool.pooled[0]
    old.child.exited = True
    assert pool.wait(0.001) == []
    assert (old.child.joined, pool.pooled[0] is old, pool.pooled[0].done, pool.logged) == (True, False, 1, [])
    pool.hears(0, Ready())
    assert pool.told() == [["b"]]


def test_a_worker_that_dies_tells_what_it_had_in_hand():
    pool = Made().ready()
    for name in "abc":
        pool.submit(job(name))
    pool.pooled[0].child.exited = True
    (died,) = pool.wait(0.001)
    assert isinstance(died, WorkerDied)
    assert ([one.key for one in died.jobs], died.kind) == (["a", "c"], "killed")
    assert died.how == "the worker was killed by SIGKILL"
    assert pool.logged == ["the worker was killed by SIGKILL; a new worker replaces it"]
    assert [worker.ready for worker in pool.workers()] == [False, True]


def test_one_file_more_than_a_worker_reads_is_under_way():
    pool = Made(1, slots=1).ready()
    pool.submit(*map(job, "abcd"))
    assert pool.told() == [["a"]]
    pool.hears(0, FileRead("a"))
    pool.hears(0, FileRead("b"))
    assert pool.told() == [["a", "b"]], "both are read, and neither is done"
    pool.hears(0, Outcome(job("a"), "done"))
    assert pool.told() == [["a", "b", "c"]]


def test_suspect_files_go_before_all_others_in_their_order():
    pool = Made(1, slots=1)
    pool.submit(job("a"), job("b"))
    pool.submit(job("first"), job("second"), alone=True)
    assert [(one.key, alone) for one, alone in pool.queue] == [
        ("first", True), ("second", True), ("a", False), ("b", False),
    ]  # fmt: skip


def test_workers_are_listed_by_number_with_the_files_they_still_have():
    pool = Made().ready()
    pool.submit(job("a"), job("b"))
    pool.hears(0, Progress((FileProgress("a", "a", 1, 0.1), FileProgress("gone", "gone", 9, 1.0))))
    pool.pooled[0].child.exited = True
    pool.wait(0.001)
    pool.hears(0, Progress((FileProgress("b", "b", 1, 0.2),)))
    assert [(one.name, one.ready, one.files) for one in pool.workers()] == [
        ("cpu worker 1", False, ()), ("cpu worker 2", True, (FileProgress("b", "b", 1, 0.2),)),
    ]  # fmt: skip


def test_an_outcome_that_comes_twice_counts_once():
    pool = Made(1).ready()
    pool.submit(job("a"))
    assert len(pool.hears(0, Outcome(job("a"), "done"))) == 1
    assert pool.hears(0, Outcome(job("a"), "done")) == []


def test_a_worker_whose_file_gives_no_frame_for_so_long_is_ended(monkeypatch):
    pool = Made(1).ready()
    pool.submit(job("a"))
    clock = SimpleNamespace(monotonic=lambda: clock.now_s)
    monkeypatch.setattr(children, "time", clock)
    moved_s = 3.0
    pool.pooled[0].moved["a"] = -1, moved_s
    for now_s, killed in ((moved_s + 10.0, False), (moved_s + 10.01, True)):
        clock.now_s = now_s
        assert pool.wait(0.001) == []
        assert pool.pooled[0].child.killed is killed
    pool.submit(job("b"))
    assert pool.told() == [["a"]]
    pool.pooled[0].child.exited = True
    (died,) = pool.wait(0.001)
    assert (died.kind, died.how) == ("timeout", "no frame of a for 10 s: its worker was stopped")
    assert [one.key for one in died.jobs] == ["a"]


def test_frames_that_come_put_the_end_off_and_the_same_number_again_does_not():
    pool = Made(1).ready()
    pool.submit(job("a"))
    hand = pool.pooled[0]
    hand.moved["a"] = hand.moved["a"][0], 0.0
    pool.hears(0, Progress((FileProgress("a", "a", 0, 0.0),)))
    frames, moved_s = hand.moved["a"]
    assert frames == 0
    assert moved_s > 0.0
    hand.moved["a"] = 0, 5.0
    pool.hears(0, Progress((FileProgress("a", "a", 0, 0.0),)))
    assert hand.moved["a"] == (0, 5.0)
    pool.hears(0, Progress((FileProgress("a", "a", 1, 0.1),)))
    assert hand.moved["a"][0] == 1
    assert hand.moved["a"][1] > 5.0


def test_of_a_file_that_is_done_nothing_is_remembered():
    pool = Made(1).ready()
    pool.submit(job("a"))
    pool.hears(0, Outcome(job("a"), "done"))
    pool.hears(0, Progress((FileProgress("a", "a", 1, 0.1),)))  # sent before the outcome was
    hand = pool.pooled[0]
    assert (hand.jobs, hand.reading, hand.moved, hand.done) == ({}, set(), {}, 1)


def test_three_workers_in_a_row_that_die_before_they_are_ready_end_the_run():
    pool = Made(1)
    for _ in range(2):
        pool.pooled[0].child.exited = True
        assert len(pool.wait(0.001)) == 1
    pool.hears(0, Ready())  # one that came up: the count begins again
    for _ in range(3):
        pool.pooled[0].child.exited = True
        assert len(pool.wait(0.001)) == 1
    pool.pooled[0].child.exited = True
    with pytest.raises(StreamkitError, match="workers repeatedly die before they have opened the pipeline"):
        pool.wait(0.001)


def test_a_pool_that_is_stopping_assigns_no_further_job():
    pool = Made(1, slots=1).ready()
    for name in "abc":
        pool.submit(job(name))
    pool.stopping = True
    pool.hears(0, FileRead("a"))  # there would be room for the next one
    assert pool.told() == [["a"]]
    assert [one.key for one in pool.recall()] == ["b", "c"]


def test_what_no_worker_has_is_taken_back():
    pool = Made(1, slots=1).ready()
    for name in "abc":
        pool.submit(job(name))
    assert [one.key for one in pool.recall()] == ["b", "c"]
    assert pool.recall() == []
    assert pool.told() == [["a"]]
