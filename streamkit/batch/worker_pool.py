# SPDX-License-Identifier: Apache-2.0
"""Worker pools: assign files to workers, handle their messages, and replace workers that died or hang.

The pool of one machine has a process per worker; `ray_worker_pool.py` has that of a Ray cluster.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from streamkit.batch.job import BatchJob, BatchSettings, Outcome
from streamkit.batch.messages import FileProgress, FileRead, Leaving, Progress
from streamkit.batch.worker import PROGRESS_EVERY_S, work
from streamkit.core.errors import StreamkitError
from streamkit.core.logs import worker_log
from streamkit.runtime.multiprocess.children import Child, SupervisedWorker, Supervisor, error_of, kill_all, wait
from streamkit.runtime.multiprocess.messages import Exited, Fatal, Finish, Logged, Now, Ready
from streamkit.runtime.multiprocess.mps import MpsDaemon
from streamkit.runtime.multiprocess.worker_link import WorkerLink
from streamkit.runtime.observe import telemetry

logger = logging.getLogger(__name__)

_MAX_FAILED_STARTS = 3
"""This many workers in a row may die before they have opened the pipeline."""
_CLOSE_S = 10.0
_ABORT_S = 0.5


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker that ended with unfinished files.

    Attributes:
        jobs: its unfinished jobs.
        how: how it ended, in one line.
        kind: `killed`, or `timeout` if it was stopped because a file delivered no frames.
    """

    jobs: tuple[BatchJob, ...]
    how: str
    kind: str = "killed"


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The state of a worker, for progress.

    Attributes:
        name: the worker's name.
        done: number of finished files.
        files: the files in progress.
        ready: whether its pipeline is open.
    """

    name: str
    done: int
    files: tuple[FileProgress, ...]
    ready: bool


@dataclass(slots=True, eq=False, kw_only=True)
class PooledWorker(SupervisedWorker):
    """One worker and its jobs.

    Attributes:
        number: the worker's number, from 0.
        done: number of finished files.
        leaving: whether it accepts no more files and is about to end.
        alone: whether its job must be its only one.
        jobs: its jobs, by key.
        reading: keys of the jobs that have not been read to their end.
        files: its last progress report.
        moved: by key, the last reported number of frames, and when it last rose, in monotonic seconds.
    """

    number: int
    done: int = 0
    leaving: bool = False
    alone: bool = False
    jobs: dict[str, BatchJob] = field(default_factory=dict)
    reading: set[str] = field(default_factory=set)
    files: tuple[FileProgress, ...] = ()
    moved: dict[str, tuple[int, float]] = field(default_factory=dict)


class WorkerPool:
    """The workers of a run, and the queue of jobs. All methods are called from one thread.

    A queued job is assigned when a worker has read the last frame of a file, while the rest of that worker's pipeline
    still processes it. Pools differ in how they start, stop and locate workers.

    Args:
        slots: number of files that a worker reads at once.
        timeout_s: how long a file may deliver no frame before its worker is stopped.

    Attributes:
        stopping: set it, from any thread or a signal handler, to assign no more jobs.
    """

    def __init__(self, slots: int, timeout_s: float) -> None:
        self.slots = slots
        self._timeout_s = timeout_s
        self._worker_log = worker_log()
        self.stopping = False
        self.supervisor: Supervisor[PooledWorker] = Supervisor(self.overdue, self.wait_messages)
        self.pooled = self.supervisor.workers
        self.queue: deque[tuple[BatchJob, bool]] = deque()
        self._failed_starts = 0

    # ------------------------------------------------------------------------------------------ what pools implement

    def start(self) -> None:
        """Start the workers without waiting for them. Raises StreamkitError if none can be started."""

    def close(self) -> None:
        """Stop the workers, and abandon files in progress."""

    def abort(self) -> None:
        """Kill the workers that outlive this process, which is about to exit at once."""

    def start_worker(self, number: int) -> WorkerLink:
        """Start a worker."""
        raise NotImplementedError

    def wait_messages(self, children: Sequence[Any], timeout_s: float) -> None:
        """Wait until a worker sends a message or ends, for at most `timeout_s` seconds."""
        wait(children, timeout_s)

    def location(self, worker: PooledWorker) -> str:
        """Where a worker runs, for progress."""
        raise NotImplementedError

    # --------------------------------------------------------------------------------------------- for the manager

    def submit(self, *jobs: BatchJob, alone: bool = False) -> None:
        """Queue jobs; with `alone`, before all others, and their workers process nothing else meanwhile."""
        queued = [(job, alone) for job in jobs]
        self.queue.extendleft(reversed(queued)) if alone else self.queue.extend(queued)
        self._assign()

    def recall(self) -> list[BatchJob]:
        """Empty the queue; return the jobs that no worker has."""
        recalled = [job for job, _ in self.queue]
        self.queue.clear()
        return recalled

    def wait(self, timeout_s: float) -> list[Outcome | WorkerDied]:
        """Wait up to `timeout_s` seconds for results. Workers that are gone are replaced.

        Raises:
            StreamkitError: the pipeline cannot be opened, or workers repeatedly die before it is open.
        """
        outcomes: list[Outcome | WorkerDied] = []
        until = time.monotonic() + timeout_s
        while not outcomes and (left_s := until - time.monotonic()) > 0:
            for worker, message in self.supervisor.poll(min(left_s, PROGRESS_EVERY_S)):
                self.handle(worker, message, outcomes)
            self._assign()
        return outcomes

    def workers(self) -> list[WorkerState]:
        """The state of each worker."""
        return [
            WorkerState(
                f"{self.location(worker)} worker {worker.number + 1}",
                worker.done,
                tuple(file for file in worker.files if file.key in worker.jobs),
                worker.ready,
            )
            for worker in sorted(self.pooled, key=lambda worker: worker.number)
        ]

    # --------------------------------------------------------------------------------------------- workers and jobs

    def add(self, number: int, done: int = 0) -> None:
        """Start a worker and add it to the pool."""
        self.pooled.append(PooledWorker(number=number, done=done, child=self.start_worker(number)))

    def handle(self, worker: PooledWorker, message: Any, outcomes: list[Outcome | WorkerDied]) -> None:
        """Handle one message of a worker; see `Supervisor.poll`."""
        match message:
            case Logged(record):
                self._worker_log(*record)
            case Ready():
                worker.ready = True
                self._failed_starts = 0
            case FileRead(key):
                worker.reading.discard(key)
            case Progress(files):
                worker.files = tuple(files)
                for file in files:
                    if file.key in worker.moved and file.frames != worker.moved[file.key][0]:
                        worker.moved[file.key] = file.frames, time.monotonic()
            case Outcome() as outcome:
                key = outcome.job.key
                worker.done += 1
                worker.reading.discard(key)
                worker.moved.pop(key, None)
                if worker.jobs.pop(key, None) is not None:
                    outcomes.append(outcome)
                if not worker.jobs:
                    worker.alone = False
            case Leaving():
                worker.leaving = True
            case Fatal(kind, text):
                raise error_of(kind, text)
            case Exited(how):
                self._replace(worker, worker.killed or f"the worker {how}", outcomes)

    def _replace(self, worker: PooledWorker, how: str, outcomes: list[Outcome | WorkerDied]) -> None:
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS:
                raise StreamkitError(f"workers repeatedly die before they have opened the pipeline: {how}")
        if worker.jobs or not worker.leaving:
            outcomes.append(WorkerDied(tuple(worker.jobs.values()), how, "timeout" if worker.killed else "killed"))
            logger.error(f"{how}; a new worker replaces it")
        self.add(worker.number, worker.done)

    def overdue(self, worker: PooledWorker, now_s: float) -> str | None:
        """Why a worker must be killed, if a file delivers no frames; see `Supervisor`."""
        for key, job in worker.jobs.items():
            if now_s - worker.moved[key][1] > self._timeout_s:
                return f"no frame of {job.file.name} for {self._timeout_s:g} s: its worker was stopped"
        return None

    def _assign(self) -> None:
        """Give queued jobs to workers with room, the least loaded first; per worker one more than it reads at once."""
        limit = len(self.pooled) * (self.slots + 1)
        while self.queue and not self.stopping and sum(len(worker.jobs) for worker in self.pooled) < limit:
            job, alone = self.queue[0]
            free = [worker for worker in self.pooled if self._has_room(worker, alone)]
            if not free:
                return
            worker = min(free, key=lambda worker: (len(worker.reading), len(worker.jobs)))
            self.queue.popleft()
            worker.alone = alone
            worker.jobs[job.key] = job
            worker.reading.add(job.key)
            worker.moved[job.key] = -1, time.monotonic()
            worker.link.send(job)

    def _has_room(self, worker: PooledWorker, alone: bool) -> bool:
        if not worker.ready or worker.leaving or worker.alone or worker.killed is not None:
            return False
        return not worker.jobs if alone else len(worker.reading) < self.slots


# ------------------------------------------------------------------------------------------------------- this machine


class LocalWorkerPool(WorkerPool):
    """Workers in processes of this machine. Several that share a GPU use it at the same time, with MPS.

    Args:
        settings: the workers' settings.
        devices: a device for each worker, as in a YAML.
        slots: number of files that a worker reads at once.
        cores: CPU cores per worker; None for all.
        timeout_s: how long a file may deliver no frame before its worker is stopped.
    """

    def __init__(
        self,
        settings: BatchSettings,
        devices: list[str],
        *,
        slots: int = 1,
        cores: int | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(slots, timeout_s)
        self._settings = settings
        self._devices = devices
        self._cores = cores
        self._mps: MpsDaemon | None = None

    def start(self) -> None:
        """Start a process for each device; see `WorkerPool.start`."""
        if any(device != "cpu" and count > 1 for device, count in Counter(self._devices).items()):
            self._mps = MpsDaemon()
            self._mps.start()
            logger.info(f"the pipeline {self._mps.reason}")
        for number in range(len(self._devices)):
            self.add(number)

    def close(self) -> None:
        """Stop the processes; see `WorkerPool.close`."""
        for worker in self.pooled:
            if worker.ready:
                worker.link.send(Now() if worker.jobs else Finish())
            else:
                worker.link.kill()  # it reads no orders until its pipeline is open, and has no files
        self.supervisor.close(_CLOSE_S)
        self.pooled.clear()
        if self._mps is not None:
            self._mps.close()

    def abort(self) -> None:
        """Kill all processes; see `WorkerPool.abort`."""
        for worker in self.pooled:
            worker.link.send(Now())
        self.supervisor.close(_ABORT_S)
        kill_all()  # one that has just been started is not in the pool yet

    def start_worker(self, number: int) -> Child:
        """Start a process; see `WorkerPool.start_worker`."""
        part = (number, len(self._devices))
        env = {}
        if self._mps is not None:
            if self._mps.own and not self._mps.running:
                self._mps.restart()
            env = self._mps.environment
        job = self._settings, self._devices[number], self.slots, self._cores, part
        return Child(f"worker/{number}", work, *job, env={**env, **telemetry.child_environment(number)})

    def location(self, worker: PooledWorker) -> str:
        """The worker's device; see `WorkerPool.location`."""
        return self._devices[worker.number]
