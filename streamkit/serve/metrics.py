# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: those of the run, and those of the server itself."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from streamkit.core.counters import slug
from streamkit.runtime.observe import metrics
from streamkit.serve.engine import ServeEngine


class ServerCollector(Collector):
    """Reads the server's counters whenever they are collected.

    Args:
        engine: the pipeline.
    """

    def __init__(self, engine: ServeEngine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its current value."""
        live = self._engine.gallery.live
        yield metrics.gauge("live_viewers", "Clients that watch video or listen to records", "", [(live.viewers,)])
        yield metrics.counter("live_lost", "Fragments and records that slow clients lost", "", [(live.lost,)])
        stored = ((slug(name), n) for name, n in dict(self._engine.store.counts.values).items())
        yield metrics.counter("store", "Events, images and samples that the store has lost or removed", "name", stored)
        refused = ((slug(cause), n) for cause, n in dict(self._engine.refused.values).items())
        text = "HTTP requests and connections that were rejected or closed"
        yield metrics.counter("http_refused", text, "cause", refused)


class VisibleMetrics(CollectorRegistry):
    """The metrics of the sources that the sender of the request may see; with a limit, no sums over all sources.

    Args:
        engine: the pipeline.
        families: all metrics.
    """

    def __init__(self, engine: ServeEngine, families: Collector) -> None:
        super().__init__(auto_describe=False)
        self._engine = engine
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of which something may be seen."""
        visible = self._engine.rights.visible()
        for family in self._families.collect():
            if visible is not None:
                family.samples = [sample for sample in family.samples if sample.labels.get("source") in visible]
            if visible is None or family.samples:
                yield family


def registry(engine: ServeEngine) -> CollectorRegistry:
    """A separate registry for one pipeline and its server."""
    collectors = metrics.registry(engine.running)
    collectors.register(ServerCollector(engine))
    return collectors
