"""What all worker pools share: giving files to workers, and handling their messages."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from streamkit.batch.job import BatchJob, Outcome
from streamkit.batch.worker import Doing
from streamkit.batch.worker_pool import TELL_EVERY_S, WorkerDied, WorkerState
from streamkit.core.errors import StreamkitError
from streamkit.runtime.multiprocess.children import error_of

_STILLBORN = 3
"""So many workers in a row may die before they have opened the pipeline."""


class WorkerConnection(Protocol):
    """The pool's handle of a worker, such as `runtime.children.Child`."""

    @property
    def over(self) -> bool:
        """Whether it has ended, and all its messages were read."""

    @property
    def how_it_died(self) -> str:
        """How it ended."""

    def tell(self, kind: str, value: Any = None) -> None:
        """Send it an order; ignored after its end."""

    def hear(self) -> Iterable[tuple[str, Any]]:
        """Its messages since the last call."""

    def kill(self) -> None:
        """Kill it."""

    def join(self, within_s: float) -> None:
        """Wait for its end, and kill it after `within_s` seconds."""


C = TypeVar("C", bound=WorkerConnection)


@dataclass(slots=True, eq=False)
class PooledWorker(Generic[C]):
    """One worker and its jobs.

    Attributes:
        number: the worker's number, from 0.
        child: the handle of its process.
        ready: whether its pipeline is open.
        done: number of finished files.
        leaving: whether it accepts no more files and is about to end.
        alone: whether its job must be its only one.
        jobs: its jobs, by key.
        reading: keys of the jobs that have not been read to their end.
        doing: its last progress report.
        moved: by key, the last reported number of frames, and when it last rose, in monotonic seconds.
        how: why it was killed, and a value of `WorkerDied.kind`; None if it was not.
    """

    number: int
    child: C
    ready: bool = False
    done: int = 0
    leaving: bool = False
    alone: bool = False
    jobs: dict[str, BatchJob] = field(default_factory=dict)
    reading: set[str] = field(default_factory=set)
    doing: tuple[Doing, ...] = ()
    moved: dict[str, tuple[int, float]] = field(default_factory=dict)
    how: tuple[str, str] | None = None


class WorkerPoolBase(Generic[C]):
    """The workers of a pool, and the queue of jobs.

    A job waits in the queue until a worker has read the last frame of a file, while the rest of that worker's pipeline
    still processes it. Pools differ in `begin`, `listen` and `place`.

    Args:
        slots: number of files that a worker reads at once.
        timeout_s: how long a file may deliver no frame before its worker is stopped.
        say: receives messages for the user.
    """

    def __init__(self, slots: int, timeout_s: float, say: Callable[[str], None]) -> None:
        self.each, self.say, self._timeout_s, self._said = slots, say, timeout_s, set[str]()
        self.hands: list[PooledWorker[C]] = []
        self.waiting: deque[tuple[BatchJob, bool]] = deque()
        self._stillborn = 0

    # ------------------------------------------------------------------------------------- what each crew has

    def begin(self, number: int) -> C:
        """Start a worker, and return its handle."""
        raise NotImplementedError

    def listen(self, children: Sequence[C], timeout_s: float) -> None:
        """Wait until a worker sends a message or ends, for at most `timeout_s` seconds."""
        raise NotImplementedError

    def place(self, hand: PooledWorker[C]) -> str:
        """Where a worker runs, for progress."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------- as `WorkerPool` has it

    def give(self, job: BatchJob, alone: bool = False) -> None:
        """Queue a job; see `WorkerPool.give`."""
        self.waiting.append((job, alone))
        self._hand_out()

    def recall(self) -> list[BatchJob]:
        """Empty the queue; see `WorkerPool.recall`."""
        found = [job for job, _ in self.waiting]
        self.waiting.clear()
        return found

    def wait(self, timeout_s: float) -> list[Outcome | WorkerDied]:
        """Read messages until a result arrives; see `WorkerPool.wait`."""
        found: list[Outcome | WorkerDied] = []
        until = time.monotonic() + timeout_s
        while not found and (left_s := until - time.monotonic()) > 0:
            self.listen([hand.child for hand in self.hands], min(left_s, TELL_EVERY_S))
            for hand in list(self.hands):
                for kind, value in hand.child.hear():
                    self.take(hand, kind, value, found)
            self._hand_out()  # first of all: a worker that waits is time lost
            found.extend(self.gone(time.monotonic()))
        return found

    def workers(self) -> list[WorkerState]:
        """Build the states from the handles; see `WorkerPool.workers`."""
        return [
            WorkerState(f"{self.place(hand)} worker {hand.number + 1}", hand.done, hand.doing, hand.ready)
            for hand in self.hands
        ]

    # ---------------------------------------------------------------------------------- what a crew may add to

    def say_once(self, text: str) -> None:
        """Show a message to the user, each text once."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def take(self, hand: PooledWorker[C], kind: str, value: Any, found: list[Outcome | WorkerDied]) -> None:
        """Handle one message of a worker."""
        if kind == "say":
            self.say_once(value)
        elif kind == "ready":
            hand.ready, self._stillborn = True, 0
        elif kind == "read":
            hand.reading.discard(value)
        elif kind == "doing":
            hand.doing = value
            for one in value:
                if one.key in hand.moved and one.frames != hand.moved[one.key][0]:
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

    def gone(self, now_s: float) -> list[WorkerDied]:
        """Replace workers that have died, and kill and replace those that hang; return what was lost."""
        found = []
        for place, hand in enumerate(self.hands):
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
                found.append(WorkerDied(tuple(hand.jobs.values()), how, kind))
                self.say(f"{how}; another takes its place")
            made = self.hands[place] = PooledWorker(hand.number, self.begin(hand.number))
            made.done = hand.done
        return found

    def _end_if_stuck(self, hand: PooledWorker[C], now_s: float) -> None:
        still = [key for key in hand.jobs if now_s - hand.moved[key][1] > self._timeout_s]
        if still and hand.how is None:
            name = hand.jobs[still[0]].file.name
            hand.how = f"no frame of {name} for {self._timeout_s:g} s: its worker was ended", "timeout"
            hand.child.kill()

    # ------------------------------------------------------------------------------------------------------- jobs

    def _hand_out(self) -> None:
        """Give queued jobs to workers with room, the least loaded first."""
        while self.waiting:
            job, alone = self.waiting[0]
            free = [hand for hand in self.hands if self._has_room(hand, alone)]
            if not free:
                return
            hand = min(free, key=lambda hand: (len(hand.reading), len(hand.jobs)))
            self.waiting.popleft()
            hand.alone = alone
            hand.jobs[job.key] = job
            hand.reading.add(job.key)
            hand.moved[job.key] = -1, time.monotonic()
            hand.child.tell("job", job)

    def _has_room(self, hand: PooledWorker[C], alone: bool) -> bool:
        if not hand.ready or hand.leaving or hand.alone or hand.how is not None:
            return False
        return not hand.jobs if alone else len(hand.reading) < self.each
