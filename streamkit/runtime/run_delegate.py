# SPDX-License-Identifier: Apache-2.0
"""A run whose state and operations are those of another one, which may be replaced meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
T = TypeVar("T")


class _Forwarded(Generic[T]):
    """An attribute, or a method without parameters, of the current run; see `Run`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, delegate: RunDelegate[Any], owner: type) -> T:
        forwarded: T = getattr(delegate._running, self._name)
        return forwarded


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

    graph = _Forwarded[Graph]()
    states = _Forwarded[Mapping[str, SourceState]]()
    sources = _Forwarded[RunSources]()
    addresses = _Forwarded[Mapping[str, str]]()
    limit = _Forwarded[int | None]()
    devices = _Forwarded[Sequence[RunDevice]]()
    device = _Forwarded[RunDevice]()
    alarms = _Forwarded[RunAlarms]()
    opening = _Forwarded[list[str]]()
    fatal = _Forwarded[BaseException | None]()
    seconds = _Forwarded[float]()
    hung_threads = _Forwarded[Sequence[threading.Thread]]()

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

    finished = _Forwarded[Mapping[str, int]]()
    event_counts = _Forwarded[Mapping[EventSeries, int]]()
    latency = _Forwarded[Mapping[str, Histogram]]()
    queues = _Forwarded[Callable[[], dict[str, int]]]()
    lost_nodes = _Forwarded[Callable[[], list[str]]]()
    health = _Forwarded[Callable[[], HealthSnapshot]]()
