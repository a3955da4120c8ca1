"""A run's timeline: what each of its threads is at and when, in memory that stays flat however long it runs.

Every thread writes spans on a `Track` of its own. The first and the last events are kept and those between are counted,
so that a run of a month still shows how it began and how it ended. Sums of work and waiting are of the whole run.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from streamkit import __version__
from streamkit.data import Batch, Device
from streamkit.outputs import report_file
from streamkit.runtime.gpu_spans import GpuSpans
from streamkit.spans import Spans
from streamkit.stage import Sink

if TYPE_CHECKING:
    from streamkit.runtime.batcher import Batcher
    from streamkit.runtime.channel import Channel
    from streamkit.runtime.lane import Lane

_P = ParamSpec("_P")
_T = TypeVar("_T")

HOST = "streamkit"
_SHORT_S = 10e-6  # waits below are added up, but not shown: nearly every call of a queue is one
_SAMPLE_S = 5e-3


class Event(NamedTuple):
    """A span, or the length of a queue at `begun_s`.

    Attributes:
        track: the number of the track, from 0.
        kind: `work`, `wait`, `stage`, `gpu` or `queue`.
        name: what the thread was at.
        begun_s: seconds of `time.perf_counter`.
        ended_s: likewise.
        cpu_s: the thread's time on a CPU core when it began, and what it ran meanwhile; None where it does not.
        about: what is shown with it.
    """

    track: int
    kind: str
    name: str
    begun_s: float
    ended_s: float
    cpu_s: tuple[float, float] | None
    about: Mapping[str, Any] | None


class Log:
    """The first and the last `keep` / 2 events. Any thread may add; no lock is taken."""

    def __init__(self, keep: int) -> None:
        self._half = max(1, keep // 2)
        self._first: list[Event] = []
        self._last: deque[Event] = deque(maxlen=self._half)
        self._numbers = itertools.count()

    def add(self, event: Event) -> None:
        """Keep an event; the oldest of the last ones makes room."""
        next(self._numbers)  # atomic, as `append` is
        if len(self._first) < self._half:
            self._first.append(event)
        else:
            self._last.append(event)

    def kept(self) -> tuple[list[Event], list[Event], int]:
        """The first events, the last ones, and how many there were between. For the end: no more can be added."""
        seen = next(self._numbers)
        return self._first, list(self._last), seen - len(self._first) - len(self._last)


@dataclass(slots=True)
class Sums:
    """Seconds of one track since the run's first frame, spans within spans left out.

    Attributes:
        work_s: by span.
        wait_s: by span.
        cpu_s: on a CPU core, at work.
    """

    work_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    wait_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    cpu_s: float = 0.0


class _Open:
    """A span that has not ended, and what the spans within it took."""

    __slots__ = ("begun_s", "cpu_s", "inner_cpu_s", "inner_s", "name")

    def __init__(self, name: str, cpu_s: float) -> None:
        self.name, self.cpu_s, self.begun_s = name, cpu_s, time.perf_counter()
        self.inner_s = self.inner_cpu_s = 0.0


class Track(Spans):
    """One thread's spans. Only that thread may use it."""

    def __init__(self, trace: Trace, number: int, name: str, process: str = HOST) -> None:
        self.number, self.name, self.process, self.sums = number, name, process, Sums()
        self._trace, self._nvtx = trace, trace.nvtx
        self._open: list[_Open] = []
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
        """Take in what the stream has done; all of its work must be over."""
        if self._gpu is not None:
            self._gpu.collect(over=True)
        self._trace.free(self)

    def begin(self, kind: str, name: str) -> None:
        """A span begins; it ends before the one it is in. Time on a core is not looked at for a wait: it has none."""
        if self._nvtx is not None:
            self._nvtx.push_range(name)
        self._open.append(_Open(name, 0.0 if kind == "wait" else time.thread_time()))

    def end(self, kind: str, about: Mapping[str, Any] | None = None) -> None:
        """The newest span ends."""
        now, span = time.perf_counter(), self._open.pop()
        if self._nvtx is not None:
            self._nvtx.pop_range()
        cpu = None if kind == "wait" else (span.cpu_s, time.thread_time() - span.cpu_s)
        self._sum(kind, span, now, cpu[1] if cpu else 0.0)
        if kind != "wait" or now - span.begun_s >= _SHORT_S:
            self._trace.log.add(Event(self.number, kind, span.name, span.begun_s, now, cpu, about))
        if now >= self._trace.sample_at_s:
            self._trace.sample(now)

    def gpu_span(self, name: str, begun_s: float, ended_s: float, about: Mapping[str, Any] | None) -> None:
        """The stream was at something, by the host's clock."""
        self.sums.work_s[name] += max(0.0, ended_s - max(begun_s, self._trace.started_s))
        self._trace.log.add(Event(self.number, "gpu", name, begun_s, ended_s, None, about))

    def _sum(self, kind: str, span: _Open, now: float, cpu_s: float) -> None:
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
    """An iterator whose every step is a span; it holds no item."""

    def __init__(self, track: Track, kind: str, name: str, items: Iterable[Any], about: dict[str, Any] | None) -> None:
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
        """Close what is iterated over, where that can be."""
        close = getattr(self._items, "close", None)
        if close is not None:
            close()


class Trace:
    """The timeline of one run, for `Pipeline(..., trace=...)`. `finish` writes it.

    Args:
        path: the file, in Chrome's trace event format; it appears when it is whole.
        keep: events to keep at most, half of them the first and half the last; about 300 bytes each.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(self, path: str | Path, *, keep: int = 200_000) -> None:
        self._path, self._write = path, report_file(Path(path))
        self.log = Log(keep)
        self.tracks: list[Track] = []
        self.nvtx = _nvtx()
        self.epoch_s = time.perf_counter()
        self.started_s = self.sample_at_s = float("inf")
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._free: dict[str, list[Track]] = defaultdict(list)
        self._queues: dict[str, tuple[Batcher | Channel, list[int]]] = {}
        self._roles: dict[str, str] = {}

    def here(self) -> Track:
        """The track of the thread that asks; it has the thread's name, and maybe was an earlier one's of that name."""
        track: Track | None = getattr(self._mine, "track", None)
        if track is None:
            name = threading.current_thread().name
            with self._lock:
                track = self._free[name].pop() if self._free[name] else None
            track = self._mine.track = track or self.add(name)
        return track

    def free(self, track: Track) -> None:
        """The calling thread, whose track it is, is done with it: tracks are as many as threads at a time."""
        self._mine.track = None
        with self._lock:
            self._free[track.name].append(track)

    def add(self, name: str, process: str = HOST) -> Track:
        """A new track."""
        with self._lock:
            track = Track(self, len(self.tracks), name, process)
            self.tracks.append(track)
        return track

    def start(self, lanes: Sequence[Lane], batcher: Batcher) -> None:
        """The first frame is about to be read: sums begin here.

        Args:
            lanes: whose queues are looked at every 5 ms, while anything goes on.
            batcher: likewise.
        """
        for node in (node for lane in lanes for node in lane.nodes):
            sink = issubclass(node.type, Sink)
            self._roles[node.id] = "output" if sink else "network" if "outputs" in node.type.writes else ""
        self._queues = {"frames in the batcher": (batcher, [0])}
        for lane in lanes:
            for name, channel in zip(lane.nodes[0].inputs, lane.inputs, strict=True):
                self._queues[f"batches from {name} to {lane.nodes[0].id}"] = channel, [0]
        self.started_s = self.sample_at_s = time.perf_counter()

    def sample(self, now: float) -> None:
        """Note the queues whose length changed. Two threads may come here at once, and the same length stand twice."""
        self.sample_at_s = now + _SAMPLE_S
        for name, (queue, last) in self._queues.items():
            found = queue.waiting
            if found != last[0]:
                last[0] = found
                self.log.add(Event(0, "queue", name, now, now, None, {"waiting": found}))

    def finish(self) -> list[str]:
        """Write the file; return what the user is to be told. No thread of the run may be left.

        Raises:
            OutputError: the file cannot be written.
        """
        from streamkit.runtime.busy import limit, uses
        from streamkit.runtime.chrome import as_text

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
    """NVIDIA's ranges for Nsight Systems, where the package is there."""
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx  # type: ignore[no-any-return]
