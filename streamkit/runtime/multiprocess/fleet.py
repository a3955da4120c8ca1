# SPDX-License-Identifier: Apache-2.0
"""Runs a pipeline in several worker processes, each with a part of the sources.

The parent process reads the YAML, gives each worker its sources, and owns the state file, the alarms, the messages,
the counts and the exit code. It runs the sinks that sources of several processes share, and the stages that look
across sources, with all stages below them. It creates no CUDA context. One loop on the main thread (`_supervise`)
receives all messages and ends the workers; one thread per worker passes frames to these stages. Each policy has a file
of its own: `source_scheduler.py` places sources, `growth.py` adds workers for them, `spare_workers.py` keeps one ready,
`recovery.py` restarts the sources of a worker that dies, and `spare_sessions.py` has its decoders ready.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from streamkit.config.plan import Graph, Node
from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import OutputError, StageError, StreamkitError, describe
from streamkit.core.logs import stage_log, worker_log
from streamkit.core.stage import Context, RuntimeContext, Sink
from streamkit.core.tracing import Spans
from streamkit.runtime.execution.cores import ParentCores, process_cores
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.sizes import batch_sizes
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.children import error_of
from streamkit.runtime.multiprocess.fleet_counts import FleetCounts
from streamkit.runtime.multiprocess.frame_ipc import ParentStages
from streamkit.runtime.multiprocess.growth import WorkerGrowth
from streamkit.runtime.multiprocess.lessons import gpu_lessons
from streamkit.runtime.multiprocess.partition import counted_across_sources, stages_across_sources
from streamkit.runtime.multiprocess.placement_policy import PlacementPolicy
from streamkit.runtime.multiprocess.prestart import end_idle, end_prestarted
from streamkit.runtime.multiprocess.process_count import figures_of, source_loads
from streamkit.runtime.multiprocess.recovery import Recovery
from streamkit.runtime.multiprocess.setting_changes import SettingChanges
from streamkit.runtime.multiprocess.source_scheduler import SourceScheduler
from streamkit.runtime.multiprocess.spare_sessions import SpareSessions
from streamkit.runtime.multiprocess.spare_workers import SpareWorkers
from streamkit.runtime.multiprocess.worker import WorkerConfig
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle
from streamkit.runtime.multiprocess.worker_processes import (
    THIS_MACHINE,
    Machine,
    WorkerProcesses,
    may_go,
    receive_frames,
)
from streamkit.runtime.observe.health import emitters
from streamkit.runtime.observe.report_merge import removed
from streamkit.runtime.observe.trace import Trace
from streamkit.runtime.observe.watchdog import Watchdog
from streamkit.runtime.pipeline import continue_lessons
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.preview.remote import GalleryRelay
from streamkit.runtime.preview.remote_live import LiveRelay
from streamkit.runtime.preview.stage import follow_stages
from streamkit.runtime.run import DEFAULT, RunConfig

logger = logging.getLogger(__name__)

_POLL_S = 0.1
_LONGEST_STEP_S = 1.0
"""If the parent itself did not run for longer, the processes were perhaps stopped with it, as Ctrl-Z does."""


def _policy(
    graph: Graph, device: Device, realtime: bool, start_another: Callable[[int], WorkerHandle | None]
) -> PlacementPolicy:
    """Return how sources are placed by the load that each is expected to be."""
    return PlacementPolicy(
        source_loads(graph, realtime=realtime, figures=figures_of(device)), start_another=start_another
    )


def _scheduler(
    graph: Graph,
    workers: list[WorkerHandle],
    policy: PlacementPolicy,
    paused: set[str],
    keep_running: bool,
    clock: Callable[[], float],
) -> SourceScheduler:
    """Return what places the sources of a graph on the workers."""
    return SourceScheduler(
        graph.sources,
        graph.config.sources,
        lambda: removed(worker.latest for worker in workers),
        keep_running,
        paused,
        policy,
        clock,
    )


def _relays(gallery: Gallery, sources: SourceScheduler) -> list[GalleryRelay | LiveRelay]:
    """Return what asks the workers for the images and videos that the gallery wants, and passes them on."""
    return [
        GalleryRelay(gallery, lambda id_, until_s: sources.send(id_, messages.Watch(id_, until_s))),
        LiveRelay(gallery.live, lambda id_, wish: sources.send(id_, messages.ViewLive(id_, wish))),
    ]


def _follow_stages_across_sources(graph: Graph, stages: ParentStages, gallery: Gallery) -> None:
    """Show the frames of the stages that look across sources in the gallery."""
    across = stages_across_sources(graph).values()
    follow_stages(stages, gallery, [node.id for node in across if not issubclass(node.type, Sink)])


class WorkerFleet(FleetCounts):
    """One run of a graph in several processes, a `Run`.

    Args:
        graph: the graph to run.
        shares: each device with the ids of its sources, from `assign_sources`.
        path: the YAML.
        set_: values that override the YAML.
        config: how to run it.
        gallery: receives images of watched sources, and events.
        trace: records the timeline of the run, of all its processes.
        process_limits: how many processes there may be on each device when sources are added; by default, those of
            `shares`.
        spare_limits: how many processes there may be on each device with a spare one among them; by default, none is
            kept.
        machine: what starts processes, and its clock.

    Attributes:
        ready: whether frames are accepted: every stage is open in every process, or in one if all sources are files.
        processes: the processes.
        spares: those that are kept ready for sources of a process that dies.
        recovery: restarts the sources of a process that dies.
        sessions: lets spare processes make NVDEC sessions ahead.
    """

    sources: SourceScheduler
    growth: WorkerGrowth
    hung_threads: Sequence[threading.Thread] = ()

    def __init__(
        self,
        graph: Graph,
        shares: list[tuple[str, list[str]]],
        path: Path,
        set_: dict[str, str],
        config: RunConfig = DEFAULT,
        *,
        gallery: Gallery | None = None,
        trace: Trace | None = None,
        process_limits: Mapping[str, int] = MappingProxyType({}),
        spare_limits: Mapping[str, int] = MappingProxyType({}),
        machine: Machine = THIS_MACHINE,
    ) -> None:
        as_in_yaml = {id_: dict(node.options) for id_, node in graph.nodes.items()}
        super().__init__(graph, shares, machine.clock)
        self.limit = config.limit
        self.fatal: BaseException | None = None
        self.stopping = self.ready = False
        self._config = config
        self._path = path
        self._set = set_
        self._trace = trace
        self._spans = Spans if trace is None else trace.current_track
        self._trace_events = 0 if trace is None else trace.share(len(shares))
        self._aborted = False
        self._worker_log = worker_log()
        self._stage_log = stage_log()
        self._lock = threading.Lock()
        devices = [device for device, _ in shares]
        self.processes = WorkerProcesses(
            devices,
            self._job,
            lambda worker: receive_frames(worker, self._stages, self.sources, self.fail),
            self._changing,
            machine,
        )
        workers = self.processes.workers
        policy = _policy(graph, self.device, config.realtime, lambda beyond: self.growth.start_another(beyond))
        self.sources = _scheduler(graph, workers, policy, self._paused, config.keep_running, machine.clock)
        self.sources.assign_first(zip(workers, (ids for _, ids in shares), strict=True), config.refused)
        self.spares = SpareWorkers(
            self.processes, self.sources, spare_limits, self._ending, self._changing, machine.clock
        )
        self.processes.parts += self.spares.lacking()
        limits = Counter(devices) | Counter(process_limits)
        self.growth = WorkerGrowth(
            self.processes, self.spares, self.sources, limits, lambda: self.ready and not self._ending()
        )
        self.sessions = SpareSessions(workers, machine.clock)
        self._settings = SettingChanges(as_in_yaml, workers, self._changing)
        self._lessons = gpu_lessons(self, self.devices, lambda: self.sessions.open_sessions)
        self._relays: list[GalleryRelay | LiveRelay] = [] if gallery is None else _relays(gallery, self.sources)
        pinned = all(choose(worker.device).kind == "cuda" for worker in workers)
        self._parent_cores = ParentCores(self.processes.parts if pinned else 0)
        self._stages = ParentStages(graph, list(self.states), self._context, self.fail, self.sources.owner, self._spans)
        if gallery is not None:  # the workers' previews are above these stages
            _follow_stages_across_sources(graph, self._stages, gallery)
        self.recovery = Recovery(
            self,
            self.processes,
            self.sources,
            self.spares,
            self._stages,
            changing=self._changing,
            keep_running=config.keep_running,
            clock=machine.clock,
        )
        self._watchdog = Watchdog(graph.config.watchdog_s, list(self._stages.runners.values()))
        self._start_counting(self.fail, self._ending)

    def _context(self, id_: str) -> Context:
        """What a stage of this process gets."""
        sizes = batch_sizes(self.graph.config.batch.size, self.device)
        runtime = RuntimeContext(
            spans=self._spans(),
            addresses=self.addresses,
            streams=self.streams,
            stage_state=self.stage_state(id_),
            carried=self.carried_state(id_),
        )
        return Context(id_, Device("cpu"), sizes, 1, Counters(), self._stage_log, runtime)

    def _job(self, worker: WorkerHandle) -> WorkerConfig:
        """What a process is to run: until it is ended, and ready for the live sources that it may get."""
        config = RunConfig(
            limit=self.limit,
            keep_running=True,
            realtime=self._config.realtime,
            live_may_come=self._config.keep_running,
            expected_live=worker.expected_live,
        )
        if self._trace is not None:
            self._trace.expect(worker.name)
        return WorkerConfig(
            self._path,
            self.graph.config.text,
            self._set,
            worker.device,
            self.sources.first_orders(worker),
            tuple(self._stages.runners),
            self._settings.since_yaml(self.graph),
            (worker.part, self.processes.parts),
            process_cores(),
            config,
            bool(self._relays),
            self._trace_events,
            tuple(sorted(counted_across_sources(self.graph))),
            self.carried,
        )

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run to the end and return the exit code, as `PipelineRun.run` does.

        Raises:
            StreamkitError: the run could not start, or could not continue.
        """
        try:
            self._start()
            start_s = self._start_s = self._clock()
            for worker in [] if self._aborted else [worker for worker in self.processes.workers if worker.ready]:
                worker.send(messages.Go())
            self.ready = not self._aborted
            with self._parent_cores, self.alarms.evaluating():
                self._supervise(
                    lambda: not self.recovery.dead and all(worker.over for worker in self.processes.workers)
                )
                self._stages.close()
            self.seconds = self._clock() - start_s
        finally:
            self.processes.close()
            self._stages.abort()
            self.processes.close_mps()
        if self.fatal is not None:
            raise self.fatal
        return 130 if self.stopping else self._exit_code()

    def _start(self) -> None:
        """Start the processes, and wait until frames may be read."""
        self.processes.start_first()
        self.spares.start()
        end_idle()
        if any(device.kind == "cuda" for device in self.devices) and max(self.growth.limits.values()) > 1:
            self.processes.start_mps()  # while the workers import packages
        end_prestarted()
        for worker in list(self.processes.workers):
            self.processes.begin(worker)

        def may_read() -> bool:
            files_only = not self._config.keep_running and not any(map(self.sources.live, self.processes.workers))
            return self.fatal is not None or may_go(self.processes.workers, files_only=files_only)

        self._supervise(may_read)
        self._aborted = self._aborted or self.fatal is not None  # from the first `Go` on, `fail` decides
        if not self._aborted:
            self._stages.open()
            if self._trace is not None:
                self._trace.start(self._stages.lanes)

    def stop(self) -> None:
        """Stop the sources; decoded frames drain, and every file is closed.

        A second call ends the processes at once.
        """
        if self.stopping:
            self.processes.end_now()
        self.stopping = self.sources.stopping = True
        for _, emitter in emitters(self._stages.runners.values()):
            emitter.begin_drain()

    def fail(self, error: BaseException) -> None:
        """End the run in all processes because of `error`, as `PipelineRun.fail` does."""
        with self._lock:
            if self.fatal is None:
                self.fatal = error if isinstance(error, StreamkitError) else StreamkitError(describe(error))
        self.sources.stopping = True
        if not isinstance(error, (OutputError, StageError)):
            self._aborted = True
            self._stages.abort()

    def _ending(self) -> bool:
        return self.stopping or self.fatal is not None or self.sources.over

    def _change_stage(self, node: Node, new: Mapping[str, Any], refused: Callable[[], None]) -> None:
        if node.id in self._stages.runners:
            self._stages.runners[node.id].change(new, refused)
        else:
            self._settings.send(node, tuple(new), refused)

    def _change_rules(self, node: Node) -> None:
        if node.id in self._stages.runners:  # the processes follow the change of the stage above by themselves
            self._stages.runners[node.id].change({"above": node.options["above"]})

    def _forget_source(self, id_: str) -> None:
        self._stages.forget_source(id_)

    def _trigger_stage(self, id_: str, source: str, data: Mapping[str, Any]) -> None:
        if id_ in self._stages.runners:
            for stage in self._stages.runners[id_].instances():
                stage.trigger(source, **data)  # type: ignore[attr-defined]
            return
        self.sources.send(source, messages.Trigger(id_, source, dict(data)))

    # --------------------------------------------------------------------------------------------- the processes

    def _supervise(self, done: Callable[[], bool]) -> None:
        """Receive messages of the processes, end them and restart their sources, until `done`."""
        before_s = self._clock()
        while not done():
            now_s = self._clock()
            self.processes.pass_time(min(now_s - before_s, _LONGEST_STEP_S))
            before_s = now_s
            self.processes.end(self._ending_order())
            for worker, message in self.processes.poll(_POLL_S):
                self._handle(worker, message)
            self._watchdog.check()
            for worker in self.processes.workers:
                if worker.exited and not worker.over and not worker.receiver.is_alive():
                    self.recovery.finish(worker)
            ending = self.stopping or self._aborted or self.fatal is not None
            if self.recovery.dead and (ending or (self.ready and self.recovery.is_due())):
                self.recovery.recover(ending)
            if self.ready:  # the start may use all cores
                self._parent_cores.leave({worker.part for worker in self.processes.workers if worker.takes_sources})
                self.sessions.keep_ready()
            continue_lessons(self._lessons, self._clock())
            if self.ready and not self.recovery.dead and self.spares.is_due():
                for worker in self.spares.start():
                    self.processes.begin(worker)

    def _ending_order(self) -> messages.EndingOrder | None:
        """How all processes are to end now; None if they go on."""
        if self._aborted:
            return messages.Abort()
        if self.stopping or self.fatal:
            return messages.Stop()
        return messages.Finish() if self.sources.over and not self.recovery.dead else None

    def _handle(self, worker: WorkerHandle, message: Any) -> None:
        if any(relay.handle(message) for relay in self._relays):
            return
        match message:
            case messages.Logged(record):
                self._worker_log(*record)
            case messages.Killed(reason):
                logger.warning(reason)
            case messages.Ready():
                worker.ready = True
                self.sessions.postpone()
                if self.ready:
                    worker.send(messages.Go())
            case messages.Fatal(kind, text) if worker.additional and not worker.ready:
                self.growth.give_up(worker, error_of(kind, text))
            case messages.Fatal(kind, text):
                self.fail(error_of(kind, text))
            case messages.Report(report):
                worker.latest = report
                if not worker.spare:
                    self.sources.update(worker, report)
            case messages.SessionsInUse(samples):
                self.sessions.update(worker, samples)
            case messages.SessionsAhead(number):
                worker.sessions_ahead = number
            case messages.TraceRecording(recording) if self._trace is not None:
                self._trace.receive(worker.name, recording)
            case messages.SetRefused(number):
                self._settings.restore(number)
            case messages.Lost(reason):
                worker.lost = reason
            case messages.Hangs(reason):
                worker.hangs = worker.hangs or reason
            case messages.Refused(messages.Add(source), reason):
                if self.sources.refused(worker, source, reason) and not self._ending():
                    logger.error(f"source {source.id} failed: {reason}", extra={"source": source.id})
            case messages.Refused(order, reason):
                logger.warning(f"the process of {worker.device} did not carry out {messages.name_of(order)}: {reason}")
            case messages.End(exit_code):
                worker.end_reported(exit_code)
            case messages.Exited(how):
                worker.exit_reported(how)
