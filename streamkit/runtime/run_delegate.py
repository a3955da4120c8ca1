# SPDX-License-Identifier: Apache-2.0
"""A run whose state and operations are those of another one, which may be replaced meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from streamkit.config.plan import Graph
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.event_counts import EventSeries
from streamkit.runtime.run import RebuiltRun, RunAlarms, RunDevice, RunSources

R = TypeVar("R", bound=RebuiltRun)
T = TypeVar("T")
P = ParamSpec("P")


class _Forwarded(Generic[T]):
    """An attribute of the current run; see `Run`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, delegate: RunDelegate[Any], owner: type) -> T:
        forwarded: T = getattr(delegate._running, self._name)
        return forwarded


class _ForwardedMethod(Generic[P, T]):
    """A method of the current run, with the parameters of this one; see `Run` and `Controls`."""

    def __init__(self, method: Callable[Concatenate[Any, P], T]) -> None:
        self._name = method.__name__

    def __get__(self, delegate: RunDelegate[Any], owner: type) -> Callable[P, T]:
        forwarded: Callable[P, T] = getattr(delegate._running, self._name)
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

    add = _ForwardedMethod(RebuiltRun.add)
    remove = _ForwardedMethod(RebuiltRun.remove)
    change = _ForwardedMethod(RebuiltRun.change)
    follow = _ForwardedMethod(RebuiltRun.follow)
    forget = _ForwardedMethod(RebuiltRun.forget)
    forgetting = _ForwardedMethod(RebuiltRun.forgetting)
    pause = _ForwardedMethod(RebuiltRun.pause)
    resume = _ForwardedMethod(RebuiltRun.resume)
    apply = _ForwardedMethod(RebuiltRun.apply)
    changeable = _ForwardedMethod(RebuiltRun.changeable)
    set = _ForwardedMethod(RebuiltRun.set)

    def trigger(self, id_: str, source: str, **data: Any) -> None:
        """See `Controls.trigger`."""
        self._running.trigger(id_, source, **data)

    # ------------------------------------------------------------------------------------------------- counting

    finished = _Forwarded[Mapping[str, int]]()
    event_counts = _Forwarded[Mapping[EventSeries, int]]()
    latency = _Forwarded[Mapping[str, Histogram]]()
    queues = _ForwardedMethod(RebuiltRun.queues)
    lost_nodes = _ForwardedMethod(RebuiltRun.lost_nodes)
    health = _ForwardedMethod(RebuiltRun.health)
