"""Snapshot of a run's counters, in one process or several: two snapshots give rates."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.bench.host import core_times
from streamkit.ops.traffic import so_far
from streamkit.runtime.execution.meters import Histogram


@dataclass(slots=True)
class Moment:
    """The counters of a run at one time.

    Attributes:
        at_s: the time, in monotonic seconds.
        cpu_s: CPU time of all threads of all processes, in seconds.
        frames: frames that reached the end of the graph, by process.
        counted_s: when each process counted its frames, in monotonic seconds.
        dropped: number of dropped frames.
        cores: the result of `host.core_times`.
        traffic: bytes copied to the device and to the host; of this process only.
        busy_s: by stage, the average busy time of its threads, in seconds.
        latency: by end of the graph, the counts of a `Histogram`.
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
        """Frames per second of all processes together, each by its own times."""
        return sum(
            (frames - earlier) / (at_s - begun_s)
            for frames, earlier, at_s, begun_s in zip(
                self.frames, before.frames, self.counted_s, before.counted_s, strict=True
            )
            if at_s > begun_s
        )

    def latency_since(self, before: Moment) -> dict[str, float]:
        """p50, p95 and p99 since `before`, of the end of the graph with the highest p95."""
        found = []
        for name, counts in self.latency.items():
            histogram = Histogram()
            histogram.counts = counts - before.latency[name] if name in before.latency else counts
            if histogram.counts.any():
                found.append(histogram.summary())
        return max(found, key=lambda one: one["p95_ms"], default={})


def moment(pipeline: Any) -> Moment:
    """Take a snapshot of a `Pipeline` or a `WorkerFleet`."""
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
    """CPU time of a process with all its threads, in seconds; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
