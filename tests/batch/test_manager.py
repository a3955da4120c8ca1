"""The manager: what it gives, in which order, and what it makes of outcomes and of workers that die."""

from collections.abc import Callable
from typing import Any

import pytest

from streamkit.batch.job import BatchJob, Outcome, VideoFile
from streamkit.batch.manager import BatchCounts, Manager
from streamkit.batch.messages import FileProgress
from streamkit.batch.summary import duration, hours, line, lines, report, worker_line
from streamkit.batch.worker_pool import WorkerDied, WorkerState
from streamkit.core.errors import OutputError


def job(name: str, size: int | None = 100) -> BatchJob:
    return BatchJob(VideoFile(f"/v/{name}", name, size, "1"), name)


def done(file_job: BatchJob, **fields: Any) -> Outcome:
    return Outcome(file_job, "done", frames=10, objects=3, duration_s=2.0, seconds=0.1, **fields)


def failed(file_job: BatchJob, kind: str = "lost", again: bool = True) -> Outcome:
    return Outcome(file_job, "failed", f"{kind}: no luck", kind, again)


class FakePool:
    """A pool of which a test says what comes of each job; it ends the oldest job in hand at each wait."""

    def __init__(self, what: Callable[[BatchJob, bool], Any] = lambda job, alone: done(job), slots: int = 2) -> None:
        self.slots = slots
        self.what = what
        self.submitted: list[tuple[str, int, bool]] = []
        self.queue: list[tuple[BatchJob, bool]] = []
        self.in_hand: list[tuple[BatchJob, bool]] = []
        self.open = self.aborted = self.stopping = False

    def start(self) -> None:
        self.open = True

    def submit(self, *jobs: BatchJob, alone: bool = False) -> None:
        self.submitted += [(job.key, job.attempt, alone) for job in jobs]
        self.queue += [(job, alone) for job in jobs]

    def fill(self) -> None:
        while self.queue and len(self.in_hand) < self.slots:
            self.in_hand.append(self.queue.pop(0))

    def recall(self) -> list[BatchJob]:
        left = [*self.queue, *self.in_hand[1:]]
        self.queue = []
        self.in_hand = self.in_hand[:1]
        return [job for job, _ in left]

    def wait(self, timeout_s: float) -> list[Outcome | WorkerDied]:
        self.fill()
        return [self.what(*self.in_hand.pop(0))] if self.in_hand else []

    def workers(self) -> list[WorkerState]:
        return [WorkerState("cpu worker 1", 0, (), True)]

    def close(self) -> None:
        self.open = False

    def abort(self) -> None:
        self.aborted = True


def run(pool: FakePool, jobs: list[BatchJob], **options: Any) -> tuple[BatchCounts, list[Outcome]]:
    committed: list[Outcome] = []
    counts = Manager(pool, jobs, committed.append, **options).run()
    assert not pool.open
    return counts, committed


def test_the_largest_file_is_submitted_first():
    pool = FakePool(slots=3)
    counts, committed = run(pool, [job("a", 1), job("b", 30), job("c", 20), job("d", 2)])
    assert [key for key, _, _ in pool.submitted] == ["b", "c", "d", "a"]
    assert [outcome.job.key for outcome in committed] == ["b", "c", "d", "a"]
    assert (counts.files, counts.done, counts.failed, counts.left) == (4, 4, 0, 0)
    assert (counts.video_s, counts.frames, counts.objects) == (8.0, 40, 12)


def test_files_of_unknown_size_are_submitted_first():
    pool = FakePool(slots=1)
    run(pool, [job("a", 1), job("b", None), job("c", 20), job("d", None)])
    assert [key for key, _, _ in pool.submitted] == ["b", "d", "c", "a"]


def test_a_run_without_files_ends_at_once():
    counts, committed = run(FakePool(), [], skipped=7)
    assert (counts.files, counts.skipped, committed) == (7, 7, [])


@pytest.mark.parametrize(("retries", "tries"), [(0, 1), (1, 2), (3, 4)])
def test_a_temporary_failure_is_retried_up_to_the_limit(retries, tries):
    pool = FakePool(lambda job, alone: failed(job))
    counts, committed = run(pool, [job("a")], retries=retries)
    assert pool.submitted == [("a", n + 1, False) for n in range(tries)]
    assert [outcome.job.attempt for outcome in committed] == [tries]  # only the last word is written down
    assert (counts.failed, counts.retries, dict(counts.causes)) == (1, tries - 1, {"lost": 1})


def test_a_retry_comes_last_and_may_succeed():
    pool = FakePool(lambda job, alone: failed(job) if job.key == "b" and job.attempt == 1 else done(job), slots=1)
    counts, _ = run(pool, [job("a", 1), job("b", 9)])
    assert pool.submitted == [("b", 1, False), ("a", 1, False), ("b", 2, False)]
    assert (counts.done, counts.failed, counts.exit_code) == (2, 0, 0)


def test_a_broken_file_is_not_retried():
    pool = FakePool(lambda job, alone: failed(job, "damaged", again=False))
    counts, committed = run(pool, [job("a")], retries=5)
    assert len(pool.submitted) == 1
    assert committed[0].cause_kind == "damaged"
    assert counts.exit_code == 1


def test_files_of_a_dead_worker_are_retried_alone_to_identify_the_cause():
    def what(job: BatchJob, alone: bool) -> Any:
        if job.key == "killer":
            return WorkerDied((job,), "the worker was killed by SIGSEGV")
        return (
            WorkerDied((job,), "the worker was killed by SIGSEGV") if job.key == "beside" and not alone else done(job)
        )

    pool = FakePool(what)
    counts, committed = run(pool, [job("killer", 9), job("beside", 8), job("other", 1)], retries=0)
    assert [submitted for submitted in pool.submitted if submitted[2]] == [("killer", 2, True), ("beside", 2, True)]
    outcomes = {outcome.job.key: outcome for outcome in committed}
    assert outcomes["killer"].cause_kind == "killed"
    assert outcomes["killer"].cause == "the worker was killed by SIGSEGV, also when processed alone"
    assert {outcomes["beside"].status, outcomes["other"].status} == {"done"}
    assert dict(counts.workers_lost) == {"the worker was killed by SIGSEGV": 3}


def test_a_file_that_hangs_twice_has_timed_out():
    counts, committed = run(
        FakePool(lambda job, alone: WorkerDied((job,), "no frame of a for 600 s", "timeout")), [job("a")]
    )
    assert [outcome.cause_kind for outcome in committed] == ["timeout"]
    assert counts.exit_code == 1


def test_an_idle_worker_that_dies_fails_no_file():
    first = iter([WorkerDied((), "the worker was killed by SIGKILL")])
    pool = FakePool()
    wait = pool.wait
    pool.wait = lambda timeout_s: [died] if (died := next(first, None)) else wait(timeout_s)
    counts, _ = run(pool, [job("a")])
    assert (counts.done, counts.retries, sum(counts.workers_lost.values())) == (1, 0, 1)


def test_an_output_error_ends_the_run_and_fails_no_file():
    pool = FakePool(lambda job, alone: failed(job, "output", again=False))
    with pytest.raises(OutputError, match="no luck"):
        run(pool, [job("a"), job("b")])
    assert not pool.open


def test_a_row_that_cannot_be_written_ends_the_run_at_once():
    def commit(outcome: Outcome) -> None:
        raise OutputError("cannot write files/a.parquet: the disk is full")

    pool = FakePool()
    with pytest.raises(OutputError, match="disk is full"):
        Manager(pool, [job("a")], commit).run()
    assert not pool.open


def test_a_stop_finishes_only_the_files_in_progress():
    pool = FakePool(slots=3)
    committed: list[Outcome] = []

    def commit(outcome: Outcome) -> None:
        committed.append(outcome)
        if not manager.stopping:
            manager.stop()

    manager = Manager(pool, [job(name) for name in "abcdef"], commit)
    counts = manager.run()
    assert [outcome.job.key for outcome in committed] == ["a", "b"]  # c had been given, and nobody had begun it
    assert (counts.done, counts.left) == (2, 4)
    assert not pool.aborted
    manager.stop()
    assert pool.aborted


def test_the_summary_lists_all_outcomes():
    counts = BatchCounts(files=6, skipped=1, failed_before=1, left=1, seconds=10.0)
    counts.add(done(job("a")))
    counts.add(failed(job("night/b.mp4"), "damaged"))
    text = "\n".join(lines(counts))
    assert "done          1 files   2.0 s of video in 10.0 s, 0.2 times real time; 10 frames, 3 objects" in text
    assert "failed        1 files   damaged 1" in text
    assert "skipped       1 files   already done" in text
    assert "1 files   before; --retry-failed" in text
    assert "left          1 files" in text
    assert "night/b.mp4: damaged: damaged: no luck" in text
    summary = report(counts, 1)
    assert summary["failures"] == [
        {"file": "night/b.mp4", "cause_kind": "damaged", "cause": "damaged: no luck", "attempts": 1}
    ]
    assert (
        summary["files"]
        == summary["done"] + summary["failed"] + summary["skipped"] + summary["failed_before"] + summary["left"] + 1
    )


def test_failed_frames_of_done_files_are_reported():
    counts = BatchCounts(files=1)
    counts.add(done(job("a"), facts={"failed_frames": 2}))
    assert counts.exit_code == 1
    assert any("in done files: 2" in text for text in lines(counts))


def test_damaged_frames_of_done_files_are_reported_and_not_a_failure():
    counts = BatchCounts(files=3)
    for name, damaged in (("a", 1), ("b", 1002), ("c", 0)):
        counts.add(done(job(name), facts={"damaged_frames": damaged}))
    counts.add(failed(job("d"), "damaged"))
    assert counts.exit_code == 1
    assert "damaged frames: 1,003, in 2 done files; --strict fails these files" in lines(counts)
    summary = report(counts, 1)
    assert (summary["damaged_files"], summary["damaged_frames"]) == (2, 1003)
    clean = BatchCounts(files=1)
    clean.add(done(job("a"), facts={"damaged_frames": 4}))
    assert clean.exit_code == 0
    assert not any("damaged" in text for text in lines(BatchCounts()))


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.21, "4.2 s"), (60, "1:00 min"), (725, "12:05 min"), (7390, "2:03:10")]
)
def test_times_are_formatted_for_people(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(48.13, "48.1 s"), (750, "12.5 min"), (11520, "3.2 h")])
def test_hours_of_video_are_formatted(seconds, text):
    assert hours(seconds) == text


class Clock:
    now_s = 7.0

    def monotonic(self) -> float:
        return self.now_s

    perf_counter = monotonic


@pytest.fixture
def clock(monkeypatch):
    fake_clock = Clock()
    monkeypatch.setattr("streamkit.batch.manager.time", fake_clock)
    return fake_clock


class Halfway(FakePool):
    """Workers that are half through whatever they have; the file that was given last ends first."""

    def wait(self, timeout_s: float) -> list[Outcome | WorkerDied]:
        self.fill()
        return [done(self.in_hand.pop()[0])]

    def workers(self) -> list[WorkerState]:
        doing = [(FileProgress(job.key, job.key, 5, 0.5),) for job, _ in self.in_hand]
        return [WorkerState("cpu worker 1", 0, files, True) for files in (*doing, ())]


def test_the_time_left_depends_on_bytes_and_the_longest_file(clock):
    looks = []

    def look(manager: Manager) -> None:
        looks.append((manager.share, manager.left_s, line(manager)))
        clock.now_s += 10.0

    pool = Halfway(slots=3)
    jobs = [job("large", 800), job("b", 100), job("c", 100)]
    counts = Manager(pool, jobs, lambda outcome: None, on_progress=look).run()
    assert counts.seconds == 30.0
    # c is done, half of b and of the large one: 100 + 50 + 400 bytes, in no time
    assert looks[0][:2] == (pytest.approx(0.55), None)
    assert looks[0][2] == "1 of 3 files, time left unknown"
    # 10 s later b is done: 600 bytes at 60 a second, and 400 are left
    assert looks[1][:2] == (pytest.approx(0.6), pytest.approx(400 / 60))
    assert looks[1][2] == "2 of 3 files, 4.0 s of video, 0.4 times real time, about 6.7 s left"


def test_the_time_left_includes_waiting_files(clock):
    def look(manager: Manager) -> None:
        lefts.append(manager.left_s)
        clock.now_s += 5.0

    lefts: list[float | None] = []
    Manager(Halfway(slots=1), [job(name, 100) for name in "abcd"], lambda outcome: None, on_progress=look).run()
    # after 5 s two are done and none is in hand: 200 bytes of 400; after 10 s three are
    assert lefts[1:3] == [pytest.approx(5.0), pytest.approx(10.0 / 3)]


def test_the_time_left_counts_the_last_large_file_for_a_single_worker(clock):
    def look(manager: Manager) -> None:
        lefts.append(manager.left_s)
        clock.now_s += 5.0

    lefts: list[float | None] = []
    jobs = [job("large", 800), *(job(name, 50) for name in "abcd")]
    Manager(Halfway(slots=3), jobs, lambda outcome: None, on_progress=look).run()
    # after 5 s two are done, and half of a third and of the large one: 525 bytes of 1000. What is left is 475, of which
    # 400 are one worker's, which has half of what two workers do
    assert lefts[1] == pytest.approx(400 * 2 / (525 / 5))


@pytest.mark.parametrize(
    ("share", "elapsed_s", "left_s"),
    [(0.01, 3.0, 297.0), (0.0099, 3.0, None), (0.5, 2.99, None), (0.5, 10.0, 10.0), (1.0, 10.0, 0.0)],
)
def test_the_time_left_is_shown_after_1_percent_and_three_seconds(clock, share, elapsed_s, left_s):
    pool = FakePool()
    manager = Manager(pool, [job("a", 1000)], lambda outcome: None)
    assert (manager.elapsed_s, manager.left_s) == (0.0, None)
    pool.workers = lambda: [WorkerState("cpu worker 1", 0, (FileProgress("a", "a", 1, share),), True)]  # type: ignore[method-assign]
    manager._show()
    clock.now_s += elapsed_s
    assert manager.elapsed_s == pytest.approx(elapsed_s)
    assert manager.share == pytest.approx(share)
    assert manager.left_s == (None if left_s is None else pytest.approx(left_s))
    assert Manager(pool, [], lambda outcome: None).share == 1.0


def test_the_time_left_counts_from_the_first_ready_worker(clock):
    pool = FakePool()
    looks = []
    ready = False
    pool.workers = lambda: [  # type: ignore[method-assign]
        WorkerState("cpu worker 1", 0, (), False),
        WorkerState("cpu worker 2", 0, (), ready),
    ]
    manager = Manager(pool, [], lambda outcome: None, on_progress=lambda manager: looks.append(clock.now_s))
    for now_s in (7.0, 7.25, 7.5, 7.75, 7.875, 8.0, 8.25):
        clock.now_s = now_s
        ready = now_s >= 7.75
        manager._show()
    assert looks == [7.0, 7.5, 8.0]
    assert manager.elapsed_s == 0.5


def test_the_line_of_a_worker_names_its_files_and_progress():
    doing = (
        FileProgress("k1", "gate.mp4", 40, 0.42),
        FileProgress("k2", "hall.mp4", 0, 0.0),
        FileProgress("k3", "yard.mp4", 0, 0.0),
    )
    assert worker_line(WorkerState("cuda:0 worker 2", 12, doing, True)) == (
        "cuda:0 worker 2: 12 done, now gate.mp4 42%, hall.mp4 0% and 1 more"
    )
    assert worker_line(WorkerState("cpu worker 1", 0, (), False)) == "cpu worker 1: opening the pipeline"
