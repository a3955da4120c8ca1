"""Worker pools: assign files to workers, handle their messages, and replace workers that died or hang.

The pool of one machine has a process per worker; `ray_worker_pool.py` has that of a Ray cluster.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamkit.batch.job import BatchJob, BatchSettings, Outcome
from streamkit.batch.worker import PROGRESS_EVERY_S, FileProgress, work
from streamkit.core.errors import StreamkitError
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.sizes import cores as all_cores
from streamkit.runtime.execution.sizes import files_at_once
from streamkit.runtime.multiprocess.children import SPAWN, Child, error_of, wait

PROCESSES_PER_GPU = 3
"""The GIL limits one process long before an H200 is busy; see docs/performance.md."""
_MAX_FAILED_STARTS = 3
"""This many workers in a row may die before they have opened the pipeline."""
_CLOSE_S, _ABORT_S = 10.0, 0.5


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


@dataclass(slots=True, eq=False)
class PooledWorker:
    """One worker and its jobs.

    Attributes:
        number: the worker's number, from 0.
        child: the handle of its process: a `Child`, or an object with the same methods.
        ready: whether its pipeline is open.
        done: number of finished files.
        leaving: whether it accepts no more files and is about to end.
        alone: whether its job must be its only one.
        jobs: its jobs, by key.
        reading: keys of the jobs that have not been read to their end.
        files: its last progress report.
        moved: by key, the last reported number of frames, and when it last rose, in monotonic seconds.
        killed: why it was killed, and a value of `WorkerDied.kind`; None if it was not.
    """

    number: int
    child: Any
    ready: bool = False
    done: int = 0
    leaving: bool = False
    alone: bool = False
    jobs: dict[str, BatchJob] = field(default_factory=dict)
    reading: set[str] = field(default_factory=set)
    files: tuple[FileProgress, ...] = ()
    moved: dict[str, tuple[int, float]] = field(default_factory=dict)
    killed: tuple[str, str] | None = None


class WorkerPool:
    """The workers of a run, and the queue of jobs. All methods are called from one thread.

    A queued job is assigned when a worker has read the last frame of a file, while the rest of that worker's pipeline
    still processes it. Pools differ in how they start, stop and name workers.

    Args:
        slots_each: number of files that a worker reads at once.
        timeout_s: how long a file may deliver no frame before its worker is stopped.
        say: receives messages for the user.

    Attributes:
        slots: maximum number of jobs given to the pool: those in progress, and one more per worker, which it opens as
            soon as it has read another to its end.
    """

    slots: int

    def __init__(self, slots_each: int, timeout_s: float, say: Callable[[str], None]) -> None:
        self.slots_each, self.say, self._timeout_s, self._said = slots_each, say, timeout_s, set[str]()
        self.pooled: list[PooledWorker] = []
        self.queue: deque[tuple[BatchJob, bool]] = deque()
        self._failed_starts = 0

    # ------------------------------------------------------------------------------------------ what pools implement

    def start(self) -> None:
        """Start the workers without waiting for them. Raises StreamkitError if none can be started."""

    def close(self) -> None:
        """Stop the workers, and abandon files in progress."""

    def abort(self) -> None:
        """Kill the workers that outlive this process, which is about to exit at once."""

    def begin(self, number: int) -> Any:
        """Start a worker, and return its handle."""
        raise NotImplementedError

    def listen(self, children: Sequence[Any], timeout_s: float) -> None:
        """Wait until a worker sends a message or ends, for at most `timeout_s` seconds."""

    def place(self, worker: PooledWorker) -> str:
        """Where a worker runs, for progress."""
        raise NotImplementedError

    # --------------------------------------------------------------------------------------------- for the manager

    def give(self, job: BatchJob, alone: bool = False) -> None:
        """Queue a job; with `alone` its worker processes nothing else meanwhile."""
        self.queue.append((job, alone))
        self._assign()

    def recall(self) -> list[BatchJob]:
        """Empty the queue; return the jobs that no worker has."""
        found = [job for job, _ in self.queue]
        self.queue.clear()
        return found

    def wait(self, timeout_s: float) -> list[Outcome | WorkerDied]:
        """Wait up to `timeout_s` seconds for results. Workers that are gone are replaced.

        Raises:
            StreamkitError: the pipeline cannot be opened, or workers repeatedly die before it is open.
        """
        found: list[Outcome | WorkerDied] = []
        until = time.monotonic() + timeout_s
        while not found and (left_s := until - time.monotonic()) > 0:
            self.listen([worker.child for worker in self.pooled], min(left_s, PROGRESS_EVERY_S))
            for worker in list(self.pooled):
                for kind, value in worker.child.hear():
                    self.take(worker, kind, value, found)
            self._assign()  # before all else: an idle worker wastes time
            found.extend(self.gone(time.monotonic()))
        return found

    def workers(self) -> list[WorkerState]:
        """The state of each worker."""
        return [
            WorkerState(f"{self.place(worker)} worker {worker.number + 1}", worker.done, worker.files, worker.ready)
            for worker in self.pooled
        ]

    # --------------------------------------------------------------------------------------------- workers and jobs

    def add(self, number: int) -> None:
        """Start a worker and add it to the pool."""
        self.pooled.append(PooledWorker(number, self.begin(number)))

    def say_once(self, text: str) -> None:
        """Show a message to the user, each text once."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def take(self, worker: PooledWorker, kind: str, value: Any, found: list[Outcome | WorkerDied]) -> None:
        """Handle one message of a worker."""
        if kind == "say":
            self.say_once(value)
        elif kind == "ready":
            worker.ready, self._failed_starts = True, 0
        elif kind == "read":
            worker.reading.discard(value)
        elif kind == "progress":
            worker.files = value
            for file in value:
                if file.key in worker.moved and file.frames != worker.moved[file.key][0]:
                    worker.moved[file.key] = file.frames, time.monotonic()
        elif kind == "outcome":
            key = value.job.key
            worker.done += 1
            worker.reading.discard(key)
            worker.moved.pop(key, None)
            if worker.jobs.pop(key, None) is not None:
                found.append(value)
            if not worker.jobs:
                worker.alone = False
        elif kind == "leaving":
            worker.leaving = True
        elif kind == "fatal":
            raise error_of(*value)

    def gone(self, now_s: float) -> list[WorkerDied]:
        """Replace workers that have died, and kill and replace those that hang; return what was lost."""
        found = []
        for place, worker in enumerate(self.pooled):
            self._kill_if_stuck(worker, now_s)
            if not worker.child.over:
                continue
            how, kind = worker.killed or (f"the worker {worker.child.how_it_died}", "killed")
            worker.child.join(0.0)
            if not worker.ready:
                self._failed_starts += 1
                if self._failed_starts >= _MAX_FAILED_STARTS:
                    raise StreamkitError(f"workers repeatedly die before they have opened the pipeline: {how}")
            if worker.jobs or not worker.leaving:
                found.append(WorkerDied(tuple(worker.jobs.values()), how, kind))
                self.say(f"{how}; a new worker replaces it")
            self.pooled[place] = PooledWorker(worker.number, self.begin(worker.number), done=worker.done)
        return found

    def _kill_if_stuck(self, worker: PooledWorker, now_s: float) -> None:
        stuck = [key for key in worker.jobs if now_s - worker.moved[key][1] > self._timeout_s]
        if stuck and worker.killed is None:
            name = worker.jobs[stuck[0]].file.name
            worker.killed = f"no frame of {name} for {self._timeout_s:g} s: its worker was stopped", "timeout"
            worker.child.kill()

    def _assign(self) -> None:
        """Give queued jobs to workers with room, the least loaded first."""
        while self.queue:
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
            worker.child.tell("job", job)

    def _has_room(self, worker: PooledWorker, alone: bool) -> bool:
        if not worker.ready or worker.leaving or worker.alone or worker.killed is not None:
            return False
        return not worker.jobs if alone else len(worker.reading) < self.slots_each


# ------------------------------------------------------------------------------------------------------- this machine


class LocalWorkerPool(WorkerPool):
    """Workers in processes of this machine.

    Args:
        settings: the workers' settings.
        devices: a device for each worker, as in a YAML.
        slots: number of files that a worker reads at once.
        cores: CPU cores per worker; None for all.
        timeout_s: how long a file may deliver no frame before its worker is stopped.
        say: receives messages for the user.
    """

    def __init__(
        self, settings: BatchSettings, devices: list[str], *, slots: int = 1, cores: int | None = None,
        timeout_s: float = 600.0, say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        super().__init__(slots, timeout_s, say)
        self._settings, self._devices, self._cores = settings, devices, cores
        self.slots = len(devices) * (slots + 1)

    def start(self) -> None:
        """Start a process for each device; see `WorkerPool.start`."""
        for number in range(len(self._devices)):
            self.add(number)

    def close(self) -> None:
        """Stop the processes; see `WorkerPool.close`."""
        for worker in self.pooled:
            if worker.ready:
                worker.child.tell("now" if worker.jobs else "end")
            else:
                worker.child.kill()  # it reads no orders until its pipeline is open, and has no files
        self._join(_CLOSE_S)

    def abort(self) -> None:
        """Kill all processes; see `WorkerPool.abort`."""
        for worker in self.pooled:
            worker.child.tell("now")
        self._join(_ABORT_S)
        for process in SPAWN.active_children():  # one that has just been started is not in the pool yet
            process.kill()

    def _join(self, within_s: float) -> None:
        until = time.monotonic() + within_s
        for worker in self.pooled:
            worker.child.join(max(0.0, until - time.monotonic()))
        self.pooled = []

    def begin(self, number: int) -> Child:
        """Start a process; see `WorkerPool.begin`."""
        part = number, len(self._devices)
        return Child(
            f"worker/{number}", work, self._settings, self._devices[number], self.slots_each, self._cores, part
        )

    def listen(self, children: Sequence[Child], timeout_s: float) -> None:
        """Wait for messages; see `WorkerPool.listen`."""
        wait(children, timeout_s)

    def place(self, worker: PooledWorker) -> str:
        """The worker's device; see `WorkerPool.place`."""
        return self._devices[worker.number]


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The plan for the workers of a machine.

    Attributes:
        devices: the device of each worker, as in a YAML.
        slots: number of files that a worker reads at once.
        cores: CPU cores per worker; None on a GPU.
    """

    devices: list[str]
    slots: int
    cores: int | None


def plan_workers(device: str | list[str], workers: int | None, files: int, say: Callable[[str], None]) -> WorkerPlan:
    """Plan the workers of a machine: one per CPU core, or three per GPU.

    Args:
        device: the pipeline's device.
        workers: number of workers; None lets the machine decide.
        files: number of files, which limits the number of workers.
        say: receives messages for the user.

    Raises:
        DeviceError: a requested device does not exist.
    """
    chosen = [choose(name, say) for name in (device if isinstance(device, list) else [device])]
    names = [str(one) for one in chosen]
    if chosen[0].kind == "cpu":
        count = max(1, min(workers or all_cores(), files))
        return WorkerPlan([names[0]] * count, 1, max(1, all_cores() // count))
    count = max(1, min(workers or PROCESSES_PER_GPU * len(names), files))
    slots = -(-files_at_once(chosen[0]) * len(names) // count)
    return WorkerPlan([names[n % len(names)] for n in range(count)], slots, None)
