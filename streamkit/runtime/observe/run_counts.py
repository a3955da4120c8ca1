# SPDX-License-Identifier: Apache-2.0
"""What a run has counted, each declared once with how the counts of several processes are merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from streamkit.runtime.execution.meters import Histogram, stage_total
from streamkit.runtime.observe.event_counts import EventCounts


def _sum(parts: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    total: Counter[Any] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _sum_by_name(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(sorted(_sum(parts).items()))


def _sum_nested(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    total: dict[str, Counter[str]] = {}
    for part in parts:
        for name, counts in part.items():
            total.setdefault(name, Counter()).update(counts)
    return {name: dict(counts) for name, counts in total.items()}


def _merge_stages(parts: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    stages: dict[str, list[Mapping[str, Any]]] = {}
    for part in parts:
        for id_, stage in part.items():
            stages.setdefault(id_, []).append(stage)
    return {id_: stage_total(stage_parts) for id_, stage_parts in stages.items()}


def _merge_histograms(parts: Iterable[Mapping[str, Histogram]]) -> dict[str, Histogram]:
    latency: dict[str, Histogram] = {}
    for part in parts:
        for id_, histogram in part.items():
            latency.setdefault(id_, Histogram()).counts += histogram.counts
    return latency


@dataclass(slots=True)
class RunCounts:
    """What a run, or one of its processes, has counted so far; `by` merges a count of several.

    Attributes:
        finished: frames that reached the ends of the graph, by the stage at that end.
        detections: objects by table.
        events: events by kind.
        counts: counters of all sources and stages by name: drops, failures, fallbacks.
        stages: metrics of each stage, by id.
        latency: from a frame's arrival to each end of the graph, by the stage at that end.
        event_counts: events by source, stage and more; see `EventSeries`.
        queues: frames and batches that wait, by the stage they wait for.
        labels: objects by table and label, see `GraphOutputs.labels`.
        unsure: objects with a low score by table, see `GraphOutputs.unsure`.
    """

    finished: dict[str, int] = field(default_factory=dict, metadata={"by": _sum})
    detections: dict[str, int] = field(default_factory=dict, metadata={"by": _sum})
    events: dict[str, int] = field(default_factory=dict, metadata={"by": _sum})
    counts: dict[str, int] = field(default_factory=dict, metadata={"by": _sum_by_name})
    stages: dict[str, dict[str, Any]] = field(default_factory=dict, metadata={"by": _merge_stages})
    latency: dict[str, Histogram] = field(default_factory=dict, metadata={"by": _merge_histograms})
    event_counts: EventCounts = field(default_factory=dict, metadata={"by": _sum})
    queues: dict[str, int] = field(default_factory=dict, metadata={"by": _sum})
    labels: dict[str, dict[str, int]] = field(default_factory=dict, metadata={"by": _sum_nested})
    unsure: dict[str, int] = field(default_factory=dict, metadata={"by": _sum})

    def _events_by_stage(self) -> dict[str, dict[str, int]]:
        return _sum_nested({series.stage: {series.kind: count}} for series, count in self.event_counts.items())

    @property
    def frames(self) -> int:
        """Number of frames that reached the end of the graph."""
        return min(self.finished.values(), default=0)

    @staticmethod
    def total(parts: Sequence[RunCounts], *names: str) -> RunCounts:
        """The counts of several processes, machines or runs together; with `names`, only these."""
        merged = RunCounts()
        for declared in fields(RunCounts):
            if not names or declared.name in names:
                setattr(
                    merged, declared.name, declared.metadata["by"]([getattr(part, declared.name) for part in parts])
                )
        return merged

    def report(self) -> dict[str, Any]:
        """The counts as part of a report."""
        return {
            "detections": self.detections,
            "labels": self.labels,
            "unsure": self.unsure,
            "events": self.events,
            "events_by_stage": self._events_by_stage(),
            "counts": self.counts,
            "stages": self.stages,
            "latency": {id_: histogram.summary() for id_, histogram in self.latency.items()},
        }
