# SPDX-License-Identifier: Apache-2.0
"""Timeline of a run (`--profile`): what each thread of each process does and when, in bounded memory.

Each thread writes spans to its own `ThreadTrack`. The first and the last events are kept and those in between only
counted, so that even a run of a month shows how it began and how it ended. Sums of work and waiting cover the whole
run. A worker process records a `Recorder`, and sends its `Recording` to the parent process, whose `Trace` writes all.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from streamkit.core.data import Batch, Device
from streamkit.core.tracing import Spans
from streamkit.core.version import __version__
from streamkit.io.outputs import ReportFile
from streamkit.runtime.execution.iterators import closing_iterator
from streamkit.runtime.observe.bottleneck import HOST, READERS, Sums, find_bottleneck, lane_usages, role_of

if TYPE_CHECKING:
    from streamkit.runtime.execution.channel import Channel
    from streamkit.runtime.execution.lane import Lane
    from streamkit.runtime.ingest.batcher import Batcher
_P = ParamSpec("_P")
_T = TypeVar("_T")

_SHORT_S = 10e-6  # shorter waits are summed but not shown: nearly every call of a queue is one
_SAMPLE_S = 5e-3


class TraceEvent(NamedTuple):
    """A span, or the length of a queue at `start_s`.

    Attributes:
        track: the number of the track, from 0.
        kind: `work`, `wait`, `stage`, `gpu` or `queue`.
        name: what the thread did.
        start_s: seconds of `time.perf_counter`.
        ended_s: the end, in the same clock.
        cpu_s: the thread's CPU time at the beginning, and the CPU time of the span; None if not measured.
        about: attributes that are shown with it.
    """

    track: int
    kind: str
    name: str
    start_s: float
    ended_s: float
    cpu_s: tuple[float, float] | None
    about: Mapping[str, Any] | None


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

    __slots__ = ("cpu_s", "inner_cpu_s", "inner_s", "name", "start_s")

    def __init__(self, name: str, cpu_s: float) -> None:
        self.name = name
        self.cpu_s = cpu_s
        self.start_s = time.perf_counter()
        self.inner_s = self.inner_cpu_s = 0.0


class ThreadTrack(Spans):
    """One thread's spans. Only that thread may use it."""

    def __init__(self, trace: Recorder, number: int, name: str, process: str = HOST) -> None:
        self.number = number
        self.name = name
        self.process = process
        self.sums = Sums(name, process)
        self._trace = trace
        self._nvtx = trace.nvtx
        self._open: list[_OpenSpan] = []
        self._gpu: GpuSpans | None = None

    def call(self, name: str, call: Callable[_P, _T], *, waiting: bool = False) -> Callable[_P, _T]:
        """See `Spans.call`."""
        return self._spanned(name, call, waiting)

    def each(
        self, name: str, items: Iterable[_T], *, waiting: bool = False, about: dict[str, Any] | None = None
    ) -> Iterator[_T]:
        """See `Spans.each`. No item is held; closing the iterator closes `items`."""
        iterator = iter(items)
        step = self._spanned(name, iterator.__next__, waiting, about)
        with closing_iterator(iterator), suppress(StopIteration):
            while True:
                yield step()

    def _spanned(
        self, name: str, call: Callable[_P, _T], waiting: bool, about: dict[str, Any] | None = None
    ) -> Callable[_P, _T]:
        kind = "wait" if waiting else "work"

        def spanned(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            self.begin(kind, name)
            try:
                return call(*args, **kwargs)
            finally:
                self.end(kind, about)

        return spanned

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
        self._trace.release(self)

    def begin(self, kind: str, name: str) -> None:
        """Begin a span; spans nest. CPU time is not measured for waits, which use none."""
        if self._nvtx is not None:
            self._nvtx.push_range(name)
        self._open.append(_OpenSpan(name, 0.0 if kind == "wait" else time.thread_time()))

    def end(self, kind: str, about: Mapping[str, Any] | None = None) -> None:
        """End the newest span."""
        now = time.perf_counter()
        span = self._open.pop()
        if self._nvtx is not None:
            self._nvtx.pop_range()
        cpu = None if kind == "wait" else (span.cpu_s, time.thread_time() - span.cpu_s)
        self._sum(kind, span, now, cpu[1] if cpu else 0.0)
        if kind != "wait" or now - span.start_s >= _SHORT_S:
            self._trace.log.add(TraceEvent(self.number, kind, span.name, span.start_s, now, cpu, about))
        if now >= self._trace.sample_at_s:
            self._trace.sample(now)

    def gpu_span(self, name: str, start_s: float, ended_s: float, about: Mapping[str, Any] | None) -> None:
        """Add a span of the CUDA stream, in host time."""
        self.sums.work_s[name] += max(0.0, ended_s - max(start_s, self._trace.started_s))
        self._trace.log.add(TraceEvent(self.number, "gpu", name, start_s, ended_s, None, about))

    def _sum(self, kind: str, span: _OpenSpan, now: float, cpu_s: float) -> None:
        started = self._trace.started_s
        sums = self.sums
        if now <= started:
            return
        start = max(span.start_s, started)
        self_s = now - start - span.inner_s
        if kind == "wait":
            sums.wait_s[span.name] += self_s
        else:
            sums.work_s[span.name] += self_s
            sums.cpu_s += cpu_s - span.inner_cpu_s
        if self._open:
            self._open[-1].inner_s += now - start
            self._open[-1].inner_cpu_s += cpu_s

    def _stream_of(self, device: Device | None) -> GpuSpans | None:
        if device is not None and device.kind == "cuda" and self._gpu is None:
            on = self._trace.add(self.name, str(device))
            self._gpu = GpuSpans(device, on.gpu_span)
        return self._gpu


@dataclass(frozen=True, slots=True)
class Recording:
    """What one process has recorded, to be sent to another one.

    Attributes:
        tracks: the sums of each track, by its number.
        events: the first events, the last ones, and the number dropped in between. Their times have the same origin in
            all processes of a machine.
        roles: see `find_bottleneck`.
    """

    tracks: list[Sums]
    events: tuple[list[TraceEvent], list[TraceEvent], int]
    roles: dict[str, str]


class Recorder:
    """Records the timeline of the threads of this process, for `PipelineRun(..., trace=...)`.

    Args:
        keep: maximum number of events, half of them the first and half the last; about 300 bytes each.
    """

    def __init__(self, keep: int) -> None:
        self.log = Log(keep)
        self.tracks: list[ThreadTrack] = []
        self.nvtx = _nvtx()
        self.started_s = self.sample_at_s = float("inf")
        self._thread_local = threading.local()
        self._lock = threading.Lock()
        self._free: dict[str, list[ThreadTrack]] = defaultdict(list)
        self._queues: dict[str, tuple[Batcher | Channel[Batch], list[int]]] = {}
        self._roles: dict[str, str] = {}

    def current_track(self) -> ThreadTrack:
        """The track of the calling thread; threads with the same name may reuse a track one after the other."""
        track: ThreadTrack | None = getattr(self._thread_local, "track", None)
        if track is None:
            name = threading.current_thread().name
            with self._lock:
                track = self._free[name].pop() if self._free[name] else None
            track = self._thread_local.track = track or self.add(name)
        return track

    def release(self, track: ThreadTrack) -> None:
        """Release the calling thread's track, so that there are only as many tracks as threads at the same time."""
        self._thread_local.track = None
        with self._lock:
            self._free[track.name].append(track)

    def add(self, name: str, process: str = HOST) -> ThreadTrack:
        """Add a track."""
        with self._lock:
            track = ThreadTrack(self, len(self.tracks), name, process)
            self.tracks.append(track)
        return track

    def start(self, lanes: Sequence[Lane], batcher: Batcher | None = None) -> None:
        """Start the sums; call it just before the first frame is read.

        Args:
            lanes: lanes whose queue lengths are sampled every 5 ms while there is activity.
            batcher: the batcher, whose queue is sampled too; None in a process without one.
        """
        self._roles = {node.id: role_of(node) for lane in lanes for node in lane.nodes}
        self._queues = {} if batcher is None else {"frames in the batcher": (batcher, [0])}
        for lane in lanes:
            for name, channel in zip(lane.nodes[0].inputs, lane.inputs, strict=True):
                self._queues[f"batches from {name} to {lane.nodes[0].id}"] = channel, [0]
        self.started_s = self.sample_at_s = time.perf_counter()

    def sample(self, now: float) -> None:
        """Record the queues whose length changed. Two threads may race here and record the same length twice."""
        self.sample_at_s = now + _SAMPLE_S
        for name, (queue, last) in self._queues.items():
            length = queue.waiting
            if length != last[0]:
                last[0] = length
                self.log.add(TraceEvent(0, "queue", name, now, now, None, {"waiting": length}))

    def recording(self) -> Recording:
        """What was recorded. All threads of the run must have ended."""
        return Recording([track.sums for track in self.tracks], self.log.kept(), self._roles)


class Trace(Recorder):
    """The timeline of one run, of this process and of its worker processes. `finish` writes it.

    Args:
        path: the output file, in Chrome's trace event format; it appears once it is complete.
        keep: maximum number of events of all processes; see `Recorder`.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(self, path: str | Path, *, keep: int = 200_000) -> None:
        super().__init__(keep)
        self.path = path
        self._write = ReportFile(Path(path))
        self._keep = keep
        self.epoch_s = time.perf_counter()
        self._recordings: dict[str, Recording | None] = {}

    def share(self, processes: int) -> int:
        """Share the maximum number of events evenly between this process and `processes` others; return a share."""
        share = self._keep // (processes + 1)
        self.log = Log(share)
        return share

    def expect(self, process: str) -> None:
        """Expect the recording of another process."""
        self._recordings[process] = None

    def receive(self, process: str, recording: Recording) -> None:
        """Take the recording of another process."""
        self._recordings[process] = recording

    def finish(self) -> list[str]:
        """Write the file; return messages for the user. All threads and processes of the run must have ended.

        Raises:
            OutputError: the file cannot be written.
        """
        recordings = {HOST: self.recording()} | {
            name: recording for name, recording in self._recordings.items() if recording is not None
        }
        missing = [name for name, recording in self._recordings.items() if recording is None]
        usages = lane_usages(sums for recording in recordings.values() for sums in recording.tracks)
        text = find_bottleneck(
            usages, {id_: role for recording in recordings.values() for id_, role in recording.roles.items()}
        )
        events = [recording.events for recording in recordings.values()]
        written = sum(len(first) + len(last) for first, last, _ in events)
        dropped = sum(log[2] for log in events)
        about: dict[str, Any] = {
            "made by": f"streamkit {__version__}",
            "limit": text,
            "events omitted": dropped,
            "waits not shown": f"shorter than {_SHORT_S * 1e6:.0f} µs; they are in the shares",
            "shares of time": {use.name: use.summary() for use in usages},
        }
        if missing:
            about["processes without events"] = missing
        self._write(_as_text(recordings, self.epoch_s, about))
        lines = [f"profile: {self.path}, {written:,} events; ui.perfetto.dev opens it"]
        if dropped:
            lines.append(f"profile: {dropped:,} events in the middle are omitted, to bound memory and file size")
        if missing:
            lines.append(f"profile: no events of {', '.join(missing)}, which died")
        return [*lines, text] if text else lines


def _nvtx() -> ModuleType | None:
    """The nvtx module, for ranges in Nsight Systems; None if it is not installed."""
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------------- Chrome format


def _as_text(recordings: Mapping[str, Recording], epoch_s: float, about: Mapping[str, Any]) -> str:
    """Render the timeline in Chrome's trace event format, which Perfetto and chrome://tracing open.

    One object per line: `X` for a span, with `ts` and `dur` in µs, and the thread's CPU time as `tts` and `tdur`; `C`
    for the length of a queue; `M` for the names of tracks; `i` for a place where events are omitted.

    Args:
        recordings: what each process has recorded, by its name.
        epoch_s: the origin of time, in seconds of `time.perf_counter`.
        about: information on the whole run, for `otherData`.
    """
    import orjson

    names: list[str] = []
    threads = 0
    parts: list[Iterable[Any]] = []
    for name, recording in recordings.items():
        shown = [name if track.process == HOST else _device(name, track.process) for track in recording.tracks]
        names += dict.fromkeys(shown or [name])
        ids = [(1 + names.index(process), 1 + threads + number) for number, process in enumerate(shown)]
        parts += [_names(recording.tracks, ids, threads), _events(recording, ids, epoch_s)]
        threads += len(ids)
    items = itertools.chain(_process_names(names), *parts)
    head = '{"displayTimeUnit":"ms","otherData":' + orjson.dumps(about).decode()
    return head + ',"traceEvents":[\n' + ",\n".join(orjson.dumps(item).decode() for item in items) + "\n]}\n"


def _device(process: str, device: str) -> str:
    """The name of a device's group of tracks."""
    return device if process == HOST else f"{process}, {device}"


def _process_names(names: Sequence[str]) -> Iterator[Any]:
    for number, name in enumerate(names):
        yield {"ph": "M", "name": "process_name", "pid": 1 + number, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": 1 + number, "args": {"sort_index": number}}


def _names(tracks: Sequence[Sums], ids: Sequence[tuple[int, int]], before: int) -> Iterator[Any]:
    for number, (track, (pid, tid)) in enumerate(zip(tracks, ids, strict=True)):
        at = {"ph": "M", "pid": pid, "tid": tid}
        rank = 0 if track.name.startswith(READERS) else 1 if track.name == "batcher" else 2
        yield {**at, "name": "thread_name", "args": {"name": track.name}}
        yield {**at, "name": "thread_sort_index", "args": {"sort_index": before + rank * len(tracks) + number}}


def _events(recording: Recording, ids: Sequence[tuple[int, int]], epoch_s: float) -> Iterator[dict[str, Any]]:
    first, last, dropped = recording.events
    for event in first:
        yield _event(event, ids, epoch_s)
    if dropped:
        pid, tid = ids[0]
        gap = {"ph": "i", "s": "p", "name": f"{dropped:,} events are omitted here", "pid": pid, "tid": tid}
        yield {**gap, "ts": _ns(first[-1].ended_s, epoch_s) / 1e3}
    for event in last:
        yield _event(event, ids, epoch_s)


def _event(event: TraceEvent, ids: Sequence[tuple[int, int]], epoch_s: float) -> dict[str, Any]:
    pid, tid = ids[event.track]
    start_ns = _ns(event.start_s, epoch_s)
    end_ns = _ns(event.ended_s, epoch_s)
    fields: dict[str, Any] = {"name": event.name, "pid": pid, "ts": start_ns / 1e3}
    if event.kind == "queue":
        return {**fields, "ph": "C", "args": event.about}
    fields |= {"ph": "X", "cat": event.kind, "tid": tid, "dur": (end_ns - start_ns) / 1e3}
    if event.cpu_s is not None:
        fields["tts"], fields["tdur"] = (round(seconds * 1e6, 3) for seconds in event.cpu_s)
    return fields if event.about is None else {**fields, "args": event.about}


def _ns(time_s: float, epoch_s: float) -> int:
    """Time since the epoch in whole nanoseconds, so that spans that end together still do."""
    return round((time_s - epoch_s) * 1e9)


# --------------------------------------------------------------------------------------------------------- GPU spans

Take = Callable[[str, float, float, Mapping[str, Any] | None], None]

_ANCHOR_S = 1.0  # CUDA returns milliseconds as a 32-bit float: exact over one second, but not over an hour


class GpuSpans:
    """Spans of the stream that is current on this thread.

    A span begins when the stream reaches it and ends when its last work is done. Gaps where the host is slow to launch
    work are part of the span.

    Args:
        device: a CUDA device.
        take: receives name, begin and end in seconds of `time.perf_counter`, and the attributes of the span.
    """

    def __init__(self, device: Device, take: Take) -> None:
        self._cuda = device.xp.cuda
        self._take = take
        self._stream = self._cuda.get_current_stream()
        self._spare: list[Any] = []
        self._open: list[tuple[str, Mapping[str, Any] | None, float, Any]] = []
        self._pending: deque[tuple[str, Mapping[str, Any] | None, float, Any, Any]] = deque()
        self._last_s = 0.0
        for _ in range(2):  # the first event of a stream takes longer
            self._anchor = self._record_event()
            self._anchor.synchronize()
            self._anchor_s = time.perf_counter()

    def begin(self, name: str, about: Mapping[str, Any] | None) -> None:
        """Begin a span: it contains the work that is launched from now on."""
        launched_s = time.perf_counter()
        self._open.append((name, about, launched_s, self._record_event()))

    def end(self) -> None:
        """End the newest span: its work has been launched."""
        self._pending.append((*self._open.pop(), self._record_event()))
        self.collect()

    def collect(self, *, over: bool = False) -> None:
        """Report the spans that the stream has completed; all of them if its work is `over`."""
        while self._pending and (over or self._pending[0][-1].done):
            name, about, launched_s, first, second = self._pending.popleft()
            start_s, ended_s = self._host_times(launched_s, first, second)
            self._take(name, start_s, ended_s, about)
            self._spare.append(second)
            if first is not self._anchor:
                self._spare.append(first)

    def _host_times(self, launched_s: float, first: Any, second: Any) -> tuple[float, float]:
        """Host times of two events, clamped: no span begins before its launch or ends after it was seen to be done."""
        took_s = self._between_s(first, second)
        start_s = self._anchor_s + self._between_s(self._anchor, first)
        seen_s = time.perf_counter()
        corrected_s = max(min(start_s, seen_s - took_s), launched_s)  # the two clocks drift apart over hours
        self._anchor_s += corrected_s - start_s
        if corrected_s - self._anchor_s > _ANCHOR_S:
            self._spare.append(self._anchor)
            self._anchor = first
            self._anchor_s = corrected_s
        start_s = max(corrected_s, self._last_s)
        self._last_s = max(start_s, corrected_s + took_s)
        return start_s, self._last_s

    def _between_s(self, first: Any, second: Any) -> float:
        return float(self._cuda.get_elapsed_time(first, second)) / 1e3

    def _record_event(self) -> Any:
        event = self._spare.pop() if self._spare else self._cuda.Event()
        event.record(self._stream)
        return event
