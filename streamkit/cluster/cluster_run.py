# SPDX-License-Identifier: Apache-2.0
"""One run of a pipeline on the nodes of a Ray cluster.

Ray starts the actors, keeps each on its machine and tells when one is gone. One loop on the main thread (`run`) looks
for new nodes, exchanges orders and reports with each about twice a second, and moves the sources of lost nodes to
others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamkit.batch.ray_cluster import last_line
from streamkit.cluster.cluster_alarms import ClusterAlarms
from streamkit.cluster.cluster_file import environment
from streamkit.cluster.exchange import LOST_S, NodeEvent, NodeJob, NodeReport
from streamkit.cluster.placement import (
    GPU_CORES,
    NODE_LOST,
    NodeLoad,
    better_move,
    capacities,
    in_head_time,
    node_policy,
)
from streamkit.cluster.ray_nodes import NodeHandle, RayNode, live_nodes, start_node
from streamkit.config.plan import Graph, Node
from streamkit.core.data import Event
from streamkit.core.errors import ConfigError, StreamkitError, describe
from streamkit.core.logs import LogOnce
from streamkit.runtime.control.commands import Controls
from streamkit.runtime.control.settings import follow_zones
from streamkit.runtime.execution.future import PeriodicTimer
from streamkit.runtime.ingest.source_status import RemovedSources
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.placement_policy import RestartedSource
from streamkit.runtime.multiprocess.process_count import source_loads
from streamkit.runtime.multiprocess.source_scheduler import LOST, SourceScheduler
from streamkit.runtime.observe.health import HealthSnapshot, merge_snapshots
from streamkit.runtime.observe.report_merge import MergedCounts, WorkerReport, headline
from streamkit.runtime.observe.run_counts import RunCounts
from streamkit.runtime.preview.gallery import Gallery
from streamkit.serve.token import new_token

logger = logging.getLogger(__name__)

_EVERY_S = 0.4
_WAIT_S = 0.1
_LOOK_S = 1.0
_BALANCE_S = 15.0
_STOP_S = 10.0
_START_S = 60.0
_TOGETHER_S = 30.0
"""Seconds after the first node is ready in which the others may get ready before the sources are shared out."""
_APPLY_S = 900.0
"""Time for a node to open its stages again: TensorRT builds its engines then, for minutes."""
_RETRY_S = 60.0
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR, "critical": logging.ERROR}


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """The devices of a node, where a run of one machine has its own device."""

    text: str
    kind: str = "node"
    index: int = 0

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class NodeView:
    """A node of the cluster.

    `state` is one of starting, ready, lost; `message` says why it is lost. `load` is the share of the time in which its
    busiest stage works, or null; `sources` are the ids of those that it reads.
    """

    name: str
    address: str
    state: str
    message: str
    device: str
    load: float | None
    sources: list[str]


class ClusterRun(MergedCounts, Controls):
    """One run of a graph on the nodes of a Ray cluster.

    Args:
        graph: the graph.
        ray: the package `ray`, which has joined the cluster.
        job: what every node gets; name, address and token are filled in for each.
        pack: returns the content of the pipeline's files.
        gallery: receives the events of the nodes.
        last_event: returns the number of the last event of a node that is stored here.
        clock: monotonic time in seconds, for how long nodes may be silent and when they start again.

    Attributes:
        devices: the devices of the nodes; `device` is the first of them.
        ready: whether a node accepts frames.
        alarms: the alarms that the nodes evaluate.
    """

    sources: SourceScheduler
    limit = None
    hung_threads = ()

    def __init__(
        self,
        graph: Graph,
        ray: Any,
        job: NodeJob,
        pack: Callable[[], Mapping[str, bytes]],
        gallery: Gallery,
        last_event: Callable[[str], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(graph)
        self._ray = ray
        self._job = job
        self._pack = pack
        self._gallery = gallery
        self._last_event = last_event
        self._version = 1  # of the files
        self._nodes: dict[str, NodeHandle] = {}  # by Ray's id
        self._lost_by_name: dict[str, tuple[NodeHandle, int]] = {}  # by name: lost nodes, and how often in a row
        self._retry_s: dict[str, float] = {}
        self._dying: list[NodeHandle] = []
        self._past: list[WorkerReport] = []
        self._settings: dict[str, dict[str, Any]] = {}
        self._capacity: dict[NodeHandle, float] = {}
        policy = node_policy(source_loads(graph, realtime=True), lambda node: self._capacity.get(node, 1.0))
        self.sources = SourceScheduler(graph.sources, (), RemovedSources, True, self._paused, policy)
        self.alarms = ClusterAlarms(
            lambda: [node.latest for node in list(self._nodes.values())], self.health, graph.config.alarms
        )
        self.fatal: BaseException | None = None
        self.stopping = False
        self.seconds = 0.0
        self._started_s = clock()
        self._clock = clock
        self._polled_s = self._first_ready_s = 0.0
        self._shared_out = False
        self._alive: list[RayNode] | None = None  # None before the first look
        self._balanced_s = clock()
        self._warn = LogOnce(logger.warning)

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run until stopped, and return the exit code. Raises StreamkitError: Ray ends."""
        try:
            with PeriodicTimer(_LOOK_S, self._look):
                while not self.stopping:
                    self._step()
        except self._ray.exceptions.RayError as error:
            raise StreamkitError(f"the Ray cluster cannot be reached any more: {error}; the nodes stop") from None
        finally:
            self._close()
        return 130

    def stop(self) -> None:
        """Stop the sources of all nodes; decoded frames drain, and every file is closed."""
        if self.stopping:
            for node in self._nodes.values():
                node.kill(self._ray)
        self.stopping = self.sources.stopping = True

    def _close(self) -> None:
        """End every node, within a limit of time."""
        self.seconds = self._clock() - self._started_s
        ended = [node.actor.stop.remote() for node in self._nodes.values() if node.latest.port]
        if ended:
            self._ray.wait(ended, num_returns=len(ended), timeout=_STOP_S)
        for node in self._nodes.values():
            node.kill(self._ray)
        self._ray.shutdown()

    def _step(self) -> None:
        now_s = self._clock()
        self._start_new()
        if now_s >= self._polled_s + _EVERY_S:
            self._polled_s = now_s
            for node in self._nodes.values():
                node.ask()
        self._receive()
        for node in [handle for handle in self._nodes.values() if handle.overdue(self._clock())]:
            node.end("does not answer", crashed=False)
        for node in [handle for handle in self._nodes.values() if handle.joined and handle.files < self._version]:
            node.end("has joined during an edit of the pipeline; it starts again with it", crashed=False)
        for node in [handle for handle in self._nodes.values() if handle.failure]:
            self._lose(node)
        for node in [handle for handle in self._dying if self._clock() >= handle.free_at_s]:
            self._dying.remove(node)
            self._restarted(f"node {node.node.name} {node.failure}", self.sources.lose(node, crashed=node.crashed))
        if self._may_share_out(now_s):
            self._restarted("no node was left", self.sources.place_waiting())
        self._balance(now_s)

    def _look(self) -> None:
        """Look for nodes; on its own thread: Ray waits for up to a minute while its head does not answer."""
        try:
            self._alive = live_nodes(self._ray)
        except Exception as error:  # it may be back soon; else Ray ends this process
            self._warn(f"Ray's head does not answer: {describe(error)}")

    def _may_share_out(self, now_s: float) -> bool:
        """Whether sources may be given to nodes: those of the start are all ready, or had time after the first.

        They are given to none before the nodes of a head that was killed just before have certainly stopped them.
        """
        joined = [node for node in self._nodes.values() if node.joined]
        if joined and not self._first_ready_s:
            self._first_ready_s = now_s
        if now_s < self._started_s + LOST_S:
            return False
        waited = bool(joined) and now_s > self._first_ready_s + _TOGETHER_S
        self._shared_out = self._shared_out or waited or 0 < len(joined) == len(self._nodes)
        return self._shared_out

    def _start_new(self) -> None:
        """Start an actor on each node of the Ray cluster that has none."""
        now_s = self._clock()
        for node in self._alive or ():
            if node.id not in self._nodes and now_s >= self._retry_s.get(node.name, 0.0):
                job = replace(self._job, name=node.name, address=node.address, token=new_token())
                cursor = self._last_event(node.name)
                self._nodes[node.id] = start_node(self._ray, node, job, self._version, cursor, self._clock)
                logger.info(f"node {node.name} ({node.address}) starts")
        for handle in [
            handle for handle in self._nodes.values() if now_s - handle.heard_s > _START_S and not handle.joined
        ]:
            self._warn(
                f"node {handle.node.name} has not started yet: its CPU cores or GPUs are in use (see ray status)"
            )
        if self._alive == []:
            self._warn("the Ray cluster has no node with a free CPU core; waiting (see ray status)")

    def _receive(self) -> None:
        """Take the reports that arrive within a moment."""
        node_by_answer = {node.answer: node for node in self._nodes.values() if node.answer is not None}
        if not node_by_answer:
            time.sleep(_WAIT_S)
            return
        arrived, _ = self._ray.wait(list(node_by_answer), num_returns=1, timeout=_WAIT_S)
        if arrived:
            arrived, _ = self._ray.wait(list(node_by_answer), num_returns=len(node_by_answer), timeout=0)
        for answer in arrived:
            node = node_by_answer[answer]
            was_ready = node_by_answer[answer].takes_sources
            report = node.receive(self._ray)
            if report is not None:
                self._take(node, report)
                if node.takes_sources and not was_ready:
                    self._joined(node)

    def _joined(self, node: NodeHandle) -> None:
        """Take a node that is ready into the run."""
        if node.joined:  # its pipeline was rebuilt
            return
        node.joined = True
        self._measure()
        if self._settings:
            node.set(self._settings)
        self.sources.add_process(node)
        self._lost_by_name.pop(node.node.name, None)
        logger.info(f"node {node.node.name} is ready on {node.latest.device}")

    def _take(self, node: NodeHandle, report: NodeReport) -> None:
        """Take a node's report: its messages, its events and the states of its sources."""
        for message in report.messages:
            logger.log(_LEVELS.get(message.level, logging.INFO), f"node {node.node.name}: {message.text}")
        worker = report.worker
        now_s = time.monotonic()
        shift_s = now_s - worker.at_s
        worker.at_s = now_s
        worker.states = {id_: in_head_time(state, shift_s) for id_, state in worker.states.items()}
        self._add_events(node, report)
        if node.joined:
            self.sources.update(node, worker)
            for order, reason in report.refused.values():
                if self.states.get(order.id) is not None and not self.states[order.id].done:
                    text = f"on node {node.node.name}: {reason}"
                    if self.sources.refused(node, order, text):
                        logger.error(f"source {order.id} failed: {text}")

    def _add_events(self, node: NodeHandle, report: NodeReport) -> None:
        """Add a node's events to those of the cluster; each is named by its node and its number there."""
        for node_event in report.events:
            if node_event.number > node.cursor:
                node.cursor = node_event.number
                event = _with_node(node_event, node.node.name)
                self._gallery.add_events(node_event.time_s, [event], node_event.jpeg)
                self.alarms.seen(node_event.time_s, event)
        node.cursor = max(node.cursor if report.events else 0, report.events_until)

    # -------------------------------------------------------------------------------------------- lost and overloaded

    def _lose(self, node: NodeHandle) -> None:
        """Part with a node that is gone; its sources go to others once it has certainly stopped them."""
        name = node.node.name
        del self._nodes[node.node.id]
        node.kill(self._ray)
        times = self._lost_by_name[name][1] + 1 if name in self._lost_by_name else 0
        self._capacity.pop(node, None)
        if node.joined:
            times = 0
            self._dying.append(node)
            for id_ in self.sources.of(node):
                self.states[id_].set_state("reconnecting", *NODE_LOST)
            worker = node.latest.worker
            self._past.append(WorkerReport(worker.own, replace(worker.counts, queues={}), at_s=worker.at_s))
        self._lost_by_name[name] = node, times
        self._retry_s[name] = self._clock() + min(_RETRY_S, 2.0 ** (times + 1))
        logger.error(f"node {name} {node.failure}")

    def _restarted(self, failure: str, restarts: Iterable[RestartedSource]) -> None:
        """Log the restart of sources, and emit the event `restarted` of each on its new node."""
        restarted = list(restarts)
        if not restarted:
            return
        names = ", ".join(source.id for source in restarted)
        lost = sum(source.frames_lost for source in restarted)
        logger.warning(f"{failure}: its sources restart on another node ({names}); {lost} frames are lost")
        for source in restarted:
            if isinstance(owner := self.sources.owner(source.id), NodeHandle):
                owner.actor.publish.remote(source.event(failure))

    def _measure(self) -> dict[NodeHandle, NodeLoad]:
        """The load of each node, from which the capacities follow."""
        loads = {}
        for node in [handle for handle in self._nodes.values() if handle.joined and not handle.failure]:
            strength = node.latest.gpus * GPU_CORES or float(node.latest.cores)
            loads[node] = NodeLoad(self.sources.measured_load(node), node.latest.busy, strength)
        named = capacities({node.node.id: load for node, load in loads.items()})
        self._capacity = {node: named[node.node.id] for node in loads}
        return loads

    def _balance(self, now_s: float) -> None:
        """Move a source from an overloaded node to one with room, at times: it loses its tracks."""
        self._restarted("a node was overloaded", self.sources.finish_moves(lambda node, id_: node.reads(id_)))  # type: ignore[attr-defined]
        if now_s < self._balanced_s + _BALANCE_S:
            return
        self._balanced_s = now_s
        loads = {node: load.total / self._capacity[node] for node, load in self._measure().items()}
        if len(loads) < 2:
            return
        by_name = {node.node.name: node for node in loads}
        busiest = self.sources.loads_of(max(loads, key=loads.__getitem__))
        on_each = {
            name: {id_: load / self._capacity[node] for id_, load in busiest.items()} for name, node in by_name.items()
        }
        if (move := better_move({node.node.name: load for node, load in loads.items()}, on_each)) is not None:
            logger.info(f"source {move.source} moves from node {move.before}, which is overloaded, to {move.after}")
            self.sources.move(move.source, by_name[move.after])

    # ------------------------------------------------------------------------------------------------- changes

    def roll(self, graph: Graph, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Apply an edit of the pipeline's files, node by node.

        Args:
            graph: the graph of the new files.
            settings: options that the edit sets, by stage.

        Raises:
            ConfigError: a node rejects it. Then no node has it: those that did are back at the previous files.
        """
        new = self._pack()
        before = self._job.files
        done = list[NodeHandle]()
        while waiting := [handle for handle in self.ready_nodes() if handle.joined and handle.files <= self._version]:
            node = waiting[0]
            if reason := self._apply(node, new):
                for handle in [node, *done]:
                    handle.files = self._version
                    self._apply(handle, before)
                raise ConfigError(f"node {node.node.name}: {reason}")
            node.files = self._version + 1
            done.append(node)
            logger.info(f"node {node.node.name} runs the edited pipeline")
        self._version += 1
        self._job = replace(self._job, files=new, environment=environment(new[self._job.pipeline].decode()))
        with self._changing:
            self._settings = {
                id_: {name: value for name, value in values.items() if name not in settings.get(id_, {})}
                for id_, values in self._settings.items()
                if id_ in graph.nodes
            }
            for id_, values in self._settings.items():
                graph.nodes[id_].options = {**graph.nodes[id_].options, **values}
            follow_zones(graph)
            graph.sources = self.graph.sources
            self.graph = graph
            self.alarms.follow(graph.config.alarms)
            for node in list(self._nodes.values()):
                node.set(self._settings)

    def _apply(self, node: NodeHandle, files: Mapping[str, bytes]) -> str:
        """Let a node run with these files; return why it rejects them. A node that is lost gets them when it starts."""
        try:
            applied = node.actor.apply.remote(dict(files), dict(environment(files[self._job.pipeline].decode())))
            return str(self._ray.get(applied, timeout=_APPLY_S))
        except self._ray.exceptions.GetTimeoutError:
            return f"its stages were not open within {_APPLY_S:g} s"
        except self._ray.exceptions.RayActorError:
            node.end("was lost during an edit", crashed=False)
            return ""
        except self._ray.exceptions.RayError as error:  # it cannot write the files, for example
            return last_line(error)

    def _change_stage(self, node: Node, new: Mapping[str, Any], refused: Callable[[], None]) -> None:
        self._settings = {**self._settings, node.id: {**self._settings.get(node.id, {}), **new}}
        for handle in list(self._nodes.values()):
            handle.set(self._settings)

    def _trigger_stage(self, id_: str, source: str, data: Mapping[str, Any]) -> None:
        self.sources.send(source, messages.Trigger(id_, source, dict(data)))

    # --------------------------------------------------------------------------------------------------- views

    def node_of(self, source: str) -> NodeHandle | None:
        """The node that reads a source; None if there is none at present."""
        owner = self.sources.owner(source)
        return owner if isinstance(owner, NodeHandle) and owner.takes_sources else None

    def named(self, name: str | None) -> NodeHandle | None:
        """The node with that name; None if it is not there."""
        return next((node for node in self.ready_nodes() if node.node.name == name), None)

    def ready_nodes(self) -> list[NodeHandle]:
        """The nodes that run, by name."""
        ready = [node for node in list(self._nodes.values()) if node.takes_sources]
        return sorted(ready, key=lambda node: node.node.name)

    def nodes(self) -> list[NodeView]:
        """All nodes, also those that are lost, until they are back."""
        here = {node.node.name for node in list(self._nodes.values())}
        handles = [
            *self._nodes.values(),
            *(node for name, (node, _) in list(self._lost_by_name.items()) if name not in here),
        ]
        return sorted(map(self._view, handles), key=lambda view: view.name)

    def lost_nodes(self) -> list[str]:
        """The nodes that are not there, as problems for the page."""
        return [f"node {view.name} {view.message}" for view in self.nodes() if view.message]

    def _view(self, node: NodeHandle) -> NodeView:
        before = self._lost_by_name.get(node.node.name)
        failure = node.failure or ("" if before is None or node.takes_sources else before[0].failure)
        state = "lost" if node.failure else "ready" if node.takes_sources else "starting"
        ids = [] if node.failure else self.sources.of(node)
        return NodeView(node.node.name, node.node.address, state, failure, node.latest.device, node.latest.busy, ids)

    @property
    def devices(self) -> tuple[NodeDevice, ...]:
        """The devices of each node."""
        return tuple(NodeDevice(f"{node.node.name}: {node.latest.device}") for node in self.ready_nodes())

    @property
    def device(self) -> NodeDevice:
        """The first of them."""
        return next(iter(self.devices), NodeDevice("no node"))

    @property
    def ready(self) -> bool:
        """Whether a node accepts frames."""
        return any(node.latest.ready for node in self.ready_nodes())

    @property
    def opening(self) -> list[str]:
        """The nodes that start."""
        return [f"node {node.node.name}" for node in list(self._nodes.values()) if not node.takes_sources]

    def _reports(self) -> Sequence[WorkerReport]:
        return [*self._past, *(node.latest.worker for node in list(self._nodes.values()))]

    def run_counts(self) -> RunCounts:
        """All counts; see `Run`."""
        total = self._total()
        total.counts = self.counts()
        return total

    def counts(self) -> dict[str, int]:
        """See `PipelineRun.counts`; summed over all nodes."""
        totals = self._total("counts").counts
        return {**totals, LOST: self.sources.lost} if self.sources.lost else totals

    def queues(self) -> dict[str, int]:
        """See `PipelineRun.queues`; summed over all nodes."""
        return self._total("queues").queues

    def health(self) -> HealthSnapshot:
        """See `PipelineRun.health`; merged over all nodes."""
        now_s = time.monotonic()
        reports = [report for report in self._reports() if report.facts is not None]
        return merge_snapshots(
            [report.facts.aged(now_s - report.at_s, gone=False) for report in reports if report.facts is not None]
        )

    def report(self, exit_code: int) -> dict[str, Any]:
        """The report of the run: sums over all nodes."""
        total = self.run_counts()
        removed = self.sources.removed
        return {
            **headline(", ".join(map(str, self.devices)) or "no node", exit_code, total.frames, self.seconds),
            **total.report(),
            "sources": {id_: state.report() for id_, state in self.states.items()},
            **({"removed": removed.report()} if removed.sources else {}),
            "nodes": [{"node": view.name, "sources": view.sources} for view in self.nodes()],
        }


def _with_node(node_event: NodeEvent, node: str) -> Event:
    """The event with its node, and its number there."""
    return replace(node_event.event, data={**node_event.event.data, "node": node, "node_event": node_event.number})
