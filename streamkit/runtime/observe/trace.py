"""Timeline of a run: what each thread does and when, in bounded memory.

Each thread writes spans to its own `ThreadTrack`. The first and the last events are kept and those in between only
counted, so that even a run of a month shows how it began and how it ended. Sums of work and waiting cover the whole
run.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from streamkit import __version__
from streamkit.core.data import Batch, Device
from streamkit.core.stage import Sink
from streamkit.core.tracing import Spans
from streamkit.io.outputs import report_file
from streamkit.runtime.execution.gpu_spans import GpuSpans
from streamkit.runtime.observe.bottleneck import limit, uses
from streamkit.runtime.observe.chrome_trace import as_text
from streamkit.runtime.observe.trace_model import HOST, Sums, TraceEvent

if TYPE_CHECKING:
    from streamkit.runtime.execution.channel import Channel
    from streamkit.runtime.execution.lane import Lane
    from streamkit.runtime.ingest.batcher import Batcher

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SHORT_S = 10e-6  # waits below are added up, but not shown: nearly every call of a queue is one
_SAMPLE_S = 5e-3


class Log:
    """Keeps the first and the last `keep` / 2 events. Thread-safe without a lock."""

    def __init__(self, keep: int) -> None:
        self._half = max(1, keep // 2)
        self._first: list[TraceEvent] = []
        self._last: deque[TraceEvent] = deque(maxlen=self._half)
        self._numbers = itertools.count()

    def add(self, event: TraceEvent) -> None:
        """Add an event; the ring of last events drops its oldest one."""
        next(self._numbers)  # atomic, as `append` is
        if len(self._first) < self._half:
            self._first.append(event)
        else:
            self._last.append(event)

    def kept(self) -> tuple[list[TraceEvent], list[TraceEvent], int]:
        """The first events, the last ones, and the number dropped in between. No event may be added afterwards."""
        seen = next(self._numbers)
        return self._first, list(self._last), seen - len(self._first) - len(self._last)


class _OpenSpan:
    """An open span, and the time of the spans within it."""

    __slots__ = ("begun_s", "cpu_s", "inner_cpu_s", "inner_s", "name")

    def __init__(self, name: str, cpu_s: float) -> None:
        self.name, self.cpu_s, self.begun_s = name, cpu_s, time.perf_counter()
        self.inner_s = self.inner_cpu_s = 0.0


class ThreadTrack(Spans):
    """One thread's spans. Only that thread may use it."""

    def __init__(self, trace: Trace, number: int, name: str, process: str = HOST) -> None:
        self.number, self.name, self.process, self.sums = number, name, process, Sums()
        self._trace, self._nvtx = trace, trace.nvtx
        self._open: list[_OpenSpan] = []
        self._gpu: GpuSpans | None = None

    def call(self, name: str, call: Callable[_P, _T], *, waiting: bool = False) -> Callable[_P, _T]:
        """See `Spans.call`."""
        kind = "wait" if waiting else "work"

        def spanned(*given: _P.args, **named: _P.kwargs) -> _T:
            self.begin(kind, name)
            try:
                return call(*given, **named)
            finally:
                self.end(kind)

        return spanned

    def each(
        self, name: str, items: Iterable[_T], *, waiting: bool = False, about: dict[str, Any] | None = None
    ) -> Iterable[_T]:
        """See `Spans.each`."""
        return _Each(self, "wait" if waiting else "work", name, items, about)

    def stage(self, name: str, run: Callable[[_T], _T], device: Device | None = None) -> Callable[[_T], _T]:
        """See `Spans.stage`."""
        gpu = self._stream_of(device)

        def spanned(batch: _T) -> _T:
            about = {"batch": batch.sequence, "frames": len(batch.frames)} if isinstance(batch, Batch) else None
            if gpu is not None:
                gpu.begin(name, about)
            self.begin("stage", name)
            try:
                return run(batch)
            finally:
                self.end("stage", about)
                if gpu is not None:
                    gpu.end()

        return spanned

    def close(self) -> None:
        """Collect the remaining GPU spans; the stream's work must be over."""
        if self._gpu is not None:
            self._gpu.collect(over=True)
        self._trace.free(self)

    def begin(self, kind: str, name: str) -> None:
        """Begin a span; spans nest. CPU time is not measured for waits, which use none."""
        if self._nvtx is not None:
            self._nvtx.push_range(name)
        self._open.append(_OpenSpan(name, 0.0 if kind == "wait" else time.thread_time()))

    def end(self, kind: str, about: Mapping[str, Any] | None = None) -> None:
        """End the newest span."""
        now, span = time.perf_counter(), self._open.pop()
        if self._nvtx is not None:
            self._nvtx.pop_range()
        cpu = None if kind == "wait" else (span.cpu_s, time.thread_time() - span.cpu_s)
        self._sum(kind, span, now, cpu[1] if cpu else 0.0)
        if kind != "wait" or now - span.begun_s >= _SHORT_S:
            self._trace.log.add(TraceEvent(self.number, kind, span.name, span.begun_s, now, cpu, about))
        if now >= self._trace.sample_at_s:
            self._trace.sample(now)

    def gpu_span(self, name: str, begun_s: float, ended_s: float, about: Mapping[str, Any] | None) -> None:
        """Add a span of the CUDA stream, in host time."""
        self.sums.work_s[name] += max(0.0, ended_s - max(begun_s, self._trace.started_s))
        self._trace.log.add(TraceEvent(self.number, "gpu", name, begun_s, ended_s, None, about))

    def _sum(self, kind: str, span: _OpenSpan, now: float, cpu_s: float) -> None:
        started, sums = self._trace.started_s, self.sums
        if now <= started:
            return
        begun = max(span.begun_s, started)
        own = now - begun - span.inner_s
        if kind == "wait":
            sums.wait_s[span.name] += own
        else:
            sums.work_s[span.name] += own
            sums.cpu_s += cpu_s - span.inner_cpu_s
        if self._open:
            self._open[-1].inner_s += now - begun
            self._open[-1].inner_cpu_s += cpu_s

    def _stream_of(self, device: Device | None) -> GpuSpans | None:
        if device is not None and device.kind == "cuda" and self._gpu is None:
            on = self._trace.add(self.name, str(device))
            self._gpu = GpuSpans(device, on.gpu_span)
        return self._gpu


class _Each:
    """An iterator that records a span for each step and holds no item."""

    def __init__(
        self, track: ThreadTrack, kind: str, name: str, items: Iterable[Any], about: dict[str, Any] | None
    ) -> None:
        self._track, self._kind, self._name, self._about = track, kind, name, about
        self._items = iter(items)

    def __iter__(self) -> _Each:
        return self

    def __next__(self) -> Any:
        self._track.begin(self._kind, self._name)
        try:
            return next(self._items)
        finally:
            self._track.end(self._kind, self._about)

    def close(self) -> None:
        """Close the underlying iterator, if it can be closed."""
        close = getattr(self._items, "close", None)
        if close is not None:
            close()


class Trace:
    """The timeline of one run, for `Pipeline(..., trace=...)`. `finish` writes it.

    Args:
        path: the output file, in Chrome's trace event format; it appears once it is complete.
        keep: maximum number of events, half of them the first and half the last; about 300 bytes each.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(self, path: str | Path, *, keep: int = 200_000) -> None:
        self._path, self._write = path, report_file(Path(path))
        self.log = Log(keep)
        self.tracks: list[ThreadTrack] = []
        self.nvtx = _nvtx()
        self.epoch_s = time.perf_counter()
        self.started_s = self.sample_at_s = float("inf")
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._free: dict[str, list[ThreadTrack]] = defaultdict(list)
        self._queues: dict[str, tuple[Batcher | Channel, list[int]]] = {}
        self._roles: dict[str, str] = {}

    def here(self) -> ThreadTrack:
        """The track of the calling thread; threads with the same name may reuse a track one after the other."""
        track: ThreadTrack | None = getattr(self._mine, "track", None)
        if track is None:
            name = threading.current_thread().name
            with self._lock:
                track = self._free[name].pop() if self._free[name] else None
            track = self._mine.track = track or self.add(name)
        return track

    def free(self, track: ThreadTrack) -> None:
        """Release the calling thread's track, so that there are only as many tracks as threads at the same time."""
        self._mine.track = None
        with self._lock:
            self._free[track.name].append(track)

    def add(self, name: str, process: str = HOST) -> ThreadTrack:
        """Add a track."""
        with self._lock:
            track = ThreadTrack(self, len(self.tracks), name, process)
            self.tracks.append(track)
        return track

    def start(self, lanes: Sequence[Lane], batcher: Batcher) -> None:
        """Start the sums; call it just before the first frame is read.

        Args:
            lanes: lanes whose queue lengths are sampled every 5 ms while there is activity.
            batcher: likewise.
        """
        for node in (node for lane in lanes for node in lane.nodes):
            sink = issubclass(node.type, Sink)
            self._roles[node.id] = "output" if sink else "network" if "outputs" in node.type.spec.writes else ""
        self._queues = {"frames in the batcher": (batcher, [0])}
        for lane in lanes:
            for name, channel in zip(lane.nodes[0].inputs, lane.inputs, strict=True):
                self._queues[f"batches from {name} to {lane.nodes[0].id}"] = channel, [0]
        self.started_s = self.sample_at_s = time.perf_counter()

    def sample(self, now: float) -> None:
        """Record the queues whose length changed. Two threads may race here and record the same length twice."""
        self.sample_at_s = now + _SAMPLE_S
        for name, (queue, last) in self._queues.items():
            found = queue.waiting
            if found != last[0]:
                last[0] = found
                self.log.add(TraceEvent(0, "queue", name, now, now, None, {"waiting": found}))

    def finish(self) -> list[str]:
        """Write the file; return messages for the user. All threads of the run must have ended.

        Raises:
            OutputError: the file cannot be written.
        """
        found = uses(self.tracks)
        told = limit(found, self._roles)
        first, last, dropped = self.log.kept()
        about = {
            "made by": f"streamkit {__version__}", "limit": told, "events left out": dropped,
            "waits not shown": f"shorter than {_SHORT_S * 1e6:.0f} µs; they are in the shares",
            "shares of time": {use.name: use.summary() for use in found},
        }  # fmt: skip
        self._write(as_text(self.tracks, (first, last, dropped), self.epoch_s, about))
        lines = [f"profile: {self._path}, {len(first) + len(last):,} events; ui.perfetto.dev opens it"]
        if dropped:
            lines.append(f"profile: {dropped:,} events in the middle are left out, to bound memory and the file")
        return [*lines, told] if told else lines


def _nvtx() -> ModuleType | None:
    """The nvtx module, for ranges in Nsight Systems; None if it is not installed."""
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx  # type: ignore[no-any-return]
