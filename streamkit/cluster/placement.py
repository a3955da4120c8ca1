# SPDX-License-Identifier: Apache-2.0
"""Which node gets a source, from the measured load of the nodes and the expected load of the source.

The runtime knows the load of each source in units of its own (`SourceLoad`), and each node measures how busy it is.
Their ratio is the node's capacity: what those units are worth on that machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from streamkit.config.plan import SourceConfig
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.multiprocess.placement_policy import PlacementPolicy
from streamkit.runtime.multiprocess.process_count import SourceLoad

MIN_BUSY = 0.1
"""Share below which a measurement says little: most of it is the cost of running at all."""
GPU_CORES = 40.0
"""CPU cores to which a GPU compares before anything is measured. An estimate."""
OVERLOAD = 0.8
RELIEVED = 0.7
"""A source moves if a node is busier than the one, to a node that is less busy than the other with the source. A node
of one core that dropped half of its frames measured 0.84: other stages and the decoders had the rest of the core."""


NODE_LOST = "lost", "its node is lost"
"""Cause and message of the state of a source whose node is lost."""


def node_policy(load: Callable[[SourceConfig], SourceLoad], capacity: Callable[[Any], float]) -> PlacementPolicy:
    """The policy for nodes, which come and go; there may be none.

    Args:
        load: returns the expected load of a source.
        capacity: returns the load that makes a node entirely busy.
    """
    no_node = "no node of the cluster is ready; see ray status"
    return PlacementPolicy(
        load, capacity, died=NODE_LOST, waiting="waits for a node", no_process=no_node, reports_removed=False
    )


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


def in_head_time(state: SourceState, shift_s: float) -> SourceState:
    """A node's state with the time of its last frame on the head's clock, which is `shift_s` ahead of the node's."""
    if state.last is not None:
        last = state.last.on_clock(shift_s)
        state.last = last._replace(read_s=min(last.read_s, time.monotonic()))
    return state
