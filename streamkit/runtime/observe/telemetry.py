# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry: exports traces and metrics of a run by OTLP, if the environment names a collector.

Nothing here slows or ends the run: exports happen on their own threads, what cannot be sent is dropped and counted, and
the flush at the end is bounded. Without the variables, nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamkit.config.plan import Graph
from streamkit.core.addresses import check_characters
from streamkit.core.counters import Counters
from streamkit.core.errors import ConfigError, describe, needs
from streamkit.core.masking import mask
from streamkit.core.tracing import record_operations
from streamkit.core.version import __version__
from streamkit.runtime.execution.future import ThreadFuture, start
from streamkit.runtime.observe.batch_traces import BatchTraces

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from streamkit.runtime.observe.otlp_metrics import OtlpMetrics

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
"""Environment variables that turn the export on."""

FLUSH_S = 3.0
"""Maximum time of the flush at the end of a run, in seconds."""

_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_ATTRIBUTES = "OTEL_RESOURCE_ATTRIBUTES"
_INSTANCE = "service.instance.id"
_LATE_S = 0.5  # for an export that is being aborted
_FAILED = "telemetry exports failed"
_REASON = re.compile(r"\[Errno -?\d+\] ([^')\"\]]+)|reason: (.+)$|(timed out)")

failures = Counters()
"""Exports of this process that failed."""


class FailedExports:
    """The exports that have failed since this was created, as a part of the counts of a run."""

    def __init__(self) -> None:
        self._before = Counter(failures.values)

    @property
    def counters(self) -> Counters:
        """Their number, by signal."""
        counters = Counters()
        counters.values.update(Counter(failures.values) - self._before)
        return counters


def wanted() -> bool:
    """Whether the environment names a collector."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not off and any(os.environ.get(name) for name in ENDPOINTS)


class _Active:
    telemetry: Telemetry | None = None


def active() -> Telemetry | None:
    """The telemetry of this process, while it is exported."""
    return _Active.telemetry


def open_telemetry() -> Telemetry | None:
    """Begin to export traces, if the environment names a collector; pass the result to `exporting`.

    Raises:
        MissingPackage: the packages of the extra `otel` are not installed.
        ConfigError: a variable is invalid.
    """
    if not wanted():
        return None
    name = next(name for name in ENDPOINTS if os.environ.get(name))
    with needs("opentelemetry-exporter-otlp-proto-http", "otel", f"{name} is set: the export of telemetry"):
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401
    with needs("prometheus-client", "otel", f"{name} is set: the export of telemetry"):
        import prometheus_client  # noqa: F401
    for variable in ENDPOINTS:
        text = os.environ.get(variable, "")
        if text and not text.startswith(("http://", "https://")):
            raise ConfigError(
                f"{variable} must begin with http:// or https://, such as http://localhost:4318, got {text}"
            )
        try:
            check_characters(text)
        except ValueError as error:
            raise ConfigError(f"{variable} {error}") from None
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol != "http/protobuf":
        raise ConfigError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, got {protocol}; unset it, and name the collector's "
            "HTTP port in the endpoint, such as http://localhost:4318"
        )
    _Active.telemetry = Telemetry()
    return _Active.telemetry


@contextlib.contextmanager
def exporting(telemetry: Telemetry | None, registry: Callable[[], Any] | None = None) -> Iterator[None]:
    """Export the metrics of a registry, and traces, while the block runs; flush at its end.

    Args:
        telemetry: from `open_telemetry`; None exports nothing.
        registry: returns a Prometheus registry; None exports traces only.
    """
    if telemetry is None:
        yield
        return
    try:
        if registry is not None and _exports("METRICS"):
            telemetry.export_metrics(registry())
        yield
    finally:
        telemetry.close()


def batch_traces(graph: Graph) -> BatchTraces | None:
    """The traces of a run's batches, if they are exported."""
    current = _Active.telemetry
    if current is None or not _exports("TRACES"):
        return None
    return BatchTraces(current.tracer, graph, (lambda _: True) if current.limit is None else current.limit.due)


def child_environment(number: int | None = None) -> dict[str, str]:
    """Variables for a worker process, so that its telemetry belongs to this run.

    Args:
        number: number of a process that exports metrics of its own, as a part of its instance's id.
    """
    if _Active.telemetry is None:
        return {}
    attributes = os.environ.get(_ATTRIBUTES, "")
    others = [part for part in attributes.split(",") if part.strip() and part.partition("=")[0].strip() != _INSTANCE]
    id_ = _Active.telemetry.instance if number is None else f"{_Active.telemetry.instance}.{number}"
    return {_ATTRIBUTES: ",".join([*others, f"{_INSTANCE}={id_}"])}


class Telemetry:
    """The export of this process; see `open_telemetry`.

    Attributes:
        tracer: creates spans.
        limit: what the default sampler allows; None if the environment names a sampler.
        instance: id of the run: `service.instance.id`.
    """

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._interval_s = _interval_s()
        self._log = _SdkLog()
        detected = OTELResourceDetector().detect().attributes
        defaults = {"service.name": "streamkit", "service.version": __version__, _INSTANCE: str(uuid.uuid4())}
        defaults = {name: value for name, value in defaults.items() if name not in detected}
        self._resource = Resource.create({**defaults, "process.pid": os.getpid()})
        self.instance = str(self._resource.attributes[_INSTANCE])
        self._spans = OTLPSpanExporter()
        self._metrics = OTLPMetricExporter()
        self._watched = {signal: _Outcomes(signal, self._log) for signal in ("traces", "metrics")}
        self.limit = None if os.environ.get("OTEL_TRACES_SAMPLER") else SpanLimit()
        self._provider = TracerProvider(sampler=_sampler(self.limit), resource=self._resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_watched_spans(self._spans, self._watched["traces"])))
        self.tracer = self._provider.get_tracer("streamkit", __version__)
        self._source: OtlpMetrics | None = None
        self._over = threading.Event()
        self._exporting = threading.Lock()
        record_operations(self._record)

    def export_metrics(self, registry: Any) -> None:
        """Export the metrics of a Prometheus registry from now on, until `close`."""
        from streamkit.runtime.observe.otlp_metrics import OtlpMetrics

        self._source = OtlpMetrics(registry, self._resource)
        start("telemetry", self._loop)

    def close(self) -> None:
        """Export what is left, for at most `FLUSH_S` seconds."""
        _Active.telemetry = None
        record_operations(None)
        self._over.set()
        flushes = {"traces": ThreadFuture(lambda _: self._provider.shutdown(), "telemetry end")}
        if self._source is not None:
            flushes["metrics"] = ThreadFuture(lambda _: self._send(), "telemetry end")
        if not _end(flushes.values(), FLUSH_S):  # this ends the wait for the next attempt
            self._spans.shutdown()  # type: ignore[no-untyped-call]
            self._metrics.shutdown()
            _end(flushes.values(), _LATE_S)
        left = [signal for signal, flush in flushes.items() if not flush.ready]
        for signal in left:  # the collector does not answer; the thread ends with the process
            self._watched[signal].close()
        if not left:
            self._log.close()

    def start_request(self, method: str, headers: Mapping[str, str]) -> Span:
        """Begin the span of an HTTP request, below the caller's if the header `traceparent` names it."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract(headers)
        return self.tracer.start_span(method, context, SpanKind.SERVER)

    def _loop(self) -> None:
        while not self._over.wait(self._interval_s):
            self._send()

    def _send(self) -> None:
        """Export the metrics once."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        assert self._source is not None
        with self._exporting:
            try:
                done = self._metrics.export(self._source.read()) is MetricExportResult.SUCCESS
            except Exception as error:  # a failure must not end the export
                self._watched["metrics"].failed(error)
            else:
                self._watched["metrics"].note(done)

    def _record(self, name: str, start_s: float, about: Mapping[str, Any], error: str) -> None:
        """See `streamkit.core.tracing.record_operation`."""
        start_ns = time.time_ns() - int((time.monotonic() - start_s) * 1e9)
        span = self.tracer.start_span(name, attributes=dict(about), start_time=start_ns)
        if error:
            set_error(span, error)
        span.end()


def _end(works: Collection[ThreadFuture[None]], within_s: float) -> bool:
    """Wait for works for some seconds; return whether all have ended."""
    until_s = time.monotonic() + within_s
    for work in works:
        work.leave(max(0.0, until_s - time.monotonic()))
    return all(work.ready for work in works)


def set_error(span: Span, text: str) -> None:
    """Mark a span as failed; secrets in the text are masked."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, mask(text)))


def _exports(signal: str) -> bool:
    """Whether the environment leaves the export of a signal on."""
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() != "none"


def _interval_s() -> float:
    """The interval between two exports of metrics, in seconds."""
    text = os.environ.get(_INTERVAL, "60000")
    try:
        interval_s = float(text) / 1e3
    except ValueError:
        interval_s = 0.0
    if not 0 < interval_s < float("inf"):
        raise ConfigError(f"{_INTERVAL} must be a number of milliseconds above 0, such as 60000, got {text!r}")
    return interval_s


# --------------------------------------------------------------------------------------------------------- sampling

_BURST = 10.0
_PER_S = 1.0


class SpanLimit:
    """Allows ten spans of each name, and further ones at one per second. Thread-safe."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}  # by name: what is allowed, and when that was
        self._lock = threading.Lock()

    def due(self, name: str) -> bool:
        """Whether a span is allowed now."""
        return self._allowed(name, time.monotonic()) >= 1

    def take(self, name: str) -> bool:
        """Count a span; return whether it is allowed."""
        now_s = time.monotonic()
        with self._lock:
            left = self._allowed(name, now_s)
            self._left[name] = left - (left >= 1), now_s
            return left >= 1

    def _allowed(self, name: str, now_s: float) -> float:
        left, since_s = self._left.get(name, (_BURST, now_s))
        return min(_BURST, left + (now_s - since_s) * _PER_S)


def _sampler(limit: SpanLimit | None) -> Any:
    """A sampler of spans without a parent; None if the environment names one, which OpenTelemetry then reads."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, ParentBased, Sampler, SamplingResult

    if not _exports("TRACES"):
        return ALWAYS_OFF
    if limit is None:
        return None
    take = limit.take

    class RateLimited(Sampler):
        def should_sample(
            self,
            parent_context: Any,
            trace_id: int,
            name: str,
            kind: Any = None,
            attributes: Any = None,
            *_: Any,
            **__: Any,
        ) -> SamplingResult:
            sampled = take(name)
            return SamplingResult(Decision.RECORD_AND_SAMPLE if sampled else Decision.DROP, attributes)

        def get_description(self) -> str:
            return f"RateLimited{{{_PER_S:g}/s}}"

    return ParentBased(RateLimited())


# --------------------------------------------------------------------------------------------------------- failures


class _SdkLog(logging.Handler):
    """Takes the messages of OpenTelemetry, one or more per failed export, and keeps the last of each signal."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, str] = {}
        self._logger = logging.getLogger("opentelemetry")
        self._before = self._logger.handlers, self._logger.propagate
        self._logger.handlers = [self]
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message, unless it only says that a failure is final."""
        text = record.getMessage()
        signal = "metrics" if "metric" in record.name else "traces"
        if _REASON.search(text) or not self.last.get(signal):
            self.last[signal] = text

    def close(self) -> None:
        """Let OpenTelemetry log as before."""
        self._logger.handlers, self._logger.propagate = self._before
        super().close()


class _Outcomes:
    """Counts failed exports of one signal; logs the first of an outage, and its end."""

    def __init__(self, signal: str, log: _SdkLog) -> None:
        self._signal = signal
        self._log = log
        self._fails = False
        self._closed = False

    def note(self, done: bool) -> None:
        """Note the outcome of an export."""
        if self._closed:
            return
        if not done:
            failures.add(f"{_FAILED}: {self._signal}")
        if done is self._fails:
            endpoint = os.environ.get(f"OTEL_EXPORTER_OTLP_{self._signal.upper()}_ENDPOINT")
            place = mask(endpoint or os.environ.get(ENDPOINTS[0], ""))
            if done:
                logger.info(f"telemetry is sent to {place} again")
            else:
                reason = mask(_reason(self._log.last.get(self._signal, "")))
                rest = "the run continues, and its report counts failed exports"
                logger.warning(f"telemetry cannot be sent to {place}: {reason}; {rest}")
        self._fails = not done
        self._log.last[self._signal] = ""

    def close(self) -> None:
        """Note that the last export has not ended; whatever comes of it is not counted again."""
        self.note(False)
        self._closed = True

    def failed(self, error: Exception) -> None:
        """Note an export that raised."""
        self._log.last[self._signal] = describe(error)
        self.note(False)


def _reason(text: str) -> str:
    match = _REASON.search(text)
    return next(filter(None, match.groups())) if match else text[:200] or "no answer"


def _watched_spans(exporter: Any, outcomes: _Outcomes) -> Any:
    """An exporter of spans that also notes the outcomes."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class WatchedSpanExporter(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            try:
                outcome: SpanExportResult = exporter.export(spans)
            except Exception as error:
                outcomes.failed(error)
                return SpanExportResult.FAILURE
            outcomes.note(outcome is SpanExportResult.SUCCESS)
            return outcome

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return True

    return WatchedSpanExporter()
