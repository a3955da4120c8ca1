"""Cost of lines and zones: `python benchmarks/lines_and_zones.py`. One core; no images, no network, no tracker.

A batch holds a frame of each of 64 sources with 30 tracked objects, which move straight at walking pace over a frame of
640x360 and turn back at its edges; 10 lines and 10 zones are spread over it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from streamkit.core.data import Batch, Detections, Frame, FrameState
from streamkit.core.stage import StreamStage
from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.stages.analytics.zone import Zone

SOURCES = 64
OBJECTS = 30
SHAPES = 10
FPS = 25
_SIZE = np.array([640.0, 360.0])
_PACE = 25.0  # pixels per second, in x and y


def stages(seed: int = 0) -> dict[str, StreamStage]:
    """The two stages, with their shapes, by name."""
    rng = np.random.default_rng(seed)
    lines: dict[str, Any] = {}
    zones: dict[str, Any] = {}
    for i in range(SHAPES):
        x, y = rng.uniform(0, _SIZE)
        angle = rng.uniform(0, np.pi)
        length = rng.uniform(40, 80)
        dx = length * np.cos(angle)
        dy = length * np.sin(angle)
        lines[f"line {i}"] = ((float(x - dx), float(y - dy)), (float(x + dx), float(y + dy)))
        x, y = rng.uniform([80, 80], _SIZE - 80)
        radius = rng.uniform(30, 80)
        corners = [angle + k * np.pi / 3 for k in range(6)]
        zones[f"zone {i}"] = tuple((float(x + radius * np.cos(a)), float(y + radius * np.sin(a))) for a in corners)
    return {"lines": LineCounter(line=lines), "zones": Zone(polygon=zones, loitering=10.0, more_than=5, window=10.0)}


def batches(n: int, seed: int = 0) -> list[Batch]:
    """Batches of a frame of each source, in order."""
    rng = np.random.default_rng(seed)
    count = SOURCES * OBJECTS
    start = rng.uniform(0, _SIZE, (count, 2))
    pace = rng.normal(0, _PACE / FPS, (count, 2))
    rows = np.repeat(np.arange(SOURCES, dtype=np.int32), OBJECTS)
    tracks = np.tile(np.arange(1, OBJECTS + 1), SOURCES)
    batches_of_frames = []
    for i in range(n):
        x, y = (np.abs((start + i * pace + _SIZE) % (2 * _SIZE) - _SIZE) + rng.normal(0, 0.3, (count, 2))).T
        boxes = np.stack([x - 8, y - 40, x + 8, y], axis=1).astype(np.float32)
        table = Detections(boxes, np.ones(count, np.float32), np.zeros(count, np.int32), rows, tracks, ("person",))
        frames = [Frame(f"camera {k}", i, i / FPS, 640, 360, _state=FrameState(stage="it")) for k in range(SOURCES)]
        batches_of_frames.append(Batch(frames, tables={"detect": table}, sequence=i))
    return batches_of_frames


def measure(
    stage: StreamStage, inputs: list[Batch], clock: Callable[[], float] = time.perf_counter
) -> tuple[list[float], int]:
    """The milliseconds that a stage takes for each batch, and the total number of events."""
    stage.open()
    states = {frame.source: stage.new_state(frame.source) for frame in inputs[0].frames}
    times = []
    before = sum(len(frame.events) for batch in inputs for frame in batch.frames)
    for batch in inputs:
        start_s = clock()
        stage.process(batch, states)
        times.append((clock() - start_s) * 1e3)
    stage.close()
    return times, sum(len(frame.events) for batch in inputs for frame in batch.frames) - before


def main(n: int = 500) -> None:
    """Print the cost of each per batch."""
    inputs = batches(n)
    total = 0.0
    for name, stage in stages().items():
        times, events = measure(stage, inputs)
        total += float(np.median(times))
        print(
            f"{name}: median {np.median(times):.2f} ms per batch, best tenth {np.quantile(times, 0.1):.2f} ms, "
            f"{events / n:.1f} events per batch"
        )
    print(
        f"both: {total:.2f} ms per batch of {SOURCES} sources with {OBJECTS} objects, {SHAPES} lines and {SHAPES} zones"
    )


if __name__ == "__main__":
    main()
