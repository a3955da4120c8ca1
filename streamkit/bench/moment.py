"""What a run has counted by some moment, in one process or several: two moments give rates."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.bench.host import core_times
from streamkit.ops.traffic import so_far
from streamkit.runtime.metrics import Histogram


@dataclass(slots=True)
class Moment:
    """What has been counted by some moment.

    Attributes:
        at_s: when, on the monotonic clock.
        cpu_s: CPU time of all threads of all processes.
        frames: frames that came to the end of the graph, by process; `counted_s` is when each counted them.
        counted_s: as `frames`.
        dropped: frames dropped.
        cores: as `host.core_times`.
        traffic: bytes to the device and to the host; of this process alone.
        busy_s: by stage, how long its threads were at work, over how many there are.
        latency: by the end of the graph, the counts of a `Histogram`.
    """

    at_s: float
    cpu_s: float
    frames: list[int]
    counted_s: list[float]
    dropped: int
    cores: tuple[float, float] | None
    traffic: tuple[int, int]
    busy_s: dict[str, float]
    latency: dict[str, np.ndarray]

    def rate_since(self, before: Moment) -> float:
        """Frames a second, all processes together; each by its own times."""
        return sum(
            (frames - earlier) / (at_s - begun_s)
            for frames, earlier, at_s, begun_s in zip(
                self.frames, before.frames, self.counted_s, before.counted_s, strict=True
            )
            if at_s > begun_s
        )

    def latency_since(self, before: Moment) -> dict[str, float]:
        """p50, p95 and p99 of what was added since, of the end of the graph where p95 is highest."""
        found = []
        for name, counts in self.latency.items():
            histogram = Histogram()
            histogram.counts = counts - before.latency[name] if name in before.latency else counts
            if histogram.counts.any():
                found.append(histogram.summary())
        return max(found, key=lambda one: one["p95_ms"], default={})


def moment(pipeline: Any) -> Moment:
    """What a `Pipeline` or a `Fleet` has counted by now."""
    report = pipeline.report(0)
    busy = {name: stage["seconds"] / stage["instances"] for name, stage in report["stages"].items()}
    latency = {name: found.counts.copy() for name, found in list(pipeline.latency.items())}
    dropped = sum(n for name, n in report["counts"].items() if "dropped" in name)
    frames, counted_s = zip(*pipeline.counted(), strict=True)
    cpu_s = sum(map(_cpu_s, pipeline.pids))
    return Moment(
        time.monotonic(), cpu_s, list(frames), list(counted_s), dropped, core_times(), so_far(), busy, latency
    )


def _cpu_s(pid: int) -> float:
    """CPU time of a process, all its threads, in seconds."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
