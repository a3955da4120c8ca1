# SPDX-License-Identifier: Apache-2.0
"""One worker process: runs the graph for its sources on its device, and reports to the parent process.

It waits for `Begin`, reads the YAML, opens every stage, sends `Ready` and waits for `Go`; `messages.py` has all orders
and messages. A worker also exits at once if its parent is
gone. The parent handles signals.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import entry_points
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from streamkit.config.graph import build, with_nodes
from streamkit.config.pipeline_config import read, read_source
from streamkit.config.plan import Config, Graph, Node
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, OutputError, StageError, StreamkitError, describe
from streamkit.core.stage import default_registry
from streamkit.core.text import text_of
from streamkit.media import nv_sessions
from streamkit.media.nv_caps import nv_module
from streamkit.models.providers import load_libraries
from streamkit.ops.cuda.load import load_compiler
from streamkit.runtime.control.settings import follow_zones
from streamkit.runtime.execution.cores import pin_process
from streamkit.runtime.execution.device import choose, lost_device
from streamkit.runtime.execution.future import PeriodicTimer, ThreadFuture, start
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.children import ParentConnection, end_at_once
from streamkit.runtime.multiprocess.frame_ipc import RelaySink, Uplink
from streamkit.runtime.multiprocess.messages import SourceOrder
from streamkit.runtime.multiprocess.partition import (
    entries,
    stages_across_sources,
    without_stages_across_sources,
)
from streamkit.runtime.multiprocess.process_count import lock_lesson
from streamkit.runtime.observe import telemetry
from streamkit.runtime.observe.report_merge import WorkerReport, headline
from streamkit.runtime.observe.trace import Recorder
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.preview.remote import RemoteGallery
from streamkit.runtime.preview.stage import follow_sinks, preview_graph
from streamkit.runtime.run import RunConfig

logger = logging.getLogger(__name__)

_REPORT_EVERY_S = 0.5
_SESSION_EVERY_S = 0.5
_WORKER_FIELDS = ("exit_code", "frames", "seconds", "frames_per_s")
"""What the report of a run has of each process."""
_ENDLESS = RunConfig(keep_running=True, live_may_come=False)


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Configuration of a worker process.

    Attributes:
        path: the pipeline's YAML.
        text: its text.
        set_: values that override the YAML.
        device: the device, as named in the YAML.
        sources: the sources to start with.
        shared: ids of the stages that the parent process runs.
        settings: options that were changed since the YAML was read, by stage.
        part: which share of the cores the process has, and the number of shares.
        cores: the cores that are shared.
        run: how the process runs the graph.
        preview: whether to make images and events for the parent's gallery.
        trace: maximum number of events of the timeline; 0 records none.
        counted_by_parent: stages and tables whose events and objects the parent process counts.
        carried: the file through which stages pass on counts when the pipeline is rebuilt.
    """

    path: Path
    text: str | None
    set_: dict[str, str]
    device: str
    sources: tuple[SourceOrder, ...]
    shared: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    part: tuple[int, int] = (0, 1)
    cores: tuple[int, ...] = ()
    run: RunConfig = _ENDLESS
    preview: bool = False
    trace: int = 0
    counted_by_parent: tuple[str, ...] = ()
    carried: Path | None = None


def work(link: ParentConnection, job: WorkerConfig, frames: Connection) -> None:
    """Run a job; this is the main function of the process.

    Args:
        link: messages and counts to the parent, orders from it.
        job: what to run.
        frames: frames to the parent, for its stages.
    """
    _import_packages(() if job.device == "cpu" else ("cupy",))
    uplink = Uplink(frames)
    pipeline = None
    code = 1
    gallery = RemoteGallery(link.send) if job.preview else None
    trace = Recorder(job.trace) if job.trace else None
    exported = telemetry.open_telemetry()
    try:
        has_variables = threading.Event()
        beginning = ThreadFuture(lambda _: _begin(link, job, has_variables))
        has_variables.wait()  # plugins may use the GPU when they are loaded
        graph = _graph(job, uplink, gallery)
        early, device = beginning.result()
        pipeline = WorkerPipeline(graph, device, job, link, uplink, gallery, early, trace)
        with (
            PeriodicTimer(_REPORT_EVERY_S, pipeline.send_report),
            PeriodicTimer(_REPORT_EVERY_S, pipeline.check_device),
        ):
            try:
                code = pipeline.run()
            except BaseException as error:
                link.fatal(error)
            uplink.close()  # waits for the parent's sinks, which may take long: the reports go on meanwhile
    except BaseException as error:
        link.fatal(error)
        uplink.close()
    if gallery is not None:
        gallery.close()
    if exported is not None:
        exported.close()
    if pipeline is not None:
        link.send(messages.Report(pipeline.worker_report(code)))
    if trace is not None:
        link.send(messages.TraceRecording(trace.recording()))
    link.send(messages.End(code))


def preload() -> None:
    """Import what a worker on a GPU needs, for a process that waits for its job; see `IdleChild`. Uses no GPU."""
    _import_packages(("cupy", "streamkit.models.fused"))
    if not entry_points(group="streamkit.stages"):  # a package of others may use the GPU when it is loaded
        default_registry()
    nv_module()
    load_libraries()


def _import_packages(more: Sequence[str]) -> None:
    for name in ("av", "cv2", "onnxruntime", *more):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _begin(
    link: ParentConnection, job: WorkerConfig, has_variables: threading.Event
) -> tuple[list[messages.Order], Device]:
    """Wait for the order `Begin` with the variables that the device needs; then prepare the device and the process.

    The parent starts MPS meanwhile, which must be there before this process uses CUDA.

    Args:
        link: the connection to the parent.
        job: the job.
        has_variables: set once the process has the variables.

    Returns:
        The orders that came before `Begin`, and the device.
    """
    early: list[messages.Order] = []
    for order in link.orders():
        match order:
            case messages.Begin(variables):
                os.environ.update(variables)
                break
            case messages.Now():
                end_at_once()
        early.append(order)
    has_variables.set()
    device = choose(job.device)
    pin_process(device, *job.part, job.cores)
    if device.kind == "cuda":
        try:
            load_compiler(device.index)
        except Exception as error:  # any other one than a lost device is met again by the stages
            if (lost := lost_device(error)) is not None:
                link.send(messages.Lost(str(lost)))
                end_at_once()
    return early, device


def _graph(job: WorkerConfig, uplink: Uplink, gallery: RemoteGallery | None = None) -> Graph:
    """Build the graph with the job's sources and settings, and with relays in place of the parent's stages."""
    config = read(job.path, text=job.text, set_=job.set_, device=job.device, may_be_empty=True)
    config.state = None  # the parent keeps it
    graph = build(config) if gallery is None else preview_graph(config, gallery, without_stages_across_sources)
    sources_of_yaml = {source.id: source for source in graph.sources}
    wanted = {source.id for source in job.sources if source.entry is None}
    if missing := wanted - sources_of_yaml.keys() | set(job.shared) - graph.nodes.keys():
        raise ConfigError(
            f"{job.path} changed during startup: {', '.join(sorted(missing))} is missing; start the run again"
        )
    for id_, values in job.settings.items():
        graph.nodes[id_].options = {**graph.nodes[id_].options, **values}
    follow_zones(graph)
    across = stages_across_sources(graph)
    below = across.keys() - {node.id for node in entries(across)}
    for id_ in set(job.shared) - below:
        node = graph.nodes[id_]
        node.type = RelaySink
        node.options = {"uplink": uplink, "sink": id_}
    if below:
        graph = with_nodes(graph, [node for node in graph.nodes.values() if node.id not in below])
    graph.sources = [
        sources_of_yaml[source.id] if source.entry is None else _source(config, source) for source in job.sources
    ]
    return graph


def _source(config: Config, order: SourceOrder) -> Any:
    (source,) = read_source(config, order.id, order.entry)
    return source


class WorkerPipeline(PipelineRun):
    """The pipeline of one worker process. It runs until the parent says that no further sources come."""

    def __init__(
        self,
        graph: Graph,
        device: Device,
        job: WorkerConfig,
        link: ParentConnection,
        uplink: Uplink,
        gallery: RemoteGallery | None = None,
        early: Sequence[messages.Order] = (),
        trace: Recorder | None = None,
    ) -> None:
        super().__init__(graph, device, job.run, trace=trace, live=None if gallery is None else gallery.live)
        self.carried = job.carried
        self.alarms.disable()  # the parent evaluates them for all processes
        self.outputs.leave_out(job.counted_by_parent)
        self._link = link
        self._uplink = uplink
        self._gallery = gallery
        if gallery is not None:
            follow_sinks(self, gallery)
        self._relayed = {id_ for id_, node in graph.nodes.items() if node.type is RelaySink}
        if device.kind == "cuda" and gallery is None and not self._relayed:
            self.lessons.append(lock_lesson(self, graph, device))
        self._early = early
        self._check_began_s: float | None = None
        self._sessions: dict[Any, int] = {}  # the NVDEC sessions in use, as last sent
        self._wanted_sessions: Sequence[nv_sessions.SessionSample] = ()
        self._has_sources = threading.Event()
        self._go = threading.Event()
        self._numbers = {source.id: source.number for source in job.sources}
        self._setting = 0
        for source in job.sources:
            if source.paused:
                self.sources.pause(source.id)
            if source.after is not None:
                self.sources.continue_from(source.id, source.after)
        start("orders", self._execute_orders)

    def fail(self, error: BaseException) -> None:
        """End the run, here and in the other processes; without the GPU, end this process only."""
        if (lost := lost_device(error)) is not None:
            self._link.send(messages.Lost(str(lost)))
            end_at_once()
        self._link.fatal(error)
        super().fail(error)
        if not isinstance(error, (OutputError, StageError)):
            self._uplink.abort()

    def worker_report(self, code: int | None = None) -> WorkerReport:
        """Counts so far, without those of the parent's stages."""
        head = headline(str(self.device), code or 0, self.frames, self.seconds)
        worker_fields = {name: head[name] for name in _WORKER_FIELDS}
        removed = self.sources.removed
        if removed.sources:
            worker_fields["removed"] = removed.report()
        counts = self.run_counts()
        for by_stage in (counts.stages, counts.finished, counts.latency):
            for id_ in self._relayed & by_stage.keys():
                del by_stage[id_]
        facts = self._observer.snapshot()
        numbers = dict(self._numbers)  # before the states: a state must not get the number of its successor
        states = {id_: replace(state, raised=None) for id_, state in self.states.items()}
        return WorkerReport(worker_fields, counts, states, numbers, removed, facts, self.opening)

    def send_report(self) -> None:
        """Send the counts so far to the parent, which kills a process without reports, and whether its GPU hangs."""
        with contextlib.suppress(RuntimeError):  # a counter was added during the copy; sent next time
            self._link.send(messages.Report(self.worker_report()))
        self._report_sessions()
        began_s = self._check_began_s
        if began_s is not None:
            self._report_stuck(time.monotonic() - began_s)

    def _report_sessions(self) -> None:
        """Send which NVDEC sessions are in use, for a spare process, if that has changed."""
        samples = nv_sessions.samples()
        numbers = {sample.key: sample.number for sample in samples}
        if numbers != self._sessions:
            reported = self._sessions
            self._sessions = numbers
            changed = [sample._replace(packet=b"") if sample.key in reported else sample for sample in samples]
            self._link.send(messages.SessionsInUse(changed))

    def check_device(self) -> None:
        """Tell the parent if the GPU does not finish its work; end the process if it has lost its GPU.

        A kernel that never ends does not keep this process from reporting, but CUDA's queue fills up behind it. Then
        a thread waits in a CUDA call with the driver's lock, and so does this check: it has a thread of its own. The
        parent ends the process: the GPU work of a client of MPS must be terminated before its process is.
        """
        if not self.ready:
            return
        now_s = self._check_began_s = time.monotonic()
        try:
            stuck_s = max((device.stuck_s(now_s) for device in self._lane_devices), default=0.0)
        except Exception as error:
            if lost_device(error) is not None:
                self.fail(error)
            return
        finally:
            self._check_began_s = None
        self._report_stuck(stuck_s)

    def _report_stuck(self, stuck_s: float) -> None:
        limit_s = self.graph.config.watchdog_s
        if stuck_s > limit_s:
            reason = f"has not finished work on its GPU for {limit_s:g} s (watchdog) and was killed"
            self._link.send(messages.Hangs(reason))

    def _start_sources(self) -> None:
        """Report that every stage is open, wait for `go`, and start."""
        self._link.send(messages.Ready())
        self._go.wait()
        if self._trace is not None:  # its sums leave out the wait for the other processes
            self._trace.start(self._lanes, self._batcher)
        if self.fatal is None:
            super()._start_sources()

    def _source_complete(self, source: str) -> None:
        self._uplink.put("", None, source)  # after the last of its frames

    # -------------------------------------------------------------------------------------------------- orders

    def _execute_orders(self) -> None:
        """Execute the parent's orders."""
        for order in chain(self._early, self._link.orders()):
            if isinstance(order, messages.Now):
                end_at_once()
            try:
                self._execute(order)
            except Exception as error:  # the parent has checked it: the source has ended meanwhile, for example
                text = text_of(error) if isinstance(error, StreamkitError) else describe(error)
                self._link.send(messages.Refused(order, text))
            if isinstance(order, messages.Go | messages.Abort):
                self._go.set()

    def _execute(self, order: messages.Order) -> None:
        match order:
            case messages.Add(source):
                self._add_ordered(source)
            case messages.Remove(source_id):
                self._remove_ordered(source_id)
            case messages.Pause(source_id, paused):
                self.pause(source_id, paused)
            case messages.Set(number, stage, values):
                self._setting = number  # this thread alone changes options
                self.apply(self.graph.nodes[stage], values)
            case messages.Trigger(stage, source_id, data):
                self._trigger_stage(stage, source_id, data)
            case messages.Watch(source_id, until_s) if self._gallery is not None:
                self._gallery.request({source_id: until_s})
            case messages.ViewLive(source_id, wish) if self._gallery is not None:
                self._gallery.live.order(source_id, wish)
            case messages.MakeSessions(samples):
                self._sessions_ordered(samples)
            case messages.Finish():
                self.sources.stop()
            case messages.Stop():
                self.stop()
            case messages.Abort():
                self.fail(StreamkitError("another process of the run failed"))

    def _sessions_ordered(self, wanted: Sequence[nv_sessions.SessionSample]) -> None:
        self._wanted_sessions = wanted
        start("sessions", partial(self._make_sessions, wanted))

    def _make_sessions(self, wanted: Sequence[nv_sessions.SessionSample]) -> None:
        """In a spare process, make NVDEC sessions ahead of sources that it may get.

        The driver makes those of all processes one after the other, so other sources wait meanwhile: slowly, one by
        one, and no further ones once this process has sources, or a later order. Those that are wanted no longer are
        closed: the driver has a limited number for all processes.
        """
        if self._has_sources.is_set():
            return
        nv_sessions.keep_only(wanted)
        nvc = nv_module() if wanted else ""
        try:
            for sample in wanted if not isinstance(nvc, str) else ():
                while self._waits_for_sources(wanted) and nv_sessions.make_ahead(sample, nvc):
                    self._link.send(messages.SessionsAhead(nv_sessions.idle_count()))
        except Exception as error:  # PyNvVideoCodec's types differ by version: the GPU has no room for more sessions
            logger.info(f"the spare process keeps no decoders ready: {describe(error)}")
            nv_sessions.clear()
        self._link.send(messages.SessionsAhead(nv_sessions.idle_count()))

    def _waits_for_sources(self, wanted: Sequence[nv_sessions.SessionSample]) -> bool:
        """Whether, some time later, this process still has no sources and these are the sessions to make."""
        return not self._has_sources.wait(_SESSION_EVERY_S) and self._wanted_sessions is wanted

    def _add_ordered(self, order: SourceOrder) -> None:
        assert order.entry is not None
        self._has_sources.set()
        source = _source(self.graph.config, order)
        self._numbers[source.id] = order.number
        self.add(source, order.after, order.paused)

    def _remove_ordered(self, id_: str) -> None:
        self._numbers.pop(id_, None)
        self.remove(id_)
        if self._gallery is not None:
            self._gallery.forget(id_)

    def _change_stage(self, node: Node, new: Mapping[str, Any], refused: Callable[[], None]) -> None:
        super()._change_stage(node, new, partial(self._refused, self._setting, refused))

    def _refused(self, number: int, refused: Callable[[], None]) -> None:
        refused()
        self._link.send(messages.SetRefused(number))
