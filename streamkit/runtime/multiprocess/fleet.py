"""Runs a pipeline on several devices: one worker process per device, each with a part of the sources.

The parent process reads the YAML, assigns the sources round robin, and owns the sinks that sources of several processes
share, the messages, the counts and the exit code. It creates no CUDA context. One loop on the main thread
(`_supervise`) receives all messages and sends all orders; one thread per worker passes frames to the shared sinks.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from streamkit.config.alarms import wanted
from streamkit.config.plan import Graph
from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, OutputError, StageError, StreamkitError, describe
from streamkit.core.logs import stage_log, worker_log
from streamkit.core.stage import Context, RuntimeContext
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.future import start
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.ingest.sources import stream_numbers
from streamkit.runtime.multiprocess.children import (
    Child,
    SupervisedWorker,
    Supervisor,
    error_of,
    signals_held_back,
)
from streamkit.runtime.multiprocess.frame_ipc import SharedSinks
from streamkit.runtime.multiprocess.partition import assign_sources, shared_sinks
from streamkit.runtime.multiprocess.worker import WorkerConfig, work
from streamkit.runtime.observe.alarms import Alarms
from streamkit.runtime.observe.health import HealthSnapshot, Observer, emitters, folders, merge_snapshots
from streamkit.runtime.observe.report_merge import WorkerReport, add_up, frames_done, headline, latencies, own
from streamkit.runtime.observe.trace import Trace
from streamkit.runtime.pipeline import PipelineRun

logger = logging.getLogger(__name__)

_POLL_S, _AT_ONCE_S = 0.1, 0.5
_GRACE_S = 10.0
"""Time for a process to exit after the order to drop everything, or after it reports its end."""


@dataclass(slots=True, eq=False, kw_only=True)
class WorkerHandle(SupervisedWorker):
    """State of one worker process in the parent.

    Attributes:
        device: its device, as named in the YAML.
        sources: ids of its sources.
        frames: connection for its frames for shared sinks.
        receiver: thread that reads `frames`.
        latest: the counts that it last sent.
        complete: ids of the sources whose last frame has passed every stage.
        over: whether the process has exited, and its messages and frames were processed.
        code: its exit code, once it has reported its end.
        failure: how it died, if it exited without reporting its end.
        order: the last order sent to it.
        deadline_s: monotonic time in seconds at which it is killed.
    """

    device: str
    sources: list[str]
    frames: Any = None
    receiver: Any = None
    latest: WorkerReport = field(default_factory=WorkerReport)
    complete: set[str] = field(default_factory=set)
    over: bool = False
    code: int | None = None
    failure: str | None = None
    order: str = ""
    deadline_s: float = math.inf

    def send(self, order: str) -> None:
        """Send an order: `go`, `stop`, `abort` or `now`. Does nothing if the process has exited."""
        self.order = order
        if order == "abort":
            self.deadline_s = time.monotonic() + _GRACE_S
        self.child.send(order)

    def overdue(self, now_s: float) -> str | None:
        """The reason to kill it at this monotonic time; see `Supervisor`."""
        return f"the process of {self.device} does not end and is killed" if now_s > self.deadline_s else None


def prepare(
    graph: Graph, path: Path, set_: Mapping[str, str], *, limit: int | None = None, trace: Trace | None = None
) -> PipelineRun | WorkerFleet:  # fmt: skip
    """Create the run of a graph: in this process for one device, else with one worker process per device.

    Args:
        graph: the graph to run.
        path: the YAML it was read from; each worker process reads it again.
        set_: values that override the YAML.
        limit: maximum number of frames per source.
        trace: records the timeline of the run; one device only.

    Raises:
        DeviceError: a device does not exist.
        ConfigError: a sink or the state cannot be shared by several devices, or tracing is not possible.
    """
    shares = assign_sources(graph)
    for name in graph.config.device[len(shares) :] if isinstance(graph.config.device, list) else ():
        logger.warning(f"{name} is not used: there are more devices than sources")
    devices = [choose(name) for name, _ in shares]
    if len(shares) <= 1:
        return PipelineRun(graph, devices[0], limit=limit, trace=trace)
    if trace is not None:
        raise ConfigError(
            "--profile supports one process, but each device has its own; name one device, as in --device cuda:0"
        )
    return WorkerFleet(graph, shares, path, dict(set_), limit)


class WorkerFleet:
    """One run of a graph in several processes, with the interface of `PipelineRun`.

    Args:
        graph: the graph to run.
        shares: each device with the ids of its sources, from `assign_sources`.
        path: the YAML.
        set_: values that override the YAML.
        limit: maximum number of frames per source.
    """

    def __init__(
        self, graph: Graph, shares: list[tuple[str, list[str]]], path: Path, set_: dict[str, str], limit: int | None
    ) -> None:  # fmt: skip
        self.graph, self.limit = graph, limit
        self.states = {source.id: SourceState() for source in graph.sources}
        self.fatal: BaseException | None = None
        self.stopping = False
        self.seconds = 0.0
        self._workers = [WorkerHandle(device=device, sources=sources) for device, sources in shares]
        self._supervisor = Supervisor(WorkerHandle.overdue)
        self._path, self._set = path, set_
        self._aborted = False
        self._worker_log, self._stage_log, self._lock = worker_log(), stage_log(), threading.Lock()
        addresses = {source.id: str(source.options.get("uri", "")) for source in graph.sources}
        runtime = RuntimeContext(addresses=addresses, streams=stream_numbers(graph.sources))

        def context(id_: str) -> Context:
            return Context(id_, Device("cpu"), (1,), 1, Counters(), self._stage_log, runtime)

        self._sinks = SharedSinks(shared_sinks(graph), list(self.states), context, self.fail)
        alarms = graph.config.alarms
        runners = list(self._sinks.runners.values())
        self._observer = Observer(wanted(alarms), dict, runners, folders(graph))
        self.alarms = Alarms(alarms, self._health, runners, addresses, self.fail, self._ending)

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run to the end and return the exit code, as `PipelineRun.run` does.

        Raises:
            StreamkitError: the run could not start, or could not continue.
        """
        try:
            self._start()
            self._supervise(lambda: self.fatal is not None or all(m.ready or m.over for m in self._workers))
            self._aborted = self._aborted or self.fatal is not None  # from the first "go" on, `fail` decides
            if not self._aborted:
                self._sinks.open()
            begun = time.perf_counter()
            for worker in () if self._aborted else self._workers:
                worker.send("go")
            with self.alarms.evaluating():
                self._supervise(lambda: all(worker.over for worker in self._workers))
                self._sinks.close()
            self.seconds = time.perf_counter() - begun
        finally:
            self._end_now()
            self._sinks.abort()
        if self.fatal is not None:
            raise self.fatal
        if self.stopping:
            return 130
        failed = any(state.error for state in self.states.values()) or any(worker.code for worker in self._workers)
        return int(failed or any(one.meter.failed or one.meter.other_errors for one in self._sinks.runners.values()))

    def stop(self) -> None:
        """Stop the sources; decoded frames drain, and every file is closed.

        A second call ends the processes at once.
        """
        if self.stopping:
            self._end_now()
        self.stopping = True
        for _, emitter in emitters(self._sinks.runners.values()):
            emitter.begin_drain()

    def fail(self, error: BaseException) -> None:
        """End the run in all processes because of `error`, as `PipelineRun.fail` does."""
        with self._lock:
            if self.fatal is None:
                self.fatal = error if isinstance(error, StreamkitError) else StreamkitError(describe(error))
        if not isinstance(error, (OutputError, StageError)):
            self._aborted = True
            self._sinks.abort()

    # --------------------------------------------------------------------------------------------- the processes

    def _start(self) -> None:
        """Start the processes. Signals are blocked in them from their first moment: the parent handles signals."""
        shared = tuple(self._sinks.runners)
        with signals_held_back():
            for number, worker in enumerate(self._workers):
                worker.frames, frames = Pipe(duplex=False)
                job = WorkerConfig(
                    self._path, self._set, worker.device, tuple(worker.sources), shared, self.limit,
                    (number, len(self._workers)),
                )  # fmt: skip
                worker.child = Child(f"share/{number}", work, job, frames)
                self._supervisor.workers.append(worker)
                frames.close()
        for worker in self._workers:
            worker.receiver = start("receiver", partial(self._receive_frames, worker))

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
        """Receive messages of the processes and send orders to them, until `done`."""
        while not done():
            order = "abort" if self._aborted else "stop" if self.stopping or self.fatal else ""
            for worker in self._supervisor.workers:
                if order and worker.order != order:
                    worker.send(order)
            for worker, kind, value in self._supervisor.poll(_POLL_S):
                self._handle(worker, kind, value)
            for worker in self._workers:
                if worker.child.exited and not worker.over and not worker.receiver.is_alive():
                    self._finish(worker)

    def _handle(self, worker: WorkerHandle, kind: str, value: Any) -> None:
        if kind == "log":
            self._worker_log(*value)
        elif kind == "killed":
            logger.warning(value)
        elif kind == "ready":
            worker.ready = True
        elif kind == "fatal":
            self.fail(error_of(*value))
        elif kind == "report":
            worker.latest = value
            for id_, source in value.report["sources"].items():
                state = self.states[id_]
                state.frames, state.error, state.done = source["frames"], source.get("error"), id_ in value.done
        elif kind == "end":
            worker.code, worker.deadline_s = value, time.monotonic() + _GRACE_S
        elif kind == "exited" and worker.code is None:
            worker.failure = f"its process on {worker.device} {value}"

    def _finish(self, worker: WorkerHandle) -> None:
        """Mark a process that has exited as over; if it died, its unfinished sources have failed."""
        worker.over = True
        if worker.code is None and worker.failure is None:  # its `exited` message has not been handled
            worker.child.join(0.0)
            worker.failure = f"its process on {worker.device} {worker.child.exit_text}"
        for id_ in worker.sources:
            state = self.states[id_]
            state.done = True
            if worker.failure is not None and id_ not in worker.complete and state.error is None:
                state.error = worker.failure
                if self.fatal is None:
                    logger.error(f"source {id_} failed: {state.error}")

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
    def latency(self) -> dict[str, Histogram]:
        """See `PipelineRun.latency`; merged over all processes."""
        return latencies(self._reports())

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
        return {
            **headline(device, exit_code, found["frames"], self.seconds),
            **{key: found[key] for key in ("detections", "events", "counts")},
            "stages": {id_: found["stages"][id_] for id_ in dict.fromkeys(stages) if id_ in found["stages"]},
            "latency": found["latency"],
            "sources": {id_: self._source(id_) for id_ in self.states},
            "devices": [
                {"device": worker.device, "sources": worker.sources, **own(worker.latest)}
                | ({"error": worker.failure} if worker.failure else {})
                for worker in self._workers
            ],
            **({"alarms": alarms} if (alarms := self.alarms.report()) else {}),
        }

    def _ending(self) -> bool:
        return self.stopping or self.fatal is not None or all(state.done for state in self.states.values())

    def _health(self) -> HealthSnapshot:
        """Facts of all processes. Sources of a dead process are down; those of a silent process have no new frames."""
        now_s, parts = time.monotonic(), [self._observer.snapshot()]
        for worker in self._workers:
            if (known := worker.latest.facts) is not None:
                parts.append(known.aged(now_s - worker.latest.at_s, gone=worker.failure is not None))
        return merge_snapshots(parts)

    def _source(self, id_: str) -> dict[str, Any]:
        """A source's part of the report, with the error if its process died."""
        (worker,) = (worker for worker in self._workers if id_ in worker.sources)
        found, error = worker.latest.report.get("sources", {}).get(id_, {"frames": 0}), self.states[id_].error
        return {**found, "error": error} if error else found
