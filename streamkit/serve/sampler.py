# SPDX-License-Identifier: Apache-2.0
"""Samples of a pipeline's counters, for charts: the same values that `metrics` serves to Prometheus."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamkit.emit.emitter import Emitter
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.observe.health import folders
from streamkit.runtime.observe.metrics import device_monitors
from streamkit.serve.engine import ServeEngine
from streamkit.serve.store.sample_table import MetricSample

UNITS = {
    "frames": "frames/s",
    "dropped": "frames",
    "latency": "ms",
    "counts": "objects",
    "gpu": "%",
    "decoder": "%",
    "disk": "GB",
    "spool": "records",
}
"""The charts and their units."""


class PipelineSampler:
    """Called every few seconds, returns what has changed since the last call.

    Args:
        engine: the pipeline.
    """

    def __init__(self, engine: ServeEngine) -> None:
        self._engine = engine
        self._monitors = device_monitors(engine.running)
        self._sampled_s = time.monotonic()
        self._frames: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._latency: dict[str, np.ndarray] = {}
        graph = engine.running.graph
        self._folders = [*folders(graph), engine.store.folder]
        self._emits = any(issubclass(node.type, Emitter) for node in graph.nodes.values())

    def __call__(self) -> list[MetricSample]:
        """The samples of this moment: rates and latencies over the time since the last call."""
        now_s = time.monotonic()
        passed_s = max(1e-3, now_s - self._sampled_s)
        self._sampled_s = now_s
        return [*self._of_sources(passed_s), *self._of_whole()]

    def _of_sources(self, passed_s: float) -> Iterator[MetricSample]:
        """Frames per second, dropped frames and the 95th percentile of the latency of each source.

        A source that was changed or restarted begins at zero, so counts that have become lower are all new.
        """
        for id_, state in list(self._engine.running.states.items()):
            if state.removed:
                for previous in (self._frames, self._dropped, self._latency):
                    previous.pop(id_, None)
                continue
            frames = _gain(self._frames, id_, state.frames)
            dropped = _gain(self._dropped, id_, state.dropped)
            if frames is not None and dropped is not None:
                yield MetricSample("frames", id_, "", frames / passed_s)
                yield MetricSample("dropped", id_, "", float(dropped))
            if state.latency is not None:
                counts = state.latency.counts.copy()
                before = self._latency.get(id_)
                self._latency[id_] = counts
                recent = Histogram()
                recent.counts = counts if before is None or (counts < before).any() else counts - before
                if not math.isnan(p95_s := recent.quantile(0.95)):
                    yield MetricSample("latency", id_, "", p95_s * 1e3)

    def _of_whole(self) -> Iterator[MetricSample]:
        """Load of GPUs and decoders, free space of the fullest disk, and records that wait in spools."""
        for device, monitor in self._monitors.items():
            use = monitor.use()
            for name, share in (("gpu", use.gpu), ("decoder", use.decoder)):
                if share is not None:
                    yield MetricSample(name, "", device, share * 100)
        free = [free for folder in self._folders if (free := _free_gb(folder)) is not None]
        if free:
            yield MetricSample("disk", "", "", min(free))
        if self._emits:
            records = self._engine.running.alarms.facts().pipeline.get("spool_records", 0.0)
            yield MetricSample("spool", "", "", float(records))


def _gain(previous: dict[str, int], id_: str, value: int) -> int | None:
    """How much a count has grown since it was last seen; None at the first time."""
    before = previous.get(id_)
    previous[id_] = value
    return None if before is None else value - before if value >= before else value


def _free_gb(folder: Path) -> float | None:
    """Free space of the disk that holds a folder, in GB; None if unknown."""
    there = next((parent for parent in (folder, *folder.parents) if parent.exists()), Path())
    try:
        return shutil.disk_usage(there).free / 1e9
    except OSError:
        return None
