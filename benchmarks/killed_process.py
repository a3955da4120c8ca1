"""Kills one of a pipeline's processes, and measures how soon its sources run again and what the others notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamkit.bench.child import main
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.errors import StreamkitError
from streamkit.runtime.execution.future import Stopped, side_by_side
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.prepare import prepare

_LOOK_S = 0.02


@dataclass(slots=True)
class KillSpec:
    """What to run.

    Attributes:
        pipeline: a YAML whose sources are paced and loop.
        device: replaces the file's.
        processes: number of processes.
        warmup_s: how long all sources run before the kill.
        start_s: time limit until all sources run, and until they run again.
    """

    pipeline: str
    device: str
    processes: int
    warmup_s: float
    start_s: float


def _work(spec: KillSpec) -> Iterator[dict[str, Any]]:
    path = Path(spec.pipeline)
    set_ = {"device.processes": str(spec.processes)}
    pipeline: Any = prepare(build(read(path, set_=set_, device=spec.device)), path, set_)
    figures: dict[str, Any] = {}

    def watch(stopped: Stopped) -> None:
        try:
            figures.update(_kill_worker(pipeline, spec, stopped))
        finally:
            pipeline.stop()

    with side_by_side(watch):
        pipeline.run()
    yield figures or {"error": "the pipeline ended before a process was killed"}


def _kill_worker(pipeline: Any, spec: KillSpec, stopped: Stopped) -> dict[str, Any]:
    _wait(lambda: all(state.frames for state in pipeline.states.values()), spec.start_s, stopped, "all sources")
    time.sleep(spec.warmup_s)
    _wait_for_sessions(pipeline, spec.start_s, stopped)
    steady = _Others(pipeline, pipeline.states)
    time.sleep(max(2.0, spec.warmup_s))
    before_ms, _ = steady.since()
    victim = pipeline.report(0)["devices"][0]["sources"]
    pid = pipeline.pids[1]  # of the first worker; the first id is the parent's
    others = _Others(pipeline, pipeline.states.keys() - set(victim))
    at_death: dict[str, int] = {}
    back: dict[str, float] = {}
    os.kill(pid, signal.SIGKILL)
    killed_s = time.monotonic()

    def again() -> bool:
        for id_ in victim:
            state = pipeline.states[id_]
            if id_ not in at_death and state.state == "reconnecting":
                at_death[id_] = state.frames
            elif id_ in at_death and id_ not in back and state.frames > at_death[id_]:
                back[id_] = time.monotonic() - killed_s
        return len(back) == len(victim)

    _wait(again, spec.start_s, stopped, "the sources of the killed process")
    during_ms, dropped = others.since()
    return {
        "sources": len(victim),
        "back_s": round(max(back.values()), 2),
        "first_back_s": round(min(back.values()), 2),
        "p95_before_ms": before_ms,
        "p95_others_ms": during_ms,
        "dropped_others": dropped,
        "counts": pipeline.counts(),
    }


class _Others:
    """Latency and drops of sources from now on."""

    def __init__(self, pipeline: Any, ids: Collection[str]) -> None:
        self._pipeline = pipeline
        self._ids = list(ids)
        self._before = self._read()

    def _read(self) -> tuple[Histogram, int]:
        whole = Histogram()
        dropped = 0
        for id_ in self._ids:
            state = self._pipeline.states[id_]
            dropped += state.dropped
            if state.latency is not None:
                whole.counts = whole.counts + state.latency.counts
        return whole, dropped

    def since(self) -> tuple[float | None, int]:
        """The 95th percentile in milliseconds, None without frames; and the number of dropped frames."""
        now, dropped = self._read()
        now.counts = now.counts - self._before[0].counts
        p95 = now.summary()["p95_ms"] if now.counts.any() else None
        return p95, dropped - self._before[1]


def _wait_for_sessions(pipeline: Any, limit_s: float, stopped: Stopped) -> None:
    """Wait until a spare process on a GPU has made its NVDEC sessions: until it makes no more for three seconds."""
    if pipeline.device.kind == "cpu":
        return
    start_s = changed_s = time.monotonic()
    session_count = 0
    while not stopped() and time.monotonic() < start_s + limit_s:
        if pipeline.sessions_ahead != session_count:
            session_count = pipeline.sessions_ahead
            changed_s = time.monotonic()
        if time.monotonic() - changed_s > (3.0 if session_count else 12.0):
            return
        time.sleep(_LOOK_S)


def _wait(done: Any, limit_s: float, stopped: Stopped, what: str) -> None:
    until = time.monotonic() + limit_s
    while not done():
        if stopped() or time.monotonic() > until:
            raise StreamkitError(f"{what} did not run within {limit_s:g} s")
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main(KillSpec, _work)
