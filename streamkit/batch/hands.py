"""What all crews have in common: giving files to workers, and hearing what they say, wherever they are."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from streamkit.batch.crew import TELL_EVERY_S, Died, WorkerState
from streamkit.batch.job import Job, Outcome
from streamkit.batch.worker import Doing
from streamkit.errors import StreamkitError
from streamkit.runtime.children import error_of

_STILLBORN = 3
"""So many workers in a row may die before they have opened the pipeline."""


class Ear(Protocol):
    """A worker as its crew has it: `runtime.children.Child` is one."""

    @property
    def over(self) -> bool:
        """Whether it has ended, and all that it said was heard."""

    @property
    def how_it_died(self) -> str:
        """How it ended."""

    def tell(self, kind: str, value: Any = None) -> None:
        """Give it an order. One that has ended needs none."""

    def hear(self) -> Iterable[tuple[str, Any]]:
        """What it has said since."""

    def kill(self) -> None:
        """End it at once."""

    def join(self, within_s: float) -> None:
        """Wait for its end, and bring it about after so many seconds."""


C = TypeVar("C", bound=Ear)


@dataclass(slots=True, eq=False)
class Hand(Generic[C]):
    """One worker, with what it has in hand.

    Attributes:
        number: of the worker, from 0.
        child: where it lives.
        ready: whether its pipeline is open.
        done: how many files it is through with.
        leaving: whether it takes no more files and ends.
        alone: whether its job is to be its only one.
        jobs: what it has in hand, by key.
        reading: keys of those that have not been read to their end yet.
        doing: what it said last of them.
        moved: by key, the frames last told, and when that number last rose, on the monotonic clock in seconds.
        how: why it was ended, and in a word of `Died.kind`; None where it was not.
    """

    number: int
    child: C
    ready: bool = False
    done: int = 0
    leaving: bool = False
    alone: bool = False
    jobs: dict[str, Job] = field(default_factory=dict)
    reading: set[str] = field(default_factory=set)
    doing: tuple[Doing, ...] = ()
    moved: dict[str, tuple[int, float]] = field(default_factory=dict)
    how: tuple[str, str] | None = None


class Hands(Generic[C]):
    """The workers of a crew, and what waits for them.

    A job that is given waits here until a worker has room: until it has read the last picture of a file, while the
    rest of its pipeline is still at work on that. What differs between crews is `begin`, `listen` and `place`.

    Args:
        slots: files that a worker reads at once.
        timeout_s: how long a file may give no frame until its worker is ended.
        say: takes messages for the user.
    """

    def __init__(self, slots: int, timeout_s: float, say: Callable[[str], None]) -> None:
        self.each, self.say, self._timeout_s, self._said = slots, say, timeout_s, set[str]()
        self.hands: list[Hand[C]] = []
        self.waiting: deque[tuple[Job, bool]] = deque()
        self._stillborn = 0

    # ------------------------------------------------------------------------------------- what each crew has

    def begin(self, number: int) -> C:
        """Start a worker."""
        raise NotImplementedError

    def listen(self, children: Sequence[C], timeout_s: float) -> None:
        """Wait until a worker says something or ends, for so many seconds at most."""
        raise NotImplementedError

    def place(self, hand: Hand[C]) -> str:
        """Where a worker is, as progress shows it."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------- as `Crew` has it

    def give(self, job: Job, alone: bool = False) -> None:
        """See `Crew.give`."""
        self.waiting.append((job, alone))
        self._hand_out()

    def recall(self) -> list[Job]:
        """See `Crew.recall`."""
        found = [job for job, _ in self.waiting]
        self.waiting.clear()
        return found

    def wait(self, timeout_s: float) -> list[Outcome | Died]:
        """See `Crew.wait`."""
        found: list[Outcome | Died] = []
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
        """See `Crew.workers`."""
        return [
            WorkerState(f"{self.place(hand)} worker {hand.number + 1}", hand.done, hand.doing, hand.ready)
            for hand in self.hands
        ]

    # ---------------------------------------------------------------------------------- what a crew may add to

    def say_once(self, text: str) -> None:
        """Tell the user, each text once."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def take(self, hand: Hand[C], kind: str, value: Any, found: list[Outcome | Died]) -> None:
        """One message of a worker."""
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

    def gone(self, now_s: float) -> list[Died]:
        """Workers that have died, or hang and are ended; others take their places."""
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
                found.append(Died(tuple(hand.jobs.values()), how, kind))
                self.say(f"{how}; another takes its place")
            made = self.hands[place] = Hand(hand.number, self.begin(hand.number))
            made.done = hand.done
        return found

    def _end_if_stuck(self, hand: Hand[C], now_s: float) -> None:
        still = [key for key in hand.jobs if now_s - hand.moved[key][1] > self._timeout_s]
        if still and hand.how is None:
            name = hand.jobs[still[0]].file.name
            hand.how = f"no frame of {name} for {self._timeout_s:g} s: its worker was ended", "timeout"
            hand.child.kill()

    # ------------------------------------------------------------------------------------------------------- jobs

    def _hand_out(self) -> None:
        """Give what waits to workers that have room, those with most of it first."""
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

    def _has_room(self, hand: Hand[C], alone: bool) -> bool:
        if not hand.ready or hand.leaving or hand.alone or hand.how is not None:
            return False
        return not hand.jobs if alone else len(hand.reading) < self.each
