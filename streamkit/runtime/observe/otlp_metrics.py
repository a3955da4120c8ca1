# SPDX-License-Identifier: Apache-2.0
"""Converts Prometheus' families to the metrics of OTLP, with the same values."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family
from prometheus_client.core import Sample

from streamkit.core.version import __version__

_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}  # by the last word of the name
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_Key = tuple[str, tuple[tuple[str, str], ...]]


def otlp_name(name: str) -> str:
    """The name in OTLP: `streamkit.stage_frames` for Prometheus' `streamkit_stage_frames_total`."""
    return name.removesuffix("_total").replace("_", ".", 1)


class OtlpMetrics:
    """Reads a registry as the metrics of OTLP.

    Counters are cumulative. One that has become lower, because the run was rebuilt, starts again at that moment.

    Args:
        registry: a Prometheus registry.
        resource: what the metrics are of.
    """

    def __init__(self, registry: Any, resource: Resource) -> None:
        self._registry = registry
        self._resource = resource
        self._start_ns = self._read_ns = time.time_ns()
        self._last: dict[_Key, tuple[int, float]] = {}  # when a counter began, and its last value

    def read(self) -> MetricsData:
        """The metrics with their values now."""
        now_ns = time.time_ns()
        metrics = [self._metric(family, now_ns) for family in self._registry.collect() if family.samples]
        self._read_ns = now_ns
        scope = ScopeMetrics(InstrumentationScope("streamkit", __version__), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, family: Family, now_ns: int) -> Metric:
        data: Any
        if family.type == "counter":
            rows = [sample for sample in family.samples if sample.name.endswith("_total")]
            data = Sum([self._number(sample, now_ns, True) for sample in rows], _CUMULATIVE, is_monotonic=True)
        elif family.type == "histogram":
            data = HistogramData(list(self._histograms(family.samples, now_ns)), _CUMULATIVE)
        else:
            data = Gauge([self._number(sample, now_ns, False) for sample in family.samples])
        unit = _UNITS.get(family.name.rpartition("_")[2], "")
        return Metric(otlp_name(family.name), family.documentation, unit, data)

    def _number(self, sample: Sample, now_ns: int, counts: bool) -> NumberDataPoint:
        start_ns = self._since((sample.name, tuple(sample.labels.items())), sample.value) if counts else 0
        return NumberDataPoint(sample.labels, start_ns, now_ns, sample.value)

    def _histograms(self, samples: Iterable[Sample], now_ns: int) -> Iterator[HistogramDataPoint]:
        """A point for each set of labels; Prometheus' buckets are cumulative, those of OTLP are not."""
        series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
        for sample in samples:
            labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
            histogram = series.setdefault(labels, {"buckets": [], "sum": 0.0})
            if sample.name.endswith("_bucket"):
                histogram["buckets"].append((float(sample.labels["le"]), int(sample.value)))
            elif sample.name.endswith("_sum"):
                histogram["sum"] = sample.value
        for labels, histogram in series.items():
            bounds, counts = zip(*sorted(histogram["buckets"]), strict=True)
            each = [count - before for before, count in zip((0, *counts), counts, strict=False)]
            start_ns = self._since((next(iter(samples)).name, labels), counts[-1])
            yield HistogramDataPoint(
                dict(labels),
                start_ns,
                now_ns,
                counts[-1],
                histogram["sum"],
                each,
                bounds[:-1],
                min=None,  # type: ignore[arg-type]  # unknown
                max=None,  # type: ignore[arg-type]
            )

    def _since(self, key: _Key, value: float) -> int:
        """When a counter began to count."""
        start_ns, before = self._last.get(key, (self._start_ns, 0.0))
        if value < before:
            start_ns = self._read_ns
        self._last[key] = start_ns, value
        return start_ns
