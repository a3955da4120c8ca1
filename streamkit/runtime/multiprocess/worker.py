"""One worker process: runs its part of the sources on its device, and reports to the parent process.

It opens every stage, sends `ready`, and waits for `go`. The parent may then send `stop` (drain), `abort` (drop frames
in flight), or `now` (exit at once without partial files). A worker also exits at once if its parent is gone. The parent
handles signals.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.config.plan import Graph
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, OutputError, StageError, StreamkitError
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.future import PeriodicTimer, start
from streamkit.runtime.execution.host import pin_process
from streamkit.runtime.multiprocess.children import ParentConnection, end_at_once
from streamkit.runtime.multiprocess.frame_ipc import RelaySink, Uplink
from streamkit.runtime.observe.report_merge import WorkerReport
from streamkit.runtime.pipeline import PipelineRun

_REPORT_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Configuration of a worker process.

    Attributes:
        path: the pipeline's YAML.
        set_: values that override the YAML.
        device: the device, as named in the YAML.
        sources: ids of its sources.
        shared: ids of the sinks that the parent process runs.
        limit: maximum number of frames per source.
        part: index of the process, and number of processes.
    """

    path: Path
    set_: dict[str, str]
    device: str
    sources: tuple[str, ...]
    shared: tuple[str, ...]
    limit: int | None
    part: tuple[int, int] = (0, 1)


def work(link: ParentConnection, job: WorkerConfig, frames: Connection) -> None:
    """Run a job; this is the main function of the process.

    Args:
        link: messages and counts to the parent, orders from it.
        job: what to run.
        frames: frames to the parent, for its sinks.
    """
    uplink, pipeline, code = Uplink(frames), None, 1
    try:
        device = choose(job.device)
        pin_process(device, *job.part)
        pipeline = WorkerPipeline(_graph(job, uplink), device, job.limit, link, uplink)
        with PeriodicTimer(_REPORT_EVERY_S, pipeline.send_report):
            code = pipeline.run()
    except BaseException as error:
        link.fatal(error)
    uplink.close()
    if pipeline is not None:
        link.send("report", pipeline.worker_report(code))
    link.send("end", code)


def _graph(job: WorkerConfig, uplink: Uplink) -> Graph:
    """Build the graph with the job's sources, and with relays in place of the parent's sinks."""
    graph = build(read(job.path, set_=job.set_, device=job.device))
    graph.sources = [source for source in graph.sources if source.id in job.sources]
    gone = set(job.sources) - {source.id for source in graph.sources} | set(job.shared) - set(graph.nodes)
    if gone:
        raise ConfigError(
            f"{job.path} changed during startup: {', '.join(sorted(gone))} is missing; start the run again"
        )
    for id_ in job.shared:
        node = graph.nodes[id_]
        node.type, node.options = RelaySink, {"uplink": uplink, "sink": id_}
    return graph


class WorkerPipeline(PipelineRun):
    """The pipeline of one worker process."""

    def __init__(self, graph: Graph, device: Device, limit: int | None, link: ParentConnection, uplink: Uplink) -> None:
        super().__init__(graph, device, limit=limit)
        self.alarms.disable()  # the parent evaluates them for all processes
        self._link, self._uplink = link, uplink
        self._relayed = {id_ for id_, node in graph.nodes.items() if node.type is RelaySink}
        self._go = threading.Event()
        start("orders", self._execute_orders)

    def fail(self, error: BaseException) -> None:
        """End the run, here and in the other processes."""
        self._link.fatal(error)
        super().fail(error)
        if not isinstance(error, (OutputError, StageError)):
            self._uplink.abort()

    def worker_report(self, code: int | None = None) -> WorkerReport:
        """Counts so far, without those of the parent's sinks."""
        report = self.report(code if code is not None else 0)
        report["stages"] = {id_: stage for id_, stage in report["stages"].items() if id_ not in self._relayed}
        done = tuple(id_ for id_, state in self.states.items() if state.done)
        finished, latency = (
            {id_: value for id_, value in dict(values).items() if id_ not in self._relayed}
            for values in (self.finished, self.latency)
        )
        facts = self._observer.snapshot() if self.graph.config.alarms else None
        return WorkerReport(report, finished, latency, done, facts)  # type: ignore[arg-type]

    def send_report(self) -> None:
        """Send the counts so far to the parent."""
        with contextlib.suppress(RuntimeError):  # a counter was added during the copy; sent next time
            self._link.send("report", self.worker_report())

    def _start_sources(self) -> None:
        """Report that every stage is open, wait until all processes are ready, and start."""
        self._link.send("ready")
        self._go.wait()
        if self.fatal is None:
            super()._start_sources()

    def _source_complete(self, source: str) -> None:
        self._uplink.put("", None, source)  # after the last of its frames

    def _execute_orders(self) -> None:
        """Execute the parent's orders."""
        for order, _ in self._link.orders():
            if order == "now":
                end_at_once()
            if order == "stop":
                self.stop()
            elif order == "abort":
                self.fail(StreamkitError("another process of the run failed"))
            if order in ("go", "abort"):
                self._go.set()
