"""Runs a pipeline in several worker processes, each with a part of the sources.

The parent process reads the YAML, gives each worker its sources, and owns the sinks that sources of several processes
share, the state file, the alarms, the messages, the counts and the exit code. It creates no CUDA context. One loop on
the main thread (`_supervise`) receives all messages and ends the workers; one thread per worker passes frames to the
shared sinks. If a worker dies, its sources are restarted in the others; if all die, in new workers.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from streamkit.config.alarms import wanted
from streamkit.config.plan import Graph, Node
from streamkit.core.counters import Counters
from streamkit.core.data import Device, Event
from streamkit.core.errors import ConfigError, OutputError, StageError, StreamkitError, describe
from streamkit.core.logs import stage_log, worker_log
from streamkit.core.stage import Context, RuntimeContext
from streamkit.runtime.control.commands import Controls
from streamkit.runtime.control.state_store import StateStore
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.future import start
from streamkit.runtime.execution.graph_outputs import FrameListener
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.multiprocess.children import (
    Child,
    SupervisedWorker,
    Supervisor,
    error_of,
    signals_held_back,
)
from streamkit.runtime.multiprocess.fleet_sources import LOST, FleetSources
from streamkit.runtime.multiprocess.frame_ipc import SharedSinks
from streamkit.runtime.multiprocess.mps import MpsDaemon
from streamkit.runtime.multiprocess.partition import assign_sources, shared_sinks
from streamkit.runtime.multiprocess.process_count import plan_here, source_loads
from streamkit.runtime.multiprocess.worker import WorkerConfig, work
from streamkit.runtime.observe.alarms import WHOLE, Alarms
from streamkit.runtime.observe.health import HealthSnapshot, Observer, emitters, folders, merge_snapshots
from streamkit.runtime.observe.report_merge import (
    WorkerReport,
    add_up,
    finished_frames,
    frames_done,
    headline,
    latencies,
    own,
    queued,
    removed,
)
from streamkit.runtime.observe.trace import Trace
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.preview.remote import GalleryRelay
from streamkit.runtime.preview.stage import preview_graph

logger = logging.getLogger(__name__)

_POLL_S, _AT_ONCE_S = 0.1, 0.5
_GRACE_S = 10.0
"""Time for a process to exit after the order to drop everything, or after it reports its end."""
_INCIDENT_S = 0.5
"""Time after the death of a process in which others may die of the same cause, such as a fault of a shared GPU."""


@dataclass(slots=True, eq=False, kw_only=True)
class WorkerHandle(SupervisedWorker):
    """State of one worker process in the parent.

    Attributes:
        device: its device, as named in the YAML.
        number: its index, from 0; a process that replaces one has a number of its own.
        frames: connection for its frames for shared sinks.
        receiver: thread that reads `frames`.
        latest: the counts that it last sent.
        complete: ids of the sources whose last frame has passed every stage.
        over: whether the process has exited, and its messages and frames were processed.
        code: its exit code, once it has reported its end.
        failure: how it died, if it exited without reporting its end.
        lost: why it could no longer use its GPU.
        order: the last order sent to it of those that end it.
        deadline_s: monotonic time in seconds at which it is killed.
        additional: whether it was started for a source that was added; the run goes on if it cannot start.
    """

    device: str
    number: int = 0
    frames: Any = None
    receiver: Any = None
    latest: WorkerReport = field(default_factory=WorkerReport)
    complete: set[str] = field(default_factory=set)
    over: bool = False
    code: int | None = None
    failure: str | None = None
    lost: str = ""
    order: str = ""
    deadline_s: float = math.inf
    additional: bool = False
    guard: threading.Lock = field(default_factory=threading.Lock)

    def send(self, order: str, value: Any = None) -> None:
        """Send an order, from any thread. Does nothing if the process has exited."""
        if order == "abort":
            self.deadline_s = time.monotonic() + _GRACE_S
        with self.guard:
            self.child.send(order, value)

    def end(self, order: str) -> None:
        """Send an order that ends it, unless it was sent before."""
        if order and self.order != order:
            self.order = order
            self.send(order)

    @property
    def takes_sources(self) -> bool:
        """Whether it runs and does not end."""
        ended = self.order or self.code is not None or self.failure is not None
        return self.child is not None and not self.child.exited and not ended

    def overdue(self, now_s: float) -> str | None:
        """The reason to kill it at this monotonic time; see `Supervisor`."""
        return f"the process of {self.device} does not end and is killed" if now_s > self.deadline_s else None


def prepare(
    graph: Graph, path: Path, set_: Mapping[str, str], *, limit: int | None = None, trace: Trace | None = None,
    keep_running: bool = False, realtime: bool = False, gallery: Gallery | None = None,
) -> PipelineRun | WorkerFleet:  # fmt: skip
    """Create the run of a graph: in this process, or in several worker processes; see `process_count`.

    Args:
        graph: the graph to run.
        path: the YAML it was read from; each worker process reads its text again.
        set_: values that override the YAML.
        limit: maximum number of frames per source.
        trace: records the timeline of the run; one process only.
        keep_running: run until `stop`, even without sources: sources may be added later.
        realtime: play files at their own speed unless the YAML sets one.
        gallery: receives images of watched sources, and events.

    Raises:
        DeviceError: a device does not exist.
        ConfigError: a sink cannot be shared by several processes, or tracing is not possible.
    """
    one_process = "" if trace is None else "--profile shows one process"
    stored = graph  # with the sources that the run will have
    if graph.config.state is not None:
        stored = replace(graph, sources=StateStore(graph.config.state).sources(graph))
    plan = plan_here(stored, keep_running=keep_running, realtime=realtime, one_process=one_process)
    shares = assign_sources(stored, plan.counts, keep_running=keep_running)
    used = {name for name, _ in shares}
    for name in graph.config.device if isinstance(graph.config.device, list) else ():
        if name not in used:
            logger.warning(f"{name} is not used: there are more devices than sources")
    limits = [one.limit if keep_running else one.processes for one in plan.devices]
    for one, most in zip(plan.devices, limits, strict=True):
        if most > one.processes:
            logger.info(f"{one.reason}; up to {most} as sources are added")
        elif one.device.kind == "cuda":
            logger.info(one.reason)
    if len(shares) == 1 and limits == [1]:
        if gallery is not None:
            graph = preview_graph(graph.config, gallery)
        device = plan.devices[0].device
        return PipelineRun(graph, device, limit=limit, trace=trace, keep_running=keep_running, realtime=realtime)
    if trace is not None:
        raise ConfigError(
            "--profile supports one process, but each device has its own; name one device, as in --device cuda:0"
        )
    return WorkerFleet(
        graph, shares, path, dict(set_), limit=limit, keep_running=keep_running, realtime=realtime, gallery=gallery,
        process_limits=limits,
    )  # fmt: skip


class WorkerFleet(Controls):
    """One run of a graph in several processes, with the interface of `PipelineRun`.

    Args:
        graph: the graph to run.
        shares: each device with the ids of its sources, from `assign_sources`.
        path: the YAML.
        set_: values that override the YAML.
        limit: maximum number of frames per source.
        keep_running: run until `stop`, even without sources.
        realtime: play files at their own speed unless the YAML sets one.
        gallery: receives images of watched sources, and events.
        process_limits: how many processes there may be on each device of the YAML when sources are added; by default,
            those of `shares`.

    Attributes:
        devices: the devices that are used; `device` is the first of them.
        ready: whether every stage of every process is open and frames are accepted.
        restarted: number of sources that were restarted because their process died.
    """

    sources: FleetSources

    def __init__(
        self, graph: Graph, shares: list[tuple[str, list[str]]], path: Path, set_: dict[str, str], *,
        limit: int | None = None, keep_running: bool = False, realtime: bool = False, gallery: Gallery | None = None,
        process_limits: Sequence[int] = (),
    ) -> None:  # fmt: skip
        as_in_yaml = {id_: dict(node.options) for id_, node in graph.nodes.items()}
        super().__init__(graph)
        self._as_in_yaml = as_in_yaml
        self.devices = tuple(dict.fromkeys(choose(device) for device, _ in shares))
        self.device = self.devices[0]
        self.limit = limit
        self.fatal: BaseException | None = None
        self.stopping = self.ready = False
        self.seconds = 0.0
        self.restarted = 0
        self.opening: list[str] = []
        self.hung_threads: list[threading.Thread] = []
        self._shares, self._realtime, self._keep_running = shares, realtime, keep_running
        self._workers: list[WorkerHandle] = []
        self._limits = Counter(device for device, _ in shares)
        devices = graph.config.device if isinstance(graph.config.device, list) else [graph.config.device]
        self._limits |= Counter(dict(zip(devices, process_limits, strict=False)))
        self._starting, self._closed = threading.Lock(), False
        self._supervisor = Supervisor(WorkerHandle.overdue)
        self._path, self._set = path, set_
        self._aborted = False
        self._begun_s: float | None = None
        self._died_at_s: float | None = None
        self._refused: dict[tuple[str, tuple[str, ...]], Callable[[], None]] = {}
        self._worker_log, self._stage_log, self._lock = worker_log(), stage_log(), threading.Lock()
        self.sources = FleetSources(
            graph.sources, graph.config.sources, lambda: removed(worker.latest for worker in self._workers),
            keep_running, self._paused, source_loads(graph, realtime=realtime), self._start_another,
        )  # fmt: skip
        self._mps: MpsDaemon | None = None
        self._relay = None if gallery is None else GalleryRelay(gallery, self._watch)
        runtime = RuntimeContext(addresses=self.addresses, streams=self.streams)

        def context(id_: str) -> Context:
            return Context(id_, Device("cpu"), (1,), 1, Counters(), self._stage_log, runtime)

        self._sinks = SharedSinks(shared_sinks(graph), list(self.states), context, self.fail)
        alarms = graph.config.alarms
        runners = list(self._sinks.runners.values())
        self._observer = Observer(wanted(alarms), dict, runners, folders(graph))
        self.alarms = Alarms(alarms, self._health, runners, self.addresses, self.fail, self._ending)

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run to the end and return the exit code, as `PipelineRun.run` does.

        Raises:
            StreamkitError: the run could not start, or could not continue.
        """
        try:
            self._start_mps()
            for number, (device, ids) in enumerate(self._shares):
                self._start_worker(device, number, ids)
            self._supervise(lambda: self.fatal is not None or all(m.ready or m.over for m in self._workers))
            self._aborted = self._aborted or self.fatal is not None  # from the first "go" on, `fail` decides
            if not self._aborted:
                self._sinks.open()
            begun = self._begun_s = time.perf_counter()
            for worker in () if self._aborted else list(self._workers):
                worker.send("go")
            self.ready = not self._aborted
            with self.alarms.evaluating():
                self._supervise(lambda: all(worker.over for worker in self._workers))
                self._sinks.close()
            self.seconds = time.perf_counter() - begun
        finally:
            self.ready = False
            with self._starting:
                self._closed = True
            self._end_now()
            self._sinks.abort()
            if self._mps is not None:
                self._mps.close()
        if self.fatal is not None:
            raise self.fatal
        if self.stopping:
            return 130
        failed = self.sources.removed.failed or any(state.error for state in self.states.values())
        failed = failed or any(worker.code for worker in self._workers if worker.failure is None)
        return int(
            bool(failed or any(one.meter.failed or one.meter.other_errors for one in self._sinks.runners.values()))
        )

    def stop(self) -> None:
        """Stop the sources; decoded frames drain, and every file is closed.

        A second call ends the processes at once.
        """
        if self.stopping:
            self._end_now()
        self.stopping = self.sources.stopping = True
        for _, emitter in emitters(self._sinks.runners.values()):
            emitter.begin_drain()

    def fail(self, error: BaseException) -> None:
        """End the run in all processes because of `error`, as `PipelineRun.fail` does."""
        with self._lock:
            if self.fatal is None:
                self.fatal = error if isinstance(error, StreamkitError) else StreamkitError(describe(error))
        self.sources.stopping = True
        if not isinstance(error, (OutputError, StageError)):
            self._aborted = True
            self._sinks.abort()

    def _change_stage(self, node: Node, new: Mapping[str, Any], refused: Callable[[], None]) -> None:
        if node.id in self._sinks.runners:
            self._sinks.runners[node.id].change(new, refused)
            return

        def send() -> None:
            for worker in list(self._workers):
                worker.send("set", (node.id, {name: node.options[name] for name in new}))

        def refused_by_one() -> None:
            refused()
            send()  # the other processes may have accepted it

        self._refused[node.id, tuple(new)] = refused_by_one
        send()

    def _trigger_stage(self, id_: str, source: str, data: Mapping[str, Any]) -> None:
        self.sources.send(source, "trigger", (id_, source, dict(data)))

    def _watch(self, id_: str, until_s: float) -> None:
        """Let the process of a source make images of it until a monotonic time in seconds."""
        self.sources.send(id_, "watch", (id_, until_s))

    # --------------------------------------------------------------------------------------------- the processes

    def _start_mps(self) -> None:
        """Let processes that share a GPU use it at the same time."""
        if self.device.kind == "cuda" and any(limit > 1 for limit in self._limits.values()):
            self._mps = MpsDaemon()
            self._mps.start()
            logger.info(f"the pipeline {self._mps.reason}")

    def _start_another(self) -> WorkerHandle | None:
        """Start a process for a source that would overload the others; None if no more may run."""
        with self._starting:
            if not self.ready or self._closed or self._ending():
                return None
            running = Counter(worker.device for worker in self._workers if worker.takes_sources)
            free = [device for device, limit in self._limits.items() if running[device] < limit]
            if not free:
                return None
            device = min(free, key=lambda device: running[device])
            worker = self._start_worker(device, len(self._workers), [])
            worker.additional = True
        logger.info(f"a new source would overload the processes: process {running.total() + 1} starts on {device}")
        return worker

    def _give_up_starting(self, worker: WorkerHandle, error: StreamkitError) -> None:
        """Go on without an additional process that could not start: others take its sources."""
        worker.failure = f"another process on {worker.device} could not start: {error}"
        self._limits[worker.device] = max(1, sum(one.takes_sources for one in self._workers))

    def _start_worker(self, device: str, number: int, ids: list[str]) -> WorkerHandle:
        """Start a process. Signals are blocked in it from its first moment: the parent handles signals."""
        worker = WorkerHandle(device=device, number=number)
        orders = self.sources.add_process(worker, ids)
        with signals_held_back():
            worker.frames, frames = Pipe(duplex=False)
            job = WorkerConfig(
                self._path, self.graph.config.text, self._set, device, orders, tuple(self._sinks.runners),
                self._changed_settings(), self.limit, (number % len(self._shares), len(self._shares)), self._realtime,
                self._keep_running, self._relay is not None,
            )  # fmt: skip
            env = {} if self._mps is None else self._mps.environment
            worker.child = Child(f"worker/{device}/{number}", work, job, frames, env=env)
            self._workers.append(worker)
            self._supervisor.workers.append(worker)
            frames.close()
        worker.receiver = start("receiver", partial(self._receive_frames, worker))
        return worker

    def _changed_settings(self) -> dict[str, dict[str, Any]]:
        """Options that were changed since the YAML was read, by stage."""
        found = {}
        for id_, before in self._as_in_yaml.items():
            node = self.graph.nodes[id_]
            names = node.type.spec.changeable
            changed = {name: node.options[name] for name in names if node.options.get(name) != before.get(name)}
            if changed:
                found[id_] = changed
        return found

    def _receive_frames(self, worker: WorkerHandle) -> None:
        """Pass the frames of one process to the sinks, until the process has closed its pipe or exited."""
        try:
            while True:
                items = worker.frames.recv()
                worker.complete.update(source for sink, _, source in items if not sink)
                self._sinks.put([item for item in items if item[0]])
        except (EOFError, OSError):
            pass
        except BaseException as error:
            self.fail(error)

    def _supervise(self, done: Callable[[], bool]) -> None:
        """Receive messages of the processes, end them and restart their sources, until `done`."""
        while not done():
            order = "abort" if self._aborted else "stop" if self.stopping or self.fatal else ""
            if not order and self.sources.over and self._died_at_s is None:
                order = "finish"
            for worker in self._supervisor.workers:
                worker.end(order)
            for worker, kind, value in self._supervisor.poll(_POLL_S):
                self._handle(worker, kind, value)
            for worker in self._workers:
                if worker.child.exited and not worker.over and not worker.receiver.is_alive():
                    self._finish(worker)
            self._recover()

    def _handle(self, worker: WorkerHandle, kind: str, value: Any) -> None:
        if self._relay is not None and self._relay.handle(kind, value):
            return
        if kind == "log":
            self._worker_log(*value)
        elif kind == "killed":
            logger.warning(value)
        elif kind == "ready":
            worker.ready = True
            if self.ready:
                worker.send("go")
        elif kind == "fatal" and worker.additional and not worker.ready:
            self._give_up_starting(worker, error_of(*value))
        elif kind == "fatal":
            self.fail(error_of(*value))
        elif kind == "report":
            worker.latest = value
            self.sources.update(worker, value.states)
        elif kind == "set_refused":
            self._refused.pop(value, lambda: None)()
        elif kind == "lost":
            worker.lost = value
        elif kind == "refused":
            logger.warning(f"a process of the run did not carry out {value[0]}: {value[1]}")
        elif kind == "end":
            worker.code, worker.deadline_s = value, time.monotonic() + _GRACE_S
        elif kind == "exited" and worker.code is None:
            worker.failure = f"its process on {worker.device} {worker.lost or value}"

    def _finish(self, worker: WorkerHandle) -> None:
        """Mark a process that has exited as over; if it died, its unfinished sources are restarted soon."""
        worker.over = True
        if worker.code is None and worker.failure is None:  # its `exited` message has not been handled
            worker.child.join(0.0)
            worker.failure = f"its process on {worker.device} {worker.lost or worker.child.exit_text}"
        if worker.failure is not None and self._died_at_s is None:
            self._died_at_s = time.monotonic()

    def _recover(self) -> None:
        """Restart the sources of processes that have died, once others have had time to die of the same cause."""
        ending = self.stopping or self._aborted or self.fatal is not None
        if self._died_at_s is None or (time.monotonic() < self._died_at_s + _INCIDENT_S and not ending):
            return
        self._died_at_s = None
        dead = [worker for worker in self._workers if worker.failure is not None]
        lost = [(worker, ids) for worker in dead if (ids := self.sources.unfinished(worker, worker.complete))]
        if lost and self.ready and not ending and not any(worker.takes_sources for worker in self._workers):
            if self._mps is not None:
                self._mps.restart()
            for worker, _ in lost:
                self._start_worker(worker.device, len(self._workers), [])
        for worker, ids in lost:
            self._restart_sources(worker, ids, give_up=ending)

    def _restart_sources(self, worker: WorkerHandle, ids: list[str], *, give_up: bool) -> None:
        """Restart sources of a process that has died; mark those as failed that cannot be restarted."""
        failure, restarted, lost = str(worker.failure), [], 0
        for id_ in ids:
            found = None if give_up else self.sources.restart(id_, worker.latest.at_s)
            if found is None:
                again = self.sources.restarts_of(id_)
                why = failure + (f"; it was restarted {again} times within ten minutes" if again else "")
                self.sources.give_up(id_, why)
                if self.fatal is None:
                    logger.error(f"source {id_} failed: {why}")
                continue
            restarted.append(id_)
            lost += found
            self._report_restart(id_, failure, found)
        if restarted:
            names = ", ".join(restarted)
            logger.warning(f"{failure}: its sources restart in another process ({names}); {lost} frames are lost")

    def _report_restart(self, id_: str, failure: str, lost: int) -> None:
        """Emit the event `restarted` of a source."""
        self.restarted += 1
        if not self.sources.continues(id_):
            self._sinks.skip_repeated(id_)
        state = self.states[id_]
        data = {"cause": failure, "frames_lost": lost}
        if self.ready:
            self.alarms.publish(Event("restarted", WHOLE, id_, state.frames, state.pts_s, data=data))

    def _end_now(self) -> None:
        """End every process that still runs."""
        for worker in self._supervisor.workers:
            worker.send("now")
        self._supervisor.close(_AT_ONCE_S)

    # ------------------------------------------------------------------------------------------------- counting

    @property
    def frames(self) -> int:
        """Number of frames that reached the end of the graph."""
        return frames_done(self._reports())

    @property
    def elapsed_s(self) -> float:
        """See `PipelineRun.elapsed_s`."""
        return self.seconds or (0.0 if self._begun_s is None else time.perf_counter() - self._begun_s)

    @property
    def finished(self) -> dict[str, int]:
        """Frames by end of the graph; see `GraphOutputs.finished`."""
        return finished_frames(self._reports())

    @property
    def detections(self) -> dict[str, int]:
        """Objects by table."""
        return dict(add_up(self._reports())["detections"])

    @property
    def events(self) -> dict[str, int]:
        """Events by kind."""
        return dict(add_up(self._reports())["events"])

    @property
    def latency(self) -> dict[str, Histogram]:
        """See `PipelineRun.latency`; merged over all processes."""
        return latencies(self._reports())

    def counts(self) -> dict[str, int]:
        """See `PipelineRun.counts`; summed over all processes."""
        found: dict[str, int] = add_up(self._reports())["counts"]
        return {**found, LOST: self.sources.lost} if self.sources.lost else found

    def meters(self) -> dict[str, dict[str, Any]]:
        """See `PipelineRun.meters`; summed over all processes."""
        return dict(add_up(self._reports())["stages"])

    def queues(self) -> dict[str, int]:
        """See `PipelineRun.queues`; summed over all processes."""
        alive = [worker.latest for worker in self._workers if not worker.over]
        return {**queued(alive), **self._sinks.queues()}

    def listen(self, seen: FrameListener) -> None:
        """Pass the frames with events of the sinks that this process runs to `seen`."""
        self._sinks.listen(seen)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids: this process and the workers."""
        return os.getpid(), *(worker.child.pid for worker in self._workers if worker.child is not None)

    def frame_counts(self) -> list[tuple[int, float]]:
        """See `PipelineRun.frame_counts`; one entry per worker process."""
        return [(min(worker.latest.finished.values(), default=0), worker.latest.at_s) for worker in self._workers]

    def _reports(self) -> list[WorkerReport]:
        report = {**self._sinks.report(), "events": dict(self.alarms.events)}
        mine = WorkerReport(report, dict(self._sinks.finished), dict(self._sinks.latency))
        return [*(worker.latest for worker in self._workers), mine]

    def report(self, exit_code: int) -> dict[str, Any]:
        """The report of the run: sums over all processes, and each process's own values under `devices`."""
        found = add_up(self._reports())
        stages = [*self.graph.nodes, *found["stages"]]
        device = ", ".join(worker.device for worker in self._workers)
        gone = self.sources.removed
        return {
            **headline(device, exit_code, found["frames"], self.seconds),
            **{key: found[key] for key in ("detections", "events")},
            "counts": self.counts(),
            "stages": {id_: found["stages"][id_] for id_ in dict.fromkeys(stages) if id_ in found["stages"]},
            "latency": found["latency"],
            "sources": {id_: state.report() for id_, state in self.states.items()},
            **({"removed": gone.report()} if gone.sources else {}),
            **({"restarted": self.restarted} if self.restarted else {}),
            "devices": [
                {"device": worker.device, "sources": self.sources.of(worker), **own(worker.latest)}
                | ({"error": worker.failure} if worker.failure else {})
                for worker in self._workers
            ],
            **({"alarms": alarms} if (alarms := self.alarms.report()) else {}),
        }

    def _ending(self) -> bool:
        return self.stopping or self.fatal is not None or self.sources.over

    def _health(self) -> HealthSnapshot:
        """Facts of all processes. Sources of a dead process are down; those of a silent process have no new frames."""
        now_s, parts = time.monotonic(), [self._observer.snapshot()]
        for worker in self._workers:
            ids = self.sources.of(worker)
            if (known := worker.latest.facts) is not None and (ids or not worker.failure):
                own_facts = {id_: one for id_, one in known.sources.items() if id_ in ids}
                age_s = now_s - worker.latest.at_s
                parts.append(replace(known, sources=own_facts).aged(age_s, gone=worker.failure is not None))
        return merge_snapshots(parts)
