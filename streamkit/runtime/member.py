"""A process of a fleet, as the parent process knows it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from streamkit.runtime.children import how_it_died
from streamkit.runtime.tally import Tally

GRACE_S = 10.0
"""How long a process may still take that is to drop everything, or says that it has ended."""


@dataclass(slots=True)
class Member:
    """One process: what it was given, what it has said, and what has become of it.

    Attributes:
        device: the device it has, as the YAML names it.
        sources: ids of the sources it has.
        process: the `multiprocessing` process.
        control: the connection on which it speaks and takes orders.
        frames: the connection on which its frames for shared sinks come.
        receiver: the thread that reads those.
        tally: what it has counted, as it last said.
        whole: ids of the sources whose last frame has gone through everything.
        ready: whether its stages are open.
        deaf: whether its control connection has ended.
        dead: whether the process has.
        over: whether it and all it sent have been dealt with.
        code: its exit code, once it says that it has ended.
        trouble: how it died, where it ended without saying so.
        told: the last order it was given.
        deadline: when it is killed if it has not ended by then, on the monotonic clock in seconds.
    """

    device: str
    sources: list[str]
    process: Any = None
    control: Any = None
    frames: Any = None
    receiver: Any = None
    tally: Tally = field(default_factory=Tally)
    whole: set[str] = field(default_factory=set)
    ready: bool = False
    deaf: bool = False
    dead: bool = False
    over: bool = False
    code: int | None = None
    trouble: str | None = None
    told: str = ""
    deadline: float | None = None

    def tell(self, order: str) -> None:
        """Give it an order: `go`, `stop`, `abort` or `now`. One that has ended needs none."""
        self.told = order
        if order == "abort":
            self.deadline = time.monotonic() + GRACE_S
        with contextlib.suppress(OSError):
            self.control.send(order)

    def end_now(self, within_s: float) -> None:
        """See to it that the process has ended, after so many seconds at most."""
        if self.process is not None:
            self.process.join(within_s)
            self.process.kill()
            self.process.join()
            self.dead = True

    def how_it_died(self) -> str:
        """How the process ended, as a user says it."""
        return how_it_died(self.process.exitcode)
