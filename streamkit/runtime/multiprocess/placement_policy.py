# SPDX-License-Identifier: Apache-2.0
"""What a scheduler of sources needs of the processes that read them, and the policy by which it places sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from streamkit.config.plan import SourceConfig
from streamkit.core.data import Event
from streamkit.core.timeline import LastFrame
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.process_count import SourceLoad
from streamkit.runtime.observe.alarms import WHOLE

UNKNOWN_LOAD = SourceLoad(30.0, 1e-3)


class SourceProcess(Protocol):
    """A process that reads sources, or a node of a cluster."""

    def send(self, order: messages.Order) -> None:
        """Send an order."""

    @property
    def takes_sources(self) -> bool:
        """Whether it runs and does not end."""


class DeliveredFrames(Protocol):
    """What the processes have passed to the sinks that sources of several processes share."""

    def delivered(self, source: str, process: Any) -> int:
        """Index of the last frame of a source that a process has passed on; -1 if there is none."""

    def skip_repeated(self, source: str, before: Any, process: Any, *, replaced: bool = False) -> None:
        """Skip what `before` has passed on of a source, which `process` reads from its beginning again.

        The source may have `replaced` one with the same id.
        """


class NoSharedSinks:
    """`DeliveredFrames` of processes that share no sink."""

    def delivered(self, source: str, process: Any) -> int:
        """See `DeliveredFrames`."""
        return -1

    def skip_repeated(self, source: str, before: Any, process: Any, *, replaced: bool = False) -> None:
        """See `DeliveredFrames`."""


class RestartedSource(NamedTuple):
    """A source that was restarted.

    Attributes:
        id: its id.
        frames_lost: number of its frames that are known to be lost.
        last: its last frame that is known; None if there is none.
    """

    id: str
    frames_lost: int
    last: LastFrame | None

    def event(self, cause: str) -> Event:
        """The event `restarted`, at the last frame that is known."""
        number, pts_s = (0, 0.0) if self.last is None else self.last[:2]
        data = {"cause": cause, "frames_lost": self.frames_lost}
        return Event("restarted", WHOLE, self.id, number, pts_s, data=data)


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """How sources are placed; the defaults are those of processes on one machine.

    Attributes:
        load: returns the expected load of a source; 1 is what a process can serve.
        capacity: returns the load that makes a process entirely busy.
        start_another: adds another process, a spare or a new one; returns None if no more may run. Its argument is how
            many processes there may be beyond the limit; a spare process is then left alone.
        died: cause and message of the state of a source whose process has died.
        waiting: message of the state of a source that has had no process yet.
        no_process: why no source can be added while no process takes sources; the sources wait for one then. Empty if
            the run cannot continue without a process.
        reports_removed: whether the processes report the totals of removed sources.
    """

    load: Callable[[SourceConfig], SourceLoad] = lambda source: UNKNOWN_LOAD
    capacity: Callable[[Any], float] = lambda process: 1.0
    start_another: Callable[[int], SourceProcess | None] = lambda beyond: None
    died: tuple[str, str] = ("process", "its process died")
    waiting: str = ""
    no_process: str = ""
    reports_removed: bool = True
