"""Workers in processes of their own: they share the files, and one that dies or hangs costs the others nothing."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.messages import collect
from support.small_clips import clip, job

from streamkit.batch.job import BatchJob, BatchSettings, FrameSelection, Outcome
from streamkit.batch.manager import BatchCounts, Manager
from streamkit.batch.worker_pool import LocalWorkerPool, WorkerPool
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.runtime.multiprocess.children import CHILD_MODULE

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
    names, threads = ["a", "b", "c", "d", "killer"], threading.active_count()
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


def test_a_file_of_a_worker_that_died_once_is_done_by_the_next(settings, pools, tmp_path):
    counts, outcomes = run(pools(settings, 1), jobs_of(tmp_path, "a", "b", "once"), retries=0)
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    assert outcomes["once.mp4"].frames == 8
    assert outcomes["once.mp4"].job.attempt == 2
    assert counts.workers_lost == {"the worker was killed by SIGKILL": 1}
    assert {name: text.count("\n") for name, text in records(settings).items()} == {"a": 8, "b": 8, "once": 8}


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


def test_a_stop_finishes_the_files_in_progress(settings, pools, tmp_path):
    def look(manager: Manager) -> None:
        if (tmp_path / "slow").exists() and not manager.stopping:
            manager.stop()

    counts, outcomes = run(
        pools(settings, 1), jobs_of(tmp_path, "slow", *(f"n{n}" for n in range(9))), on_progress=look
    )
    assert outcomes["slow.mp4"].status == "done"
    assert counts.left >= 7
    assert counts.done + counts.left == 10


def test_a_pipeline_that_cannot_be_opened_ends_the_run(settings, pools, tmp_path):
    (tmp_path / "trouble.py").write_text(PLUGIN + '    def open(self):\n        raise OSError("no such device")\n')
    jobs = jobs_of(tmp_path, "a")
    _, outcomes = run(pools(settings, 1), jobs)  # a frame stage is opened with its first frame: a file's own failure
    assert outcomes["a.mp4"].cause_kind == "stage"
    settings.pipeline.write_text("stages: {no_such_stage: {}}")
    with pytest.raises(ConfigError, match="no_such_stage"):
        run(pools(settings, 1), jobs)


def test_workers_that_die_while_opening_end_the_run(settings, pools, tmp_path):
    (tmp_path / "trouble.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.raises(StreamkitError, match=r"repeatedly die before they .*: .* killed by SIGKILL"):
        run(pools(settings, 1), jobs_of(tmp_path, "a"))
