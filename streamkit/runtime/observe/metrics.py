# SPDX-License-Identifier: Apache-2.0
"""Metrics of a run, as Prometheus' families: the one source of what Prometheus scrapes and of what OTLP carries.

They are computed from the run's own counters when they are read, so that frames have no extra cost. Histograms use the
run's fine buckets, 2 % wide; their sums are estimates within 1 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from streamkit.core.counters import slug
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_counts import NUMBERS, SourceCounts
from streamkit.runtime.ingest.source_status import STATES
from streamkit.runtime.observe import nvml
from streamkit.runtime.observe.alarms import WHOLE
from streamkit.runtime.observe.event_counts import ALL_FILES, EventSeries, shaped_stages
from streamkit.runtime.run import Run

BOUNDS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the latency histograms' buckets, in seconds."""


class PipelineCollector(Collector):
    """Reads a run's counters whenever they are collected.

    Args:
        running: the run.
        by_source: whether each source has its own series; otherwise one has the sum, also of removed sources.
    """

    def __init__(self, running: Run, *, by_source: bool = True) -> None:
        self._running = running
        self._nvml = device_monitors(running)
        self._by_source = by_source

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its current value."""
        yield from self._sources() if self._by_source else self._files()
        yield from self._stages()
        yield from self._whole()
        yield from self._load()

    def _sources(self) -> Iterator[Metric]:
        states = {id_: state for id_, state in list(self._running.states.items()) if not state.removed}
        each = states.items()
        yield from _numbers(states)
        lost = ((id_, cause, n) for id_, state in each for cause, n in state.reconnects_by_cause().items())
        yield counter("reconnects", "Reconnects of a source", "source cause", lost)
        words = ((id_, word, float(state.state == word)) for id_, state in each for word in STATES)
        yield gauge("source_state", "1 for the current state of a source", "source state", words)
        rates = ((id_, round(state.fps_out, 2)) for id_, state in each)
        yield gauge("source_frames_per_second", "Frame rate of a source at the end of the graph", "source", rates)
        yield gauge("sources", "Number of sources", "", [(len(states),)])
        latency = ((id_, state.latency) for id_, state in each)
        yield histogram("source_latency_seconds", "From a frame's arrival to the end of the graph", "source", latency)

    def _files(self) -> Iterator[Metric]:
        present = [state for state in list(self._running.states.values()) if not state.removed]
        totals = SourceCounts()
        for counts in (self._running.sources.removed, *present):
            totals.merge(counts)
        yield from _numbers({ALL_FILES: totals})
        yield gauge("sources", "Number of sources", "", [(len(present),)])

    def _stages(self) -> Iterator[Metric]:
        running = self._running
        meters = running.meters()
        ids = [id_ for id_, node in running.graph.nodes.items() if "gallery" not in node.options]
        stages = [(id_, meters.get(id_, {})) for id_ in ids]
        frames = ((id_, meter.get("frames", 0)) for id_, meter in stages)
        yield counter("stage_frames", "Frames processed by a stage", "stage", frames)
        failed = ((id_, meter.get("failed", 0)) for id_, meter in stages)
        yield counter("stage_frames_failed", "Frames on which a stage failed", "stage", failed)
        spent = ((id_, meter.get("seconds", 0.0)) for id_, meter in stages)
        yield counter("stage_seconds", "Time spent in a stage", "stage", spent)
        yield gauge("stage_queue_batches", "Batches queued before a stage", "stage", running.queues().items())
        latency = list(running.latency.items())
        yield histogram("stage_latency_seconds", "From a frame's arrival to this output stage", "stage", latency)

    def _whole(self) -> Iterator[Metric]:
        running = self._running
        yield counter("detections", "Objects found", "stage", dict(running.detections).items())
        yield from self._events()
        shaped = tuple(f"{id_} " for id_ in shaped_stages(running.graph))  # their counts are metrics of their own
        counted: Counter[tuple[str, str]] = Counter()  # several phrases may have one slug
        for phrase, n in running.counts().items():
            if phrase.startswith(shaped):
                continue
            what, _, cause = phrase.partition(": ")
            counted[slug(what), slug(cause)] += n
        counts = ((*labels, n) for labels, n in counted.items())
        yield counter("counts", "Counts of the report: drops, copies, fallbacks, outputs", "name cause", counts)
        raised = ((alarm.alarm, alarm.source, 1.0) for alarm in running.alarms.raised)
        yield gauge("alarm", "1 for each raised alarm", "alarm source", raised)
        raises = ((name, n) for name, (_, n) in running.alarms.rules().items())
        yield counter("alarms_raised", "Number of times an alarm was raised", "alarm", raises)
        ready = running.ready and not running.stopping and running.fatal is None
        yield gauge("ready", "1 if frames are accepted", "", [(float(ready),)])

    def _events(self) -> Iterator[Metric]:
        """Events of the sources that are there, or of all files together; and what crossed lines and was in zones."""
        present = {id_ for id_, state in list(self._running.states.items()) if not state.removed} | {WHOLE}
        counts: Counter[EventSeries] = Counter()
        for series, n in self._running.event_counts.items():
            if not self._by_source:
                counts[series._replace(source=ALL_FILES)] += n
            elif series.source in present:
                counts[series] += n
        kinds: Counter[tuple[str, str, str]] = Counter()
        for series, n in counts.items():
            kinds[series.source, series.stage, series.kind] += n
        yield counter("events", "Events", "source stage kind", ((*labels, n) for labels, n in kinds.items()))
        shaped = shaped_stages(self._running.graph)
        objects = {series: n for series, n in counts.items() if series.stage in shaped}
        crossed = (
            (of.source, of.stage, of.shape, of.direction, of.label, n)
            for of, n in objects.items()
            if of.kind == "crossed"
        )
        yield counter("line_crossings", "Objects that crossed a line", "source stage line direction class", crossed)
        entered = ((of.source, of.stage, of.shape, of.label, n) for of, n in objects.items() if of.kind == "entered")
        yield counter("zone_entries", "Objects that entered a zone", "source stage zone class", entered)
        left = ((of.source, of.stage, of.shape, of.label, n) for of, n in objects.items() if of.kind == "left")
        yield counter("zone_exits", "Objects that left a zone", "source stage zone class", left)

    def _load(self) -> Iterator[Metric]:
        used = {device: nvml.use() for device, nvml in self._nvml.items()}
        for place, name in enumerate(("gpu", "decoder")):
            shares = [(device, use[place]) for device, use in used.items() if use[place] is not None]
            if shares:
                text = f"Share of time in which the {name} is busy"
                yield gauge(f"{name}_utilization_ratio", text, "device", shares)


def device_monitors(running: Run) -> dict[str, nvml.Nvml]:
    """The load of each GPU of a run, by name."""
    return {str(device): nvml.Nvml(device.index) for device in running.devices if device.kind == "cuda"}


def registry(running: Run, *, by_source: bool = True) -> CollectorRegistry:
    """A separate registry for one run, with this process's memory, threads and files; see `PipelineCollector`."""
    run_registry = CollectorRegistry(auto_describe=False)
    run_registry.register(PipelineCollector(running, by_source=by_source))
    ProcessCollector(registry=run_registry)
    PlatformCollector(registry=run_registry)
    return run_registry


def _numbers(counts_by_source: Mapping[str, SourceCounts]) -> Iterator[Metric]:
    """The metrics of the numbers that `SourceCounts` declares."""
    for number in (number for number in NUMBERS if number.metric):
        rows = [row for id_, counts in counts_by_source.items() for row in number.rows(id_, counts)]
        yield counter(number.metric, number.text, "source cause" if number.by_cause else "source", rows)


def _family(kind: Any, name: str, text: str, labels: str, rows: Iterable[tuple[Any, ...]]) -> Metric:
    """A family of metrics; each row holds the values of the labels, then the metric's value."""
    family: Metric = kind(f"streamkit_{name}", text, labels=labels.split())
    for *values, number in rows:
        family.add_metric(values, number)  # type: ignore[attr-defined]
    return family


counter = partial(_family, CounterMetricFamily)
gauge = partial(_family, GaugeMetricFamily)


def histogram(name: str, text: str, label: str, values: Iterable[tuple[str, Histogram | None]]) -> Metric:
    """A family of histograms; a value that is None is left out."""
    family = HistogramMetricFamily(f"streamkit_{name}", text, labels=[label])
    for key, histogram in values:
        if histogram is not None:
            counts = [*histogram.up_to(BOUNDS_S), int(histogram.counts.sum())]
            bounds = [*map(str, BOUNDS_S), "+Inf"]
            family.add_metric([key], list(zip(bounds, counts, strict=True)), histogram.total_s())
    return family
