# SPDX-License-Identifier: Apache-2.0
"""Traces of single batches for OpenTelemetry: one span for the batch, and below it one for each source, stage and sink.

They are measured at the same places as the timeline of `--profile`: `BatchSpans` replaces `Spans`, and forwards every
call to the timeline's spans. A batch that is not traced costs one comparison per stage.
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
        traceparent: the W3C form of the context, for another process.
        span: the batch's span; None if another process ends it.
        last_lanes: number of lanes at the ends of the graph; the span ends when the batch has passed all of them.
    """

    __slots__ = ("_context", "_last_lanes", "_passed_lanes", "_span", "_tracer", "traceparent")

    def __init__(
        self, tracer: Tracer, context: Context, traceparent: str, span: Span | None = None, last_lanes: int = 0
    ) -> None:
        self._tracer = tracer
        self._context = context
        self._span = span
        self._last_lanes = last_lanes
        self._passed_lanes = itertools.count(1)
        self.traceparent = traceparent

    def add(self, name: str, start_ns: int, end_ns: int, attributes: Mapping[str, Any], error: str = "") -> None:
        """Add a span below the batch's."""
        span = self._tracer.start_span(name, self._context, attributes=dict(attributes), start_time=start_ns)
        if error:
            span.set_status(_failed(error))
        span.end(end_ns)

    def count_lane(self) -> None:
        """Count a lane at an end of the graph that the batch has passed; any thread may call it."""
        if self._span is not None and next(self._passed_lanes) == self._last_lanes:
            self._span.end()


class BatchTraces:
    """Chooses the batches of a run that are traced, by the tracer's sampler.

    Args:
        tracer: creates the spans.
        graph: the graph of the run.
        due: returns whether the sampler may choose a span of this name now; called first, as it costs less.
    """

    def __init__(self, tracer: Tracer, graph: Graph, due: Callable[[str], bool]) -> None:
        self._tracer = tracer
        self._due = due
        self._titles_and_attributes = {
            id_: (
                f"{'sink' if issubclass(node.type, Sink) else 'stage'} {id_}",
                {"streamkit.stage": id_, "streamkit.stage.type": node.type.name},
            )
            for id_, node in graph.nodes.items()
        }
        self._last_lanes = 0

    def counted(self, lanes: Sequence[Lane], count: Callable[[Lane, Batch], None]) -> Callable[[Lane, Batch], None]:
        """Wrap `count`, which is called with each batch that has passed a lane."""
        last_lanes = {id(lane) for lane in lanes if not lane.nodes[-1].readers}
        self._last_lanes = len(last_lanes)

        def count_both(lane: Lane, batch: Batch) -> None:
            count(lane, batch)
            if batch.trace is not None and id(lane) in last_lanes:
                assert isinstance(batch.trace, BatchTrace)
                batch.trace.count_lane()

        return count_both

    def begin(self, batch: Batch) -> None:
        """Begin the trace of a new batch if the sampler chooses it."""
        if not (batch.frames and self._due("batch")):
            return
        decoded = [(frame.source, *frame._state.decoded_ns) for frame in batch.frames if frame._state.decoded_ns]
        start_ns = min((start for _, start, _ in decoded), default=None)
        attributes = {"streamkit.batch": batch.sequence, "streamkit.frames": len(batch.frames)}
        span = self._tracer.start_span("batch", attributes=attributes, start_time=start_ns)
        if not span.is_recording():
            return
        from opentelemetry.trace import set_span_in_context

        trace = BatchTrace(self._tracer, set_span_in_context(span), traceparent_of(span), span, self._last_lanes)
        for source in dict.fromkeys(source for source, _, _ in decoded):
            times = [(start, end) for id_, start, end in decoded if id_ == source]
            source_attributes: dict[str, Any] = {"streamkit.source": source, "streamkit.frames": len(times)}
            trace.add("source", min(start for start, _ in times), max(end for _, end in times), source_attributes)
        batch.trace = trace

    def join(self, traceparent: str) -> BatchTrace:
        """Continue the trace of a batch from another process."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        return BatchTrace(self._tracer, context, traceparent)

    def about(self, id_: str) -> tuple[str, Mapping[str, Any]]:
        """Return the title and the attributes of a stage's spans."""
        return self._titles_and_attributes.get(id_, (f"stage {id_}", {"streamkit.stage": id_}))


class BatchSpans(Spans):
    """Adds spans of batches that are traced to their traces.

    Args:
        traces: the traces of the run.
        inner: the thread's track in the timeline of the run, if there is one.
    """

    def __init__(self, traces: BatchTraces, inner: Spans) -> None:
        self._traces = traces
        self._inner = inner

    def call(self, name: str, call: Callable[_P, _T], *, waiting: bool = False) -> Callable[_P, _T]:
        """See `Spans.call`: recorded in the timeline only."""
        return self._inner.call(name, call, waiting=waiting)

    def each(
        self, name: str, items: Iterable[_T], *, waiting: bool = False, about: dict[str, Any] | None = None
    ) -> Iterator[_T]:
        """See `Spans.each`: record the decoding times of each frame, as its batch may be traced."""
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
        """See `Spans.stage`: on a GPU, the span covers the time in which the host launches the work."""
        run = self._inner.stage(name, run, device)
        title, attributes = self._traces.about(name)

        def spanned(batch: _T) -> _T:
            assert isinstance(batch, Batch)
            trace = batch.trace
            if trace is None:
                return run(batch)
            assert isinstance(trace, BatchTrace)
            frames = len(batch.frames)
            failed_before = len(batch.failed)
            failed_here = frames  # if the stage raises
            token = CURRENT_BATCH.set(trace)
            start_ns = time.time_ns()
            try:
                processed = run(batch)
                assert isinstance(processed, Batch)
                processed.trace = trace
                failed_here = len(processed.failed) - failed_before
                return processed
            finally:
                error = f"{failed_here} of {frames} frames failed" if failed_here > 0 else ""
                trace.add(title, start_ns, time.time_ns(), {**attributes, "streamkit.frames": frames}, error)
                CURRENT_BATCH.reset(token)

        return spanned

    def close(self) -> None:
        """See `Spans.close`."""
        self._inner.close()


def spans_with(traces: BatchTraces, inner: Callable[[], Spans]) -> Callable[[], Spans]:
    """Return a function that returns the calling thread's spans; `inner` returns those of the timeline."""
    return lambda: BatchSpans(traces, inner())


def traceparent_of(span: Span) -> str:
    """Return the W3C trace context of a span."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _failed(error: str) -> Status:
    from opentelemetry.trace import Status, StatusCode

    return Status(StatusCode.ERROR, error)
