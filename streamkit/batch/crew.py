"""The crew: the workers of a run, and the protocol by which the manager gives them files, wherever they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from streamkit.batch.job import Job, Outcome, Settings
from streamkit.batch.worker import Doing, Worker
from streamkit.runtime.background import start
from streamkit.runtime.children import Link, end_at_once
from streamkit.runtime.watch import Ticker

TELL_EVERY_S = 1.0
"""How often a worker tells what it is at."""


@dataclass(frozen=True, slots=True)
class Died:
    """A worker is gone, and was not through with these.

    Attributes:
        jobs: what it had in hand.
        how: one line.
        kind: `killed`, or `timeout` where it was ended because nothing moved.
    """

    jobs: tuple[Job, ...]
    how: str
    kind: str = "killed"


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker as progress shows it.

    Attributes:
        name: of the worker.
        done: files that it is through with.
        doing: what it is at.
        ready: whether its pipeline is open.
    """

    name: str
    done: int
    doing: tuple[Doing, ...]
    ready: bool


class Crew(Protocol):
    """The workers of a run. All is called from one thread.

    Attributes:
        slots: how many jobs may be in hand at once, over all workers: those that are being done, and one more for each
            worker, which it opens as soon as it has read another to its end.
    """

    slots: int

    def start(self) -> None:
        """Start the workers; do not wait for them. Raises StreamkitError where there can be none."""

    def give(self, job: Job, alone: bool = False) -> None:
        """Give a job to the crew; with `alone` its worker does nothing else meanwhile."""

    def recall(self) -> list[Job]:
        """Take back the jobs that no worker has yet; they need not be done."""

    def wait(self, timeout_s: float) -> list[Outcome | Died]:
        """What came to an end, waited for so long at most. Workers that are gone are replaced.

        Raises:
            StreamkitError: the pipeline cannot be opened, or workers keep dying before they could begin.
        """

    def workers(self) -> list[WorkerState]:
        """What each is at."""

    def close(self) -> None:
        """End the workers; what they have in hand is given up."""

    def abort(self) -> None:
        """Leave no worker behind, whatever it is at, for a process that is about to end at once."""


def work(
    link: Link, settings: Settings, device: str, slots: int, cores: int | None, part: tuple[int, int]
) -> None:  # fmt: skip
    """The life of a worker's process: open the pipeline, do what comes, a thread for each file, until told to end."""
    worker = Worker(settings, device, slots, cores, link.say, part)
    link.send("ready")

    def do(job: Job) -> None:
        outcome = worker.do(job, lambda: link.send("read", job.key))
        if worker.over:
            link.send("leaving")
        link.send("outcome", outcome)
        if worker.over and not worker.doing():
            end_at_once()  # the pipeline has come to its end: a fresh process goes on

    with Ticker(TELL_EVERY_S, lambda: link.send("doing", tuple(worker.doing()))):
        for kind, value in link.orders():
            if kind == "job":
                start(f"file/{value.key}", lambda job=value: do(job))  # type: ignore[misc]
            elif kind == "now":
                end_at_once()
            elif kind == "end":
                break
    if not worker.close():
        end_at_once()
