# SPDX-License-Identifier: Apache-2.0
"""Runs a pipeline in several worker processes, each with a part of the sources.

The parent process reads the YAML, gives each worker its sources, and owns the state file, the alarms, the messages,
the counts and the exit code. It runs the sinks that sources of several processes share, and the stages that look
across sources, with all stages below them. It creates no CUDA context. One loop on the main thread (`_supervise`)
receives all messages and ends the workers; one thread per worker passes frames to these stages. If a worker dies or
hangs, its sources are restarted in a spare worker, which then is no longer spare; without one, in the others, or in new
workers where these have no room; see `FleetSources`.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from streamkit.config.alarms import wanted
from streamkit.config.plan import Graph, Node
from streamkit.core.counters import Counters
from streamkit.core.data import Device, Event
from streamkit.core.errors import DeviceError, OutputError, StageError, StreamkitError, describe
from streamkit.core.logs import stage_log, worker_log
from streamkit.core.stage import Context, RuntimeContext, Sink
from streamkit.core.tracing import Spans
from streamkit.media.gpu_figures import SESSIONS
from streamkit.media.nv_sessions import SessionKey, SessionSample, open_count
from streamkit.models.versions import decoding_versions
from streamkit.runtime.control.commands import Controls
from streamkit.runtime.control.state_store import StateStore
from streamkit.runtime.execution.cores import ParentCores, process_cores
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.future import start
from streamkit.runtime.execution.graph_outputs import FrameListener
from streamkit.runtime.execution.sizes import batch_sizes
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.children import (
    Child,
    SupervisedWorker,
    Supervisor,
    error_of,
    reap_dying,
    signals_held_back,
)
from streamkit.runtime.multiprocess.fleet_sources import LOST, FleetSources, RestartedSource
from streamkit.runtime.multiprocess.frame_ipc import ParentStages, frame_pipe
from streamkit.runtime.multiprocess.mps import MpsDaemon
from streamkit.runtime.multiprocess.partition import (
    assign_sources,
    counted_across_sources,
    stages_across_sources,
)
from streamkit.runtime.multiprocess.prestart import end_idle, end_prestarted, take_prestarted, take_prestarted_daemon
from streamkit.runtime.multiprocess.process_count import (
    figures_of,
    leaves_out_frames,
    lock_lesson,
    plan_here,
    source_loads,
)
from streamkit.runtime.multiprocess.session_limit import session_limits, sources_beyond
from streamkit.runtime.multiprocess.worker import WorkerConfig, work
from streamkit.runtime.observe import telemetry
from streamkit.runtime.observe.alarms import WHOLE, Alarms
from streamkit.runtime.observe.event_counts import EventCounter, sum_event_counts
from streamkit.runtime.observe.health import HealthSnapshot, Observer, emitters, folders, merge_snapshots
from streamkit.runtime.observe.nvml import Nvml
from streamkit.runtime.observe.report_merge import (
    MergedCounts,
    WorkerReport,
    add_up,
    headline,
    queued,
    removed,
    unmerged_fields,
)
from streamkit.runtime.observe.trace import Trace
from streamkit.runtime.observe.watchdog import Watchdog
from streamkit.runtime.pipeline import QUICK_SOURCES, PipelineRun, continue_lessons
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.preview.live import LiveWish
from streamkit.runtime.preview.remote import GalleryRelay
from streamkit.runtime.preview.remote_live import LiveRelay
from streamkit.runtime.preview.stage import follow_stages, preview_graph
from streamkit.runtime.run import DEFAULT, RunConfig

logger = logging.getLogger(__name__)

_POLL_S, _AT_ONCE_S, _DYING_S = 0.1, 0.5, 5.0
_GRACE_S = 10.0
"""Time for a process to exit after the order to drop everything, or after it reports its end."""
_INCIDENT_S, _GPU_INCIDENT_S = 0.5, 1.5
"""Time after the death of a process in which others may die of the same cause: of any, and of one that has lost its
GPU. A fault under MPS ends all its clients; an idle one checks its GPU every 0.5 s."""
SILENT_S = 15.0
"""Time without a report after which a process hangs. It reports every 0.5 s on a thread of its own, also while its
stages wait. That thread can be late because the machine is overloaded, which is a matter of seconds, or because a
library holds the GIL: ONNX Runtime does while it loads a network, at most a few seconds for several GB. Before a
process is ready there is no limit: TensorRT builds its engines then, for minutes."""
_SPARE_AFTER_S = 10.0
"""Time after sources have moved to a spare process until the next one starts: they run again by then, and it tunes its
networks beside them."""
_FREE_SESSIONS = 16
"""Number of NVDEC sessions that are left to sources: none are made ahead beyond the others."""
_SESSIONS_AFTER_S = 5.0
"""Time without a change of the sessions in use until others are made ahead: they would delay sources that start."""
_SESSIONS_LATEST_S = 60.0
"""Time after the first change until others are made ahead anyway: among many cameras, some always reconnect."""
_MAX_SPARE_DEATHS = 3
"""If so many spare processes of a device have died within ten minutes, no further one starts."""
_SPARE_DEATHS_WITHIN_S = 600.0
_LONGEST_STEP_S = 1.0
"""If the parent itself did not run for longer, the processes were perhaps stopped with it, as Ctrl-Z does."""


@dataclass(slots=True, eq=False, kw_only=True)
class WorkerHandle(SupervisedWorker):
    """State of one worker process in the parent.

    Attributes:
        device: its device, as named in the YAML.
        number: its index, from 0; a process that replaces one has a number of its own.
        part: which share of the cores it has, from 0.
        frames: connection for its frames for the parent's stages.
        receiver: thread that reads `frames`.
        latest: the counts that it last sent.
        exited: whether the process has exited, and its messages were processed.
        over: whether its frames were processed, too.
        code: its exit code, once it has reported its end.
        failure: how it died, if it exited without reporting its end.
        silent_s: seconds without a message, as far as this process ran.
        lost: why it could no longer use its GPU.
        hangs: why it must be killed, as it has reported.
        order: the last order sent to it of those that end it.
        deadline_s: monotonic time in seconds at which it is killed.
        additional: whether the run goes on if it cannot start: it was started as a spare, or for an added source.
        spare: whether it is kept ready for sources of a process that dies, and has none of its own.
        expected_live: number of live sources that a spare process may get at once.
        sessions: the NVDEC sessions that its sources use.
        made_ahead: how many of those that a spare process has made ahead it still has.
    """

    device: str
    number: int = 0
    part: int = 0
    frames: Any = None
    receiver: Any = None
    latest: WorkerReport = field(default_factory=WorkerReport)
    exited: bool = False
    over: bool = False
    code: int | None = None
    failure: str | None = None
    silent_s: float = 0.0
    lost: str = ""
    hangs: str = ""
    order: messages.EndingOrder | None = None
    deadline_s: float = math.inf
    additional: bool = False
    spare: bool = False
    expected_live: int = 0
    sessions: dict[SessionKey, SessionSample] = field(default_factory=dict)
    made_ahead: int = 0
    guard: threading.RLock = field(default_factory=threading.RLock)  # a signal may interrupt the main thread in `send`

    @property
    def name(self) -> str:
        """Its name in the timeline."""
        return f"worker {self.number}"

    @property
    def title(self) -> str:
        """The process as the subject of a message to the user."""
        return f"{'the spare' if self.spare else 'its'} process on {self.device}"

    def send(self, order: messages.Order) -> None:
        """Send an order, from any thread. Does nothing if the process has not started or has exited."""
        if isinstance(order, messages.Abort):
            self.deadline_s = time.monotonic() + _GRACE_S
        with self.guard:
            if self.child is not None:
                self.child.send(order)

    def end(self, order: messages.EndingOrder | None) -> None:
        """Send an order that ends it, unless it was sent before."""
        if order is not None and self.order != order:
            self.order = order
            self.send(order)

    @property
    def runs(self) -> bool:
        """Whether it runs, or will be started, and does not end."""
        return not (self.exited or self.order or self.failure) and self.code is None

    @property
    def takes_sources(self) -> bool:
        """Whether it runs and is no spare process."""
        return self.runs and not self.spare

    @property
    def unexpected(self) -> bool:
        """See `SupervisedWorker.unexpected`: it has not reported its end."""
        return self.code is None

    def overdue(self, now_s: float) -> str | None:
        """The reason to kill it at this monotonic time; see `Supervisor`."""
        if now_s > self.deadline_s:
            return f"{self.title} does not end and was killed"
        if self.ready and self.silent_s > SILENT_S:
            return f"{self.title} has not reported for {SILENT_S:g} s and was killed"
        return f"{self.title} {self.hangs}" if self.hangs else None


def _peak_session_demand(
    sessions_by_worker: Sequence[Mapping[SessionKey, SessionSample]], limit: int
) -> list[SessionSample]:
    """What the sources of any one of these processes need, `limit` sessions at most, the most frequent kind first."""
    peaks: dict[SessionKey, SessionSample] = {}
    for sessions in sessions_by_worker:
        for key, session in sessions.items():
            peaks[key] = max(peaks.get(key, session), session, key=lambda sample: sample.number)
    demand = []
    for peak in sorted(peaks.values(), key=lambda sample: (-sample.number, sample.key)):
        number = min(peak.number, limit)
        limit -= number
        if number > 0:
            demand.append(peak._replace(number=number))
    return demand


def prepare(
    graph: Graph, path: Path, set_: Mapping[str, str], config: RunConfig = DEFAULT, *, trace: Trace | None = None,
    gallery: Gallery | None = None,
) -> PipelineRun | WorkerFleet:  # fmt: skip
    """Create the run of a graph: in this process, or in several worker processes; see `process_count`.

    Args:
        graph: the graph to run.
        path: the YAML it was read from; each worker process reads its text again.
        set_: values that override the YAML.
        config: how to run it.
        trace: records the timeline of the run, of all its processes.
        gallery: receives images of watched sources, and events.

    Raises:
        DeviceError: a device does not exist.
        ConfigError: a sink cannot be shared by several processes.
    """
    stored = graph  # with the sources that the run will have
    if graph.config.state is not None:
        stored = replace(graph, sources=StateStore(graph.config.state).sources(graph))
    keep_running = config.keep_running
    plan = plan_here(stored, keep_running=keep_running, realtime=config.realtime)
    shares = assign_sources(stored, plan.counts, keep_running=keep_running)
    used = {name for name, _ in shares}
    for name in graph.config.device if isinstance(graph.config.device, list) else ():
        if name not in used:
            logger.warning(f"{name} is not used: there are more devices than sources")
    limits = [device_plan.limit if keep_running else device_plan.processes for device_plan in plan.devices]
    for device_plan, process_limit in zip(plan.devices, limits, strict=True):
        if process_limit > device_plan.processes:
            logger.info(f"{device_plan.reason}; up to {process_limit} as sources are added")
        elif device_plan.device.kind == "cuda":
            logger.info(device_plan.reason)
        if device_plan.overload:
            logger.warning(device_plan.overload)
    by_device = {
        str(device_plan.device): process_limit for device_plan, process_limit in zip(plan.devices, limits, strict=True)
    }
    names = graph.config.device if isinstance(graph.config.device, list) else [graph.config.device]
    chosen = dict(zip(names, by_device, strict=False))  # `auto` is chosen here, for all processes
    shares = [(chosen[name], ids) for name, ids in shares]
    limits_of_gpus = session_limits(device_plan.device for device_plan in plan.devices)
    refused = sources_beyond(stored.sources, shares, limits_of_gpus, realtime=config.realtime)
    config = replace(config, refused=refused)
    if len(shares) == 1 and limits == [1]:
        end_prestarted(wait=True)
        if gallery is not None:
            graph = preview_graph(graph.config, gallery)
        device = plan.devices[0].device
        run = PipelineRun(graph, device, config, trace=trace, live=None if gallery is None else gallery.live)
        run.lessons = _lessons_of_one_process(run, graph, device, watched=gallery is not None)
        return run
    return WorkerFleet(
        graph, shares, path, dict(set_), config, gallery=gallery, trace=trace, process_limits=by_device,
        spare_limits={str(planned.device): planned.spare_limit for planned in plan.devices if planned.spare_limit},
    )  # fmt: skip


def _lessons_of_one_process(
    run: PipelineRun, graph: Graph, device: Device, watched: bool
) -> list[Callable[[float], None]]:
    if device.kind != "cuda":
        return []
    gpu_lesson = _gpu_lesson(run, device, lambda: open_count(device.index))
    return [gpu_lesson] if watched else [gpu_lesson, lock_lesson(run, graph, device)]  # images hold the lock, too


def _gpu_lesson(
    run: PipelineRun | WorkerFleet, device: Device, open_sessions: Callable[[], int]
) -> Callable[[float], None]:
    from streamkit.runtime.observe.gpu_lessons import GpuLesson

    gpu = decoding_versions(device.index)
    return GpuLesson(gpu, lambda: run.states, open_sessions, Nvml(device.index), leaves_out_frames(run.graph))


class WorkerFleet(MergedCounts, Controls):
    """One run of a graph in several processes, with the interface of `PipelineRun`.

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

    Attributes:
        devices: the devices that are used; `device` is the first of them.
        ready: whether frames are accepted: every stage is open in every process, or in one if all sources are files.
        restarted: number of sources that were restarted because their process died.
    """

    sources: FleetSources

    def __init__(
        self, graph: Graph, shares: list[tuple[str, list[str]]], path: Path, set_: dict[str, str],
        config: RunConfig = DEFAULT, *, gallery: Gallery | None = None, trace: Trace | None = None,
        process_limits: Mapping[str, int] = MappingProxyType({}),
        spare_limits: Mapping[str, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        as_in_yaml = {id_: dict(node.options) for id_, node in graph.nodes.items()}
        super().__init__(graph)
        self._as_in_yaml = as_in_yaml
        self.devices = tuple(dict.fromkeys(choose(device) for device, _ in shares))
        self.device = self.devices[0]
        self.limit = config.limit
        self._config = config
        self.fatal: BaseException | None = None
        self.stopping = self.ready = False
        self.seconds = 0.0
        self.restarted = 0
        self.hung_threads: list[threading.Thread] = []
        self._shares = shares
        self._workers = [WorkerHandle(device=device, number=number) for number, (device, _) in enumerate(shares)]
        self._limits = Counter(device for device, _ in shares)
        self._limits |= Counter(process_limits)
        self._spare_limits, self._spares_at_s = dict(spare_limits), 0.0
        self._spare_deaths: dict[str, list[float]] = {device: [] for device in spare_limits}
        self._starting, self._closed = threading.RLock(), False
        self._sessions_at_s = self._sessions_latest_s = math.inf
        self._supervisor = Supervisor(self._overdue)
        self._path, self._set = path, set_
        self._aborted = False
        self._begun_s: float | None = None
        self._dead: list[WorkerHandle] = []  # those whose sources were not restarted yet
        self._died_at_s = 0.0
        self._settings, self._failed_exports = itertools.count(1), telemetry.FailedExports()
        self._refused: dict[tuple[str, tuple[str, ...]], tuple[int, Callable[[], None]]] = {}
        self._worker_log, self._stage_log, self._lock = worker_log(), stage_log(), threading.Lock()
        loads = source_loads(graph, realtime=config.realtime, figures=figures_of(self.device))
        self.sources = FleetSources(
            graph.sources, graph.config.sources, lambda: removed(worker.latest for worker in self._workers),
            config.keep_running, self._paused, loads, self._start_another,
        )  # fmt: skip
        self._lessons = self._gpu_lessons()
        self._mps: MpsDaemon | None = None
        self._relay = None if gallery is None else GalleryRelay(gallery, self._watch)
        self._live_relay = None if gallery is None else LiveRelay(gallery.live, self._view)
        self._assign_sources(config.refused)
        self._parts = len(shares) + sum(map(bool, map(self._lacks_spare, self._spare_limits)))
        pinned = all(choose(worker.device).kind == "cuda" for worker in self._workers)
        self._own_cores = ParentCores(self._parts if pinned else 0)
        self._trace, self._spans = trace, Spans if trace is None else trace.current_track
        self._trace_events = 0 if trace is None else trace.share(len(shares))

        def context(id_: str) -> Context:
            runtime = RuntimeContext(
                spans=self._spans(), addresses=self.addresses, streams=self.streams,
                stage_state=self.stage_state(id_), carried=self.carried_state(id_),
            )  # fmt: skip
            return Context(id_, Device("cpu"), sizes, 1, Counters(), self._stage_log, runtime)

        sizes = batch_sizes(graph.config.batch.size, self.device)
        self._stages = ParentStages(graph, list(self.states), context, self.fail, self.sources.owner, self._spans)
        if gallery is not None:  # the workers' previews are above these stages
            across = stages_across_sources(graph).values()
            follow_stages(self._stages, gallery, [node.id for node in across if not issubclass(node.type, Sink)])
        alarms = graph.config.alarms
        runners = list(self._stages.runners.values())
        self._observer = Observer(wanted(alarms), dict, runners, folders(graph))
        self._watchdog = Watchdog(graph.config.watchdog_s, runners)
        self.alarms = Alarms(alarms, self.health, runners, self.addresses, self.fail, self._ending)
        self._run_events = EventCounter(self.graph)
        self.alarms.listen(lambda time_s, event: self._run_events.add(event))

    def _assign_sources(self, refused: Mapping[str, str]) -> None:
        """Give the processes their sources; those that are `refused`, with the reason, fail."""
        for worker, (_, ids) in zip(self._workers, self._shares, strict=True):
            self.sources.add_process(worker)
            self.sources.assign(worker, [id_ for id_ in ids if id_ not in refused])
        for id_, why in refused.items():
            self.sources.give_up(id_, why)
            logger.error(f"source {id_} failed: {why}")
        self.sources.assign_rest()

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run to the end and return the exit code, as `PipelineRun.run` does.

        Raises:
            StreamkitError: the run could not start, or could not continue.
        """
        try:
            try:
                for worker in list(self._workers):
                    self._start_worker(worker)
            except OSError as error:
                raise _not_started(error) from error
            self._start_spares()
            end_idle()
            self._start_mps()  # while the workers import packages
            end_prestarted()
            for worker in list(self._workers):
                self._begin(worker)
            self._supervise(lambda: self.fatal is not None or self._may_go())
            self._aborted = self._aborted or self.fatal is not None  # from the first "go" on, `fail` decides
            if not self._aborted:
                self._stages.open()
                if self._trace is not None:
                    self._trace.start(self._stages.lanes)
            self._begun_s = time.perf_counter()
            for worker in [] if self._aborted else [worker for worker in self._workers if worker.ready]:
                worker.send(messages.Go())
            self.ready = not self._aborted
            with self._own_cores, self.alarms.evaluating():
                self._supervise(lambda: not self._dead and all(worker.over for worker in self._workers))
                self._stages.close()
            self.seconds = time.perf_counter() - self._begun_s
        finally:
            with self._starting:
                self._closed = True
            self._end_now()
            self._stages.abort()
            if self._mps is not None:
                reap_dying(_DYING_S)
                self._mps.close()
        if self.fatal is not None:
            raise self.fatal
        if self.stopping:
            return 130
        failed = self.sources.removed.failed_sources or any(state.error for state in self.states.values())
        failed = failed or any(worker.code for worker in self._workers if worker.failure is None)
        failed = failed or all(worker.failure is not None for worker in self._workers if not worker.spare)
        meters = [runner.meter for runner in self._stages.runners.values()]
        return int(bool(failed or any(meter.failed or meter.other_errors for meter in meters)))

    def stop(self) -> None:
        """Stop the sources; decoded frames drain, and every file is closed.

        A second call ends the processes at once.
        """
        if self.stopping:
            self._end_now()
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

    def _change_stage(self, node: Node, new: Mapping[str, Any], refused: Callable[[], None]) -> None:
        if node.id in self._stages.runners:
            self._stages.runners[node.id].change(new, refused)
            return
        key = node.id, tuple(new)

        def send(undo: Callable[[], None]) -> None:
            number = next(self._settings)
            self._refused[key] = number, undo
            for worker in self._workers:
                worker.send(messages.Set(number, node.id, {name: node.options[name] for name in new}))

        def refused_by_one() -> None:
            refused()
            send(lambda: None)  # the other processes may have accepted it

        send(refused_by_one)

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

    def _watch(self, id_: str, until_s: float) -> None:
        """Let the process of a source make images of it until a monotonic time in seconds."""
        self.sources.send(id_, messages.Watch(id_, until_s))

    def _view(self, id_: str, wish: LiveWish) -> None:
        """Tell the process of a source what viewers want of it."""
        self.sources.send(id_, messages.View(id_, wish))

    # --------------------------------------------------------------------------------------------- the processes

    def _start_mps(self) -> None:
        """Let processes that share a GPU use it at the same time."""
        if any(device.kind == "cuda" for device in self.devices) and max(self._limits.values()) > 1:
            self._mps = take_prestarted_daemon()
            if self._mps is None:
                self._mps = MpsDaemon()
                self._mps.start()
            logger.info(f"the pipeline {self._mps.reason}")

    def _may_go(self) -> bool:
        """Whether frames may be read: by all processes that are ready; those of files do not wait for each other."""
        opened = [worker.ready or worker.over for worker in self._awaited()]
        files_only = not self._config.keep_running and not any(map(self.sources.live, self._workers))
        return any(opened) if files_only else all(opened)

    def _awaited(self) -> list[WorkerHandle]:
        """The processes that must be ready before frames are read; of those with files, one is enough.

        A spare one is among them where the others tune their networks first, too: beside live sources, tuning it would
        drop their frames.
        """
        return [worker for worker in self._workers if not worker.spare or worker.expected_live > QUICK_SOURCES]

    def _lacks_spare(self, device: str) -> int:
        """Number of live sources that a spare process on a device must be ready for; 0 if it lacks none."""
        workers = [worker for worker in self._workers if worker.device == device and worker.runs]
        if any(worker.spare for worker in workers) or not 2 <= len(workers) < self._spare_limits[device]:
            return 0
        return max(map(self.sources.live, workers))

    def _start_spares(self) -> list[WorkerHandle]:
        """Start a spare process on each device that lacks one; they wait for `_begin`."""
        started = []
        with self._changing, self._starting:  # in the order in which a source is added
            for device in self._spare_limits:
                if self._closed or self._ending() or not (live := self._lacks_spare(device)):
                    continue
                try:
                    started.append(self._add_worker(device, additional=True, expected_live=live))
                except OSError as error:  # no memory, or too many files or processes
                    self._keep_none(device, f"it cannot be started: {describe(error)}")
        return started

    def _gpu_lessons(self) -> list[Callable[[float], None]]:
        """What measures the GPU; nothing with several: which frames are of which is not counted."""
        if len(self.devices) > 1 or self.device.kind != "cuda":
            return []
        return [_gpu_lesson(self, self.device, self._open_sessions)]

    def _open_sessions(self) -> int:
        """Number of NVDEC sessions that all processes have, used and idle, as they last reported."""
        used = sum(sample.number for worker in self._workers if worker.runs for sample in worker.sessions.values())
        return used + sum(worker.made_ahead for worker in self._workers if worker.spare and worker.runs)

    def _keep_sessions_ready(self) -> None:
        """Let spare processes make the NVDEC sessions that sources of another process would need.

        Otherwise 67 sources wait up to 17 s: the driver makes sessions one after the other, 0.1 to 0.3 s each beside
        others that decode.
        """
        if not self.ready or time.monotonic() < self._sessions_at_s:
            return
        self._sessions_at_s = math.inf
        for spare in [worker for worker in self._workers if worker.spare and worker.ready and worker.runs]:
            others = [worker for worker in self._workers if worker.device == spare.device and worker.takes_sources]
            try:
                figures = figures_of(choose(spare.device))
            except DeviceError:  # the driver does not answer, which the workers notice, too
                continue
            limit = int(figures[SESSIONS].amount) - _FREE_SESSIONS
            free = limit - sum(session.number for worker in others for session in worker.sessions.values())
            demand = _peak_session_demand([worker.sessions for worker in others], min(spare.expected_live, free))
            spare.send(messages.MakeSessions(demand))

    def _sessions_changed(self) -> None:
        """Let spare processes make sessions later: they would delay sources that start."""
        now_s = time.monotonic()
        if self._sessions_at_s == math.inf:
            self._sessions_latest_s = now_s + _SESSIONS_LATEST_S
        self._sessions_at_s = min(now_s + _SESSIONS_AFTER_S, self._sessions_latest_s)

    @property
    def sessions_ahead(self) -> int:
        """Number of NVDEC sessions that spare processes have made for sources that they may get."""
        return sum(worker.made_ahead for worker in self._workers if worker.spare and worker.runs)

    def _keep_none(self, device: str, why: str) -> None:
        """Keep no spare process on a device any more."""
        self._spare_limits[device] = 0
        logger.warning(f"no spare process is kept on {device}: {why}")

    def _take_spare(self, *devices: str, ready: bool = False) -> WorkerHandle | None:
        """Make a spare process of one of these devices an ordinary one; None if there is none, or none that is `ready`.

        One that is not ready yet will be so sooner than a new one.
        """
        with self._starting:
            spares = [worker for worker in self._workers if worker.spare and worker.runs and worker.device in devices]
            spares = [spare for spare in spares if spare.ready or not ready]
            worker = min(spares, key=lambda spare: (not spare.ready, devices.index(spare.device)), default=None)
            if worker is not None:
                self.sources.add_process(worker)
                worker.spare = False
            return worker

    def _count_spare_death(self, device: str) -> None:
        """Keep no further spare process on a device on which too many have died without any source."""
        now_s, deaths = time.monotonic(), self._spare_deaths[device]
        deaths[:] = [at_s for at_s in deaths if now_s - at_s <= _SPARE_DEATHS_WITHIN_S] + [now_s]
        if len(deaths) == _MAX_SPARE_DEATHS:
            self._keep_none(device, f"{_MAX_SPARE_DEATHS} have died within ten minutes")

    def _start_another(self, beyond: int = 0) -> WorkerHandle | None:
        """Add a process for sources that would overload or endanger the others: a spare one, or a new one.

        Args:
            beyond: how many processes there may be beyond the limit, for sources that would endanger a spare one.

        Returns:
            The process; None if no more may run.
        """
        with self._starting:
            if not self.ready or self._closed or self._ending():
                return None
            running = Counter(worker.device for worker in self._workers if worker.takes_sources)
            free = [device for device, limit in self._limits.items() if running[device] < limit + beyond]
            if not free:
                return None
            device = min(free, key=lambda device: running[device])
            worker = None if beyond else self._take_spare(device)
            how = "starts" if worker is None else "was kept ready"
            if worker is None:
                try:
                    worker = self._add_worker(device, additional=True)
                except OSError as error:  # no memory, or too many files or processes
                    self._limits[device] = max(1, running[device])
                    logger.warning(f"another process on {device} cannot be started: {describe(error)}")
                    return None
                self._begin(worker)
            self._spares_at_s = time.monotonic() + _SPARE_AFTER_S
        why = "sources may have ended two processes" if beyond else "a source would overload the processes"
        logger.info(f"{why}: process {running.total() + 1} {how} on {device}")
        return worker

    def _give_up_starting(self, worker: WorkerHandle, error: StreamkitError) -> None:
        """Go on without an additional process that could not start: others take its sources."""
        which = "a spare" if worker.spare else "another"
        worker.failure = f"{which} process on {worker.device} could not start: {error}"
        running = sum(other.takes_sources for other in self._workers if other.device == worker.device)
        self._limits[worker.device] = max(1, running)
        if self._spare_limits.get(worker.device):
            self._keep_none(worker.device, "a process could not start")

    def _add_worker(self, device: str, *, additional: bool = False, expected_live: int = 0) -> WorkerHandle:
        """Start a process, without sources, beside others; it waits for `_begin`. Raises OSError.

        With `expected_live`, it is a spare one for so many live sources.
        """
        worker = WorkerHandle(
            device=device, number=len(self._workers), additional=additional, spare=expected_live > 0,
            expected_live=expected_live,
        )  # fmt: skip
        self._start_worker(worker)
        self._workers.append(worker)
        if not worker.spare:
            self.sources.add_process(worker)
        return worker

    def _start_worker(self, worker: WorkerHandle) -> None:
        """Start a process. Signals are blocked in it from its first moment: the parent handles signals."""
        parts = Counter(worker.part for worker in self._supervisor.workers)
        worker.part = min(range(self._parts), key=lambda part: parts[part])
        with self._changing, signals_held_back():  # a change comes with the job, or as an order after it
            worker.frames, frames = frame_pipe()
            job = WorkerConfig(
                self._path, self.graph.config.text, self._set, worker.device, self.sources.first_orders(worker),
                tuple(self._stages.runners), self._changed_settings(), (worker.part, self._parts), process_cores(),
                self._worker_config(worker), self._relay is not None,
                self._trace_events, tuple(sorted(counted_across_sources(self.graph))), self.carried,
            )  # fmt: skip
            if self._trace is not None:
                self._trace.expect(worker.name)
            worker.child = Child(
                f"worker/{worker.device}/{worker.number}", work, job, frames, env=telemetry.child_environment(),
                idle=take_prestarted(),
            )  # fmt: skip
            frames.close()
        worker.receiver = start("receiver", partial(self._receive_frames, worker))
        self._supervisor.workers.append(worker)

    def _worker_config(self, worker: WorkerHandle) -> RunConfig:
        """How a process runs: until it is ended, and ready for the live sources that it may get."""
        return RunConfig(
            limit=self._config.limit, keep_running=True, realtime=self._config.realtime,
            live_may_come=self._config.keep_running, expected_live=worker.expected_live,
        )  # fmt: skip

    def _begin(self, worker: WorkerHandle) -> None:
        """Let a process use its device."""
        worker.send(messages.Begin({} if self._mps is None else self._mps.environment))

    def _changed_settings(self) -> dict[str, dict[str, Any]]:
        """Options that were changed since the YAML was read, by stage."""
        changes_by_stage = {}
        for id_, before in self._as_in_yaml.items():
            node = self.graph.nodes[id_]
            names = node.type.spec.changeable
            changed = {name: node.options[name] for name in names if node.options.get(name) != before.get(name)}
            if changed:
                changes_by_stage[id_] = changed
        return changes_by_stage

    def _receive_frames(self, worker: WorkerHandle) -> None:
        """Pass the frames of one process to the parent's stages, until the process has closed its pipe or exited."""
        try:
            while True:
                items = worker.frames.recv()
                self._stages.put([item for item in items if item[0]], worker)
                if ended := [source for entry, _, source in items if not entry]:
                    self.sources.passed_on(worker, ended)
        except (EOFError, OSError):
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            worker.frames.close()  # its process must not wait for a pipe without a reader

    def _supervise(self, done: Callable[[], bool]) -> None:
        """Receive messages of the processes, end them and restart their sources, until `done`."""
        before_s = time.monotonic()
        while not done():
            now_s = time.monotonic()
            step_s, before_s = min(now_s - before_s, _LONGEST_STEP_S), now_s
            for worker in self._supervisor.workers:
                worker.silent_s += step_s
            order = self._ending_order()
            for worker in self._supervisor.workers:
                worker.end(order)
            for worker, message in self._supervisor.poll(_POLL_S):
                worker.silent_s = 0.0
                self._handle(worker, message)
            self._watchdog.check()
            for worker in self._workers:
                if worker.exited and not worker.over and not worker.receiver.is_alive():
                    self._finish(worker)
            ending = self.stopping or self._aborted or self.fatal is not None
            wait_s = _GPU_INCIDENT_S if any(worker.lost for worker in self._dead) else _INCIDENT_S
            if self._dead and (ending or (self.ready and time.monotonic() >= self._died_at_s + wait_s)):
                self._recover(ending)
            if self.ready:  # the start may use all cores
                self._own_cores.leave({worker.part for worker in self._workers if worker.takes_sources})
            self._keep_sessions_ready()
            continue_lessons(self._lessons, time.monotonic())
            if self._spare_is_due():
                for worker in self._start_spares():
                    self._begin(worker)

    def _ending_order(self) -> messages.EndingOrder | None:
        """How all processes are to end now; None if they go on."""
        if self._aborted:
            return messages.Abort()
        if self.stopping or self.fatal:
            return messages.Stop()
        return messages.Finish() if self.sources.over and not self._dead else None

    def _spare_is_due(self) -> bool:
        """Whether a spare process is to start: all others are ready, and sources that have moved run again."""
        if not self.ready or self._dead or time.monotonic() < self._spares_at_s:
            return False
        lacks = any(map(self._lacks_spare, self._spare_limits))
        return lacks and all(worker.ready if worker.runs else worker.over for worker in self._workers)

    def _handle(self, worker: WorkerHandle, message: Any) -> None:
        if any(relay is not None and relay.handle(message) for relay in (self._relay, self._live_relay)):
            return
        match message:
            case messages.Log(record):
                self._worker_log(*record)
            case messages.Killed(why):
                logger.warning(why)
            case messages.Ready():
                worker.ready = True
                self._sessions_changed()
                if self.ready:
                    worker.send(messages.Go())
            case messages.Fatal(kind, text) if worker.additional and not worker.ready:
                self._give_up_starting(worker, error_of(kind, text))
            case messages.Fatal(kind, text):
                self.fail(error_of(kind, text))
            case messages.Report(report):
                worker.latest = report
                if not worker.spare:
                    self.sources.update(worker, report)
            case messages.Sessions(samples):
                packets = {key: session.packet for key, session in worker.sessions.items()}
                worker.sessions = {
                    sample.key: sample._replace(packet=sample.packet or packets[sample.key]) for sample in samples
                }
                self._sessions_changed()
            case messages.SessionsAhead(number):
                worker.made_ahead = number
            case messages.TraceRecording(recording) if self._trace is not None:
                self._trace.receive(worker.name, recording)
            case messages.SetRefused(number):
                self._restore_options(number)
            case messages.Lost(why):
                worker.lost = why
            case messages.Hangs(why):
                worker.hangs = worker.hangs or why
            case messages.Refused(order, why):
                self._refuse(worker, order, why)
            case messages.End(exit_code):
                worker.code = exit_code
                worker.deadline_s = time.monotonic() + _GRACE_S
            case messages.Exited(how):
                worker.exited = True
                if worker.code is None:
                    worker.failure = worker.killed or f"{worker.title} {worker.hangs or worker.lost or how}"

    def _overdue(self, worker: WorkerHandle, now_s: float) -> str | None:
        """The reason to kill a process at this monotonic time; its work on the GPU is then terminated already."""
        why = worker.overdue(now_s)
        if why is not None and self._mps is not None:
            self._mps.terminate_client(worker.child.pid)
        return why

    def _restore_options(self, number: int) -> None:
        """Restore the options that a stage has rejected, unless they were changed again."""
        with self._changing:
            for key, (latest, refused) in list(self._refused.items()):
                if latest == number:
                    del self._refused[key]
                    refused()

    def _refuse(self, worker: WorkerHandle, order: messages.Order, why: str) -> None:
        """Handle an order that a process could not carry out; a source that was to be added has failed."""
        if not isinstance(order, messages.Add):
            logger.warning(f"the process of {worker.device} did not carry out {messages.name_of(order)}: {why}")
        elif self.sources.refused(worker, order.source, why) and not self._ending():
            logger.error(f"source {order.source.id} failed: {why}", extra={"source": order.source.id})

    def _finish(self, worker: WorkerHandle) -> None:
        """Mark a process that has exited as over; if it died, its unfinished sources are restarted soon."""
        worker.over, worker.sessions = True, {}
        if worker.failure is not None:
            with worker.guard:
                worker.child = worker.receiver = None  # releases the process's handles
            if not self._dead:
                self._died_at_s = time.monotonic()
            self._dead.append(worker)

    def _recover(self, ending: bool) -> None:
        """Restart the sources of processes that have died, once others have had time to die of the same cause.

        The sources of a process go to a spare one. Without one, a source goes to another process with room for it, else
        to a new one. If no process is left, as many new ones are started. In a run that is `ending`, the sources fail.
        """
        restarted: list[tuple[str, list[RestartedSource]]] = []
        self._spares_at_s = time.monotonic() + _SPARE_AFTER_S
        with self._changing:
            dead, self._dead = self._dead, []
            spares = [worker for worker in dead if worker.spare]
            dead = [worker for worker in dead if not worker.spare]
            for worker in [spare for spare in spares if not (ending or spare.order)]:
                logger.error(str(worker.failure))
                if not dead:  # it died of itself
                    self._count_spare_death(worker.device)
            lost = [(worker, self.sources.remove_process(worker)) for worker in dead]
            none_left = not any(worker.takes_sources for worker in self._workers)
            if lost and not ending and none_left and self._take_spare(*self._spare_limits, ready=True) is None:
                self._replace(worker for worker, ids in lost if ids or (self._config.keep_running and worker.ready))
            for worker, ids in lost:
                if not ids and not ending:
                    logger.error(str(worker.failure))
                of_source = len(dead) + len(spares) == 1 and worker.ready
                spare = partial(self._take_spare, worker.device, *self._spare_limits)
                again = [] if ending else self.sources.restart(
                    ids, self._stages, of_source=of_source, take_spare=spare
                )  # fmt: skip
                self._give_up(worker, [id_ for id_ in ids if id_ not in {source.id for source in again}])
                self._stages.forget_process(worker)
                worker.latest = replace(worker.latest, states={}, queues={})
                if again:
                    restarted.append((str(worker.failure), again))
        for failure, sources in restarted:
            self._report_restarts(failure, sources)

    def _replace(self, dead: Iterable[WorkerHandle]) -> None:
        """Start a new process, without sources, for each of `dead`, which were all; end a spare one that still starts.

        If they lost their GPU, so does that one.
        """
        for worker in self._workers:
            if worker.spare and worker.runs:
                worker.order = messages.Now()
                worker.child.kill()
        new: list[WorkerHandle] = []
        try:
            for worker in dead:
                new.append(self._add_worker(worker.device))
        except OSError as error:
            self.fail(_not_started(error))
        if self._mps is not None:  # while the new processes import packages
            reap_dying(_DYING_S)  # the daemon waits for its clients
            self._mps.restart()
        for worker in new:
            self._begin(worker)

    def _give_up(self, worker: WorkerHandle, ids: Iterable[str]) -> None:
        """Mark sources of a process that has died as failed."""
        for id_ in ids:
            again = self.sources.restarts_of(id_)
            why = f"{worker.failure}" + (f"; it was restarted {again} times within ten minutes" if again else "")
            self.sources.give_up(id_, why)
            if self.fatal is None:
                logger.error(f"source {id_} failed: {why}", extra={"source": id_})

    def _report_restarts(self, failure: str, restarted: Sequence[RestartedSource]) -> None:
        """Log the restart of sources, and emit the event `restarted` of each."""
        self.restarted += len(restarted)
        names = ", ".join(source.id for source in restarted)
        lost = sum(source.frames_lost for source in restarted)
        logger.warning(f"{failure}: its sources restart in another process ({names}); {lost} frames are lost")
        for id_, frames_lost, last in restarted:
            number, pts_s = (0, 0.0) if last is None else last[:2]
            data = {"cause": failure, "frames_lost": frames_lost}
            try:
                self.alarms.publish(Event("restarted", WHOLE, id_, number, pts_s, data=data))
            except StreamkitError as error:  # a spool that is full, or cannot be written
                self.fail(error)

    def _end_now(self) -> None:
        """End every process that still runs."""
        for worker in self._supervisor.workers:
            worker.send(messages.Now())
        self._supervisor.close(_AT_ONCE_S)

    # ------------------------------------------------------------------------------------------------- counting

    @property
    def elapsed_s(self) -> float:
        """See `PipelineRun.elapsed_s`."""
        return self.seconds or (0.0 if self._begun_s is None else time.perf_counter() - self._begun_s)

    def counts(self) -> dict[str, int]:
        """See `PipelineRun.counts`; summed over all processes."""
        counts: dict[str, int] = add_up(self._reports())["counts"]
        for name, count in self._failed_exports.counters.values.items():
            counts[name] = counts.get(name, 0) + count
        return {**counts, LOST: self.sources.lost} if self.sources.lost else counts

    def queues(self) -> dict[str, int]:
        """See `PipelineRun.queues`; summed over all processes."""
        alive = [worker.latest for worker in self._workers if not worker.over]
        return {**queued(alive), **self._stages.queues()}

    def listen(self, seen: FrameListener) -> None:
        """Pass the frames with events of the stages that this process runs to `seen`."""
        self._stages.listen(seen)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids: this process and the workers."""
        children = [worker.child for worker in self._workers]  # a process that dies sets it to None
        return os.getpid(), *(child.pid for child in children if child is not None)

    def frame_counts(self) -> list[tuple[int, float]]:
        """See `PipelineRun.frame_counts`; one entry per worker process."""
        return [(min(worker.latest.finished.values(), default=0), worker.latest.at_s) for worker in self._workers]

    def _reports(self) -> list[WorkerReport]:
        report = self._stages.report()
        report["events"] = dict(Counter(report["events"]) + self.alarms.events)
        parent = WorkerReport(
            report, dict(self._stages.finished), dict(self._stages.latency),
            event_counts=sum_event_counts([self._stages.outputs.event_counter.counts(), self._run_events.counts()]),
        )  # fmt: skip
        return [*(worker.latest for worker in self._workers), parent]

    def report(self, exit_code: int) -> dict[str, Any]:
        """The report of the run: sums over all processes, and each process's own values under `devices`."""
        sums = add_up(self._reports())
        stages = [*self.graph.nodes, *sums["stages"]]
        device = ", ".join(device for device, _ in self._shares)
        removed = self.sources.removed
        return {
            **headline(device, exit_code, sums["frames"], self.seconds),
            **{key: sums[key] for key in ("detections", "events")},
            "counts": self.counts(),
            "stages": {id_: sums["stages"][id_] for id_ in dict.fromkeys(stages) if id_ in sums["stages"]},
            "latency": sums["latency"],
            "sources": {id_: state.report() for id_, state in self.states.items()},
            **({"removed": removed.report()} if removed.sources else {}),
            **({"restarted": self.restarted} if self.restarted else {}),
            "devices": [
                {"device": worker.device, "sources": self.sources.of(worker), **unmerged_fields(worker.latest)}
                | ({"spare": True} if worker.spare else {})
                | ({"error": worker.failure} if worker.failure else {})
                for worker in self._workers
            ],
            **({"alarms": alarms} if (alarms := self.alarms.report()) else {}),
        }

    def _ending(self) -> bool:
        return self.stopping or self.fatal is not None or self.sources.over

    @property
    def opening(self) -> list[str]:
        """See `PipelineRun.opening`; of all processes."""
        workers = [worker for worker in self._workers if not worker.spare and not worker.over]
        return list(dict.fromkeys(text for worker in workers for text in worker.latest.opening))

    def health(self) -> HealthSnapshot:
        """See `PipelineRun.health`.

        Sources of a dead process are down; those of a silent process have no new frames.
        """
        now_s = time.monotonic()
        parts = [self._observer.snapshot()]
        for worker in [worker for worker in self._workers if not worker.spare]:
            ids = self.sources.of(worker)
            latest = worker.latest.facts
            if latest is not None and (ids or not worker.failure):
                sources = {id_: source_facts for id_, source_facts in latest.sources.items() if id_ in ids}
                pipeline = latest.pipeline | ({"sources": float(len(sources))} if latest.sources else {})
                facts = replace(latest, sources=sources, pipeline=pipeline)
                parts.append(facts.aged(now_s - worker.latest.at_s, gone=worker.failure is not None))
        return merge_snapshots(parts)


def _not_started(error: OSError) -> StreamkitError:
    return StreamkitError(f"a process of the run cannot be started: {describe(error)}; check memory and `ulimit -n -u`")
