# SPDX-License-Identifier: Apache-2.0
"""The sources of a run over several processes or nodes: which reads which, their states, and restarts after a crash."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamkit.config.pipeline_config import source_entry
from streamkit.config.plan import SourceConfig
from streamkit.core.errors import ConfigError
from streamkit.core.text import did_you_mean
from streamkit.core.timeline import LastFrame
from streamkit.media.uris import may_be_live
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.messages import SourceOrder
from streamkit.runtime.multiprocess.placement_policy import (
    DeliveredFrames,
    NoSharedSinks,
    PlacementPolicy,
    RestartedSource,
    SourceProcess,
)
from streamkit.runtime.multiprocess.restart_history import RestartHistory
from streamkit.runtime.observe.report_merge import WorkerReport

logger = logging.getLogger(__name__)

LOST = "frames dropped: process died"
_PROCESSES_FOR_SUSPECTS = 4
"""How many processes there may be beyond the limit while sources are suspect: each halving leaves one behind."""
_FORMER = 1000
"""Number of removed sources whose process is remembered."""
_NO_SHARED_SINKS = NoSharedSinks()
_ONE_MACHINE = PlacementPolicy()


@dataclass(slots=True)
class _Leaving:
    """Sources that a process is to remove, oldest first, each with its counts of earlier processes."""

    states: deque[tuple[SourceState, SourceState | None]] = field(default_factory=deque)
    counted: int = 0  # number of removed sources in the totals of the process


class SourceScheduler:
    """The sources of a run over several processes, by id; a node of a cluster counts as a process.

    A source keeps its process while that process lives, also when it is changed: the process writes its files. The
    sources of a process that has died go to a spare process together. Without one, and when it is new, a source goes to
    the process with the lowest load; if that one would be overloaded, to another process, if there may be one.

    Sources that were in two processes that died within ten minutes are suspect: one of them may be the cause. They are
    kept apart from the others, half of them in one process and half in another, and again if that one dies, until the
    cause is alone.

    Args:
        sources: the sources at the start.
        yaml_sources: those of the YAML, which the processes know.
        removed: returns the totals of the removed sources that the processes have reported.
        keep_running: whether the run goes on without sources.
        paused: ids of the sources that are paused.
        policy: how sources are placed.
        clock: monotonic time in seconds.

    Attributes:
        states: state of each source; replaced, never mutated, when sources come and go.
        stopping: whether no source may be added any more.
        lost: number of frames that were lost because a process died.
    """

    def __init__(
        self,
        sources: Sequence[SourceConfig],
        yaml_sources: Sequence[SourceConfig],
        removed: Callable[[], RemovedSources],
        keep_running: bool,
        paused: Iterable[str] = (),
        policy: PlacementPolicy = _ONE_MACHINE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.states: dict[str, SourceState] = {source.id: SourceState() for source in sources}
        self.stopping = False
        self.lost = 0
        self._configs = {source.id: source for source in sources}
        self._yaml_sources = {source.id: source for source in yaml_sources}
        self._removed = removed
        self._keep_running = keep_running
        self._processes: dict[SourceProcess, _Leaving] = {}  # without those that have died
        self._owners: dict[str, SourceProcess] = {}
        self._numbers: dict[str, int] = {}  # of the orders
        self._orders = itertools.count(1)
        self._added: set[str] = set()  # ids that were added to the run
        self._passed_on: set[str] = set()  # ids whose last frame has passed every stage
        self._uncounted = RemovedSources()  # removed sources that no process has counted
        self._former: dict[str, SourceProcess] = {}  # owners of removed sources, the oldest first
        self._policy = policy
        self._paused = set(paused)
        self._after: dict[str, LastFrame] = {}
        self._earlier: dict[str, SourceState] = {}  # counts of processes that have ended
        self._restarts = RestartHistory(clock)
        self._clock = clock
        self._waiting: list[str] = []  # sources whose process is lost, while there is no other
        self._moves: dict[str, SourceProcess] = {}  # the new process of sources that the old one ends
        self._lock = threading.RLock()
        if policy.waiting:
            for state in self.states.values():
                state.started = True
                state.set_state("connecting", None, policy.waiting)

    # ------------------------------------------------------------------------------------------------ come and go

    @property
    def removed(self) -> RemovedSources:
        """Totals of the removed sources."""
        counts = self._removed()
        counts.add_totals(self._uncounted)
        return counts

    @property
    def over(self) -> bool:
        """Whether no source will produce another frame."""
        return self.stopping or (not self._keep_running and all(state.done for state in self.states.values()))

    def check_free(self, id_: str) -> None:
        """Raise ConfigError if a source with that id exists."""
        if id_ in self.states:
            raise ConfigError(f"there is a source {id_!r} already; remove it first, or choose another id")

    def check_open(self, id_: str) -> None:
        """Raise ConfigError if no source can be added now: the run is over, or waits for a process."""
        if self._policy.no_process and not self._any_takes_sources():
            raise ConfigError(f"source {id_} cannot be added: {self._policy.no_process}")
        if self.over:
            raise ConfigError(f"source {id_} cannot be added: the run has ended")

    def add(self, config: SourceConfig, after: LastFrame | None = None, paused: bool = False) -> None:
        """Add a source to a process. Raises ConfigError: its id is taken, or the run is over."""
        with self._lock:
            self.check_free(config.id)
            self.check_open(config.id)
            process = self._former_process(config.id) or self._place(self._policy.load(config).load)
            if process is None:  # all have died: it restarts with the sources of the last one
                process = next(reversed(self._processes), None)
            if process is None:
                raise ConfigError(f"source {config.id} cannot be added: the run has ended")
            self._configs[config.id] = config
            self._added.add(config.id)
            if after is not None:
                self._after[config.id] = after
            if paused:
                self._paused.add(config.id)
            self.states = {**self.states, config.id: SourceState()}
            self._owners[config.id] = process
            process.send(messages.Add(self._order(config.id)))

    def remove(self, id_: str) -> None:
        """Remove a source; its frames in flight are still processed. Raises ConfigError if the id is unknown."""
        with self._lock:
            process = self._owner(id_)
            state = self.states[id_]
            earlier = self._earlier.pop(id_, None)
            state.removed = True
            self.states = {name: state for name, state in self.states.items() if name != id_}
            for by_id in (self._owners, self._configs, self._after, self._numbers, self._moves):
                by_id.pop(id_, None)
            for ids in (self._paused, self._added, self._passed_on):
                ids.discard(id_)
            self._restarts.forget(id_)
            if process is None or process not in self._processes:
                self._count_removed(state)
            else:
                process.send(messages.Remove(id_))
                if self._policy.reports_removed:
                    self._processes[process].states.append((state, earlier))
                else:  # its last report counts
                    self._uncounted.add(state)
            if process is None:
                return
            self._former[id_] = process
            if len(self._former) > _FORMER:
                del self._former[next(iter(self._former))]

    def pause(self, id_: str, paused: bool = True) -> None:
        """Pause or resume a source. Raises ConfigError if the id is unknown."""
        with self._lock:
            process = self._owner(id_)
            (self._paused.add if paused else self._paused.discard)(id_)
            self._show_pause(id_, self.states[id_])
            if process is not None:
                process.send(messages.Pause(id_, paused))

    def _show_pause(self, id_: str, state: SourceState) -> None:
        """Show at once that a source was paused or resumed, before its process reports it."""
        if not state.done and (id_ in self._paused) != (state.state == "paused"):
            state.set_state("paused" if id_ in self._paused else "connecting")

    def send(self, id_: str, order: messages.Order) -> None:
        """Send an order about a source to its process; does nothing if there is no such source."""
        with self._lock:
            if id_ in self._owners:
                self._owners[id_].send(order)

    def _owner(self, id_: str) -> SourceProcess | None:
        """The process of a source; None for one that was refused. Raises ConfigError if the id is unknown."""
        if id_ not in self.states:
            raise ConfigError(f"there is no source {id_!r}{did_you_mean(id_, self.states)}")
        return self._owners.get(id_)

    # -------------------------------------------------------------------------------------------------- processes

    def add_process(self, process: SourceProcess) -> None:
        """Add a process, without sources."""
        with self._lock:
            self._processes[process] = _Leaving()

    def assign(self, process: SourceProcess, ids: Iterable[str]) -> None:
        """Let a process start with sources; those that the state file has removed are left out."""
        with self._lock:
            self._owners |= {id_: process for id_ in ids if id_ in self._configs}

    def assign_first(self, shares: Iterable[tuple[SourceProcess, Sequence[str]]], refused: Mapping[str, str]) -> None:
        """Give the first processes their sources; those that are `refused`, with the reason, fail."""
        for process, ids in shares:
            self.add_process(process)
            self.assign(process, [id_ for id_ in ids if id_ not in refused])
        for id_, reason in refused.items():
            self.give_up(id_, reason)
            logger.error(f"source {id_} failed: {reason}")
        self.assign_rest()

    def assign_rest(self) -> None:
        """Let the processes start with the other sources, which the state file has added."""
        with self._lock:
            self._assign_least_loaded()

    def _assign_least_loaded(self) -> list[str]:
        """Assign the sources without a process, each to the least loaded one; return their ids."""
        unassigned = [id_ for id_ in self._configs if id_ not in self._owners and not self.states[id_].done]
        for id_ in unassigned:
            process = self._least_loaded()
            assert process is not None
            self._owners[id_] = process
        return unassigned

    def first_orders(self, process: SourceProcess) -> tuple[SourceOrder, ...]:
        """The orders for the sources that a process starts with."""
        with self._lock:
            return tuple(self._order(id_, in_yaml=True) for id_ in self.of(process))

    def _order(self, id_: str, *, in_yaml: bool = False) -> SourceOrder:
        """What a process needs to read a source; `in_yaml` refers to that of the YAML if it is unchanged."""
        config = self._configs[id_]
        number = next(self._orders)
        self._numbers[id_] = number
        entry = None if in_yaml and self._yaml_sources.get(id_) is config else source_entry(config)
        return SourceOrder(id_, number, entry, id_ in self._paused, self._after.get(id_))

    def of(self, process: SourceProcess) -> list[str]:
        """The ids of the sources of a process."""
        with self._lock:
            return [id_ for id_, owner in self._owners.items() if owner is process]

    def live(self, process: SourceProcess) -> int:
        """Number of cameras and recordings with a pace that a process reads."""
        with self._lock:
            return sum(self._policy.load(self._configs[id_]).live for id_ in self._running(process))

    def owner(self, id_: str) -> SourceProcess | None:
        """The process of a source; None if there is no such source."""
        return self._owners.get(id_)

    def update(self, process: SourceProcess, report: WorkerReport) -> None:
        """Take the states and the totals of removed sources that a process has reported."""
        with self._lock:
            states = dict(self.states)
            for id_, state in report.states.items():
                if self._owners.get(id_) is not process or report.numbers.get(id_) != self._numbers[id_]:
                    continue  # the process does not know yet that it was removed, or replaced
                if (earlier := self._earlier.get(id_)) is not None:
                    state.merge_previous(earlier)
                self._show_pause(id_, state)
                states[id_] = state
            self.states = states
            leaving = self._processes[process]
            while leaving.states and leaving.counted < report.removed.sources:
                leaving.counted += 1
                _, earlier = leaving.states.popleft()
                if earlier is not None:
                    self._uncounted.add(earlier)
                    self._uncounted.sources -= 1  # which the process has counted

    def passed_on(self, process: SourceProcess, ids: Iterable[str]) -> None:
        """Take the ids of sources whose last frame has passed every stage of a process."""
        with self._lock:  # an id that was added may be that of an earlier source
            self._passed_on |= {id_ for id_ in ids if self._owners.get(id_) is process and id_ not in self._added}

    def refused(self, process: SourceProcess, order: SourceOrder, why: str) -> bool:
        """Mark a source as failed that a process cannot add; return False if it was removed or replaced meanwhile."""
        with self._lock:
            is_current = self._owners.get(order.id) is process and self._numbers[order.id] == order.number
            if is_current:
                self.give_up(order.id, why)
            return is_current

    def remove_process(self, process: SourceProcess) -> list[str]:
        """Remove a process that has died; return the ids of its sources of which frames are missing."""
        with self._lock:
            for state, _ in self._processes.pop(process).states:
                self._count_removed(state)
            states = self.states
            for id_ in self._passed_on.intersection(self.of(process)):
                if not (state := states[id_]).done:  # its last frames were not reported
                    state.done = True
                    state.out = state.frames - state.dropped
                    state.set_state("ended")
            return [
                id_
                for id_ in self.of(process)
                if not states[id_].complete and states[id_].error is None and id_ not in self._passed_on
            ]

    def give_up(self, id_: str, why: str) -> None:
        """Mark a source as failed: it is not read any more."""
        with self._lock:
            state = self.states[id_]
            state.done = True
            state.error = state.error or why
            state.set_state("failed", None, why)
            self._count_lost(state)

    def restart(
        self,
        ids: Sequence[str],
        sinks: DeliveredFrames,
        *,
        of_source: bool = False,
        take_spare: Callable[[], SourceProcess | None] = lambda: None,
    ) -> list[RestartedSource]:
        """Move the sources of one process that has died to others.

        A camera and a looped file continue their indices and times; a file is read from its beginning.

        Args:
            ids: the sources.
            sinks: the sinks that skip the repeated frames of a file.
            of_source: whether one of the sources may be the cause: the process ran, and no other died with it.
            take_spare: returns a spare process, which is no longer one; None if there is none. It gets all sources that
                are not suspect.

        Returns:
            Those that were restarted: not those that were restarted too often, and none if no process is left.
        """
        with self._lock:
            others, suspects = self._restarts.split(ids, of_source=of_source)
            spare = take_spare() if others else None
            restarted = [self._restart(id_, spare or self._place(self._load_of(id_)), sinks) for id_ in others]
            apart: SourceProcess | None = None
            for half in filter(None, (suspects[::2], suspects[1::2])):
                apart = self._separate_process() or apart  # if no more may run, they stay together
                restarted += [self._restart(id_, apart or self._place(self._load_of(id_)), sinks) for id_ in half]
            return [source for source in restarted if source is not None]

    def _restart(self, id_: str, target: SourceProcess | None, sinks: DeliveredFrames) -> RestartedSource | None:
        if target is None:
            return None
        now_s = self._clock()
        before = self._owners[id_]
        self._restarts.add(id_)
        self._passed_on.discard(id_)
        old = self.states[id_]
        lost = 0
        if self._continues(id_):
            lost = self._count_lost(old)
            if (after := self._frame_before(id_, sinks.delivered(id_, before), now_s)) is not None:
                self._after[id_] = after
            self._earlier[id_] = old
            state = replace(old, done=False)
        else:
            state = SourceState()
            sinks.skip_repeated(id_, before, target, replaced=id_ in self._added)
        state.set_state("reconnecting", *self._policy.died)
        self.states = {**self.states, id_: state}
        self._owners[id_] = target
        target.send(messages.Add(self._order(id_)))
        return RestartedSource(id_, lost, old.last)

    def _continues(self, id_: str) -> bool:
        """Whether a source goes on where it was after a restart: a camera, or a looped file."""
        options = self._configs[id_].options
        return bool(options.get("loop")) or may_be_live(str(options.get("uri", "")))

    def _frame_before(self, id_: str, delivered: int, now_s: float) -> LastFrame | None:
        """The frame after which a source continues: its last one that is known, or may have been read since.

        Args:
            id_: the source.
            delivered: index of its last frame that has come to a shared sink.
            now_s: the monotonic time in seconds.
        """
        state = self.states[id_]
        reported = [frame for frame in (state.last, self._after.get(id_)) if frame is not None]
        if not reported:
            return None if delivered < 0 else LastFrame(delivered, 0.0, now_s)
        last = max(reported, key=lambda frame: frame.number)
        fps = state.fps_in if state.rated else state.frames
        return last.with_unreported(now_s, fps, delivered, live=state.live)

    def restarts_of(self, id_: str) -> int:
        """How often a source was restarted within the last ten minutes."""
        return self._restarts.count(id_)

    # ----------------------------------------------------------------------------------------- processes come and go

    def lose(self, process: SourceProcess, *, crashed: bool) -> list[RestartedSource]:
        """Remove a process that reads its sources no more, and restart them in others; they share no sink.

        Args:
            process: the process.
            crashed: whether it died while its machine lives: one of its sources may be the cause.

        Returns:
            The restarted sources. Those that have crashed their process too often fail. Without a process, they wait.
        """
        with self._lock:
            ids = self.remove_process(process)
            for id_ in ids:
                self._moves.pop(id_, None)
            if self._any_takes_sources():
                return self._restart_lost(ids, crashed=crashed)
            self._waiting += ids
            cause, message = self._policy.died
            for id_ in ids:
                self.states[id_].set_state("reconnecting", cause, f"{message}; waits for another")
            return []

    def place_waiting(self) -> list[RestartedSource]:
        """Give the sources that wait to the processes that are there; return those that were restarted."""
        with self._lock:
            if not self._any_takes_sources():
                return []
            for id_ in self._assign_least_loaded():
                self._owners[id_].send(messages.Add(self._order(id_)))
            waiting = [id_ for id_ in self._waiting if id_ in self._owners]
            self._waiting = []
            return self._restart_lost(waiting, crashed=False)

    def _restart_lost(self, ids: Sequence[str], *, crashed: bool) -> list[RestartedSource]:
        if not crashed:  # it was not the fault of a source
            for id_ in ids:
                self._restarts.forget(id_)
        restarted = self.restart(ids, _NO_SHARED_SINKS, of_source=crashed)
        for id_ in set(ids) - {source.id for source in restarted}:
            self.give_up(
                id_, f"{self._policy.died[1]}; it was restarted {self.restarts_of(id_)} times within ten minutes"
            )
        return restarted

    def move(self, id_: str, target: SourceProcess) -> None:
        """Let a source's process end it; `finish_moves` starts it in another one once it has ended."""
        with self._lock:
            self._moves[id_] = target
            self._owners[id_].send(messages.Remove(id_))

    def finish_moves(self, reads: Callable[[SourceProcess, str], bool]) -> list[RestartedSource]:
        """Start the sources in their new processes that the old ones have ended.

        Args:
            reads: whether a process may still read a source.
        """
        with self._lock:
            ended = [id_ for id_ in self._moves if not reads(self._owners[id_], id_)]
            restarts: list[RestartedSource | None] = []
            for id_ in ended:
                target = self._moves.pop(id_)
                target = target if target.takes_sources else self._least_loaded() or target
                restarts.append(self._restart(id_, target, _NO_SHARED_SINKS))
                self._restarts.forget(id_)
                self.states[id_].set_state("reconnecting", None, "moves to another node")
            return [restart for restart in restarts if restart is not None]

    # ----------------------------------------------------------------------------------------------------- placement

    def measured_load(self, process: SourceProcess) -> float:
        """The load of a process, by the measured rates of its sources."""
        with self._lock:
            return sum(map(self._load_of, self._running(process)))

    def loads_of(self, process: SourceProcess) -> dict[str, float]:
        """The load of each source that a process reads and that does not move."""
        with self._lock:
            return {id_: self._load_of(id_) for id_ in self._running(process) if id_ not in self._moves}

    def _any_takes_sources(self) -> bool:
        return any(process.takes_sources for process in self._processes)

    def _former_process(self, id_: str) -> SourceProcess | None:
        """The process that had a source with that id before; None if there is none, or it takes no more sources."""
        former = self._former.pop(id_, None)
        return former if former is not None and former.takes_sources else None

    def _place(self, load: float) -> SourceProcess | None:
        """The process for a source: the one with the lowest load, or a new one if that one has no room."""
        process = self._least_loaded()
        if process is None:
            return None
        suspect = self._is_suspect(process)
        if self._has_room(process, load) and not suspect:
            return process
        return self._policy.start_another(_PROCESSES_FOR_SUSPECTS if suspect else 0) or process

    def _separate_process(self) -> SourceProcess | None:
        """A process without sources for some that are suspect; None if no more may run."""
        idle = (process for process in self._processes if process.takes_sources and not self._running(process))
        return next(idle, None) or self._policy.start_another(_PROCESSES_FOR_SUSPECTS)

    def _least_loaded(self) -> SourceProcess | None:
        """The process with the lowest load; one with suspect sources only if there is no other."""
        processes = [process for process in self._processes if process.takes_sources]
        return min(processes, key=lambda process: (self._is_suspect(process), self._total_load(process)), default=None)

    def _is_suspect(self, process: SourceProcess) -> bool:
        """Whether a source of a process is suspect."""
        return any(map(self._restarts.is_suspect, self._running(process)))

    def _has_room(self, process: SourceProcess, load: float) -> bool:
        """Whether a process can serve a source of that load; an idle process serves any."""
        total = self._total_load(process)
        return not total or total + load <= 1

    def _running(self, process: SourceProcess) -> list[str]:
        """The ids of the sources that a process reads, or is to read."""
        return [id_ for id_ in self.of(process) if not self.states[id_].done]

    def _total_load(self, process: SourceProcess) -> float:
        return self.measured_load(process) / self._policy.capacity(process)

    def _load_of(self, id_: str) -> float:
        """The load of a source: by its measured rate, or by its expected rate where none is known."""
        expected = self._policy.load(self._configs[id_])
        state = self.states[id_]
        return expected.at(state.fps_in) if state.rated and state.fps_in else expected.load

    def _count_removed(self, state: SourceState) -> None:
        """Count a removed source whose process has died."""
        self._count_lost(state)
        self._uncounted.add(state)

    def _count_lost(self, state: SourceState) -> int:
        lost = max(0, state.frames - state.out - state.dropped)
        if lost:
            state.drops.add(LOST, lost)
            self.lost += lost
        return lost
