# SPDX-License-Identifier: Apache-2.0
"""Computes the facts of `streamkit/config/alarms.py` from the counts of a run, about once a second.

This costs no time per frame, and memory is bounded by the number of sources.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.config.alarms import FACTS
from streamkit.config.plan import Graph
from streamkit.core.data import Device
from streamkit.core.stage import Sink
from streamkit.emit.emitter import Emitter
from streamkit.io.outputs import fill_path
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.execution.stage_runner import Runner
from streamkit.runtime.ingest.source_status import SourceState

Value = float | str
_SHARE_S = 10.0  # window of shares and latencies
_MINUTE_S = 60.0
_HOUR = 61  # snapshots, a minute apart
_AWAY = ("connecting", "reconnecting", "failed")
_STILL = ("paused", "ended")


@dataclass(slots=True)
class HealthSnapshot:
    """What is known at one moment.

    Attributes:
        sources: facts of each source, by id.
        pipeline: facts of the pipeline.
        about: the folder, emitter or stage that a pipeline fact is about, by fact.
        last_frames: index and time of each source's last frame, and its width and height.
    """

    sources: dict[str, dict[str, Value]] = field(default_factory=dict)
    pipeline: dict[str, float] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    last_frames: dict[str, tuple[int, float, int, int]] = field(default_factory=dict)

    def aged(self, age_s: float, gone: bool) -> HealthSnapshot:
        """The facts `age_s` seconds later without news from their process; `gone` if the process has died."""
        sources: dict[str, dict[str, Value]] = {}
        for id_, latest in self.sources.items():
            facts = dict(latest)
            sources[id_] = facts
            if latest["state"] in _STILL:
                continue
            facts["quiet_s"] = float(latest["quiet_s"]) + age_s
            if gone or latest["down_s"]:
                facts["down_s"] = float(latest["down_s"]) + age_s
            if gone:
                facts |= {"state": "failed", "cause": "", "fps_in": 0.0, "fps_out": 0.0}
        pipeline = dict(self.pipeline)
        if gone:
            pipeline |= {"total_fps": 0.0, "stage_call_s": 0.0, "memory_gb": 0.0}
            pipeline["sources_down"] = sum(float(facts["down_s"]) > 0 for facts in sources.values())
        return HealthSnapshot(sources, pipeline, self.about, self.last_frames)


def merge_snapshots(parts: Sequence[HealthSnapshot]) -> HealthSnapshot:
    """Merge the facts of several processes into those of one pipeline."""
    snapshot = HealthSnapshot()
    for part in parts:
        snapshot.sources |= part.sources
        snapshot.last_frames |= part.last_frames
        for name, value in part.pipeline.items():
            joined_value = snapshot.pipeline.get(name)
            how = FACTS[name].joined
            if how == "sum":
                snapshot.pipeline[name] = value + (joined_value or 0.0)
            elif joined_value is None or (value > joined_value if how == "most" else value < joined_value):
                snapshot.pipeline[name] = value
                snapshot.about.update({name: part.about[name]} if name in part.about else {})
    return snapshot


class Observer:
    """Computes the facts of one process.

    Args:
        wanted: the facts to compute; others may be omitted.
        states: returns the states of the sources.
        runners: the runners of the stages; more may be added.
        folders: folders in which outputs are written.
        device: the device of the process.
    """

    def __init__(
        self,
        wanted: Iterable[str],
        states: Callable[[], Mapping[str, SourceState]],
        runners: Sequence[Runner],
        folders: Sequence[Path] = (),
        device: Device | None = None,
    ) -> None:
        self._wanted = frozenset(wanted)
        self._states = states
        self._runners = runners
        self._folders = folders
        self._start_s = time.monotonic()
        self._lock = threading.Lock()
        self._histories: dict[str, _SourceHistory] = {}
        self._delivered: dict[str, tuple[int, float]] = {}  # by emitter: what it had delivered, and since when
        self._nvml: Any = None
        if device is not None and device.kind == "cuda" and "gpu_memory_share" in self._wanted:
            from streamkit.runtime.observe.nvml import Nvml

            self._nvml = Nvml(device.index)
            self._device = str(device)

    def snapshot(self, now_s: float | None = None) -> HealthSnapshot:
        """Compute the facts; call it about once a second, on any thread.

        Args:
            now_s: the monotonic time in seconds; now by default.
        """
        with self._lock:
            return self._snapshot(time.monotonic() if now_s is None else now_s)

    def _snapshot(self, now_s: float) -> HealthSnapshot:
        snapshot = HealthSnapshot()
        states = {id_: state for id_, state in self._states().items() if not state.removed}
        for id_ in self._histories.keys() - states.keys():
            del self._histories[id_]
        for id_, state in states.items():
            history = self._histories.get(id_)
            if history is None or history.state is not state:
                history = self._histories[id_] = _SourceHistory(state, self._wanted, now_s)
            snapshot.sources[id_] = history.snapshot(now_s)
            size = (int(state.facts.get(name) or 0) for name in ("width", "height"))
            snapshot.last_frames[id_] = (max(0, state.frames - 1), state.pts_s, *size)  # type: ignore[assignment]
        running = [facts for facts in snapshot.sources.values() if facts["state"] != "ended"]
        snapshot.pipeline["total_fps"] = sum(state.fps_out for state in states.values())
        snapshot.pipeline["sources"] = len(running)
        snapshot.pipeline["sources_down"] = sum(float(facts["down_s"]) > 0 for facts in running)
        snapshot.pipeline["uptime_s"] = now_s - self._start_s
        self._stages(snapshot, now_s)
        self._emitters(snapshot, now_s)
        self._machine(snapshot)
        return snapshot

    def _stages(self, snapshot: HealthSnapshot, now_s: float) -> None:
        snapshot.pipeline["stage_call_s"] = 0.0
        for runner in self._runners:
            if (call := runner.call) is not None:
                _keep_largest(snapshot, "stage_call_s", now_s - call[0], runner.node.id)

    def _emitters(self, snapshot: HealthSnapshot, now_s: float) -> None:
        snapshot.pipeline |= {"spool_share": 0.0, "spool_records": 0.0, "undelivered_s": 0.0}
        for id_, emitter in emitters(self._runners):
            delivered = emitter.sender.delivered
            progress = self._delivered.get(id_)
            if progress is None or emitter.sender.undelivered <= 0 or progress[0] != delivered:
                progress = delivered, now_s
                self._delivered[id_] = progress
            _keep_largest(snapshot, "spool_share", emitter.queue.fill_level, id_)
            _keep_largest(snapshot, "spool_records", float(emitter.queue.waiting), id_)
            _keep_largest(snapshot, "undelivered_s", now_s - progress[1], id_)

    def _machine(self, snapshot: HealthSnapshot) -> None:
        if {"disk_free_gb", "disk_used_share"} & self._wanted:
            for folder in self._folders:
                _disk(snapshot, folder)
        if "memory_gb" in self._wanted:
            snapshot.pipeline["memory_gb"] = _memory_gb()
        if self._nvml is not None and (share := self._nvml.memory()) is not None:
            snapshot.pipeline["gpu_memory_share"] = share
            snapshot.about["gpu_memory_share"] = self._device


class _SourceHistory:
    """Earlier counts of one source, from which rates are computed."""

    def __init__(self, state: SourceState, wanted: frozenset[str], now_s: float) -> None:
        self.state = state
        self._latency = bool({"latency_p50_s", "latency_p95_s"} & wanted)
        self._hourly = "reconnects_1h" in wanted
        self._down_s: float | None = None  # since when, on the monotonic clock
        self._frames = state.frames
        self._came_s = now_s
        self._counts: deque[tuple[float, int, int, int]] = deque([(now_s, 0, 0, 0)])
        self._minutes: deque[tuple[float, int]] = deque([(now_s, state.reconnects)], maxlen=_HOUR)
        self._window_s = now_s  # when the second of two windows of latencies began
        self._before: np.ndarray | None = None  # the counts when the first began
        self._then: np.ndarray | None = None  # and the second

    def snapshot(self, now_s: float) -> dict[str, Value]:
        state = self.state
        away = state.state in _AWAY and (state.started or state.state != "connecting")
        if not away:
            self._down_s = None
        elif self._down_s is None:
            self._down_s = now_s - min(max(0.0, time.time() - state.since_s), now_s - self._came_s)
        if state.frames != self._frames or state.state in _STILL or not state.started:
            self._frames = state.frames
            self._came_s = now_s
        rated = state.started and state.rated and state.state not in _STILL
        facts: dict[str, Value] = {
            "state": state.state,
            "cause": state.cause or "",
            "down_s": 0.0 if self._down_s is None else max(now_s - self._down_s, 1e-3),
            "quiet_s": now_s - self._came_s,
            "fps_in": state.fps_in if rated else math.nan,
            "fps_out": state.fps_out if rated else math.nan,
            **self._shares(now_s),
        }
        if self._hourly:
            if now_s - self._minutes[-1][0] >= _MINUTE_S:
                self._minutes.append((now_s, state.reconnects))
            facts["reconnects_1h"] = float(state.reconnects - self._minutes[0][1])
        if self._latency:
            facts |= self._latencies(now_s)
        return facts

    def _shares(self, now_s: float) -> dict[str, Value]:
        state = self.state
        counts = self._counts
        counts.append((now_s, state.frames, state.dropped, state.failed))
        while len(counts) > 2 and now_s - counts[1][0] >= _SHARE_S:
            counts.popleft()
        _, *first = counts[0]
        frames, dropped, failed = (now - then for now, then in zip(counts[-1][1:], first, strict=True))
        return {
            "drop_rate": min(1.0, dropped / max(frames, dropped, 1)),
            "fail_rate": min(1.0, failed / max(frames, failed, 1)),
        }

    def _latencies(self, now_s: float) -> dict[str, Value]:
        if self.state.latency is None:
            return {}
        counts = self.state.latency.counts.copy()
        if now_s - self._window_s >= _SHARE_S:
            self._before = self._then
            self._then = counts
            self._window_s = now_s
        recent = Histogram()
        recent.counts = counts if self._before is None else counts - self._before
        return {"latency_p50_s": recent.quantile(0.5), "latency_p95_s": recent.quantile(0.95)}


def emitters(runners: Iterable[Runner]) -> list[tuple[str, Emitter]]:
    """The open emitters, with their stages' ids."""
    return [
        (runner.node.id, stage)
        for runner in runners
        for stage in list(runner.instances())
        if isinstance(stage, Emitter)
    ]


def folders(graph: Graph) -> list[Path]:
    """Folders that a pipeline writes to: outputs, spools, state."""
    folders: list[Path] = []
    for node in graph.nodes.values():
        if not issubclass(node.type, Sink):
            continue
        path = node.options.get(node.type.spec.target or "path")
        if isinstance(path, str) and "://" not in path and path != "-":
            folders.append(Path(fill_path(path, "x").partition("{")[0] or ".").parent)
        if issubclass(node.type, Emitter):
            folders.append(Path((node.options.get("spool") or {}).get("path", f"spool/{node.id}")))
    if graph.config.state is not None:
        folders.append(graph.config.state.parent)
    return list(dict.fromkeys(folders)) or [Path()]


def _keep_largest(snapshot: HealthSnapshot, name: str, value: float, about: str) -> None:
    if name not in snapshot.about or value > snapshot.pipeline[name]:
        snapshot.pipeline[name] = value
        snapshot.about[name] = about


def _disk(snapshot: HealthSnapshot, folder: Path) -> None:
    existing_folder = next((parent for parent in (folder, *folder.parents) if parent.exists()), Path())
    try:
        use = shutil.disk_usage(existing_folder)
    except OSError:
        return
    if not use.total:
        return
    free_gb = use.free / 1e9
    share = 1 - use.free / use.total
    if free_gb < snapshot.pipeline.get("disk_free_gb", math.inf):
        snapshot.pipeline |= {"disk_free_gb": free_gb, "disk_used_share": share}
        name = "the working folder" if folder == Path() else str(folder)
        snapshot.about |= {"disk_free_gb": name, "disk_used_share": name}


def _memory_gb() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e9
    except (OSError, ValueError):
        return math.nan
