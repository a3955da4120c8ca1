"""The interface of a worker pool, and the main loop of a worker process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from streamkit.batch.job import BatchJob, BatchSettings, Outcome
from streamkit.batch.worker import BatchWorker, Doing
from streamkit.runtime.execution.future import PeriodicTimer, start
from streamkit.runtime.multiprocess.children import ParentConnection, end_at_once

TELL_EVERY_S = 1.0
"""How often a worker tells what it is at."""


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker that ended with unfinished files.

    Attributes:
        jobs: its unfinished jobs.
        how: how it ended, in one line.
        kind: `killed`, or `timeout` if it was stopped because nothing moved.
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
        doing: the files in progress.
        ready: whether its pipeline is open.
    """

    name: str
    done: int
    doing: tuple[Doing, ...]
    ready: bool


class WorkerPool(Protocol):
    """The workers of a run. All methods are called from one thread.

    Attributes:
        slots: maximum number of jobs given to the pool: those in progress, and one more per worker, which it opens as
            soon as it has read another to its end.
    """

    slots: int

    def start(self) -> None:
        """Start the workers without waiting for them. Raises StreamkitError if none can be started."""

    def give(self, job: BatchJob, alone: bool = False) -> None:
        """Give a job to the pool; with `alone` its worker processes nothing else meanwhile."""

    def recall(self) -> list[BatchJob]:
        """Take back the jobs that no worker has yet."""

    def wait(self, timeout_s: float) -> list[Outcome | WorkerDied]:
        """Wait up to `timeout_s` seconds for results. Workers that are gone are replaced.

        Raises:
            StreamkitError: the pipeline cannot be opened, or workers repeatedly die before it is open.
        """

    def workers(self) -> list[WorkerState]:
        """The state of each worker."""

    def close(self) -> None:
        """Stop the workers, and abandon files in progress."""

    def abort(self) -> None:
        """Kill all workers, for a process that is about to exit at once."""


def work(
    link: ParentConnection, settings: BatchSettings, device: str, slots: int, cores: int | None, part: tuple[int, int]
) -> None:  # fmt: skip
    """Run a worker process: open the pipeline, and process files, each on its own thread, until told to stop."""
    worker = BatchWorker(settings, device, slots, cores, link.say, part)
    link.send("ready")

    def do(job: BatchJob) -> None:
        outcome = worker.do(job, lambda: link.send("read", job.key))
        if worker.over:
            link.send("leaving")
        link.send("outcome", outcome)
        if worker.over and not worker.doing():
            end_at_once()  # the pipeline has come to its end: a fresh process goes on

    with PeriodicTimer(TELL_EVERY_S, lambda: link.send("doing", tuple(worker.doing()))):
        for kind, value in link.orders():
            if kind == "job":
                start(f"file/{value.key}", lambda job=value: do(job))  # type: ignore[misc]
            elif kind == "now":
                end_at_once()
            elif kind == "end":
                break
    if not worker.close():
        end_at_once()
