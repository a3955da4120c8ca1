"""A fake worker process: it records its orders and sends the messages of a test."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.worker import WorkerConfig
from streamkit.runtime.observe.report_merge import WorkerReport
from streamkit.runtime.observe.run_counts import RunCounts


class FakeWorkerLink:
    """A `WorkerLink` without a process; by default, its sources have three frames each.

    Attributes:
        job: its job.
        orders: the names of its orders, except for `begin`.
        received: these orders.
        sources: the number of the order of each source that it has.
        obey: called with the name of each order.
    """

    def __init__(self, name: str, job: WorkerConfig, frames: Connection) -> None:
        self.name = name
        self.job = job
        self.pid = 70_000 + job.part[0]
        self.frames = Connection(os.dup(frames.fileno()), readable=False)
        self.orders: list[str] = []
        self.received: list[messages.Order] = []
        self.sources = {source.id: source.number for source in job.sources}
        self.joined: list[float] = []
        self.killed = False
        self.dying = False
        self.exit_text = "was killed by SIGKILL"
        self.obey: Callable[[str], Any] = self.work
        self._messages: deque[Any] = deque()
        self._ended = False

    # ------------------------------------------------------------------------------------------ what the test does

    def tell(self, message: Any) -> None:
        """Send a message to the parent."""
        self._messages.append(message)

    def report(self, frames: int, **errors: str) -> None:
        """Report that its sources have ended, each after that number of frames."""
        self.report_states(
            frames, {id_: SourceState(frames, out=frames, done=True, error=errors.get(id_)) for id_ in self.sources}
        )

    def report_states(self, frames: int, states: dict[str, SourceState]) -> None:
        """Report the states of its sources."""
        run_fields = {"exit_code": 0, "frames": frames, "seconds": 1.5, "frames_per_s": 2.0}
        counts = RunCounts(finished={"note": frames})
        self.tell(messages.Report(WorkerReport(run_fields, counts, states, dict(self.sources), at_s=12.5)))

    def work(self, order: str) -> None:
        """Act as a worker whose sources have three frames each."""
        if order in ("go", "add"):
            self.report(3)
        elif order in ("finish", "stop", "abort", "now"):
            self.end(0)

    def finish(self, order: str) -> None:
        """End like a worker without work."""
        self.report(3)
        self.end(0)

    def end(self, code: int) -> None:
        """Report the end, and exit."""
        self.tell(messages.End(code))
        self.die()

    def die(self, order: str = "") -> None:
        """Exit without a message."""
        if not self._ended:
            self.frames.close()
        self._ended = True

    @property
    def ended(self) -> bool:
        """Return whether it has exited; its messages may wait."""
        return self._ended

    @property
    def added(self) -> list[messages.SourceOrder]:
        """Return the sources that it was ordered to add."""
        return [order.source for order in self.received if isinstance(order, messages.Add)]

    # ------------------------------------------------------------------------------------- what the parent calls

    def send(self, order: messages.Order) -> None:
        """Receive an order."""
        match order:
            case messages.Begin(variables):  # it comes once, before all that the tests are about
                assert not self.orders
                assert variables == {}
                return
            case messages.Add(source):
                self.sources[source.id] = source.number
            case messages.Remove(source_id):
                self.sources.pop(source_id, None)
        name = messages.name_of(order)
        self.orders.append(name)
        self.received.append(order)
        if not self._ended:
            self.obey(name)

    def receive(self) -> Iterator[Any]:
        """Return the messages since the last call."""
        while self._messages:
            yield self._messages.popleft()

    @property
    def exited(self) -> bool:
        """Return whether it has exited and its messages were received."""
        return self._ended and not self._messages

    def kill(self) -> None:
        """Exit at once."""
        self.killed = True
        self.die()

    def join(self, within_s: float) -> None:
        """Exit within the time."""
        self.joined.append(within_s)
        self.die()

    def abandon(self) -> None:
        """Exit at once."""
        self.die()
