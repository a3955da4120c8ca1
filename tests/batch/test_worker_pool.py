"""Workers in processes of their own: they share the files, and one that dies or hangs costs the others nothing."""

import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from support.messages import collect
from support.small_clips import clip, job

from streamkit.batch.job import BatchJob, BatchSettings, FrameSelection, Outcome, VideoFile
from streamkit.batch.manager import BatchCounts, Manager
from streamkit.batch.messages import FileRead, Leaving
from streamkit.batch.worker_pool import LocalWorkerPool, PooledWorker, WorkerDied, WorkerPool
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.runtime.multiprocess import children
from streamkit.runtime.multiprocess.children import CHILD_MODULE
from streamkit.runtime.multiprocess.messages import Ready, name_of

PLUGIN = '''
import os, signal, time
from pathlib import Path
from streamkit import FrameStage, stage

@stage("trouble")
class Trouble(FrameStage):
    """Does with a file what its name says; notes in a folder what it has done."""

    folder: str

    def process(self, frame):
        name = frame.source.rsplit("-", 1)[0]
        if frame.index != 2:
            return
        if name == "killer" or (name == "once" and self.first(name)):
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "hangs":
            time.sleep(1000)
        if name == "slow":
            self.first("slow")
            time.sleep(1.5)

    def first(self, name):
        try:
            Path(self.folder, name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
'''
YAML = """
device: cpu
plugins: [trouble.py]
stages:
  trouble: {folder: FOLDER}
"""


@pytest.fixture
def settings(tmp_path) -> BatchSettings:
    (tmp_path / "trouble.py").write_text(PLUGIN)
    (tmp_path / "p.yaml").write_text(YAML.replace("FOLDER", str(tmp_path)))
    return BatchSettings(tmp_path / "p.yaml", (), tmp_path / "out", ("jsonl",), FrameSelection())


@pytest.fixture
def pools() -> Iterator:
    """Makes pools; afterwards none of their processes is left."""
    before = set(psutil.Process().children())
    opened: list[LocalWorkerPool] = []

    def make(settings: BatchSettings, count: int = 2, **options) -> LocalWorkerPool:
        opened.append(LocalWorkerPool(settings, ["cpu"] * count, cores=1, **options))
        return opened[-1]

    logged = collect()
    make.logged = logged  # type: ignore[attr-defined]
    yield make
    for pool in opened:
        pool.close()
    assert not {child for child in set(psutil.Process().children()) - before if CHILD_MODULE in child.cmdline()}


def run(pool: WorkerPool, jobs: list[BatchJob], **options) -> tuple[BatchCounts, dict[str, Outcome]]:
    committed: list[Outcome] = []
    counts = Manager(pool, jobs, committed.append, **options).run()
    return counts, {outcome.job.file.name: outcome for outcome in committed}


def records(settings: BatchSettings) -> dict[str, str]:
    return {path.stem.rsplit("-", 1)[0]: path.read_text() for path in (settings.out / "jsonl").glob("*.jsonl")}


def jobs_of(tmp_path: Path, *names: str) -> list[BatchJob]:
    return [job(clip(tmp_path / "v" / f"{name}.mp4"), n) for n, name in enumerate(names)]


def test_a_file_that_kills_its_worker_is_identified_and_the_worker_replaced(settings, pools, tmp_path):
    names = ["a", "b", "c", "d", "killer"]
    threads = threading.active_count()
    counts, outcomes = run(pools(settings), jobs_of(tmp_path, *names), retries=0)
    assert {name: outcome.status for name, outcome in outcomes.items() if outcome.status == "failed"} == {
        "killer.mp4": "failed"
    }
    killer = outcomes["killer.mp4"]
    assert (killer.cause_kind, killer.job.attempt) == ("killed", 2)
    assert killer.cause == "the worker was killed by SIGKILL, also when processed alone"
    assert counts.workers_lost == {"the worker was killed by SIGKILL": 2}
    assert pools.logged == ["the worker was killed by SIGKILL; a new worker replaces it"] * 2
    assert {name: text.count("\n") for name, text in records(settings).items()} == dict.fromkeys("abcd", 8)
    assert threading.active_count() == threads


def test_a_file_that_hangs_ends_only_its_worker(settings, pools, tmp_path):
    counts, outcomes = run(pools(settings, timeout_s=2.0), jobs_of(tmp_path, "hangs", "a", "b"), retries=0)
    assert outcomes["hangs.mp4"].cause_kind == "timeout"
    assert "no frame of hangs.mp4 for 2 s" in outcomes["hangs.mp4"].cause
    assert (counts.done, counts.failed) == (2, 1)


def test_a_killed_worker_is_replaced_and_its_file_done(settings, pools, tmp_path):
    pool = pools(settings, 1)
    killed: list[int] = []

    def look(manager: Manager) -> None:
        if (tmp_path / "slow").exists() and not killed:
            (child,) = [process for process in psutil.Process().children() if CHILD_MODULE in process.cmdline()]
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)

    counts, outcomes = run(pool, jobs_of(tmp_path, "slow", "a"), on_progress=look, retries=0)
    assert killed
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    assert counts.retries >= 1
    assert {name: text.count("\n") for name, text in records(settings).items()} == {"slow": 8, "a": 8}


def test_a_pipeline_that_cannot_be_opened_ends_the_run(settings, pools, tmp_path):
    (tmp_path / "trouble.py").write_text(PLUGIN + '    def open(self):\n        raise OSError("no such device")\n')
    jobs = jobs_of(tmp_path, "a")
    _, outcomes = run(pools(settings, 1), jobs)  # a frame stage is opened with its first frame: a file's own failure
    assert outcomes["a.mp4"].cause_kind == "stage"
    settings.pipeline.write_text("stages: {no_such_stage: {}}")
    with pytest.raises(ConfigError, match="no_such_stage"):
        run(pools(settings, 1), jobs)


def job_of(name: str) -> BatchJob:
    return BatchJob(VideoFile(f"/v/{name}", name, 1, "1"), name)


class FakeChild:
    """A worker that does what the test says."""

    def __init__(self) -> None:
        self.assigned: list[str] = []
        self.messages: list[Any] = []
        self.exited = self.killed = self.joined = False
        self.exit_text = "was killed by SIGKILL"

    def send(self, order: Any) -> None:
        self.assigned.append(order.key if isinstance(order, BatchJob) else name_of(order))

    def receive(self) -> Iterable[Any]:
        messages = self.messages
        self.messages = []
        return messages

    def kill(self) -> None:
        self.killed = True

    def join(self, within_s: float) -> None:
        self.joined = True


class FakePool(WorkerPool):
    """A pool of such workers."""

    def __init__(self, count: int = 2, slots: int = 2) -> None:
        self.logged = collect()
        super().__init__(slots, 10.0)
        for number in range(count):
            self.add(number)

    def start_worker(self, number: int) -> FakeChild:
        return FakeChild()

    def wait_messages(self, children: Sequence[FakeChild], timeout_s: float) -> None:
        pass

    def location(self, worker: PooledWorker) -> str:
        return "cpu"

    def receive(self, number: int, message: Any) -> list[Outcome | WorkerDied]:
        """A worker sends a message, and what waits is handed out."""
        self.pooled[number].child.messages.append(message)
        return self.wait(0.001)

    def ready(self) -> "FakePool":
        for number in range(len(self.pooled)):
            self.receive(number, Ready())
        return self

    def assigned(self) -> list[list[str]]:
        return [worker.child.assigned for worker in self.pooled]


def test_jobs_go_to_the_worker_with_the_most_free_slots():
    pool = FakePool().ready()
    for name in "abcde":
        pool.submit(job_of(name))
    assert pool.assigned() == [["a", "c"], ["b", "d"]]
    assert [job.key for job, _ in pool.queue] == ["e"]
    pool.receive(1, FileRead("b"))  # the rest of its pipeline is still at work on b
    assert pool.assigned() == [["a", "c"], ["b", "d", "e"]]


def test_an_isolated_job_waits_for_an_empty_worker_and_shares_it_with_none():
    pool = FakePool().ready()
    pool.submit(job_of("a"))
    pool.submit(job_of("b"))
    pool.submit(job_of("suspect"), alone=True)
    pool.submit(job_of("c"))
    assert pool.assigned() == [["a"], ["b"]]  # and what comes behind it waits, too
    pool.receive(1, FileRead("b"))  # read, but still in hand
    assert pool.assigned() == [["a"], ["b"]]
    pool.receive(1, Outcome(job_of("b"), "done"))
    assert pool.assigned() == [["a", "c"], ["b", "suspect"]]
    pool.submit(job_of("d"))
    pool.submit(job_of("e"))
    assert pool.assigned() == [["a", "c"], ["b", "suspect"]]
    pool.receive(1, FileRead("suspect"))
    assert pool.assigned() == [["a", "c"], ["b", "suspect"]], "also while the rest of its pipeline is at work"
    pool.receive(1, Outcome(job_of("suspect"), "done"))
    assert pool.assigned() == [["a", "c"], ["b", "suspect", "d", "e"]]


def test_a_leaving_worker_gets_no_job_and_is_replaced():
    pool = FakePool(1).ready()
    pool.submit(job_of("a"))
    pool.receive(0, Leaving())
    assert [outcome.job.key for outcome in pool.receive(0, Outcome(job_of("a"), "done"))] == ["a"]
    pool.submit(job_of("b"))
    assert pool.assigned() == [["a"]]
    old = pool.pooled[0]
    old.child.exited = True
    assert pool.wait(0.001) == []
    assert (old.child.joined, pool.pooled[0] is old, pool.pooled[0].done, pool.logged) == (True, False, 1, [])
    pool.receive(0, Ready())
    assert pool.assigned() == [["b"]]


def test_a_repeated_outcome_counts_once():
    pool = FakePool(1).ready()
    pool.submit(job_of("a"))
    assert len(pool.receive(0, Outcome(job_of("a"), "done"))) == 1
    assert pool.receive(0, Outcome(job_of("a"), "done")) == []


def test_a_worker_without_a_frame_until_the_timeout_is_ended(monkeypatch):
    pool = FakePool(1).ready()
    pool.submit(job_of("a"))
    clock = SimpleNamespace(monotonic=lambda: clock.now_s)
    monkeypatch.setattr(children, "time", clock)
    moved_s = 3.0
    pool.pooled[0].moved["a"] = -1, moved_s
    for now_s, killed in ((moved_s + 10.0, False), (moved_s + 10.01, True)):
        clock.now_s = now_s
        assert pool.wait(0.001) == []
        assert pool.pooled[0].child.killed is killed
    pool.submit(job_of("b"))
    assert pool.assigned() == [["a"]]
    pool.pooled[0].child.exited = True
    (died,) = pool.wait(0.001)
    assert (died.kind, died.how) == ("timeout", "no frame of a for 10 s: its worker was stopped")
    assert [job.key for job in died.jobs] == ["a"]


def test_three_workers_in_a_row_that_die_before_they_are_ready_end_the_run():
    pool = FakePool(1)
    for _ in range(2):
        pool.pooled[0].child.exited = True
        assert len(pool.wait(0.001)) == 1
    pool.receive(0, Ready())  # one that came up: the count begins again
    for _ in range(3):
        pool.pooled[0].child.exited = True
        assert len(pool.wait(0.001)) == 1
    pool.pooled[0].child.exited = True
    with pytest.raises(StreamkitError, match="workers repeatedly die before they have opened the pipeline"):
        pool.wait(0.001)


def test_unassigned_jobs_are_recalled():
    pool = FakePool(1, slots=1).ready()
    for name in "abc":
        pool.submit(job_of(name))
    assert [job.key for job in pool.recall()] == ["b", "c"]
    assert pool.recall() == []
    assert pool.assigned() == [["a"]]
