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
    """A span as it was received."""

    name: str
    id: bytes
    parent: bytes
    trace: bytes
    begun_ns: int
    ended_ns: int
    about: dict[str, Any]
    failed: bool
    resource: dict[str, Any]


@dataclass
class Collector:
    """What was received: spans, and each export of metrics with its resource."""

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list)
    exports: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def below(self, parent: Span) -> list[Span]:
        return [span for span in self.spans if span.parent == parent.id and span.trace == parent.trace]

    def until(self, true: Any, seconds: float = 60.0) -> Any:
        end = time.monotonic() + seconds
        while not (found := true()):
            assert time.monotonic() < end, f"not within {seconds} s; spans: {sorted({one.name for one in self.spans})}"
            time.sleep(0.02)
        return found

    def take_spans(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for part in request.resource_spans:
            resource = _attributes(part.resource.attributes)
            for scope in part.scope_spans:
                self.spans += [
                    Span(
                        one.name, one.span_id, one.parent_span_id, one.trace_id, one.start_time_unix_nano,
                        one.end_time_unix_nano, _attributes(one.attributes), one.status.code == 2, resource,
                    )
                    for one in scope.spans
                ]  # fmt: skip

    def take_metrics(self, body: bytes) -> None:
        request = ExportMetricsServiceRequest.FromString(body)
        for part in request.resource_metrics:
            found = {one.name: one for scope in part.scope_metrics for one in scope.metrics}
            self.exports.append((_attributes(part.resource.attributes), found))


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def points(metric: Any) -> Any:
    """The data points of a metric."""
    return getattr(metric, metric.WhichOneof("data")).data_points


def samples(text: str) -> dict[Any, float]:
    """What Prometheus scrapes: the value of each sample, by its name and labels."""
    families = text_string_to_metric_families(text)
    return {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}


def twins(metrics: dict[str, Any]) -> dict[Any, float]:
    """What OTLP carries, as Prometheus' samples."""
    found = {}
    for name, metric in metrics.items():
        own, kind = name.replace(".", "_", 1), metric.WhichOneof("data")
        for point in points(metric):
            labels = sorted((pair.key, pair.value.string_value) for pair in point.attributes)
            if kind == "histogram":
                bounds, total = [*map(str, point.explicit_bounds), "+Inf"], 0
                for bound, count in zip(bounds, point.bucket_counts, strict=True):
                    total += count
                    found[f"{own}_bucket", *sorted([*labels, ("le", bound)])] = total
                found[f"{own}_sum", *labels], found[f"{own}_count", *labels] = point.sum, point.count
            else:
                found[f"{own}_total" if kind == "sum" else own, *labels] = number(point)
    return found


def number(point: Any) -> float:
    """The value of a data point."""
    return float(getattr(point, point.WhichOneof("value")))


def still(found: dict[Any, float]) -> dict[Any, float]:
    """Without what changes from one reading to the next."""
    return {key: value for key, value in found.items() if not key[0].startswith("process_")}


@contextmanager
def collecting_otlp() -> Iterator[Collector]:
    """Receive what is sent to `endpoint` while the block runs."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            take = {"/v1/traces": found.take_spans, "/v1/metrics": found.take_metrics}.get(self.path)
            if take is not None:
                take(body)
            self.send_response(404 if take is None else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        found.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
