# SPDX-License-Identifier: Apache-2.0
"""Traces of single batches for OpenTelemetry: one span for the batch, and below it one for each source, stage and sink.

They are measured at the same places as the timeline of `--profile`: `BatchSpans` takes the place of `Spans`, and passes
every call on to the timeline's spans if there are any. A batch that is not traced costs one comparison per stage.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from streamkit.config.plan import Graph
from streamkit.core.data import Batch, Frame
from streamkit.core.stage import Sink
from streamkit.core.tracing import CURRENT_BATCH, Spans
from streamkit.runtime.execution.iterators import closing_iterator
from streamkit.runtime.execution.lane import Lane

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Status, Tracer

_P = ParamSpec("_P")
_T = TypeVar("_T")


class BatchTrace:
    """The trace of one batch.

    Args:
        tracer: creates its spans.
        context: the context of the batch's span.
        traceparent: the same for another process.
        span: the batch's span, which ends when the batch has passed `ends` lanes; None if another process ends it.
    """

    __slots__ = ("_context", "_ends", "_passed", "_span", "_tracer", "traceparent")

    def __init__(
        self, tracer: Tracer, context: Context, traceparent: str, span: Span | None = None, ends: int = 0
    ) -> None:  # fmt: skip
        self._tracer, self._context, self._span, self._ends = tracer, context, span, ends
        self._passed = itertools.count(1)
        self.traceparent = traceparent

    def add(self, name: str, start_ns: int, end_ns: int, about: Mapping[str, Any], error: str = "") -> None:
        """Add a span below the batch's."""
        span = self._tracer.start_span(name, self._context, attributes=dict(about), start_time=start_ns)
        if error:
            span.set_status(_failed(error))
        span.end(end_ns)

    def passed(self) -> None:
        """Count a lane that the batch has passed at an end of the graph; any thread may call it."""
        if self._span is not None and next(self._passed) == self._ends:
            self._span.end()


class BatchTraces:
    """Chooses the batches of a run that are traced, by the tracer's sampler.

    Args:
        tracer: creates the spans.
        graph: the graph of the run.
        due: whether the sampler may choose a span of this name now; it is asked first, as that costs less.
    """

    def __init__(self, tracer: Tracer, graph: Graph, due: Callable[[str], bool]) -> None:
        self._tracer, self._due = tracer, due
        self._about = {
            id_: (
                f"{'sink' if issubclass(node.type, Sink) else 'stage'} {id_}",
                {"streamkit.stage": id_, "streamkit.stage.type": node.type.name},
            )
            for id_, node in graph.nodes.items()
        }
        self._ends = 0

    def counted(self, lanes: Sequence[Lane], count: Callable[[Lane, Batch], None]) -> Callable[[Lane, Batch], None]:
        """Wrap `count`, which is called with each batch that has passed a lane."""
        ends = {id(lane) for lane in lanes if not lane.nodes[-1].readers}
        self._ends = len(ends)

        def passed(lane: Lane, batch: Batch) -> None:
            count(lane, batch)
            if batch.trace is not None and id(lane) in ends:
                assert isinstance(batch.trace, BatchTrace)
                batch.trace.passed()

        return passed

    def begin(self, batch: Batch) -> None:
        """Begin the trace of a new batch, if it is chosen."""
        if not (batch.frames and self._due("batch")):
            return
        decoded = [(frame.source, *frame._state.decoded_ns) for frame in batch.frames if frame._state.decoded_ns]
        start_ns = min((start for _, start, _ in decoded), default=None)
        about = {"streamkit.batch": batch.sequence, "streamkit.frames": len(batch.frames)}
        span = self._tracer.start_span("batch", attributes=about, start_time=start_ns)
        if not span.is_recording():
            return
        from opentelemetry.trace import set_span_in_context

        trace = BatchTrace(self._tracer, set_span_in_context(span), traceparent_of(span), span, self._ends)
        for source in dict.fromkeys(source for source, _, _ in decoded):
            times = [(start, end) for id_, start, end in decoded if id_ == source]
            about_source: dict[str, Any] = {"streamkit.source": source, "streamkit.frames": len(times)}
            trace.add("source", min(start for start, _ in times), max(end for _, end in times), about_source)
        batch.trace = trace

    def join(self, traceparent: str) -> BatchTrace:
        """The trace of a batch that another process has started."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        return BatchTrace(self._tracer, context, traceparent)

    def about(self, id_: str) -> tuple[str, Mapping[str, Any]]:
        """The name and the attributes of a stage's spans."""
        return self._about.get(id_, (f"stage {id_}", {"streamkit.stage": id_}))


class BatchSpans(Spans):
    """Adds spans of batches that are traced to their traces.

    Args:
        traces: the traces of the run.
        inner: the thread's track in the timeline of the run, if there is one.
    """

    def __init__(self, traces: BatchTraces, inner: Spans) -> None:
        self._traces, self._inner = traces, inner

    def call(self, name: str, call: Callable[_P, _T], *, waiting: bool = False) -> Callable[_P, _T]:
        """See `Spans.call`: recorded in the timeline only."""
        return self._inner.call(name, call, waiting=waiting)

    def each(
        self, name: str, items: Iterable[_T], *, waiting: bool = False, about: dict[str, Any] | None = None
    ) -> Iterator[_T]:
        """See `Spans.each`: a frame notes when it was decoded, as it may become part of a batch that is traced."""
        iterator = iter(self._inner.each(name, items, waiting=waiting, about=about))

        def step() -> _T:
            start_ns = time.time_ns()
            item = next(iterator)
            if isinstance(item, Frame):
                item._state.decoded_ns = start_ns, time.time_ns()
            return item

        with closing_iterator(iterator), suppress(StopIteration):
            while True:
                yield step()  # no local variable may hold the frame

    def stage(self, name: str, run: Callable[[_T], _T], device: Any = None) -> Callable[[_T], _T]:
        """See `Spans.stage`: on a GPU, the span is the time in which the host launches the work."""
        run = self._inner.stage(name, run, device)
        title, about = self._traces.about(name)

        def spanned(batch: _T) -> _T:
            assert isinstance(batch, Batch)
            trace = batch.trace
            if trace is None:
                return run(batch)
            assert isinstance(trace, BatchTrace)
            frames, failed, token = len(batch.frames), len(batch.failed), CURRENT_BATCH.set(trace)
            start_ns, lost = time.time_ns(), frames
            try:
                processed = run(batch)
                assert isinstance(processed, Batch)
                processed.trace, lost = trace, len(processed.failed) - failed
                return processed
            finally:
                error = f"{lost} of {frames} frames failed" if lost > 0 else ""
                trace.add(title, start_ns, time.time_ns(), {**about, "streamkit.frames": frames}, error)
                CURRENT_BATCH.reset(token)

        return spanned

    def close(self) -> None:
        """See `Spans.close`."""
        self._inner.close()


def spans_with(traces: BatchTraces, inner: Callable[[], Spans]) -> Callable[[], Spans]:
    """A function that returns the calling thread's spans; `inner` returns those of the timeline."""
    return lambda: BatchSpans(traces, inner())


def traceparent_of(span: Span) -> str:
    """The W3C trace context of a span."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _failed(error: str) -> Status:
    from opentelemetry.trace import Status, StatusCode

    return Status(StatusCode.ERROR, error)
