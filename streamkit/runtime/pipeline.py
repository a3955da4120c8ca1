# SPDX-License-Identifier: Apache-2.0
"""Runs a pipeline from its first frame to its report."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamkit.config.alarms import wanted
from streamkit.config.plan import Graph, Node, SourceConfig
from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import OutputError, StageError, StreamkitError, describe
from streamkit.core.logs import stage_log
from streamkit.core.stage import Context, PacketBuffer, RuntimeContext, Source
from streamkit.core.tasks import Future
from streamkit.core.tracing import Spans
from streamkit.media.surfaces import shared_pool
from streamkit.ops.cuda.driver import relax_capture
from streamkit.runtime.control.commands import Controls
from streamkit.runtime.execution.background import ThreadedBackground
from streamkit.runtime.execution.channel import Aborted, Outlet
from streamkit.runtime.execution.cores import cores, pin_to_shared_cores
from streamkit.runtime.execution.device import LaneDevice, lost_device
from streamkit.runtime.execution.future import PeriodicTimer, ThreadFuture, held_until, start
from streamkit.runtime.execution.graph_outputs import GraphOutputs
from streamkit.runtime.execution.host import configure_process, heap_trimmer
from streamkit.runtime.execution.lane import Lane, LaneThread, connect, opening_order, partition
from streamkit.runtime.execution.late_results import has_late_results, wait_for_results
from streamkit.runtime.execution.meters import StageMeter
from streamkit.runtime.execution.ordered_executor import ThreadedExecutor
from streamkit.runtime.execution.runners import runner
from streamkit.runtime.execution.sizes import (
    batch_sizes,
    batches_ahead,
    files_at_once,
    instances,
    live_batch_size,
)
from streamkit.runtime.execution.stage_runner import Runner
from streamkit.runtime.ingest.batcher import LIVE_LATENCY_S, Batcher
from streamkit.runtime.ingest.fault_injector import FaultInjector, FaultySource, faults_message, faults_of
from streamkit.runtime.ingest.reconnect import reconnecting
from streamkit.runtime.ingest.source_reader import Status
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.ingest.sources import Sources, drops_late_frames, in_realtime, ring_for
from streamkit.runtime.multiprocess.child_generator import ChildGenerator
from streamkit.runtime.observe import telemetry
from streamkit.runtime.observe.alarms import Alarms
from streamkit.runtime.observe.batch_traces import spans_with
from streamkit.runtime.observe.event_counts import EventSeries
from streamkit.runtime.observe.health import HealthSnapshot, Observer, emitters, folders
from streamkit.runtime.observe.report_merge import headline
from streamkit.runtime.observe.run_counts import RunCounts
from streamkit.runtime.observe.trace import Recorder
from streamkit.runtime.observe.watchdog import Watchdog, stacks
from streamkit.runtime.preview.live import LiveReceiver
from streamkit.runtime.preview.packet_tap import PacketTap
from streamkit.runtime.run import DEFAULT, RunConfig
from streamkit.runtime.shutdown import wait

logger = logging.getLogger(__name__)

_MONITOR_S = 1.0
_LIVE_PART = 16  # of the surfaces' memory, for frames of live sources that wait
_LIVE_FPS = 30
_FROZEN_BY_PYTHON = 1000
"""Python 3.12 begins with 375 objects that are left out of garbage collections, other versions with none."""
QUICK_SOURCES = 4
"""Up to this number of live sources start while networks are still being tuned, which slows the networks tenfold."""


def continue_lessons(lessons: list[Callable[[float], None]], now_s: float) -> None:
    """Let what measures the GPU go on; one that fails ends, and the run goes on.

    Args:
        lessons: what measures; one that fails is removed.
        now_s: monotonic time.
    """
    for lesson in list(lessons):
        try:
            lesson(now_s)
        except Exception as error:  # a run needs none of them
            lessons.remove(lesson)
            logger.warning(f"the speed of this GPU is not measured: {describe(error)}")


class PipelineRun(Controls):
    """One run of a graph.

    Args:
        graph: the graph to run.
        device: the device to run it on.
        config: how to run it.
        trace: records the timeline of the run; `Trace.finish` writes it afterwards.
        live: receives the video of sources that are viewed.

    Attributes:
        devices: the device, as a tuple; a `WorkerFleet` may use several.
        ready: whether every stage is open and frames are accepted.
        alarms: the alarms on the run itself.
        listen: passes the frames of each batch to a function; see `GraphOutputs.listen`.
        hung_threads: threads that hung in a call at the end of the run and were abandoned.
        lessons: functions that measure the GPU while it runs, called each second with the monotonic time in seconds;
            see `gpu_lessons`.
        future_type: schedules work that need not be done before the first frame; None chooses.
    """

    future_type: type[Future[Any]] | None = None
    sources: Sources

    def __init__(
        self,
        graph: Graph,
        device: Device,
        config: RunConfig = DEFAULT,
        *,
        trace: Recorder | None = None,
        live: LiveReceiver | None = None,
    ) -> None:
        super().__init__(graph)
        self._live_receiver = live
        self._faults = faults_of(graph.sources)
        self._runners: list[Runner] = []
        self._lane_devices: list[LaneDevice] = []
        self.device = device
        self.devices = (device,)
        self.limit = config.limit
        self.fatal: BaseException | None = None
        self.stopping = self.ready = False
        self.hung_threads: list[threading.Thread] = []
        self.lessons: list[Callable[[float], None]] = []
        self.seconds = 0.0
        self._start_s: float | None = None
        self._lock = threading.Lock()
        self._stage_log = stage_log()
        self._stopped_at_s: float | None = None
        self._trace = trace
        self._spans: Callable[[], Spans] = Spans if trace is None else trace.current_track
        self._traces = telemetry.batch_traces(graph)
        self._failed_exports = telemetry.FailedExports()
        if self._traces is not None:
            self._spans = spans_with(self._traces, self._spans)
        sources = map(in_realtime, graph.sources) if config.realtime else graph.sources
        self._live = sum(map(drops_late_frames, sources))
        if config.expected_live:
            self._live = max(self._live, config.expected_live, QUICK_SOURCES + 1)
        self._sizes = self._batch_sizes(config)
        self._batcher = self._new_batcher(config)
        self.sources = self._new_sources(config)
        for id_ in self._paused & self.states.keys():
            self.sources.pause(id_)
        self._lanes = partition(graph)
        for lane in self._lanes:
            lane.workers = instances(lane.nodes, device, config.reserved_cores)
        self._decoded = connect(graph, self._lanes)
        outputs = self.outputs = GraphOutputs(
            graph, self._lanes, self.sources.count, self._batcher.batch_done, self._source_complete
        )
        self._count = outputs.count if self._traces is None else self._traces.counted(self._lanes, outputs.count)
        self.finished = outputs.finished
        self.detections = outputs.detections
        self.events = outputs.events
        self.latency = outputs.latency
        self.listen = outputs.listen
        facts = wanted(graph.config.alarms)
        self._observer = Observer(facts, lambda: self.states, self._runners, folders(graph), device)
        self.alarms = Alarms(
            graph.config.alarms,
            self._observer.snapshot,
            self._runners,
            self.addresses,
            self.fail,
            lambda: self.stopping or self.sources.over,
        )
        self.alarms.listen(outputs.count_event)
        self._watchdog = Watchdog(graph.config.watchdog_s, self._runners)

    def _batch_sizes(self, config: RunConfig) -> tuple[int, ...]:
        """Return the sizes of batches: a single size for many live sources on a GPU."""
        batch = self.graph.config.batch
        sizes = batch_sizes(batch.size, self.device)
        if self.device.kind != "cuda" or self._live <= QUICK_SOURCES:
            return sizes
        expected = self._live * _LIVE_FPS * batch.max_wait
        if config.keep_running and config.live_may_come is not False:
            expected = max(expected, sizes[-1] / 2)
        return (live_batch_size(sizes[-1], expected),)

    def _new_batcher(self, config: RunConfig) -> Batcher:
        batch = self.graph.config.batch
        return Batcher(
            self._sizes[-1],
            batch.max_wait,
            self.device.xp,
            batches_ahead(self.device),
            LIVE_LATENCY_S if batch.max_latency is None else batch.max_latency,
            per_source=config.per_source,
            first_size=self._sizes[0] if self.device.kind == "cuda" else None,
            live_bytes=lambda: shared_pool(self.device).limit // _LIVE_PART,
        )

    def _new_sources(self, config: RunConfig) -> Sources:
        return Sources(
            self.graph.sources,
            self._batcher,
            self._make,
            limit=config.limit,
            parallel_files=config.parallel_files or files_at_once(self.device),
            read=self._source_read,
            fail=self.fail,
            spans=self._spans,
            keep_running=config.keep_running,
            realtime=config.realtime,
            live_may_come=config.live_may_come,
            wait_for_results=self._wait_for_results if has_late_results(self.graph) else None,
            refused=config.refused,
            source_removed=lambda id_: self.outputs.event_counter.forget(id_),
        )

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run to the end and return the exit code: 0, 1 if a source or frame failed, 130 if the run was stopped.

        Raises:
            StreamkitError: the run could not start, or could not continue.
        """
        configure_process()
        relax_capture()
        if self._faults:
            logger.warning(faults_message(self._faults))
        if self.device.kind == "cuda":
            self.sources.start_early()
        self._open_lanes()
        if self._trace is not None:
            self._trace.start(self._lanes, self._batcher)
        start_s = self._start_s = time.perf_counter()
        threads = [thread for lane in self._lanes for thread in lane.threads]
        # an application that froze its objects keeps them frozen
        freezes = (self._live or self.sources.has_live) and gc.get_freeze_count() < _FROZEN_BY_PYTHON
        with PeriodicTimer(_MONITOR_S, self._monitor), self.alarms.evaluating():
            if self.fatal is None:
                if freezes:  # a full collection takes 0.1 s with everything loaded, and drops live frames
                    gc.collect()
                    gc.freeze()
                self._start_sources()
                self.ready = True
                threads.insert(0, start("batcher", lambda: self._feed(self._decoded)))
            else:
                self._abort()
            self._wait(threads)
        self.seconds = time.perf_counter() - start_s
        self.sources.account()
        if freezes:
            gc.unfreeze()
        if isinstance(self.fatal, StreamkitError):
            raise self.fatal
        if self.fatal is not None:
            raise StreamkitError(describe(self.fatal)) from self.fatal
        if self.stopping:
            return 130
        failed = self.sources.removed.failed_sources or any(state.error for state in self.states.values())
        return int(
            bool(
                failed
                or any(stage_runner.meter.failed or stage_runner.meter.other_errors for stage_runner in self._runners)
            )
        )

    @property
    def opening(self) -> list[str]:
        """The ids of the stages that are being opened, each with what takes long, if it says so."""
        return list(dict.fromkeys(text for runner in self._runners if (text := runner.opening_text)))

    def stop(self) -> None:
        """Stop the sources; decoded frames may drain for a few seconds, and every file is closed.

        A separate thread stops the sources: a signal may have interrupted the main thread while it holds a lock.
        """
        self.stopping = True
        self._stopped_at_s = self._stopped_at_s or time.monotonic()
        for _, emitter in emitters(self._runners):
            emitter.begin_drain()
        start("stop", self.sources.stop)

    def fail(self, error: BaseException) -> None:
        """End the run because of `error`.

        If an output cannot be written, or a frame fails with `on_error: stop`, the sources end and decoded frames still
        reach the outputs. Any other error drops the frames in flight. In both cases every output is closed.
        """
        error = lost_device(error) or error
        with self._lock:
            if self.fatal is None:
                self.fatal = error
        self.sources.stop()
        if not isinstance(error, (OutputError, StageError)):
            self._abort()

    def _abort(self) -> None:
        """Drop the frames in flight and wake every waiting thread."""
        self._batcher.abort()
        for outlet in [self._decoded, *(lane.outlet for lane in self._lanes)]:
            outlet.abort()

    def _wait(self, threads: list[threading.Thread]) -> None:
        """Wait for the lanes, then for the source threads, which may hang in a read until the grace period ends."""

        def drop() -> None:
            logger.warning("shutdown takes too long: frames in flight are dropped and counted")
            self._abort()

        def hangs(thread: threading.Thread) -> bool:
            return any(
                call[1] == thread.ident for stage_runner in self._runners if (call := stage_runner.call) is not None
            )

        self.hung_threads = wait(threads, lambda: self._stopped_at_s, drop, hangs)
        over_at_s = self._stopped_at_s or time.monotonic()
        self.hung_threads += wait(list(self.sources.threads), lambda: over_at_s)
        if self.hung_threads:
            names = ", ".join(thread.name for thread in self.hung_threads)
            logger.warning(f"abandoned threads that hang: {names}\n{stacks(self.hung_threads)}")

    def _monitor(self) -> None:
        """Update the rates and check for stages that hang."""
        now_s = time.monotonic()
        for state in self.states.values():
            state.sample(now_s)
        self._watchdog.check()
        continue_lessons(self.lessons, now_s)
        heap_trimmer.trim_if_due(now_s)

    def _open_lanes(self) -> None:
        """Open every stage before the first frame is decoded."""
        order = opening_order(self._lanes, self.device)
        opening = [self._open_lane(lane) for lane in order.side_by_side]
        self._open_in_turn(order.meanwhile)
        for ready in opening:
            ready.wait()
        self._open_in_turn(order.after)

    def _open_in_turn(self, lanes: Sequence[Lane]) -> None:
        """Open one lane after the other, until one fails."""
        for lane in lanes:
            if self.fatal is None:
                self._open_lane(lane).wait()

    def _open_lane(self, lane: Lane) -> threading.Event:
        """Start one more thread of a lane; return what is set once its stages are open, or have failed."""
        runners = [runner(node, self._context, self.fail, list(self.states)) for node in lane.nodes]
        self._runners.extend(runners)
        ready = threading.Event()
        worker = LaneThread(lane, runners, self.device, ready.set, self.fail, self._count, self._spans)
        self._lane_devices.append(worker.device)
        lane.threads.append(start(f"{lane.nodes[0].id}/{len(lane.threads)}", worker))
        return ready

    def _start_sources(self) -> None:
        self.sources.start()

    def _make(self, config: SourceConfig, state: SourceState, status: Status) -> Source:
        """Create a source, ready to be opened, on the thread that will read it."""
        pin_to_shared_cores(self.device)
        source = config.type(**config.options)
        assert isinstance(source, Source)
        if config.id in self._faults:
            source = FaultySource(source, self._faults[config.id])
        source = reconnecting(source)
        runtime = RuntimeContext(
            spans=self._spans(),
            executor=ThreadedExecutor(self.device, len(self.states), self._spans, ChildGenerator),
            report_status=status,
            packet_buffer=self._packet_buffer(config),
            facts=state.facts,
        )
        source.context = Context(config.id, self.device, self._sizes, 1, state.counters, self._stage_log, runtime)
        return source

    def _wait_for_results(self, source: str, state: SourceState, over: Callable[[], bool]) -> None:
        wait_for_results(self._runners, source, state, lambda: over() or self.stopping or self.fatal is not None)

    def _packet_buffer(self, config: SourceConfig) -> PacketBuffer | None:
        ring = ring_for(self.graph, config)
        if self._live_receiver is None or not config.type.spec.reads_packets:
            return ring
        return PacketTap(config.id, self._live_receiver, ring)

    def _feed(self, outlet: Outlet) -> None:
        """Pass batches from the batcher to the lanes. A batch is made when there is room for it, so that it is fresh.

        Live frames therefore wait in the batcher, which drops old ones, and not in the lanes' queues, which cannot.
        """
        pin_to_shared_cores(self.device)
        spans = self._spans()
        room = spans.call("wait for output", outlet.wait_for_room, waiting=True)
        take = spans.call("wait for frames", self._batcher.next, waiting=True)
        try:
            while True:
                room(self._batcher.live)
                if (batch := take()) is None:
                    break
                if self._traces is not None:
                    self._traces.begin(batch)
                outlet.put(batch)
                del batch
        except Aborted:
            gc.unfreeze()
        except BaseException as error:
            self.fail(error)
        finally:
            outlet.close()

    def _prepare_source(self, source: SourceConfig) -> None:
        if source.fault is not None:
            self._faults[source.id] = FaultInjector(source.fault, source.id)
            logger.warning(faults_message({source.id: self._faults[source.id]}))

    def _forget_source(self, id_: str) -> None:
        self._faults.pop(id_, None)

    def _change_stage(self, node: Node, new: Mapping[str, Any], refused: Callable[[], None]) -> None:
        for stage_runner in self._runners:
            if stage_runner.node is node:
                stage_runner.change(new, refused)

    def _change_rules(self, node: Node) -> None:
        self._change_stage(node, {"above": node.options["above"]}, lambda: None)

    def _trigger_stage(self, id_: str, source: str, data: Mapping[str, Any]) -> None:
        for stage_runner in self._runners:
            if stage_runner.node.id == id_:
                for stage in stage_runner.instances():
                    stage.trigger(source, **data)  # type: ignore[attr-defined]

    # ------------------------------------------------------------------------------------------------- counting

    def _context(self, id_: str) -> Context:
        live = self._live > QUICK_SOURCES
        runtime = RuntimeContext(
            spans=self._spans(),
            future=self._future(),
            background=ThreadedBackground,
            live=live,
            addresses=self.addresses,
            streams=self.streams,
            stage_state=self.stage_state(id_),
            carried=self.carried_state(id_),
        )
        threads = 1 if self.device.kind == "cpu" else cores()
        return Context(id_, self.device, self._sizes, threads, Counters(), self._stage_log, runtime)

    def _future(self) -> type[Future[Any]]:
        """How stages do what need not be done before the first frame, such as tuning networks."""
        if self._live > QUICK_SOURCES:
            return Future  # tuning next to live sources drops their frames
        if self.future_type is not None:
            return self.future_type
        files_only = self.states and not (self._live or self.sources.has_live)
        if self.device.kind == "cuda" and files_only:  # their first frames would wait for the GPU and for locks
            return held_until(self._batcher.first_done)
        return ThreadFuture

    def _source_read(self, source: str, state: SourceState) -> None:
        """Called after the last frame of a source was read."""
        if state.error is not None:
            logger.error(f"source {source} failed: {state.error}")

    def _source_complete(self, source: str) -> None:
        """Called when the last frame of a source has reached every end of the graph."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the stages were open; once the run is over, its duration."""
        return self.seconds or (0.0 if self._start_s is None else time.perf_counter() - self._start_s)

    @property
    def frames(self) -> int:
        """Number of frames that have reached the end of the graph."""
        return min(self.finished.values(), default=0)

    def run_counts(self) -> RunCounts:
        """All counts, which other processes merge with theirs."""
        return RunCounts(
            dict(self.finished),
            dict(self.detections),
            dict(self.events),
            self.counts(),
            self.meters(),
            dict(self.latency),
            self.event_counts,
            self.queues(),
            self.outputs.labels_by_table(),
            dict(self.outputs.unsure),
        )

    def counts(self) -> dict[str, int]:
        """Counters of all sources and stages by name: drops, failures, fallbacks."""
        states = self.states.values()
        removed = self.sources.removed
        parts = [stage_runner.counters for stage_runner in self._runners] + [
            removed.counters,
            removed.drops,
            self._failed_exports.counters,
        ]
        return Counters.total([*parts, *(part for state in states for part in (state.counters, state.drops))])

    def meters(self) -> dict[str, dict[str, Any]]:
        """Metrics of each stage, by id."""
        by_stage: dict[str, list[StageMeter]] = {id_: [] for id_ in self.graph.nodes}
        for stage_runner in self._runners:
            by_stage[stage_runner.node.id].append(stage_runner.meter)
        return {name: StageMeter.total(meters) for name, meters in by_stage.items() if meters}

    def queues(self) -> dict[str, int]:
        """Frames queued in the batcher, under `batcher`, and batches queued for each lane, by its first stage."""
        lanes = {lane.nodes[0].id: sum(channel.waiting for channel in lane.inputs) for lane in self._lanes}
        return {"batcher": self._batcher.waiting, **lanes}

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the run: this process only."""
        return (os.getpid(),)

    @property
    def event_counts(self) -> dict[EventSeries, int]:
        """Events by source, stage, kind, shape, direction and class."""
        return self.outputs.event_counter.counts()

    def health(self) -> HealthSnapshot:
        """The facts of `config/alarms.py`; those that no alarm names may be missing."""
        return self._observer.snapshot()

    def frame_counts(self) -> list[tuple[int, float]]:
        """For each process, the frames that have reached the end of the graph and the monotonic time in seconds."""
        return [(self.frames, time.monotonic())]

    def report(self, exit_code: int) -> dict[str, Any]:
        """The report of the run, for `--report` and the summary."""
        removed = self.sources.removed
        return {
            **headline(str(self.device), exit_code, self.frames, self.seconds),
            **self.run_counts().report(),
            "sources": {name: state.report() for name, state in self.states.items()},
            **({"removed": removed.report()} if removed.sources else {}),
            **({"alarms": alarms} if (alarms := self.alarms.report()) else {}),
        }
