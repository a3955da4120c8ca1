"""Prometheus metrics, computed from the pipeline's own counters at each scrape, so that frames have no extra cost.

Histograms use the pipeline's fine buckets, 2 % wide; their sums are estimates within 1 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from streamkit.core.counters import slug
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import STATES
from streamkit.serve.engine import ServeEngine

BOUNDS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the latency histograms' buckets, in seconds."""


class PipelineCollector(Collector):
    """Reads the pipeline's counters at every scrape.

    Args:
        engine: the pipeline.
    """

    def __init__(self, engine: ServeEngine) -> None:
        from streamkit.runtime.observe.nvml import Nvml

        self._engine = engine
        device = engine.running.device
        self._nvml = Nvml(device.index) if device.kind == "cuda" else None

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its current value."""
        yield from self._sources()
        yield from self._stages()
        yield from self._whole()
        yield from self._load()

    def _sources(self) -> Iterator[Metric]:
        sources = self._engine.sources()
        names = [one.id for one in sources]
        yield _counter("frames", "Frames that a source has handed over", "source", ((s.id, s.frames) for s in sources))
        dropped = CounterMetricFamily("streamkit_frames_dropped", "Frames dropped", labels=["source", "cause"])
        reconnects = CounterMetricFamily("streamkit_reconnects", "Reconnects of a source", labels=["source", "cause"])
        state = GaugeMetricFamily("streamkit_source_state", "1 for the state it is in", labels=["source", "state"])
        fps = GaugeMetricFamily(
            "streamkit_source_frames_per_second", "Rate of a source's frames at the end of the graph", labels=["source"]
        )
        for one in sources:
            for cause, n in one.dropped.items():
                dropped.add_metric([one.id, cause], n)
            for cause, n in one.reconnects.items():
                reconnects.add_metric([one.id, cause], n)
            for word in STATES:
                state.add_metric([one.id, word], float(one.state == word))
            fps.add_metric([one.id], one.fps)
        yield from (dropped, reconnects, state, fps)
        yield GaugeMetricFamily("streamkit_sources", "Sources there are", value=len(names))
        latency = HistogramMetricFamily(
            "streamkit_source_latency_seconds", "From a frame's arrival to the graph's end", labels=["source"]
        )
        for name, known in list(self._engine.running.states.items()):
            if name in names and known.latency is not None:
                _add(latency, [name], known.latency)
        yield latency

    def _stages(self) -> Iterator[Metric]:
        stages, running = self._engine.stages(), self._engine.running
        yield _counter("stage_frames", "Frames a stage has seen", "stage", ((s.id, s.frames) for s in stages))
        yield _counter(
            "stage_frames_failed", "Frames that failed in a stage", "stage", ((s.id, s.failed) for s in stages)
        )
        meters = running.meters()
        spent = ((s.id, meters.get(s.id, {}).get("seconds", 0.0)) for s in stages)
        yield _counter("stage_seconds", "Time spent in a stage", "stage", spent)
        waiting = GaugeMetricFamily(
            "streamkit_stage_queue_batches", "Batches that wait before a stage", labels=["stage"]
        )
        for name, n in running.queues().items():
            waiting.add_metric([name], n)
        yield waiting
        latency = HistogramMetricFamily(
            "streamkit_stage_latency_seconds", "From a frame's arrival to this end of the graph", labels=["stage"]
        )
        for name, histogram in list(running.latency.items()):
            _add(latency, [name], histogram)
        yield latency

    def _whole(self) -> Iterator[Metric]:
        running = self._engine.running
        yield _counter("detections", "Objects found", "stage", dict(running.detections).items())
        yield _counter("events", "Events", "kind", dict(running.events).items())
        counted: Counter[tuple[str, str]] = Counter()  # several phrases may have one slug
        for phrase, n in running.counts().items():
            what, _, cause = phrase.partition(": ")
            counted[slug(what), slug(cause)] += n
        counts = CounterMetricFamily(
            "streamkit_counts", "The counts of the report: drops, copies, fallbacks, outputs", labels=["name", "cause"]
        )
        for labels, n in counted.items():
            counts.add_metric(labels, n)
        yield counts
        refused = ((slug(cause), n) for cause, n in dict(self._engine.refused.values).items())
        yield _counter("http_refused", "HTTP requests and connections that were refused or cut off", "cause", refused)
        raised = GaugeMetricFamily("streamkit_alarm", "1 for each alarm that is raised", labels=["alarm", "source"])
        for one in running.alarms.raised:
            raised.add_metric([one.alarm, one.source], 1.0)
        yield raised
        raises = ((name, n) for name, (_, n) in running.alarms.rules().items())
        yield _counter("alarms_raised", "Times an alarm was raised", "alarm", raises)
        yield GaugeMetricFamily("streamkit_ready", "Whether frames are taken", value=float(self._engine.ready))

    def _load(self) -> Iterator[Metric]:
        if self._nvml is None:
            return
        for name, share in zip(("gpu", "decoder"), self._nvml.use(), strict=True):
            if share is not None:
                yield GaugeMetricFamily(
                    f"streamkit_{name}_utilization_ratio", f"Share of time in which the {name} is busy", value=share
                )


def registry(engine: ServeEngine) -> CollectorRegistry:
    """A separate registry for one pipeline, with this process's memory, threads and files."""
    from prometheus_client import PlatformCollector, ProcessCollector

    made = CollectorRegistry(auto_describe=False)
    made.register(PipelineCollector(engine))
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    return made


def _counter(name: str, text: str, label: str, values: Iterable[tuple[str, Any]]) -> Metric:
    made = CounterMetricFamily(f"streamkit_{name}", text, labels=[label])
    for key, n in values:
        made.add_metric([key], n)
    return made


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    counts = [*histogram.up_to(BOUNDS_S), int(histogram.counts.sum())]
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    family.add_metric(labels, list(zip(bounds, counts, strict=True)), histogram.total_s())
