# SPDX-License-Identifier: Apache-2.0
"""What a run over several processes has counted: sums over the processes and the parent's stages, and the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamkit.config.alarms import wanted
from streamkit.config.plan import Graph
from streamkit.runtime.control.commands import Controls
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.graph_outputs import FrameListener
from streamkit.runtime.multiprocess.frame_ipc import ParentStages
from streamkit.runtime.multiprocess.recovery import Recovery
from streamkit.runtime.multiprocess.source_scheduler import LOST, SourceScheduler
from streamkit.runtime.multiprocess.spare_sessions import SpareSessions
from streamkit.runtime.multiprocess.worker_processes import WorkerProcesses
from streamkit.runtime.observe.alarms import Alarms
from streamkit.runtime.observe.event_counts import EventCounter
from streamkit.runtime.observe.health import HealthSnapshot, Observer, folders, merge_snapshots
from streamkit.runtime.observe.report_merge import MergedCounts, WorkerReport, headline
from streamkit.runtime.observe.run_counts import RunCounts
from streamkit.runtime.observe.telemetry import FailedExports


class FleetCounts(MergedCounts, Controls):
    """The counts of a `WorkerFleet`, which has these attributes, and the alarms on them.

    Args:
        graph: the graph that runs.
        shares: each device with the ids of its sources.
        clock: monotonic time in seconds.

    Attributes:
        devices: the devices that are used; `device` is the first of them.
        processes: the processes.
        sources: the sources.
        alarms: the alarms on the run itself.
        recovery: what restarts sources.
        sessions: the NVDEC sessions of the processes.
        seconds: duration of the run, once it is over.
    """

    processes: WorkerProcesses
    sources: SourceScheduler
    alarms: Alarms
    recovery: Recovery
    sessions: SpareSessions
    _observer: Observer
    _run_events: EventCounter
    _stages: ParentStages

    def __init__(self, graph: Graph, shares: list[tuple[str, list[str]]], clock: Callable[[], float]) -> None:
        super().__init__(graph)
        self._shares = shares
        self.devices = tuple(dict.fromkeys(choose(device) for device, _ in shares))
        self.device = self.devices[0]
        self.seconds = 0.0
        self._clock = clock
        self._start_s: float | None = None
        self._failed_exports = FailedExports()

    @property
    def restarted(self) -> int:
        """Number of sources that were restarted because their process died."""
        return self.recovery.restarted

    @property
    def sessions_ahead(self) -> int:
        """Number of NVDEC sessions that spare processes have made for sources that they may get."""
        return self.sessions.ahead

    def _start_counting(self, fail: Callable[[BaseException], None], ending: Callable[[], bool]) -> None:
        """Make what computes facts, and evaluates the alarms unless the run is `ending`."""
        alarms = self.graph.config.alarms
        runners = list(self._stages.runners.values())
        self._observer = Observer(wanted(alarms), dict, runners, folders(self.graph))
        self.alarms = Alarms(alarms, self.health, runners, self.addresses, fail, ending)
        self._run_events = EventCounter(self.graph)
        self.alarms.listen(lambda time_s, event: self._run_events.add(event))

    def _exit_code(self) -> int:
        """0, or 1 if a source, a frame or every process failed."""
        workers = self.processes.workers
        failed = self.sources.removed.failed_sources or any(state.error for state in self.states.values())
        failed = failed or any(worker.code for worker in workers if worker.failure is None)
        failed = failed or all(worker.failure is not None for worker in workers if not worker.spare)
        meters = [runner.meter for runner in self._stages.runners.values()]
        return int(bool(failed or any(meter.failed or meter.other_errors for meter in meters)))

    @property
    def elapsed_s(self) -> float:
        """See `PipelineRun.elapsed_s`."""
        return self.seconds or (0.0 if self._start_s is None else self._clock() - self._start_s)

    def run_counts(self) -> RunCounts:
        """All counts; see `Run`."""
        total = self._total()
        total.counts = self.counts()
        total.queues = self.queues()
        return total

    def counts(self) -> dict[str, int]:
        """See `PipelineRun.counts`; summed over all processes."""
        counts = self._total("counts").counts
        for name, count in self._failed_exports.counters.values.items():
            counts[name] = counts.get(name, 0) + count
        return {**counts, LOST: self.sources.lost} if self.sources.lost else counts

    def queues(self) -> dict[str, int]:
        """See `PipelineRun.queues`; summed over all processes."""
        alive = [worker.latest.counts for worker in self.processes.workers if not worker.over]
        return {**RunCounts.total(alive, "queues").queues, **self._stages.queues()}

    def listen(self, seen: FrameListener) -> None:
        """Pass the frames with events of the stages that this process runs to `seen`."""
        self._stages.listen(seen)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids: this process and the workers."""
        return self.processes.pids

    def frame_counts(self) -> list[tuple[int, float]]:
        """See `PipelineRun.frame_counts`; one entry per worker process."""
        return [(worker.latest.counts.frames, worker.latest.at_s) for worker in self.processes.workers]

    def _reports(self) -> list[WorkerReport]:
        of_run = RunCounts(events=dict(self.alarms.events), event_counts=self._run_events.counts())
        parent = [WorkerReport(counts=counts) for counts in (self._stages.run_counts(), of_run)]
        return [*(worker.latest for worker in self.processes.workers), *parent]

    def report(self, exit_code: int) -> dict[str, Any]:
        """The report of the run: sums over all processes, and each process's own values under `devices`."""
        total = self._total()
        stages = dict.fromkeys([*self.graph.nodes, *total.stages])
        total.counts = self.counts()
        total.stages = {id_: total.stages[id_] for id_ in stages if id_ in total.stages}
        device = ", ".join(device for device, _ in self._shares)
        removed = self.sources.removed
        return {
            **headline(device, exit_code, total.frames, self.seconds),
            **total.report(),
            "sources": {id_: state.report() for id_, state in self.states.items()},
            **({"removed": removed.report()} if removed.sources else {}),
            **({"restarted": self.recovery.restarted} if self.recovery.restarted else {}),
            "devices": [
                {"device": worker.device, "sources": self.sources.of(worker), **worker.latest.own}
                | ({"spare": True} if worker.spare else {})
                | ({"error": worker.failure} if worker.failure else {})
                for worker in self.processes.workers
            ],
            **({"alarms": alarms} if (alarms := self.alarms.report()) else {}),
        }

    @property
    def opening(self) -> list[str]:
        """See `PipelineRun.opening`; of all processes."""
        workers = [worker for worker in self.processes.workers if not worker.spare and not worker.over]
        return list(dict.fromkeys(text for worker in workers for text in worker.latest.opening))

    def health(self) -> HealthSnapshot:
        """See `PipelineRun.health`.

        Sources of a dead process are down; those of a silent process have no new frames.
        """
        now_s = self._clock()
        parts = [self._observer.snapshot()]
        for worker in [worker for worker in self.processes.workers if not worker.spare]:
            ids = self.sources.of(worker)
            latest = worker.latest.facts
            if latest is not None and (ids or not worker.failure):
                sources = {id_: source_facts for id_, source_facts in latest.sources.items() if id_ in ids}
                pipeline = latest.pipeline | ({"sources": float(len(sources))} if latest.sources else {})
                facts = replace(latest, sources=sources, pipeline=pipeline)
                parts.append(facts.aged(now_s - worker.latest.at_s, gone=worker.failure is not None))
        return merge_snapshots(parts)
