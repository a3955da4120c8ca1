"""The crew: the workers of a run, and the protocol by which the manager gives them files, wherever they are."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamkit.batch.job import Job, Outcome, Settings
from streamkit.batch.worker import Doing, Worker
from streamkit.errors import StreamkitError
from streamkit.runtime.background import start
from streamkit.runtime.children import Child, Link, end_at_once, error_of, wait
from streamkit.runtime.watch import Ticker

_TELL_EVERY_S = 1.0
_CLOSE_S = 10.0
_STILLBORN = 3
"""So many workers in a row may die before they have opened the pipeline."""


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


@dataclass(slots=True, eq=False)
class _Hand:
    """One worker's process.

    Attributes:
        jobs: what it has in hand, by key.
        reading: keys of those that have not been read to their end yet.
        alone: whether its job is to be its only one.
        moved: by key, the frames last told, and when that number last rose, on the monotonic clock in seconds.
    """

    number: int
    child: Child
    device: str
    ready: bool = False
    done: int = 0
    leaving: bool = False
    alone: bool = False
    jobs: dict[str, Job] = field(default_factory=dict)
    reading: set[str] = field(default_factory=set)
    doing: tuple[Doing, ...] = ()
    moved: dict[str, tuple[int, float]] = field(default_factory=dict)
    how: tuple[str, str] | None = None


class LocalCrew:
    """Workers in processes of this machine.

    A job that is given waits here until a worker has room: until it has read the last picture of a file, while the
    rest of its pipeline is still at work on that.

    Args:
        settings: what each worker is to make.
        devices: a device for each worker, as a YAML names it.
        slots: files that a worker reads at once.
        cores: CPU cores for each worker; None for all.
        timeout_s: how long a file may give no frame until its worker is ended.
        say: takes messages for the user, each text once.
    """

    def __init__(
        self, settings: Settings, devices: list[str], *, slots: int = 1, cores: int | None = None,
        timeout_s: float = 600.0, say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        self._settings, self._devices, self._each, self._cores = settings, devices, slots, cores
        self._timeout_s, self._say, self._said = timeout_s, say, set[str]()
        self.slots = len(devices) * (slots + 1)
        self._hands: list[_Hand] = []
        self._waiting: deque[tuple[Job, bool]] = deque()
        self._stillborn = 0

    def start(self) -> None:
        """See `Crew.start`."""
        self._hands = [self._begin(number) for number in range(len(self._devices))]

    def give(self, job: Job, alone: bool = False) -> None:
        """See `Crew.give`."""
        self._waiting.append((job, alone))
        self._hand_out()

    def recall(self) -> list[Job]:
        """See `Crew.recall`."""
        found = [job for job, _ in self._waiting]
        self._waiting.clear()
        return found

    def wait(self, timeout_s: float) -> list[Outcome | Died]:
        """See `Crew.wait`."""
        found: list[Outcome | Died] = []
        until = time.monotonic() + timeout_s
        while not found and (left_s := until - time.monotonic()) > 0:
            wait([hand.child for hand in self._hands], min(left_s, _TELL_EVERY_S))
            for hand in self._hands:
                for kind, value in hand.child.hear():
                    self._take(hand, kind, value, found)
            self._hand_out()  # first of all: a worker that waits is time lost
            found.extend(self._gone(time.monotonic()))
        return found

    def workers(self) -> list[WorkerState]:
        """See `Crew.workers`."""
        return [
            WorkerState(f"{hand.device} worker {hand.number + 1}", hand.done, hand.doing, hand.ready)
            for hand in self._hands
        ]

    def close(self) -> None:
        """See `Crew.close`."""
        idle = [hand for hand in self._hands if not hand.jobs]
        for hand in self._hands:
            hand.child.tell("end" if hand in idle else "now")
        until = time.monotonic() + _CLOSE_S
        for hand in self._hands:
            hand.child.join(max(0.0, until - time.monotonic()))
        self._hands = []

    # -------------------------------------------------------------------------------------------------- processes

    def _begin(self, number: int) -> _Hand:
        part = number, len(self._devices)
        args = self._settings, self._devices[number], self._each, self._cores, part
        return _Hand(number, Child(f"worker/{number}", work, *args), self._devices[number])

    def _take(self, hand: _Hand, kind: str, value: Any, found: list[Outcome | Died]) -> None:
        """One message of a worker."""
        if kind == "say" and value not in self._said:
            self._said.add(value)
            self._say(value)
        elif kind == "ready":
            hand.ready, self._stillborn = True, 0
        elif kind == "read":
            hand.reading.discard(value)
        elif kind == "doing":
            hand.doing = value
            for one in value:
                frames, _ = hand.moved.get(one.key, (-1, 0.0))
                if one.frames != frames:
                    hand.moved[one.key] = one.frames, time.monotonic()
        elif kind == "outcome":
            key = value.job.key
            hand.done += 1
            hand.reading.discard(key)
            hand.moved.pop(key, None)
            if hand.jobs.pop(key, None) is not None:
                found.append(value)
            if not hand.jobs:
                hand.alone = False
        elif kind == "leaving":
            hand.leaving = True
        elif kind == "fatal":
            raise error_of(*value)

    def _gone(self, now_s: float) -> list[Died]:
        """Workers that have died, or hang and are ended; others take their places."""
        found = []
        for place, hand in enumerate(self._hands):
            self._end_if_stuck(hand, now_s)
            if not hand.child.over:
                continue
            how, kind = hand.how or (f"the worker {hand.child.how_it_died}", "killed")
            hand.child.join(0.0)
            if not hand.ready:
                self._stillborn += 1
                if self._stillborn >= _STILLBORN:
                    raise StreamkitError(f"workers keep dying before they have opened the pipeline: {how}")
            if hand.jobs or not hand.leaving:
                found.append(Died(tuple(hand.jobs.values()), how, kind))
                self._say(f"{how}; another takes its place")
            made = self._hands[place] = self._begin(hand.number)
            made.done = hand.done
        return found

    def _end_if_stuck(self, hand: _Hand, now_s: float) -> None:
        still = [key for key in hand.jobs if now_s - hand.moved.get(key, (0, now_s))[1] > self._timeout_s]
        if still and hand.how is None:
            name = hand.jobs[still[0]].file.name
            hand.how = f"no frame of {name} for {self._timeout_s:g} s: its worker was ended", "timeout"
            hand.child.kill()

    # ------------------------------------------------------------------------------------------------------- jobs

    def _hand_out(self) -> None:
        """Give what waits to workers that have room, those with most of it first."""
        while self._waiting:
            job, alone = self._waiting[0]
            free = [hand for hand in self._hands if self._has_room(hand, alone)]
            if not free:
                return
            hand = min(free, key=lambda hand: (len(hand.reading), len(hand.jobs)))
            self._waiting.popleft()
            hand.alone = alone
            hand.jobs[job.key] = job
            hand.reading.add(job.key)
            hand.moved[job.key] = -1, time.monotonic()
            hand.child.tell("job", job)

    def _has_room(self, hand: _Hand, alone: bool) -> bool:
        if not hand.ready or hand.leaving or hand.alone or hand.how is not None:
            return False
        return not hand.jobs if alone else len(hand.reading) < self._each


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

    with Ticker(_TELL_EVERY_S, lambda: link.send("doing", tuple(worker.doing()))):
        for kind, value in link.orders():
            if kind == "job":
                start(f"file/{value.key}", lambda job=value: do(job))  # type: ignore[misc]
            elif kind == "now":
                end_at_once()
            elif kind == "end":
                break
    if not worker.close():
        end_at_once()
