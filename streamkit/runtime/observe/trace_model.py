"""The data of a run's timeline: events, and the sums of each track."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

HOST = "streamkit"


class TraceEvent(NamedTuple):
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


class TraceTrack(Protocol):
    """A thread's or CUDA stream's row of the timeline.

    Attributes:
        number: of the track, from 0.
        name: of the thread.
        process: the group in which it is shown: `HOST`, or a device.
        sums: its seconds.
    """

    number: int
    name: str
    process: str
    sums: Sums
