"""A timeline as a file in Chrome's trace event format, which Perfetto and chrome://tracing open.

One object a line: `X` for a span, with `ts` and `dur` in µs, and `tts` and `tdur` of the thread's time on a CPU core;
`C` for the length of a queue; `M` for the names of tracks; `i` for a place where events are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamkit.runtime.busy import READERS

if TYPE_CHECKING:
    from streamkit.runtime.trace import Event, Track


def as_text(
    tracks: Sequence[Track], events: tuple[Sequence[Event], Sequence[Event], int], epoch_s: float,
    about: Mapping[str, Any],
) -> str:  # fmt: skip
    """The file's content.

    Args:
        tracks: by number.
        events: the first, the last, and how many between them are left out.
        epoch_s: what is to be 0, in seconds of `time.perf_counter`.
        about: what is said of the whole run, under `otherData`.
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


def _names(tracks: Sequence[Track], processes: Sequence[str], ids: Sequence[tuple[int, int]]) -> Iterator[Any]:
    for number, process in enumerate(processes):
        yield {"ph": "M", "name": "process_name", "pid": 1 + number, "args": {"name": process}}
        yield {"ph": "M", "name": "process_sort_index", "pid": 1 + number, "args": {"sort_index": number}}
    for track, (pid, tid) in zip(tracks, ids, strict=True):
        at = {"ph": "M", "pid": pid, "tid": tid}
        rank = 0 if track.name.startswith(READERS) else 1 if track.name == "batcher" else 2
        yield {**at, "name": "thread_name", "args": {"name": track.name}}
        yield {**at, "name": "thread_sort_index", "args": {"sort_index": rank * len(tracks) + track.number}}


def _events(
    events: tuple[Sequence[Event], Sequence[Event], int], ids: Sequence[tuple[int, int]], epoch_s: float
) -> Iterator[Any]:
    first, last, dropped = events
    for event in first:
        yield _event(event, ids, epoch_s)
    if dropped:
        name = f"{dropped:,} events are left out here"
        yield {"ph": "i", "s": "g", "name": name, "pid": 1, "tid": 1, "ts": _ns(first[-1].ended_s, epoch_s) / 1e3}
    for event in last:
        yield _event(event, ids, epoch_s)


def _event(event: Event, ids: Sequence[tuple[int, int]], epoch_s: float) -> dict[str, Any]:
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
    """Whole nanoseconds, so that what ends together still does."""
    return round((time_s - epoch_s) * 1e9)
