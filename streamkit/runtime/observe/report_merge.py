# SPDX-License-Identifier: Apache-2.0
"""Counts of worker processes, and their merge into one report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState
from streamkit.runtime.observe.event_counts import EventCounts
from streamkit.runtime.observe.health import HealthSnapshot
from streamkit.runtime.observe.run_counts import RunCounts


@dataclass(slots=True)
class WorkerReport:
    """What one process has counted so far.

    Attributes:
        own: its own part of a merged report: time, rate, and values that cannot be summed.
        counts: what is merged with the counts of other processes.
        states: states of its sources, by id.
        numbers: number of the order that each of its sources was started with; see `SourceOrder`.
        removed: totals of its removed sources.
        facts: facts for alarms and the page; None before the first report.
        opening: the stages that it is opening; see `PipelineRun.opening`.
        at_s: time of the counts on the monotonic clock, which all processes of a machine share.
    """

    own: dict[str, Any] = field(default_factory=dict)
    counts: RunCounts = field(default_factory=RunCounts)
    states: dict[str, SourceState] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    removed: RemovedSources = field(default_factory=RemovedSources)
    facts: HealthSnapshot | None = None
    opening: list[str] = field(default_factory=list)
    at_s: float = field(default_factory=time.monotonic)


class MergedCounts:
    """The counts of a run over several processes or machines, as `PipelineRun` has them."""

    def _reports(self) -> Sequence[WorkerReport]:
        """The latest report of each."""
        raise NotImplementedError

    def _total(self, *names: str) -> RunCounts:
        """The counts with these names, of all processes."""
        return RunCounts.total([report.counts for report in self._reports()], *names)

    @property
    def frames(self) -> int:
        """Number of frames that reached the end of the graph."""
        return self._total("finished").frames

    @property
    def finished(self) -> dict[str, int]:
        """Frames by end of the graph; see `GraphOutputs.finished`."""
        return self._total("finished").finished

    @property
    def detections(self) -> dict[str, int]:
        """Objects by table."""
        return self._total("detections").detections

    @property
    def events(self) -> dict[str, int]:
        """Events by kind."""
        return self._total("events").events

    @property
    def event_counts(self) -> EventCounts:
        """See `PipelineRun.event_counts`; summed over all processes."""
        return self._total("event_counts").event_counts

    @property
    def latency(self) -> dict[str, Histogram]:
        """See `PipelineRun.latency`; merged over all processes."""
        return self._total("latency").latency

    def meters(self) -> dict[str, dict[str, Any]]:
        """See `PipelineRun.meters`; summed over all processes."""
        return self._total("stages").stages


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


def removed(parts: Iterable[WorkerReport]) -> RemovedSources:
    """Sum the totals of the removed sources."""
    totals = RemovedSources()
    for part in parts:
        totals.add_totals(part.removed)
    return totals
