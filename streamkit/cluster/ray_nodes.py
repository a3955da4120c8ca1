# SPDX-License-Identifier: Apache-2.0
"""The nodes of the Ray cluster as the head sees them: one actor on each machine, its orders and its reports."""

from __future__ import annotations

import itertools
import pickle
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import streamkit
from streamkit.batch.ray_access import OpenClusterError
from streamkit.batch.ray_cluster import end_reason, join, start_local
from streamkit.cluster.cluster_file import DEFAULT_RAY
from streamkit.cluster.exchange import LOST_S, NodeJob, NodeOrders, NodeReport
from streamkit.cluster.node import ClusterNode
from streamkit.core.errors import ConfigError, MissingPackage, needs
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.messages import SourceOrder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
_CALLS = 8  # of the actor at once: reports go on while files are applied


class RayNode(NamedTuple):
    """A live node of the Ray cluster that runs work.

    Attributes:
        id: Ray's id.
        name: its name, of which a folder is named: that of `ray start --node-name`, or its address; unique.
        address: its IP address.
        gpus: its GPUs.
    """

    id: str
    name: str
    address: str
    gpus: float


def connect(address: str, *, insecure: bool = False) -> tuple[Any, bool]:
    """Join a Ray cluster, or start one of this machine if there is none and the address is `auto`.

    Args:
        address: of the cluster's head, or `auto`.
        insecure: whether the cluster may run the code of everybody who reaches its public address.

    Returns:
        The package `ray`, and whether a cluster was started.

    Raises:
        MissingPackage: Ray is not installed.
        ConfigError: there is no such cluster, or it is open to the internet.
    """
    with needs("httpx", "ray,serve", "streamkit cluster"):
        import httpx  # noqa: F401
    try:
        return join(address, None, option="ray:", insecure=insecure), False
    except MissingPackage:
        raise MissingPackage("ray", "ray,serve", "streamkit cluster") from None
    except ConfigError as error:
        if address != DEFAULT_RAY or isinstance(error, OpenClusterError):
            raise
    return start_local(), True


def live_nodes(ray: Any) -> list[RayNode]:
    """The nodes that are alive and have CPU cores for work; `ray start --num-cpus=0` keeps a machine out."""
    alive = [node_info for node_info in ray.nodes() if node_info["Alive"] and node_info["Resources"].get("CPU", 0) >= 1]
    names = [str(node_info.get("NodeName") or node_info["NodeManagerAddress"]) for node_info in alive]
    nodes = []
    for node_info, name in zip(alive, names, strict=True):
        is_unique = _NAME.fullmatch(name) and names.count(name) == 1
        unique_name = name if is_unique else f"node-{node_info['NodeID'][:8]}"
        gpus = node_info["Resources"].get("GPU", 0.0)
        nodes.append(RayNode(node_info["NodeID"], unique_name, str(node_info["NodeManagerAddress"]), gpus))
    return nodes


@dataclass(slots=True, eq=False)
class NodeHandle:
    """A node, as the head sees it: a `SourceProcess`.

    Attributes:
        node: where it runs.
        actor: the actor.
        token: what its API wants.
        files: number of the version of the pipeline's files that it has.
        cursor: number of its last event that the head has.
        clock: monotonic time in seconds.
        heard_s: time of the last report by that clock, and at first of its start.
        answer: the call that was not answered yet.
        latest: its last report.
        failure: why it is gone; empty while it is not.
        crashed: whether its process is known to have ended.
        free_at_s: time by that clock from which others may read its sources, once it is gone.
        joined: whether it was ready once and takes part in the run.
        settings: options that were changed since the YAML was read, by stage.
    """

    node: RayNode
    actor: Any
    token: str
    files: int
    cursor: int
    clock: Callable[[], float]
    heard_s: float
    answer: Any = None
    latest: NodeReport = field(default_factory=NodeReport)
    failure: str = ""
    crashed: bool = False
    free_at_s: float = 0.0
    joined: bool = False
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    _message: int = 0
    _wanted: dict[str, SourceOrder] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _number: int = 0

    @property
    def takes_sources(self) -> bool:
        """Whether it runs and accepts frames, or has and is only being rebuilt."""
        return not self.failure and bool(self.latest.port) and (self.latest.ready or bool(self._wanted))

    @property
    def url(self) -> str:
        """Address of its API."""
        host = f"[{self.node.address}]" if ":" in self.node.address else self.node.address
        return f"http://{host}:{self.latest.port}"

    def send(self, order: messages.Order) -> None:
        """Change what it is to do; the next call tells it."""
        match order:
            case messages.Trigger(stage, source, data):
                self.actor.trigger.remote(stage, source, data)
                return
            case messages.Add(added):
                self._wanted = {**self._wanted, added.id: added}
            case messages.Remove(source):
                self._wanted = {id_: source_order for id_, source_order in self._wanted.items() if id_ != source}
            case messages.Pause(source, paused) if source in self._wanted:
                self._wanted = {**self._wanted, source: replace(self._wanted[source], paused=paused)}
        self._number = next(self._numbers)

    def set(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Set the options that were changed since the YAML was read."""
        self.settings = settings
        self._number = next(self._numbers)

    def reads(self, source: str) -> bool:
        """Whether it may still read a source: it does, or has not executed the order to end it."""
        return self.latest.number != self._number or source in self.latest.worker.numbers

    def ask(self) -> None:
        """Call it for a report, unless it has not answered the last call."""
        if self.answer is None:
            orders = None
            if self._number and self.latest.number != self._number:
                orders = NodeOrders(self._number, self._wanted, self.settings, time.monotonic())
            self.answer = self.actor.sync.remote(orders, self.cursor, self._message)

    def receive(self, ray: Any) -> NodeReport | None:
        """Its answer, which has arrived; None if it is gone."""
        answer = self.answer
        self.answer = None
        try:
            report: NodeReport = pickle.loads(ray.get(answer))
        except ray.exceptions.ActorUnavailableError:  # Ray tries again; `overdue` decides
            return None
        except ray.exceptions.RayError as error:
            how, lost = end_reason(error)
            self.end("is lost" if lost else how, crashed=not lost)
            return None
        self.heard_s = self.clock()
        if report.failure:
            self.end(f"has ended: {report.failure}", crashed=True)
            return None
        self.latest = report
        if report.messages:
            self._message = report.messages[-1].number
        return report

    def overdue(self, now_s: float) -> bool:
        """Whether it has sources and has not reported for too long."""
        return not self.failure and bool(self._wanted) and now_s - self.heard_s > LOST_S

    def end(self, failure: str, *, crashed: bool) -> None:
        """Mark it as gone.

        Args:
            failure: why.
            crashed: whether its process is known to have ended; else it may run until its lease is over.
        """
        if not self.failure:
            self.failure = failure
            self.crashed = crashed
            self.free_at_s = self.clock() if crashed else self.heard_s + LOST_S

    def kill(self, ray: Any) -> None:
        """Kill its process, if it can be reached."""
        ray.kill(self.actor)


def start_node(
    ray: Any, node: RayNode, job: NodeJob, files: int, cursor: int, clock: Callable[[], float]
) -> NodeHandle:
    """Start the actor of a node, on that node only; Ray lets it wait there while all cores are in use."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    kind = ray.remote(num_cpus=1, num_gpus=node.gpus, max_concurrency=_CALLS)(ClusterNode)
    place = NodeAffinitySchedulingStrategy(node.id, soft=False)
    actor = kind.options(scheduling_strategy=place).remote(streamkit.__version__, pickle.dumps(job))
    return NodeHandle(node, actor, job.token, files, cursor, clock, clock())
