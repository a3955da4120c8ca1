# SPDX-License-Identifier: Apache-2.0
"""A process that measures the speed of each part of a pipeline alone: the limits of whole pipelines.

It describes the machine, then returns a `Measurement` for each part, as it is measured. Decoding uses the product's
`VideoReader`, one thread per source with no stages after it. The stages are those of the pipeline, with its options,
opened as in a run. They get the same real frames repeatedly, on one thread and one CUDA stream with up to four batches
in flight.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from streamkit.bench.child import main
from streamkit.bench.table import Measurement
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.counters import Counters
from streamkit.core.crops import dense
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.errors import StreamkitError
from streamkit.core.stage import Context
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import shared_pool
from streamkit.runtime.execution.cores import cores, pin_to_shared_cores
from streamkit.runtime.execution.device import choose, describe_gpu, lane_device
from streamkit.runtime.execution.future import Stopped, side_by_side
from streamkit.runtime.execution.host import configure_process
from streamkit.stages.inference.infer import UNTUNED

PARTS = ("preprocess", "infer", "postprocess")
"""The stages that are measured, in their order."""

_START_TIMEOUT_S = 60.0
_WARM = 3
_UNTUNED_S = 1.0  # longer than a batch takes then


@dataclass(slots=True)
class LimitsSpec:
    """What to measure.

    Attributes:
        clips: a file for each codec; one that is shorter than a measurement is read again from its start.
        sources: numbers of sources to decode in parallel.
        batches: batch sizes for the stages.
        pipeline: a YAML file with a `detect` stage.
        set_: values that replace the file's.
        device: `cpu`, `cuda` or `cuda:N`.
        seconds: duration of each measurement.
    """

    clips: dict[str, str]
    sources: list[int]
    batches: list[int]
    pipeline: str
    set_: dict[str, str]
    device: str
    seconds: float


def decode_alone(
    clip: str, device: Device, sources: int, seconds: float, started: Callable[[], None] = lambda: None
) -> float:
    """Frames per second of `sources` parallel readers of one clip, from when all have started.

    Args:
        clip: a video; readers read it again from its start.
        device: where to decode.
        sources: number of readers, a thread each.
        seconds: duration of the measurement.
        started: called when all have started, before the measurement; may wait for other processes.

    Raises:
        SourceError: the clip cannot be read.
        StreamkitError: a reader delivered no frame within a minute.
    """
    configure_process()
    pool = shared_pool(device)
    counts = [0] * sources
    threads = max(1, cores() // sources)

    def decode(number: int, stopped: Stopped) -> None:
        pin_to_shared_cores(device)
        with closing(VideoReader(clip, device, pool, Counters(), threads=threads)) as reader:
            while not stopped():
                for _ in reader.frames():
                    counts[number] += 1
                    if stopped():
                        return

    with side_by_side(*(partial(decode, number) for number in range(sources))) as stopped:
        until = time.monotonic() + _START_TIMEOUT_S
        while not all(counts) and not stopped():
            if time.monotonic() > until:
                raise StreamkitError(f"{counts.count(0)} of {sources} readers of {clip} delivered no frame in a minute")
            time.sleep(0.005)
        started()
        time.sleep(min(0.3, seconds / 5))
        start_s = time.monotonic()
        before = sum(counts)
        time.sleep(seconds)
        return (sum(counts) - before) / (time.monotonic() - start_s)


def stages_alone(graph: Any, clip: str, device: Device, batch: int, seconds: float) -> Iterator[Measurement]:
    """Frames per second of each of `PARTS` that the graph has, for batches of one size.

    Args:
        graph: a built pipeline; its first stage of each name is used.
        clip: a video, for real frames.
        device: the device to measure.
        batch: frames per batch.
        seconds: duration of each measurement.

    Raises:
        StreamkitError: a stage cannot be opened.
    """
    nodes = {node.type.name: node for node in reversed(graph.nodes.values()) if node.type.name in PARTS}
    lane = lane_device(device, True)
    frames = first_frames(clip, device, batch)
    with lane.activate(), ExitStack() as opened:
        opened.callback(lane.synchronize)
        inputs = Batch(frames, device.xp)
        lane.acquire(inputs)
        for name in PARTS:
            if name not in nodes:
                return
            node = nodes[name]
            stage = node.type(**node.options)
            stage.context = Context(node.id, device, (batch,), cores(), Counters())
            stage.context.runtime.addresses = {"clip": clip}  # as in a run, a precision is chosen on its frames
            stage.open()
            opened.callback(stage.close)  # at the end: the next stage reads arrays of this stage's session
            if name == "infer" and device.kind == "cuda":  # on the CPU nothing is tuned
                _tune(stage, inputs, lane, node.table)
            yield Measurement(name, round(_rate(stage, inputs, lane, node.table, seconds), 1), batch=batch)
            inputs = _processed(stage, inputs)


def _tune(stage: Any, inputs: Batch, lane: Any, table: str) -> None:
    """Run a stage until its precision is chosen and its network tuned: no batch runs untuned for a second."""
    seen = -1
    while (count := stage.context.counters[UNTUNED]) != seen:
        seen = count
        _rate(stage, inputs, lane, table, _UNTUNED_S)


def first_frames(clip: str, device: Device, count: int) -> list[Frame]:
    """The first frames of a clip, from its start again if it is shorter; all stay in memory."""
    frames: list[Frame] = []
    with closing(VideoReader(clip, device, shared_pool(device), Counters())) as reader:
        while len(frames) < count:
            for index, image in reader.frames():
                frames.append(Frame("clip", index, image.pts_s, image.width, image.height, image.surface))
                if len(frames) == count:
                    break
    return frames


def _rate(stage: Any, inputs: Batch, lane: Any, table: str, seconds: float) -> float:
    """Frames per second of one stage. A table is read when the next batch is in progress, as in a sink's lane."""
    before: Batch | None = None

    def step() -> None:
        nonlocal before
        batch = _processed(stage, inputs)
        lane.release(batch)
        if before is not None and table in before.tables:
            before.table(table)
        before = batch

    for _ in range(_WARM):
        step()
    lane.synchronize()
    start_s = time.monotonic()
    batches = 0
    while time.monotonic() < start_s + seconds:
        step()
        batches += 1
    lane.synchronize()
    return batches * len(inputs) / (time.monotonic() - start_s)


def _processed(stage: Any, inputs: Batch) -> Batch:
    """Run a stage on a copy of the previous one's batch, since stages remove what they have consumed.

    A tensor that would be written when the network runs is created here: the parts are measured apart.
    """
    batch = Batch(inputs.frames, inputs.xp, inputs.tensor, inputs.geometry, dict(inputs.outputs))
    processed: Batch = stage.process(batch)
    processed.tensor = dense(processed.tensor)
    return processed


def measure(spec: LimitsSpec, device: Device) -> Iterator[Measurement]:
    """Run all measurements, one after the other.

    Raises:
        StreamkitError: the pipeline is invalid, a clip cannot be read, or the device cannot be used.
    """
    for codec, clip in spec.clips.items():
        for sources in spec.sources:
            yield Measurement("decode", round(decode_alone(clip, device, sources, spec.seconds), 1), codec, sources)
    clip = next(iter(spec.clips.values()))
    for batch in spec.batches:
        set_ = {**spec.set_, "batch.size": str(batch)}
        graph = build(read(Path(spec.pipeline), set_=set_, device=spec.device))
        yield from stages_alone(graph, clip, device, batch, spec.seconds)


def machine(device: Device) -> dict[str, Any]:
    """Describe the machine: GPU, cores and versions."""
    names = ("streamkit", "av", "numpy", "onnxruntime", "onnxruntime-gpu", "cupy-cuda13x", "PyNvVideoCodec")
    versions = {}
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    gpu = describe_gpu(device.index) if device.kind == "cuda" else None
    return {"gpu": gpu, "cores": cores(), "python": platform.python_version(), "versions": versions}


def _results(spec: LimitsSpec) -> Iterator[dict[str, Any]]:
    device = choose(spec.device)
    yield {"machine": machine(device)}
    yield from map(asdict, measure(spec, device))


if __name__ == "__main__":
    main(LimitsSpec, _results)
