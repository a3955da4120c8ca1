# SPDX-License-Identifier: Apache-2.0
"""A process that measures the cost of a graph itself: stages that do nothing, and memory over many frames."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from streamkit.bench.child import main
from streamkit.bench.load import resident_mb
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.stage import (
    BatchStage,
    Collecting,
    Count,
    FrameStage,
    Registry,
    Sink,
    Source,
    default_registry,
    stage,
)


@dataclass(slots=True)
class ProbeSpec:
    """What to run: `memory` with a video and a card, else `graph_cost`; `stage` runs the card's network."""

    frames: int
    video: str = ""
    card: str = ""
    stage: str = "detect"


def add_stages(registry: Registry) -> None:
    """Add stages that do nothing, one of each kind; the sink, `watch_memory`, samples the process's memory."""
    with Collecting(registry):
        _define()


def _define() -> None:
    @stage("empty_frames")
    class EmptyFrames(Source):
        """Frames without pixels; `uri` is ignored."""

        uri: str
        count: Count = 1

        def frames(self) -> Iterator[Frame]:
            name = self.context.id
            for index in range(self.count):
                yield Frame(name, index, index * 0.04, 64, 64)

    @stage("idle_batch")
    class IdleBatch(BatchStage):
        """Passes batches on."""

        def process(self, batch: Batch) -> Batch:
            return batch

    @stage("idle_frame")
    class IdleFrame(FrameStage):
        """Does nothing with frames."""

        def process(self, frame: Frame) -> None:
            return

    @stage("watch_memory")
    class WatchMemory(Sink):
        """Records the process's memory at the frames 1,000, 2,000 and so on."""

        seen: ClassVar[dict[int, float]] = {}

        def write(self, frame: Frame) -> None:
            if (frame.index + 1) % 1000 == 0:
                self.seen[frame.index + 1] = round(resident_mb(), 1)


def graph_cost(frames: int) -> dict[str, Any]:
    """Run `frames` frames through source, batch stage, frame stage and sink that do nothing.

    Returns:
        frames; us_per_frame, wall time; cpu_us_per_frame, CPU time of all threads, which depends less on other load;
        calls_us, CPU time of `_CALLS` plain Python calls, a measure of the machine; memory_mb by frame.
    """
    text = """
        device: cpu
        sources: {empty: {stage: empty_frames, uri: none, count: COUNT}}
        stages:
          idle_batch: {}
          idle_frame: {}
          watch_memory: {}
    """.replace("COUNT", str(frames))
    before_us = _calls_us()
    cost = _run(text, frames)
    return {**cost, "calls_us": round((before_us + _calls_us()) / 2, 2)}


_CALLS = 100
_ROUNDS = 5_000


def _calls_us() -> float:
    """The CPU time of `_CALLS` calls of a plain method, in microseconds."""
    counter = _Counter()
    start_s = time.process_time()
    for value in range(_ROUNDS):
        for key in range(_CALLS):
            counter.step(key, value)
    return (time.process_time() - start_s) / _ROUNDS * 1e6


class _Counter:
    """Does in a call what a graph does in most: read and set an attribute, fill and read a mapping."""

    def __init__(self) -> None:
        self.steps = 0
        self.values: dict[int, int] = {}

    def step(self, key: int, value: int) -> int | None:
        self.steps += 1
        self.values[key] = value
        return self.values.get(key)


def memory(video: Path, card: Path, frames: int, out: Path, stage: str = "detect") -> dict[str, Any]:
    """Loop a video through decode, a network and jsonl; returns frames, the times and memory_mb of `graph_cost`."""
    text = f"""
        device: cpu
        sources: {{video: {{uri: {json.dumps(str(video))}, loop: true}}}}
        stages:
          {stage}: {{model: {json.dumps(str(card))}}}
          jsonl: {{path: {json.dumps(str(out))}}}
          watch_memory: {{}}
    """
    return _run(text, frames)


def _run(text: str, frames: int) -> dict[str, Any]:
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read_text
    from streamkit.runtime.pipeline import PipelineRun
    from streamkit.runtime.run import RunConfig

    registry = default_registry()
    add_stages(registry)
    watch: Any = registry.get("watch_memory")
    pipeline = PipelineRun(build(read_text(text, registry=registry)), Device("cpu"), RunConfig(limit=frames))
    start_s = time.process_time()
    code = pipeline.run()
    used = time.process_time() - start_s
    if code or pipeline.frames != frames:
        raise RuntimeError(f"the probe must end well with {frames} frames, got {pipeline.frames} and exit code {code}")
    return {
        "frames": frames,
        "us_per_frame": round(pipeline.seconds / frames * 1e6, 1),
        "cpu_us_per_frame": round(used / frames * 1e6, 1),
        "memory_mb": dict(watch.seen),
    }


def probe(spec: ProbeSpec) -> Iterator[dict[str, Any]]:
    """Run the probe of a specification."""
    if not spec.video:
        yield graph_cost(spec.frames)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield memory(Path(spec.video), Path(spec.card), spec.frames, Path(folder) / "out.jsonl", spec.stage)


if __name__ == "__main__":
    main(ProbeSpec, probe)
