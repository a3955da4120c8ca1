"""A collector of OpenTelemetry: an HTTP server on loopback that reads what OTLP exporters send."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families


@dataclass
class Span:
    """A received span."""

    name: str
    id: bytes
    parent: bytes
    trace: bytes
    start_ns: int
    ended_ns: int
    about: dict[str, Any]
    failed: bool
    resource: dict[str, Any]


@dataclass
class Collector:
    """The received spans, and each export of metrics with its resource."""

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list)
    exports: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def below(self, parent: Span) -> list[Span]:
        return [span for span in self.spans if span.parent == parent.id and span.trace == parent.trace]

    def until(self, true: Any, seconds: float = 60.0) -> Any:
        end = time.monotonic() + seconds
        while not (answer := true()):
            assert time.monotonic() < end, (
                f"not within {seconds} s; spans: {sorted({span.name for span in self.spans})}"
            )
            time.sleep(0.02)
        return answer

    def take_spans(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for part in request.resource_spans:
            resource = _attributes(part.resource.attributes)
            for scope in part.scope_spans:
                self.spans += [
                    Span(
                        span.name,
                        span.span_id,
                        span.parent_span_id,
                        span.trace_id,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        _attributes(span.attributes),
                        span.status.code == 2,
                        resource,
                    )
                    for span in scope.spans
                ]

    def take_metrics(self, body: bytes) -> None:
        request = ExportMetricsServiceRequest.FromString(body)
        for part in request.resource_metrics:
            metrics = {metric.name: metric for scope in part.scope_metrics for metric in scope.metrics}
            self.exports.append((_attributes(part.resource.attributes), metrics))


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def points(metric: Any) -> Any:
    """The data points of a metric."""
    return getattr(metric, metric.WhichOneof("data")).data_points


def samples(text: str) -> dict[Any, float]:
    """Return the value of each Prometheus sample, by name and labels."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }


def twins(metrics: dict[str, Any]) -> dict[Any, float]:
    """Convert OTLP metrics to Prometheus samples."""
    values = {}
    for name, metric in metrics.items():
        prometheus_name = name.replace(".", "_", 1)
        kind = metric.WhichOneof("data")
        for point in points(metric):
            labels = sorted((pair.key, pair.value.string_value) for pair in point.attributes)
            if kind == "histogram":
                bounds = [*map(str, point.explicit_bounds), "+Inf"]
                total = 0
                for bound, count in zip(bounds, point.bucket_counts, strict=True):
                    total += count
                    values[f"{prometheus_name}_bucket", *sorted([*labels, ("le", bound)])] = total
                values[f"{prometheus_name}_sum", *labels] = point.sum
                values[f"{prometheus_name}_count", *labels] = point.count
            else:
                values[f"{prometheus_name}_total" if kind == "sum" else prometheus_name, *labels] = number(point)
    return values


def number(point: Any) -> float:
    """The value of a data point."""
    return float(getattr(point, point.WhichOneof("value")))


def still(readings: dict[Any, float]) -> dict[Any, float]:
    """Drop metrics that change between readings."""
    return {key: value for key, value in readings.items() if not key[0].startswith("process_")}


@contextmanager
def collecting_otlp() -> Iterator[Collector]:
    """Receive what is sent to `endpoint` while the block runs."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            take = {"/v1/traces": collector.take_spans, "/v1/metrics": collector.take_metrics}.get(self.path)
            if take is not None:
                take(body)
            self.send_response(404 if take is None else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
