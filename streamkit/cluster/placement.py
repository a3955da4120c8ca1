# SPDX-License-Identifier: Apache-2.0
"""Which node gets a source, from the measured load of the nodes and the expected load of the source.

The runtime knows the load of each source in units of its own (`SourceLoad`), and each node measures how busy it is.
Their ratio is the node's capacity: what those units are worth on that machine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from streamkit.config.plan import SourceConfig
from streamkit.core.errors import ConfigError
from streamkit.runtime.ingest.source_status import LastFrame, RemovedSources, SourceState
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.fleet_sources import FleetSources, RestartedSource, SourceProcess
from streamkit.runtime.multiprocess.process_count import SourceLoad

logger = logging.getLogger(__name__)

MIN_BUSY = 0.1
"""Share below which a measurement says little: most of it is the cost of running at all."""
GPU_CORES = 40.0
"""CPU cores to which a GPU compares before anything is measured. An estimate."""
OVERLOAD, RELIEVED = 0.8, 0.7
"""A source moves if a node is busier than the one, to a node that is less busy than the other with the source. A node
of one core that dropped half of its frames measured 0.84: other stages and the decoders had the rest of the core."""


class NodeLoad(NamedTuple):
    """What is known of the load of a node.

    Attributes:
        total: the load of its sources, in the units of `SourceLoad`.
        busy: share of the time in which its busiest stage worked, 0 to 1; None if unknown.
        cores: its CPU cores, a GPU as `GPU_CORES`.
    """

    total: float
    busy: float | None
    cores: float


class Move(NamedTuple):
    """A source that is to move from a node to another."""

    source: str
    before: str
    after: str


def capacities(nodes: Mapping[str, NodeLoad]) -> dict[str, float]:
    """The load that makes each node entirely busy: measured where it works, else by its cores as the measured ones."""
    measured = {
        name: load.total / load.busy
        for name, load in nodes.items()
        if load.total and load.busy is not None and load.busy >= MIN_BUSY
    }
    per_core = [capacity / nodes[name].cores for name, capacity in measured.items()]
    scale = sum(per_core) / len(per_core) if per_core else 1.0
    return {name: measured.get(name, scale * load.cores) for name, load in nodes.items()}


def better_move(loads: Mapping[str, float], sources: Mapping[str, Mapping[str, float]]) -> Move | None:
    """The move that relieves an overloaded node most; None if none is overloaded, or no other node has room.

    Args:
        loads: how busy each node is, 1 is entirely.
        sources: the load of each source of the busiest node on each other node.
    """
    if len(loads) < 2:
        return None
    busiest = max(loads, key=loads.__getitem__)
    idlest = min(loads, key=loads.__getitem__)
    fits = {id_: load for id_, load in sources.get(idlest, {}).items() if loads[idlest] + load <= RELIEVED}
    if loads[busiest] < OVERLOAD or not fits:
        return None
    return Move(max(fits, key=fits.__getitem__), busiest, idlest)


class _NoSharedSinks:
    """The nodes have no sinks in common; see `DeliveredFrames`."""

    def delivered(self, source: str, process: object) -> int:
        return -1

    def skip_repeated(self, source: str, before: object, process: object, *, replaced: bool = False) -> None:
        pass


_SINKS = _NoSharedSinks()


class ClusterSources(FleetSources):
    """The sources of a cluster: which node reads which, their states, and restarts when a node is lost.

    Nodes come and go, and there may be none: the sources wait then. A source is read by one node at a time.

    Args:
        sources: the sources at the start.
        paused: ids of the sources that are paused.
        load: returns the expected load of a source.
        capacity: returns the load that makes a node entirely busy.
    """

    died = "lost", "its node is lost"

    def __init__(
        self, sources: Sequence[SourceConfig], paused: set[str], load: Callable[[SourceConfig], SourceLoad],
        capacity: Callable[[SourceProcess], float],
    ) -> None:  # fmt: skip
        super().__init__(sources, (), RemovedSources, True, paused, load)
        self._capacity = capacity
        self._waiting: list[str] = []  # sources whose node is lost
        self._moves: dict[str, SourceProcess] = {}
        for state in self.states.values():
            state.begun = True
            state.set_state("connecting", None, "waits for a node")

    def add(self, config: SourceConfig, after: LastFrame | None = None, paused: bool = False) -> None:
        """See `FleetSources.add`."""
        with self._lock:
            self.check_free(config.id)
            self.check_open(config.id)
            super().add(config, after, paused)

    def check_open(self, id_: str) -> None:
        """Raise ConfigError if no source can be added now: no node is ready, or the run is over."""
        with self._lock:
            if not any(node.takes_sources for node in self._processes):
                raise ConfigError(f"source {id_} cannot be added: no node of the cluster is ready; see ray status")
        super().check_open(id_)

    def remove(self, id_: str) -> None:
        """See `FleetSources.remove`."""
        with self._lock:
            self._moves.pop(id_, None)
            if id_ in self.states and id_ not in self._owners:  # it waits for its first node
                self.states = {name: state for name, state in self.states.items() if name != id_}
                del self._configs[id_]
                return
            state, node = self.states.get(id_), self._owners.get(id_)
            super().remove(id_)
            if state is not None and node in self._processes:  # its last report counts: the node sends no totals
                self._processes[node].states.clear()
                self._uncounted.add(state)

    def pause(self, id_: str, paused: bool = True) -> None:
        """See `FleetSources.pause`."""
        with self._lock:
            if id_ in self.states and id_ not in self._owners:
                (self._paused.add if paused else self._paused.discard)(id_)
                self._show_pause(id_, self.states[id_])
            else:
                super().pause(id_, paused)

    def measured(self, node: SourceProcess) -> float:
        """The load of a node's sources, by their measured rates."""
        with self._lock:
            return super()._total_load(node)

    def loads_of(self, node: SourceProcess) -> dict[str, float]:
        """The load of each source that a node reads."""
        with self._lock:
            return {id_: self._load_of(id_) for id_ in self._running(node) if id_ not in self._moves}

    def _total_load(self, process: SourceProcess) -> float:
        return super()._total_load(process) / self._capacity(process)

    def _has_room(self, process: SourceProcess, load: float) -> bool:
        return True

    # ------------------------------------------------------------------------------------------- nodes come and go

    def lose(self, node: SourceProcess, crashed: bool) -> list[RestartedSource]:
        """Take the sources of a node that reads them no more, and restart them on others.

        Args:
            node: the node.
            crashed: whether its process died while its machine lives: one of its sources may be the cause.

        Returns:
            The restarted sources. Those that have crashed their node too often fail; without a node, the others wait.
        """
        with self._lock:
            ids = self.remove_process(node)
            for id_ in ids:
                self._moves.pop(id_, None)
            if not any(process.takes_sources for process in self._processes):
                self._waiting += ids
                for id_ in ids:
                    self.states[id_].set_state("reconnecting", self.died[0], "its node is lost; waits for another")
                return []
            return self._restart_lost(ids, crashed)

    def place_waiting(self) -> list[RestartedSource]:
        """Give the sources that wait for a node to those that are there; return those that were restarted."""
        with self._lock:
            if not any(node.takes_sources for node in self._processes):
                return []
            for id_ in [id_ for id_ in self._configs if id_ not in self._owners]:
                node = self._least_loaded()
                assert node is not None
                self._owners[id_] = node
                node.send(messages.Add(self._order(id_)))
            waiting = [id_ for id_ in self._waiting if id_ in self._owners]
            self._waiting = []
            return self._restart_lost(waiting, crashed=False)

    def _restart_lost(self, ids: list[str], crashed: bool) -> list[RestartedSource]:
        if not crashed:  # it was not the fault of a source
            for id_ in ids:
                self._restarts.pop(id_, None)
        restarted = self.restart(ids, _SINKS, of_source=crashed)
        for id_ in set(ids) - {source.id for source in restarted}:
            self.give_up(id_, "its node has died too often within ten minutes while it read this source")
        return restarted

    def move(self, id_: str, target: SourceProcess) -> None:
        """Let a source's node end it; `finish_moves` starts it on another node once it has ended."""
        with self._lock:
            self._moves[id_] = target
            self._owners[id_].send(messages.Remove(id_))

    def finish_moves(self, reads: Callable[[SourceProcess, str], bool]) -> list[RestartedSource]:
        """Start the sources on their new nodes that the old ones have ended.

        Args:
            reads: whether a node may still read a source.
        """
        with self._lock:
            ended = [id_ for id_ in self._moves if not reads(self._owners[id_], id_)]
            moved = []
            for id_ in ended:
                target = self._moves.pop(id_)
                target = target if target.takes_sources else self._least_loaded() or target
                restarted = self._restart(id_, target, _SINKS)
                self._restarts.pop(id_, None)
                self.states[id_].set_state("reconnecting", None, "moves to another node")
                moved += [restarted] if restarted is not None else []
            return moved


def in_head_time(state: SourceState, shift_s: float) -> SourceState:
    """A node's state with the time of its last frame on the head's clock, which is `shift_s` ahead of the node's."""
    if state.last is not None:
        state.last = state.last._replace(read_s=min(state.last.read_s + shift_s, time.monotonic()))
    return state
