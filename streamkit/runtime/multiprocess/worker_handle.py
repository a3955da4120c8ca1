"""A worker process as seen by the parent process."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from streamkit.runtime.multiprocess.children import how_it_died
from streamkit.runtime.multiprocess.report_merge import WorkerReport

GRACE_S = 10.0
"""How long a process may still take that is to drop everything, or says that it has ended."""


@dataclass(slots=True)
class WorkerHandle:
    """State of one worker process in the parent.

    Attributes:
        device: its device, as named in the YAML.
        sources: ids of its sources.
        process: the `multiprocessing` process.
        control: connection for its messages and for orders to it.
        frames: connection for its frames for shared sinks.
        receiver: thread that reads `frames`.
        tally: the counts that it last sent.
        whole: ids of the sources whose last frame has passed every stage.
        ready: whether its stages are open.
        deaf: whether its control connection is closed.
        dead: whether the process has exited.
        over: whether it has exited and everything it sent was processed.
        code: its exit code, once it has reported its end.
        trouble: how it died, if it exited without reporting its end.
        told: the last order sent to it.
        deadline: monotonic time in seconds at which it is killed.
    """

    device: str
    sources: list[str]
    process: Any = None
    control: Any = None
    frames: Any = None
    receiver: Any = None
    tally: WorkerReport = field(default_factory=WorkerReport)
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
        """Send an order: `go`, `stop`, `abort` or `now`. Does nothing if the process has exited."""
        self.told = order
        if order == "abort":
            self.deadline = time.monotonic() + GRACE_S
        with contextlib.suppress(OSError):
            self.control.send(order)

    def end_now(self, within_s: float) -> None:
        """Wait up to `within_s` seconds for the process to exit, then kill it."""
        if self.process is not None:
            self.process.join(within_s)
            self.process.kill()
            self.process.join()
            self.dead = True

    def how_it_died(self) -> str:
        """How the process exited, as text for the user."""
        return how_it_died(self.process.exitcode)
