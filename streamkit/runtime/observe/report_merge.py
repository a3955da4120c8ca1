# SPDX-License-Identifier: Apache-2.0
"""Counts of worker processes, and their merge into one report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamkit.runtime.execution.meters import Histogram, stage_total
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState
from streamkit.runtime.observe.event_counts import EventCounts, EventSeries, sum_event_counts
from streamkit.runtime.observe.health import HealthSnapshot

_KNOWN = {"exit_code", "frames", "seconds", "frames_per_s", "detections", "events", "counts", "stages"}


@dataclass(slots=True)
class WorkerReport:
    """What one process has counted so far.

    Attributes:
        report: what is read here of its `PipelineRun.report`; for the parent process, only the part of its sinks.
        finished: frames that reached the end of the graph, by the stage at that end.
        latency: latency histograms, by the same stages.
        states: states of its sources, by id.
        numbers: number of the order that each of its sources was started with; see `SourceOrder`.
        removed: totals of its removed sources.
        queues: frames and batches that wait, by the stage they wait for; see `PipelineRun.queues`.
        facts: facts for alarms and the page; None before the first report.
        opening: the stages that it is opening; see `PipelineRun.opening`.
        event_counts: events by source, stage and more; see `PipelineRun.event_counts`.
        at_s: time of the counts on the monotonic clock, which all processes of a machine share.
    """

    report: dict[str, Any] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    latency: dict[str, Histogram] = field(default_factory=dict)
    states: dict[str, SourceState] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    removed: RemovedSources = field(default_factory=RemovedSources)
    queues: dict[str, int] = field(default_factory=dict)
    facts: HealthSnapshot | None = None
    opening: list[str] = field(default_factory=list)
    event_counts: EventCounts = field(default_factory=dict)
    at_s: float = field(default_factory=time.monotonic)


class MergedCounts:
    """The counts of a run over several processes or machines, as `PipelineRun` has them."""

    def _reports(self) -> Sequence[WorkerReport]:
        """The latest report of each."""
        raise NotImplementedError

    @property
    def frames(self) -> int:
        """Number of frames that reached the end of the graph."""
        return frames_done(self._reports())

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
    def event_counts(self) -> dict[EventSeries, int]:
        """See `PipelineRun.event_counts`; summed over all processes."""
        return sum_event_counts(report.event_counts for report in self._reports())

    @property
    def latency(self) -> dict[str, Histogram]:
        """See `PipelineRun.latency`; merged over all processes."""
        return latencies(self._reports())

    def meters(self) -> dict[str, dict[str, Any]]:
        """See `PipelineRun.meters`; summed over all processes."""
        return dict(add_up(self._reports())["stages"])


def headline(device: str, exit_code: int, frames: int, seconds: float) -> dict[str, Any]:
    """The first part of a report."""
    return {
        "schema": "streamkit-report/1",
        "device": device,
        "exit_code": exit_code,
        "frames": frames,
        "seconds": round(seconds, 3),
        "frames_per_s": round(frames / seconds, 2) if seconds else None,
    }


def finished_frames(parts: Iterable[WorkerReport]) -> dict[str, int]:
    """Sum the frames that reached the ends of the graph, by end."""
    return _sum(part.finished for part in parts)


def frames_done(parts: Iterable[WorkerReport]) -> int:
    """Number of frames that reached the end of the graph."""
    return min(finished_frames(parts).values(), default=0)


def add_up(parts: Sequence[WorkerReport]) -> dict[str, Any]:
    """Merge `frames`, `detections`, `events`, `counts`, `stages` and `latency` for a report."""
    reports = [part.report for part in parts]
    found: dict[str, Any] = {"frames": frames_done(parts)}
    for key in ("detections", "events", "counts"):
        found[key] = _sum(report.get(key, {}) for report in reports)
    found["counts"] = dict(sorted(found["counts"].items()))
    stages: dict[str, list[dict[str, Any]]] = {}
    for report in reports:
        for name, stage in report.get("stages", {}).items():
            stages.setdefault(name, []).append(stage)
    found["stages"] = {name: stage_total(stage_parts) for name, stage_parts in stages.items()}
    found["latency"] = {name: histogram.summary() for name, histogram in latencies(parts).items()}
    return found


def latencies(parts: Iterable[WorkerReport]) -> dict[str, Histogram]:
    """Merge the latency histograms, by the stage at the end of the graph."""
    latency: dict[str, Histogram] = {}
    for part in parts:
        for name, histogram in part.latency.items():
            latency.setdefault(name, Histogram()).counts += histogram.counts
    return latency


def queued(parts: Iterable[WorkerReport]) -> dict[str, int]:
    """Sum the queue lengths, by the stage that is waited for."""
    return _sum(part.queues for part in parts)


def removed(parts: Iterable[WorkerReport]) -> RemovedSources:
    """Sum the totals of the removed sources."""
    totals = RemovedSources()
    for part in parts:
        totals.add_totals(part.removed)
    return totals


def unmerged_fields(part: WorkerReport) -> dict[str, Any]:
    """A process's own part of a merged report: time, rate, and values that cannot be summed."""
    keys = ("exit_code", "frames", "seconds", "frames_per_s")
    kept: dict[str, Any] = {key: part.report[key] for key in keys if key in part.report}
    return {**kept, **{key: value for key, value in part.report.items() if key not in _KNOWN}}


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)
