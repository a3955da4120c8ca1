# SPDX-License-Identifier: Apache-2.0
"""Load of a run and of the machine: counters, cores and memory."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.ops.traffic import so_far
from streamkit.runtime.execution.meters import Histogram


@dataclass(slots=True)
class RunSnapshot:
    """The counters of a run at one time.

    Attributes:
        at_s: the time, in monotonic seconds.
        cpu_s: CPU time of all threads of all processes, in seconds.
        frames: frames that reached the end of the graph, by process.
        counted_s: when each process counted its frames, in monotonic seconds.
        dropped: number of dropped frames.
        cores: the result of `core_times`.
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

    def rate_since(self, before: RunSnapshot) -> float:
        """Frames per second of all processes together, each by its own times."""
        return sum(
            (frames - earlier) / (at_s - start_s)
            for frames, earlier, at_s, start_s in zip(
                self.frames, before.frames, self.counted_s, before.counted_s, strict=True
            )
            if at_s > start_s
        )

    def latency_since(self, before: RunSnapshot) -> dict[str, float]:
        """p50, p95 and p99 since `before`, of the end of the graph with the highest p95."""
        summaries = []
        for name, counts in self.latency.items():
            histogram = Histogram()
            histogram.counts = counts - before.latency[name] if name in before.latency else counts
            if histogram.counts.any():
                summaries.append(histogram.summary())
        return max(summaries, key=lambda summary: summary["p95_ms"], default={})


def snapshot(pipeline: Any) -> RunSnapshot:
    """Take a snapshot of a `PipelineRun` or a `WorkerFleet`."""
    report = pipeline.report(0)
    busy = {name: stage["seconds"] / stage["instances"] for name, stage in report["stages"].items()}
    latency = {name: histogram.counts.copy() for name, histogram in list(pipeline.latency.items())}
    dropped = sum(n for name, n in report["counts"].items() if "dropped" in name)
    frames, counted_s = zip(*pipeline.frame_counts(), strict=True)
    cpu_s = sum(map(_cpu_s, pipeline.pids))
    return RunSnapshot(
        time.monotonic(), cpu_s, list(frames), list(counted_s), dropped, core_times(), so_far(), busy, latency
    )


def core_times() -> tuple[float, float] | None:
    """Busy seconds and total seconds of this process's cores, since the machine started.

    Work of other processes and of other guests on the host is included. None if the system does not report it.
    """
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        affinity = os.sched_getaffinity(0)
        tick = os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return None
    busy = whole = 0
    for line in lines:
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in affinity:
            times = [int(field) for field in fields[:8]]  # user nice system idle iowait irq softirq steal
            whole += sum(times)
            busy += sum(times) - times[3] - times[4]
    return (busy / tick, whole / tick) if whole else None


def resident_mb(pid: int | str = "self") -> float:
    """Resident memory of a process, by default this one, in MB (10^6 bytes); 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _cpu_s(pid: int) -> float:
    """CPU time of a process with all its threads, in seconds; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
