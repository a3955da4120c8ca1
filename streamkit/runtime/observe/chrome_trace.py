"""Writes a timeline in Chrome's trace event format, which Perfetto and chrome://tracing open.

One object per line: `X` for a span, with `ts` and `dur` in µs, and the thread's CPU time as `tts` and `tdur`; `C` for
the length of a queue; `M` for the names of tracks; `i` for a place where events are omitted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamkit.runtime.observe.bottleneck import READERS
from streamkit.runtime.observe.trace_model import TraceEvent, TraceTrack


def as_text(
    tracks: Sequence[TraceTrack], events: tuple[Sequence[TraceEvent], Sequence[TraceEvent], int], epoch_s: float,
    about: Mapping[str, Any],
) -> str:  # fmt: skip
    """Render the timeline as text.

    Args:
        tracks: the tracks, by index.
        events: the first events, the last ones, and the number omitted in between.
        epoch_s: the origin of time, in seconds of `time.perf_counter`.
        about: information on the whole run, for `otherData`.
    """
    import orjson

    processes = list(dict.fromkeys(track.process for track in tracks))
    ids = [(1 + processes.index(track.process), 1 + track.number) for track in tracks]
    text, separator = (
        bytearray(b'{"displayTimeUnit":"ms","otherData":' + orjson.dumps(about) + b',"traceEvents":['),
        b"\n",
    )
    for item in itertools.chain(_names(tracks, processes, ids), _events(events, ids, epoch_s)):
        text += separator + orjson.dumps(item)
        separator = b",\n"
    return (text + b"\n]}\n").decode()


def _names(tracks: Sequence[TraceTrack], processes: Sequence[str], ids: Sequence[tuple[int, int]]) -> Iterator[Any]:
    for number, process in enumerate(processes):
        yield {"ph": "M", "name": "process_name", "pid": 1 + number, "args": {"name": process}}
        yield {"ph": "M", "name": "process_sort_index", "pid": 1 + number, "args": {"sort_index": number}}
    for track, (pid, tid) in zip(tracks, ids, strict=True):
        at = {"ph": "M", "pid": pid, "tid": tid}
        rank = 0 if track.name.startswith(READERS) else 1 if track.name == "batcher" else 2
        yield {**at, "name": "thread_name", "args": {"name": track.name}}
        yield {**at, "name": "thread_sort_index", "args": {"sort_index": rank * len(tracks) + track.number}}


def _events(
    events: tuple[Sequence[TraceEvent], Sequence[TraceEvent], int], ids: Sequence[tuple[int, int]], epoch_s: float
) -> Iterator[Any]:
    first, last, dropped = events
    for event in first:
        yield _event(event, ids, epoch_s)
    if dropped:
        name = f"{dropped:,} events are left out here"
        yield {"ph": "i", "s": "g", "name": name, "pid": 1, "tid": 1, "ts": _ns(first[-1].ended_s, epoch_s) / 1e3}
    for event in last:
        yield _event(event, ids, epoch_s)


def _event(event: TraceEvent, ids: Sequence[tuple[int, int]], epoch_s: float) -> dict[str, Any]:
    pid, tid = ids[event.track]
    begun, ended = _ns(event.begun_s, epoch_s), _ns(event.ended_s, epoch_s)
    made: dict[str, Any] = {"name": event.name, "pid": pid, "ts": begun / 1e3}
    if event.kind == "queue":
        return {**made, "ph": "C", "args": event.about}
    made |= {"ph": "X", "cat": event.kind, "tid": tid, "dur": (ended - begun) / 1e3}
    if event.cpu_s is not None:
        made["tts"], made["tdur"] = (round(seconds * 1e6, 3) for seconds in event.cpu_s)
    return made if event.about is None else {**made, "args": event.about}


def _ns(time_s: float, epoch_s: float) -> int:
    """Time since the epoch in whole nanoseconds, so that spans that end together still do."""
    return round((time_s - epoch_s) * 1e9)
