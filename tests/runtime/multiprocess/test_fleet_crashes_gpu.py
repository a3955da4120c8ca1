"""Crashes of processes that share a GPU under MPS: one is killed, has a GPU fault or hangs; the parent is killed."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from support.cards import card_of
from support.fleets import until
from support.live_fleets import Live, restarts_in

from streamkit.runtime.multiprocess.children import CHILD_MODULE
from streamkit.runtime.multiprocess.mps import find_control
from streamkit.runtime.multiprocess.worker_handle import SILENT_S, WorkerHandle

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

SOURCES = "abcdef"
PLUGIN = '''
import os
import numpy as np
from streamkit import BatchStage, stage

SOURCE = r"""
extern "C" __global__ void illegal(unsigned long long nowhere) { *(volatile int*)nowhere = 1; }
extern "C" __global__ void endless(unsigned long long flag) { while (*(volatile int*)flag == 0) {} }
"""

@stage("breaking", reads="tensor", scope="source")
class Breaking(BatchStage):
    """Runs a kernel that fails or never ends, in the first process that sees a file with its name."""

    folder: str

    def open(self):
        import cupy
        self.kernels = {name: cupy.RawKernel(SOURCE, name) for name in ("illegal", "endless")}
        for kernel in self.kernels.values():
            kernel.compile()
        self.flag = cupy.zeros(1, np.int32)

    def process(self, batch):
        for name, kernel in self.kernels.items():
            try:
                os.rename(f"{self.folder}/{name}", f"{self.folder}/{name}.{os.getpid()}")
            except FileNotFoundError:
                continue
            at = 8 if name == "illegal" else self.flag.data.ptr
            kernel((1,), (1,), (np.uint64(at),))
        return batch
'''


class OnGpu(Live):
    """A run of six paced videos with a detector, in three processes on one GPU."""

    DEVICE = "{use: 'cuda:0', processes: 3}"
    PLUGIN = PLUGIN

    def __init__(self, folder: Path, data: Path) -> None:
        card_of("nano", data, folder)
        clip = f"{{uri: {data}/videos/bench_1080p_hevc.mp4, loop: true, pace: 30}}"
        stages = (
            f"\n  detect: {{model: {folder}/nano.yaml, insert: {{after: preprocess, stage: breaking, "
            f"folder: {folder}}}}}\n"
            "  all: {stage: jsonl, path: OUT/all.jsonl}\n"
            "  log: {stage: sqlite, path: OUT/events.db, send: events, spool: {path: OUT/spool}}\n"
        )
        super().__init__(folder, dict.fromkeys(SOURCES, clip), stages, "watchdog: 10s\n")

    def passed(self) -> dict[str, int]:
        """Frames of each source that have passed every stage, as last reported."""
        return {id_: self.run.states[id_].out for id_ in SOURCES}

    def deliver(self, more: int, within_s: float = 60, sources: str = SOURCES) -> None:
        """Wait until so many more frames of each source have passed every stage."""
        before = self.passed()
        until(lambda: all(self.passed()[id_] >= before[id_] + more for id_ in sources), within_s)

    def begin(self) -> None:
        """Wait until all sources deliver frames, with MPS."""
        mps = self.fleet.processes.mps
        assert mps is not None
        if not mps.active:
            pytest.skip(mps.reason)
        self.deliver(60)

    def trigger(self, name: str) -> tuple[WorkerHandle, int, str]:
        """Let one process run a kernel; return the process, its id and its sources."""
        workers = {worker.child.pid: worker for worker in self.fleet.processes.workers}
        sources = {pid: "".join(self.fleet.sources.of(worker)) for pid, worker in workers.items()}
        (self.folder / name).touch()
        (done,) = until(lambda: list(self.folder.glob(f"{name}.*")), 10)
        pid = int(done.suffix[1:])
        return workers[pid], pid, sources[pid]

    def delivers_elsewhere(self, sources: str, than: set[WorkerHandle], within_s: float) -> None:
        """Wait until each of the sources delivers frames in another process than these."""
        until_s = time.monotonic() + within_s
        until(lambda: not any(self.worker_of(id_) in than for id_ in sources), within_s)
        self.deliver(5, until_s - time.monotonic(), sources)

    def check_counts(self) -> None:
        """Every frame of the run is accounted for, none came twice, and every restart has its event."""
        report = self.run.report(130)
        lost = 0
        for id_ in SOURCES:
            state = self.run.states[id_]
            assert state.error is None
            assert state.frames == state.out + state.dropped
            lost += report["sources"][id_].get("dropped", {}).get("process_died", 0)
            indices = self.indices(id_)
            assert all(first < second for first, second in itertools.pairwise(indices))
        assert lost == report["counts"].get("frames dropped: process died", 0)
        assert report["events"]["restarted"] == report["restarted"] == len(restarts_in(self.out / "events.db"))


@pytest.fixture
def live(tmp_path: Path, test_data: Path) -> OnGpu:
    if find_control() is None:
        pytest.skip("nvidia-cuda-mps-control is not installed")
    return OnGpu(tmp_path, test_data)


def test_sources_of_a_killed_process_resume_within_5_s_and_others_continue(live: OnGpu) -> None:
    with live.running():
        live.begin()
        dead = live.worker_of("a")
        pid = dead.child.pid
        lost = "".join(live.fleet.sources.of(dead))
        spares = {
            worker for worker in live.fleet.processes.workers if worker.spare
        }  # none where the cores do not allow it
        until(lambda: all(worker.ready for worker in spares))
        others = "".join(id_ for id_ in SOURCES if id_ not in lost)
        before = live.passed()
        killed_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)  # while its kernels run: it has some in flight at any time
        live.delivers_elsewhere(lost, {dead}, 5)
        assert not spares or {live.worker_of(id_) for id_ in lost} == spares
        took_s = time.monotonic() - killed_s
        live.deliver(5, 2, others)  # and their last reports come
        for id_ in others:
            assert live.passed()[id_] - before[id_] > took_s * 30 * 0.5
        live.deliver(60, 10)
        assert live.fleet.processes.mps is not None
        assert live.fleet.processes.mps.running
    live.check_counts()
    assert {id_ for id_, _ in restarts_in(live.out / "events.db")} == set(lost)


def test_every_source_resumes_within_15_s_after_a_gpu_fault(live: OnGpu) -> None:
    with live.running():
        live.begin()
        start_s = time.monotonic()
        faulty, _, lost = live.trigger("illegal")
        live.delivers_elsewhere(lost, {faulty}, 15)
        live.deliver(15, start_s + 15 - time.monotonic())  # also those of processes that the fault has ended with it
        live.deliver(60, 10)
        assert live.fleet.processes.mps is not None
        assert live.fleet.processes.mps.running
    live.check_counts()
    assert faulty.failure is not None
    assert "lost its GPU" in faulty.failure, faulty.failure


@pytest.mark.parametrize("how", ["stopped", "endless"])
def test_a_hanging_process_is_replaced(live: OnGpu, how: str) -> None:
    with live.running():
        live.begin()
        if how == "stopped":
            hanging = live.worker_of("a")
            pid = hanging.child.pid
            lost = "".join(live.fleet.sources.of(hanging))
            os.kill(pid, signal.SIGSTOP)
        else:
            hanging, pid, lost = live.trigger("endless")
        live.delivers_elsewhere(lost, {hanging}, SILENT_S + 10)
        live.deliver(60, 20)
        assert not psutil.pid_exists(pid)
    live.check_counts()
    reason = f"has not reported for {SILENT_S:g} s" if how == "stopped" else "has not finished work on its GPU for 10 s"
    assert hanging.failure is not None
    assert reason in hanging.failure


def test_no_process_is_left_5_s_after_the_parent_was_killed(live: OnGpu, root: Path) -> None:
    folder = tempfile.mkdtemp(prefix="left-", dir="/tmp")  # a short path: sockets of MPS are in it
    line = [sys.executable, str(root / "run.py"), str(live.path)]
    parent = subprocess.Popen(line, env={**os.environ, "TMPDIR": folder}, cwd=root, start_new_session=True)
    try:
        until(lambda: len(live.records()) > 300)
        started = _started_with(folder)
        names = [_name(process) for process in started]
        if "nvidia-cuda-mps-control" not in names:
            pytest.skip("the run uses no MPS daemon of its own")
        assert sum(CHILD_MODULE in name for name in names) in (3, 4), names  # a spare one, where the cores allow it
        assert "nvidia-cuda-mps-server" in names
        assert list(Path(folder).glob("streamkit-mps-*"))
        parent.kill()
        parent.wait()
        until(lambda: not _started_with(folder) and not any(map(_lives, started)), 5)
        assert not list(Path(folder).glob("streamkit*"))
    finally:
        for process in _started_with(folder):
            process.kill()
        parent.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _started_with(folder: str) -> list[psutil.Process]:
    """The processes with this temporary folder."""
    started = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TMPDIR") == folder and _lives(process):
                started.append(process)
    return started


def _name(process: psutil.Process) -> str:
    """The last part of its program's path, or the module that Python runs."""
    with contextlib.suppress(psutil.Error):
        line = process.cmdline()
        return CHILD_MODULE if CHILD_MODULE in line else Path(line[0] if line else process.name()).name
    return ""


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
