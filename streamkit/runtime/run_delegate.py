# SPDX-License-Identifier: Apache-2.0
"""A run whose state and operations are those of another one, which may be replaced meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from streamkit.config.plan import Graph, Node, SourceConfig
from streamkit.core.timeline import LastFrame
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.event_counts import EventSeries
from streamkit.runtime.observe.health import HealthSnapshot
from streamkit.runtime.run import RebuiltRun, RunAlarms, RunDevice, RunSources

R = TypeVar("R", bound=RebuiltRun)


class RunDelegate(Generic[R]):
    """The part of a `Run` that passes on to the current run; see there.

    Args:
        current: the run.
    """

    def __init__(self, current: R) -> None:
        self._running = current

    @property
    def current(self) -> R:
        """The current run."""
        return self._running

    @property
    def graph(self) -> Graph:
        """See `Run`."""
        return self._running.graph

    @property
    def states(self) -> Mapping[str, SourceState]:
        """See `Run`."""
        return self._running.states

    @property
    def sources(self) -> RunSources:
        """See `Run`."""
        return self._running.sources

    @property
    def addresses(self) -> Mapping[str, str]:
        """See `Run`."""
        return self._running.addresses

    @property
    def limit(self) -> int | None:
        """See `Run`."""
        return self._running.limit

    @property
    def devices(self) -> Sequence[RunDevice]:
        """See `Run`."""
        return self._running.devices

    @property
    def device(self) -> RunDevice:
        """See `Run`."""
        return self._running.device

    @property
    def alarms(self) -> RunAlarms:
        """See `Run`."""
        return self._running.alarms

    @property
    def opening(self) -> list[str]:
        """See `Run`."""
        return self._running.opening

    @property
    def fatal(self) -> BaseException | None:
        """See `Run`."""
        return self._running.fatal

    @property
    def seconds(self) -> float:
        """See `Run`."""
        return self._running.seconds

    @property
    def hung_threads(self) -> Sequence[threading.Thread]:
        """See `Run`."""
        return self._running.hung_threads

    # ------------------------------------------------------------------------------------------------- changes

    def add(self, source: SourceConfig, after: LastFrame | None = None, paused: bool = False) -> None:
        """See `Controls.add`."""
        self._running.add(source, after, paused)

    def remove(self, id_: str) -> None:
        """See `Controls.remove`."""
        self._running.remove(id_)

    def change(self, source: SourceConfig) -> None:
        """See `Controls.change`."""
        self._running.change(source)

    def follow(self, id_: str, source: SourceConfig | None) -> None:
        """See `Controls.follow`."""
        self._running.follow(id_, source)

    def forget(self, sources: Iterable[str], settings: Mapping[str, Collection[str]]) -> None:
        """See `Controls.forget`."""
        self._running.forget(sources, settings)

    def forgetting(
        self, sources: Iterable[str], settings: Mapping[str, Collection[str]]
    ) -> AbstractContextManager[None]:
        """See `Controls.forgetting`."""
        return self._running.forgetting(sources, settings)

    def pause(self, id_: str, paused: bool = True) -> None:
        """See `Controls.pause`."""
        self._running.pause(id_, paused)

    def resume(self, id_: str) -> None:
        """See `Controls.resume`."""
        self._running.resume(id_)

    def apply(self, node: Node, new: Mapping[str, Any]) -> None:
        """See `Controls.apply`."""
        self._running.apply(node, new)

    def changeable(self, id_: str) -> dict[str, Any]:
        """See `Controls.changeable`."""
        return self._running.changeable(id_)

    def set(self, id_: str, values: Mapping[str, Any]) -> None:
        """See `Controls.set`."""
        self._running.set(id_, values)

    def trigger(self, id_: str, source: str, **data: Any) -> None:
        """See `Controls.trigger`."""
        self._running.trigger(id_, source, **data)

    # ------------------------------------------------------------------------------------------------- counting

    @property
    def finished(self) -> Mapping[str, int]:
        """See `Run`."""
        return self._running.finished

    @property
    def event_counts(self) -> Mapping[EventSeries, int]:
        """See `Run`."""
        return self._running.event_counts

    @property
    def latency(self) -> Mapping[str, Histogram]:
        """See `Run`."""
        return self._running.latency

    def queues(self) -> dict[str, int]:
        """See `Run`."""
        return self._running.queues()

    def lost_nodes(self) -> list[str]:
        """See `Run`."""
        return self._running.lost_nodes()

    def health(self) -> HealthSnapshot:
        """See `Run`."""
        return self._running.health()
