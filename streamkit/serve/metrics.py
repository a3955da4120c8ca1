# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics, computed from the pipeline's own counters at each scrape, so that frames have no extra cost.

Histograms use the pipeline's fine buckets, 2 % wide; their sums are estimates within 1 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from streamkit.core.counters import slug
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import STATES
from streamkit.runtime.observe import nvml
from streamkit.serve.engine import ServeEngine

BOUNDS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the latency histograms' buckets, in seconds."""


class PipelineCollector(Collector):
    """Reads the pipeline's counters at every scrape.

    Args:
        engine: the pipeline.
    """

    def __init__(self, engine: ServeEngine) -> None:
        self._engine, self._nvml = engine, device_monitors(engine)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its current value."""
        yield from self._sources()
        yield from self._stages()
        yield from self._whole()
        yield from self._load()

    def _sources(self) -> Iterator[Metric]:
        sources = self._engine.sources()
        names = {one.id for one in sources}
        yield _counter("frames", "Frames delivered by a source", "source", ((s.id, s.frames) for s in sources))
        dropped = ((s.id, cause, n) for s in sources for cause, n in s.dropped.items())
        yield _counter("frames_dropped", "Frames dropped", "source cause", dropped)
        lost = ((s.id, cause, n) for s in sources for cause, n in s.reconnects.items())
        yield _counter("reconnects", "Reconnects of a source", "source cause", lost)
        states = ((s.id, word, float(s.state == word)) for s in sources for word in STATES)
        yield _gauge("source_state", "1 for the current state of a source", "source state", states)
        rates = ((s.id, s.fps) for s in sources)
        yield _gauge("source_frames_per_second", "Frame rate of a source at the end of the graph", "source", rates)
        live = self._engine.gallery.live
        yield _gauge("live_viewers", "Clients that watch video or listen to records", "", [(live.viewers,)])
        yield _counter("live_lost", "Fragments and records that slow clients lost", "", [(live.lost,)])
        yield _gauge("sources", "Number of sources", "", [(len(sources),)])
        latency = ((id_, known.latency) for id_, known in list(self._engine.running.states.items()) if id_ in names)
        yield _histogram("source_latency_seconds", "From a frame's arrival to the end of the graph", "source", latency)

    def _stages(self) -> Iterator[Metric]:
        stages, running = self._engine.stages(), self._engine.running
        yield _counter("stage_frames", "Frames processed by a stage", "stage", ((s.id, s.frames) for s in stages))
        failed = ((s.id, s.failed) for s in stages)
        yield _counter("stage_frames_failed", "Frames on which a stage failed", "stage", failed)
        meters = running.meters()
        spent = ((s.id, meters.get(s.id, {}).get("seconds", 0.0)) for s in stages)
        yield _counter("stage_seconds", "Time spent in a stage", "stage", spent)
        yield _gauge("stage_queue_batches", "Batches queued before a stage", "stage", running.queues().items())
        latency = list(running.latency.items())
        yield _histogram("stage_latency_seconds", "From a frame's arrival to this output stage", "stage", latency)

    def _whole(self) -> Iterator[Metric]:
        running = self._engine.running
        yield _counter("detections", "Objects found", "stage", dict(running.detections).items())
        yield _counter("events", "Events", "kind", dict(running.events).items())
        counted: Counter[tuple[str, str]] = Counter()  # several phrases may have one slug
        for phrase, n in running.counts().items():
            what, _, cause = phrase.partition(": ")
            counted[slug(what), slug(cause)] += n
        counts = ((*labels, n) for labels, n in counted.items())
        yield _counter("counts", "Counts of the report: drops, copies, fallbacks, outputs", "name cause", counts)
        stored = ((slug(name), n) for name, n in dict(self._engine.store.counts.values).items())
        yield _counter("store", "Events, images and samples that the store has lost or removed", "name", stored)
        refused = ((slug(cause), n) for cause, n in dict(self._engine.refused.values).items())
        yield _counter("http_refused", "HTTP requests and connections that were rejected or closed", "cause", refused)
        raised = ((one.alarm, one.source, 1.0) for one in running.alarms.raised)
        yield _gauge("alarm", "1 for each raised alarm", "alarm source", raised)
        raises = ((name, n) for name, (_, n) in running.alarms.rules().items())
        yield _counter("alarms_raised", "Number of times an alarm was raised", "alarm", raises)
        yield _gauge("ready", "1 if frames are accepted", "", [(float(self._engine.ready),)])

    def _load(self) -> Iterator[Metric]:
        used = {device: nvml.use() for device, nvml in self._nvml.items()}
        for place, name in enumerate(("gpu", "decoder")):
            shares = [(device, use[place]) for device, use in used.items() if use[place] is not None]
            if shares:
                text = f"Share of time in which the {name} is busy"
                yield _gauge(f"{name}_utilization_ratio", text, "device", shares)


def device_monitors(engine: ServeEngine) -> dict[str, nvml.Nvml]:
    """The load of each GPU of a pipeline, by name."""
    return {str(device): nvml.Nvml(device.index) for device in engine.running.devices if device.kind == "cuda"}


def registry(engine: ServeEngine) -> CollectorRegistry:
    """A separate registry for one pipeline, with this process's memory, threads and files."""
    from prometheus_client import PlatformCollector, ProcessCollector

    made = CollectorRegistry(auto_describe=False)
    made.register(PipelineCollector(engine))
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    return made


def _family(kind: Any, name: str, text: str, labels: str, rows: Iterable[tuple[Any, ...]]) -> Metric:
    """A family of metrics; each row holds the values of the labels, then the metric's value."""
    made: Metric = kind(f"streamkit_{name}", text, labels=labels.split())
    for *values, number in rows:
        made.add_metric(values, number)  # type: ignore[attr-defined]
    return made


_counter, _gauge = partial(_family, CounterMetricFamily), partial(_family, GaugeMetricFamily)


def _histogram(name: str, text: str, label: str, values: Iterable[tuple[str, Histogram | None]]) -> Metric:
    made = HistogramMetricFamily(f"streamkit_{name}", text, labels=[label])
    for key, histogram in values:
        if histogram is not None:
            counts = [*histogram.up_to(BOUNDS_S), int(histogram.counts.sum())]
            bounds = [*map(str, BOUNDS_S), "+Inf"]
            made.add_metric([key], list(zip(bounds, counts, strict=True)), histogram.total_s())
    return made
