"""The sources of a run over several processes: which process reads which, their states, and restarts after a crash."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from streamkit.config.pipeline_config import source_entry
from streamkit.config.plan import SourceConfig
from streamkit.core.errors import ConfigError
from streamkit.core.text import did_you_mean
from streamkit.media.uris import may_be_live
from streamkit.runtime.ingest.source_reader import LastFrame
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState
from streamkit.runtime.multiprocess.process_count import SourceLoad
from streamkit.runtime.multiprocess.worker import SourceOrder

LOST = "frames dropped: process died"
_MAX_RESTARTS, _RESTARTS_WITHIN_S = 3, 600.0
_UNKNOWN_FPS = 30.0
_UNKNOWN_LOAD = SourceLoad(_UNKNOWN_FPS, 1e-3)
_FORMER = 1000
"""Number of removed sources whose process is remembered."""


class SourceProcess(Protocol):
    """A worker process, as its sources see it."""

    def send(self, order: str, value: Any = None) -> None:
        """Send an order."""

    @property
    def takes_sources(self) -> bool:
        """Whether it runs and does not end."""


class FleetSources:
    """The sources of a run over several processes, by id.

    A source keeps its process while that process lives, also when it is changed: the process writes its files. A new
    source goes to the process with the lowest load; if that one would be overloaded, to a new process, if one may be
    started.

    Args:
        sources: the sources at the start.
        yaml_sources: those of the YAML, which the processes know.
        removed: returns the totals of the removed sources, of all processes.
        keep_running: whether the run goes on without sources.
        paused: ids of the sources that are paused.
        load: returns the expected load of a source; 1 is what a process can serve.
        start_another: starts another process and adds it; returns None if no more may run.

    Attributes:
        states: state of each source; replaced, never mutated, when sources come and go.
        stopping: whether no source may be added any more.
        lost: number of frames that were lost because a process died.
    """

    def __init__(
        self, sources: Sequence[SourceConfig], yaml_sources: Sequence[SourceConfig],
        removed: Callable[[], RemovedSources], keep_running: bool, paused: Iterable[str] = (),
        load: Callable[[SourceConfig], SourceLoad] = lambda source: _UNKNOWN_LOAD,
        start_another: Callable[[], SourceProcess | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.states: dict[str, SourceState] = {source.id: SourceState() for source in sources}
        self.stopping, self.lost = False, 0
        self._configs = {source.id: source for source in sources}
        self._yaml_sources = {source.id: source for source in yaml_sources}
        self._removed, self._keep_running = removed, keep_running
        self._processes: list[SourceProcess] = []
        self._owners: dict[str, SourceProcess] = {}
        self._former: dict[str, SourceProcess] = {}  # owners of removed sources, the oldest first
        self._load, self._start_another = load, start_another
        self._added: set[str] = set()  # ids that were added while the run was on
        self._paused = set(paused)
        self._after: dict[str, LastFrame] = {}
        self._earlier: dict[str, SourceState] = {}  # counts of processes that have ended
        self._restarts: dict[str, deque[float]] = {}
        self._lock = threading.RLock()

    # ------------------------------------------------------------------------------------------------ come and go

    @property
    def removed(self) -> RemovedSources:
        """Totals of the removed sources."""
        return self._removed()

    @property
    def over(self) -> bool:
        """Whether no source will produce another frame."""
        return self.stopping or (not self._keep_running and all(state.done for state in self.states.values()))

    def check_free(self, id_: str) -> None:
        """Raise ConfigError if a source with that id exists."""
        if id_ in self.states:
            raise ConfigError(f"there is a source {id_!r} already; remove it first, or choose another id")

    def add(self, config: SourceConfig, after: LastFrame | None = None) -> None:
        """Add a source to a process. Raises ConfigError: its id is taken, or the run is over."""
        with self._lock:
            self.check_free(config.id)
            process = None if self.over else self._place(config)
            if process is None:
                raise ConfigError(f"source {config.id} cannot be added: the run has ended")
            self._configs[config.id] = config
            self._added.add(config.id)
            self.states = {**self.states, config.id: SourceState()}
            self._owners[config.id] = process
            process.send("add", self.order(config.id))

    def remove(self, id_: str) -> None:
        """Remove a source; its frames in flight are still processed. Raises ConfigError if the id is unknown."""
        with self._lock:
            process = self._owner(id_)
            self.states[id_].removed = True
            self.states = {name: state for name, state in self.states.items() if name != id_}
            for known in (self._owners, self._configs, self._earlier, self._after, self._restarts):
                known.pop(id_, None)
            self._paused.discard(id_)
            self._former[id_] = process
            if len(self._former) > _FORMER:
                del self._former[next(iter(self._former))]
            process.send("remove", id_)

    def pause(self, id_: str, paused: bool = True) -> None:
        """Pause or resume a source. Raises ConfigError if the id is unknown."""
        with self._lock:
            process = self._owner(id_)
            (self._paused.add if paused else self._paused.discard)(id_)
            self._show_pause(id_, self.states[id_])
            process.send("pause", (id_, paused))

    def _show_pause(self, id_: str, state: SourceState) -> None:
        """Show at once that a source was paused or resumed, before its process reports it."""
        if not state.done and (id_ in self._paused) != (state.state == "paused"):
            state.set_state("paused" if id_ in self._paused else "connecting")

    def send(self, id_: str, order: str, value: Any) -> None:
        """Send an order about a source to its process; does nothing if there is no such source."""
        with self._lock:
            if id_ in self._owners:
                self._owners[id_].send(order, value)

    def _owner(self, id_: str) -> SourceProcess:
        found = self._owners.get(id_)
        if found is None:
            raise ConfigError(f"there is no source {id_!r}{did_you_mean(id_, self._owners)}")
        return found

    # -------------------------------------------------------------------------------------------------- processes

    def add_process(self, process: SourceProcess, ids: Iterable[str] = ()) -> tuple[SourceOrder, ...]:
        """Add a process; return the orders for the sources that it starts with."""
        with self._lock:
            self._processes.append(process)
            self._owners |= dict.fromkeys(ids, process)
            return tuple(self.order(id_) for id_ in ids)

    def order(self, id_: str) -> SourceOrder:
        """What a process needs to read a source."""
        config = self._configs[id_]
        known = self._yaml_sources.get(id_) is config and id_ not in self._restarts
        return SourceOrder(id_, None if known else source_entry(config), id_ in self._paused, self._after.get(id_))

    def of(self, process: SourceProcess) -> list[str]:
        """The ids of the sources of a process."""
        with self._lock:
            return [id_ for id_, owner in self._owners.items() if owner is process]

    def update(self, process: SourceProcess, states: Mapping[str, SourceState]) -> None:
        """Take the states that a process has reported."""
        with self._lock:
            found = dict(self.states)
            for id_, state in states.items():
                if self._owners.get(id_) is process and id_ in found:
                    if (earlier := self._earlier.get(id_)) is not None:
                        state.add_earlier(earlier)
                    self._show_pause(id_, state)
                    found[id_] = state
            self.states = found

    def unfinished(self, process: SourceProcess, complete: Collection[str]) -> list[str]:
        """The sources of a process that has died, of which frames are missing.

        Args:
            process: the process.
            complete: ids of the sources whose last frame the process had passed on, which it may not have reported.
        """
        states = self.states
        return [
            id_
            for id_ in self.of(process)
            if not states[id_].complete and states[id_].error is None and (id_ not in complete or id_ in self._added)
        ]

    def give_up(self, id_: str, why: str) -> None:
        """Mark a source as failed: it is not read any more."""
        with self._lock:
            state = self.states[id_]
            state.done, state.error = True, state.error or why
            state.set_state("failed", None, why)
            self._count_lost(state)

    def restart(self, id_: str, at_s: float) -> int | None:
        """Move a source whose process has died to the process with the lowest load.

        A camera and a looped file continue their indices and times; a file is read from its beginning.

        Args:
            id_: the source.
            at_s: monotonic time of the process's last report, in seconds.

        Returns:
            The number of lost frames that are known; None if the source is not restarted: it was restarted too often,
            or no process is left.
        """
        with self._lock:
            now_s = time.monotonic()
            restarts = self._restarts.setdefault(id_, deque(maxlen=_MAX_RESTARTS))
            while restarts and now_s - restarts[0] > _RESTARTS_WITHIN_S:
                restarts.popleft()
            target = self._least_loaded()
            if len(restarts) == _MAX_RESTARTS or target is None:
                return None
            restarts.append(now_s)
            old, lost = self.states[id_], 0
            if self.continues(id_):
                lost = self._count_lost(old)
                seen = old.frames + math.ceil((now_s - at_s + 1.0) * (old.fps_in or _UNKNOWN_FPS))
                self._after[id_] = seen, old.pts_s, at_s
                self._earlier[id_] = old
                state = replace(old, done=False)
            else:
                state = SourceState()
            state.set_state("reconnecting", "process", "its process died")
            self.states = {**self.states, id_: state}
            self._owners[id_] = target
            target.send("add", self.order(id_))
            return lost

    def continues(self, id_: str) -> bool:
        """Whether a source goes on where it was after a restart: a camera, or a looped file."""
        given = self._configs[id_].options
        return bool(given.get("loop")) or may_be_live(str(given.get("uri", "")))

    def restarts_of(self, id_: str) -> int:
        """How often a source was restarted within the last ten minutes."""
        return len(self._restarts.get(id_, ()))

    def _place(self, config: SourceConfig) -> SourceProcess | None:
        """The process for a source that is added: the one that had it, the least loaded one, or a new one."""
        former = self._former.pop(config.id, None)
        if former is not None and former.takes_sources:
            return former
        found = self._least_loaded()
        if found is not None and (load := self._load_of(found)) and load + self._load(config).load > 1:
            return self._start_another() or found
        return found

    def _least_loaded(self) -> SourceProcess | None:
        return min((one for one in self._processes if one.takes_sources), key=self._load_of, default=None)

    def _load_of(self, process: SourceProcess) -> float:
        """The load of a process: by the measured rates of its sources, or their expected rates where none is known."""
        total = 0.0
        for id_ in self.of(process):
            if not (state := self.states[id_]).done:
                expected = self._load(self._configs[id_])
                total += expected.at(state.fps_in) if state.rated and state.fps_in else expected.load
        return total

    def _count_lost(self, state: SourceState) -> int:
        lost = max(0, state.frames - state.out - state.dropped)
        if lost:
            state.drops.add(LOST, lost)
            self.lost += lost
        return lost
