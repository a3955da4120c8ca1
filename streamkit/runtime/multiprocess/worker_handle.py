# SPDX-License-Identifier: Apache-2.0
"""A worker process as its parent sees it: its state, its orders, and when it must be killed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streamkit.media.nv_sessions import SessionKey, SessionSample
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.children import SupervisedWorker
from streamkit.runtime.observe.report_merge import WorkerReport

GRACE_S = 10.0
"""Time for a process to exit after the order to drop everything, or after it reports its end."""
SILENT_S = 15.0
"""Time without a report after which a process hangs. It reports every 0.5 s on a thread of its own, also while its
stages wait. That thread can be late because the machine is overloaded, which is a matter of seconds, or because a
library holds the GIL: ONNX Runtime does while it loads a network, at most a few seconds for several GB. Before a
process is ready there is no limit: TensorRT builds its engines then, for minutes."""


@dataclass(slots=True, eq=False, kw_only=True)
class WorkerHandle(SupervisedWorker):
    """State of one worker process in the parent.

    Attributes:
        device: its device, as named in the YAML.
        number: its index, from 0; a process that replaces one has a number of its own.
        part: which share of the cores it has, from 0.
        frames: connection for its frames for the parent's stages.
        receiver: thread that reads `frames`.
        latest: the counts that it last sent.
        exited: whether the process has exited, and its messages were processed.
        over: whether its frames were processed, too.
        code: its exit code, once it has reported its end.
        failure: how it died, if it exited without reporting its end.
        silent_s: seconds without a message, as far as this process ran.
        lost: why it could no longer use its GPU.
        hangs: why it must be killed, as it has reported.
        order: the last order sent to it of those that end it.
        deadline_s: monotonic time in seconds at which it is killed.
        additional: whether the run goes on if it cannot start: it was started as a spare, or for an added source.
        spare: whether it is kept ready for sources of a process that dies, and has none of its own.
        expected_live: number of live sources that a spare process may get at once.
        sessions: the NVDEC sessions that its sources use.
        sessions_ahead: number of NVDEC sessions that a spare process has opened in advance and still holds.
        clock: monotonic time in seconds.
    """

    device: str
    number: int = 0
    part: int = 0
    frames: Any = None
    receiver: Any = None
    latest: WorkerReport = field(default_factory=WorkerReport)
    exited: bool = False
    over: bool = False
    code: int | None = None
    failure: str | None = None
    silent_s: float = 0.0
    lost: str = ""
    hangs: str = ""
    order: messages.EndingOrder | None = None
    deadline_s: float = math.inf
    additional: bool = False
    spare: bool = False
    expected_live: int = 0
    sessions: dict[SessionKey, SessionSample] = field(default_factory=dict)
    sessions_ahead: int = 0
    clock: Callable[[], float] = time.monotonic
    guard: threading.RLock = field(default_factory=threading.RLock)  # a signal may interrupt the main thread in `send`

    @property
    def name(self) -> str:
        """Its name in the timeline."""
        return f"worker {self.number}"

    @property
    def title(self) -> str:
        """The process as the subject of a message to the user."""
        return f"{'the spare' if self.spare else 'its'} process on {self.device}"

    def send(self, order: messages.Order) -> None:
        """Send an order, from any thread. Does nothing if the process has not started or has exited."""
        if isinstance(order, messages.Abort):
            self.deadline_s = self.clock() + GRACE_S
        with self.guard:
            if self.child is not None:
                self.child.send(order)

    def end(self, order: messages.EndingOrder | None) -> None:
        """Send an order that ends it, unless it was sent before."""
        if order is not None and self.order != order:
            self.order = order
            self.send(order)

    def end_reported(self, exit_code: int) -> None:
        """Take the end of its run; it has a time to exit."""
        self.code = exit_code
        self.deadline_s = self.clock() + GRACE_S

    def exit_reported(self, how: str) -> None:
        """Take its exit, which is a failure if it has not reported its end."""
        self.exited = True
        if self.code is None:
            self.failure = self.killed or f"{self.title} {self.hangs or self.lost or how}"

    @property
    def runs(self) -> bool:
        """Whether it runs, or will be started, and does not end."""
        return not (self.exited or self.order or self.failure) and self.code is None

    @property
    def takes_sources(self) -> bool:
        """Whether it runs and is no spare process."""
        return self.runs and not self.spare

    @property
    def unexpected(self) -> bool:
        """See `SupervisedWorker.unexpected`: it has not reported its end."""
        return self.code is None

    def overdue(self, now_s: float) -> str | None:
        """The reason to kill it at this monotonic time; see `Supervisor`."""
        if now_s > self.deadline_s:
            return f"{self.title} does not end and was killed"
        if self.ready and self.silent_s > SILENT_S:
            return f"{self.title} has not reported for {SILENT_S:g} s and was killed"
        return f"{self.title} {self.hangs}" if self.hangs else None
