"""Measures the speed of each part of a pipeline alone: the limits that whole pipelines are compared with.

    python -m streamkit.bench.limits SPEC.json

prints an `Alone` as JSON for each part, as it is measured. Decoding uses the product's `VideoReader`, one thread per
source with no stages after it. The stages are those of the pipeline, with its options, opened as in a run, and given
the same real frames repeatedly, on one thread and one CUDA stream with up to four batches in flight.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from streamkit.bench.child import telling
from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.errors import StreamkitError
from streamkit.runtime.execution.future import Stopped, side_by_side

PARTS = ("preprocess", "infer", "postprocess")
"""The stages that are measured, in their order."""

_START_S = 60.0
_WARM = 3


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
    set_: dict[str, str] = field(default_factory=dict)
    device: str = "cuda"
    seconds: float = 3.0


@dataclass(slots=True)
class Alone:
    """The speed of one part.

    Attributes:
        what: `decode`, or one of `PARTS`.
        fps: frames per second.
        codec: the video's codec; empty for stages.
        sources: number of parallel sources; 0 for stages.
        batch: frames per batch; 0 for decoding.
    """

    what: str
    fps: float
    codec: str = ""
    sources: int = 0
    batch: int = 0


def decode_alone(clip: str, device: Device, sources: int, seconds: float) -> float:
    """Frames per second of `sources` parallel readers of one clip, from when all have started.

    Raises:
        SourceError: the clip cannot be read.
        StreamkitError: a reader delivered no frame within a minute.
    """
    from streamkit.media.reader import VideoReader
    from streamkit.media.surfaces import shared_pool
    from streamkit.runtime.execution.host import settle, share_cores
    from streamkit.runtime.execution.sizes import cores

    settle()
    pool, counts = shared_pool(device), [0] * sources
    threads = max(1, cores() // sources)

    def read(number: int, stopped: Stopped) -> None:
        share_cores(device)
        with closing(VideoReader(clip, device, pool, Counters(), _to_stderr, threads=threads)) as reader:
            while not stopped():
                for _ in reader.frames():
                    counts[number] += 1
                    if stopped():
                        return

    works: list[Callable[[Stopped], None]] = [lambda s, n=n: read(n, s) for n in range(sources)]  # type: ignore[misc]
    with side_by_side(*works) as stopped:
        until = time.monotonic() + _START_S
        while not all(counts) and not stopped():
            if time.monotonic() > until:
                raise StreamkitError(f"{counts.count(0)} of {sources} readers of {clip} gave no picture in a minute")
            time.sleep(0.005)
        time.sleep(min(0.3, seconds / 5))
        begun, before = time.monotonic(), sum(counts)
        time.sleep(seconds)
        return (sum(counts) - before) / (time.monotonic() - begun)


def stages_alone(graph: Any, clip: str, device: Device, batch: int, seconds: float) -> Iterator[Alone]:
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
    from streamkit.core.stage import Context
    from streamkit.runtime.execution.device import lane_device
    from streamkit.runtime.execution.sizes import cores

    found = {node.type.name: node for node in reversed(graph.nodes.values()) if node.type.name in PARTS}
    lane = lane_device(device, True)
    frames = pictures(clip, device, batch)
    with lane.enter(), ExitStack() as opened:
        opened.callback(lane.settle)
        given = Batch(frames, device.xp)
        lane.receive(given)
        for name in PARTS:
            if name not in found:
                return
            node = found[name]
            stage = node.type(**node.options)
            stage.context = Context(node.id, device, (batch,), cores(), Counters(), _to_stderr)
            stage.open()
            opened.callback(stage.close)  # at the end: the next stage reads what this one's session made
            yield Alone(name, round(_rate(stage, given, lane, node.table, seconds), 1), batch=batch)
            given = stage.process(_again(given))


def pictures(clip: str, device: Device, count: int) -> list[Frame]:
    """The first frames of a clip, from its start again if it is shorter; all stay in memory."""
    from streamkit.media.reader import VideoReader
    from streamkit.media.surfaces import shared_pool

    frames: list[Frame] = []
    with closing(VideoReader(clip, device, shared_pool(device), Counters(), _to_stderr)) as reader:
        while len(frames) < count:
            for index, picture in reader.frames():
                frames.append(Frame("clip", index, picture.pts_s, picture.width, picture.height, picture.surface))
                if len(frames) == count:
                    break
    return frames


def _rate(stage: Any, given: Batch, lane: Any, table: str, seconds: float) -> float:
    """Frames per second of one stage. A table is read when the next batch is in progress, as in a sink's lane."""
    before: Batch | None = None

    def once() -> None:
        nonlocal before
        batch = stage.process(_again(given))
        lane.hand_on(batch)
        if before is not None and table in before.tables:
            before.table(table)
        before = batch

    for _ in range(_WARM):
        once()
    lane.settle()
    begun, turns = time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        once()
        turns += 1
    lane.settle()
    return turns * len(given) / (time.monotonic() - begun)


def _again(given: Batch) -> Batch:
    """The batch as the stage before left it: stages remove what they have consumed."""
    return Batch(given.frames, given.xp, given.tensor, given.geometry, dict(given.outputs))


def measure(spec: LimitsSpec, device: Device) -> Iterator[Alone]:
    """Run all measurements, one after the other.

    Raises:
        StreamkitError: the pipeline is invalid, a clip cannot be read, or the device cannot be used.
    """
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read

    for codec, clip in spec.clips.items():
        for sources in spec.sources:
            yield Alone("decode", round(decode_alone(clip, device, sources, spec.seconds), 1), codec, sources)
    clip = next(iter(spec.clips.values()))
    for batch in spec.batches:
        set_ = {**spec.set_, "batch.size": str(batch)}
        graph = build(read(Path(spec.pipeline), set_=set_, device=spec.device))
        yield from stages_alone(graph, clip, device, batch, spec.seconds)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def machine(device: Device) -> dict[str, Any]:
    """Describe the machine: GPU, cores and versions."""
    import platform
    from importlib import metadata

    from streamkit.runtime.execution.device import describe_gpu
    from streamkit.runtime.execution.sizes import cores

    names = ("streamkit", "av", "numpy", "onnxruntime", "onnxruntime-gpu", "cupy-cuda13x", "PyNvVideoCodec")
    versions = {}
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    gpu = describe_gpu(device.index) if device.kind == "cuda" else None
    return {"gpu": gpu, "cores": cores(), "python": platform.python_version(), "versions": versions}


def main(arguments: Sequence[str]) -> None:
    """Run the measurements of a specification file."""
    from streamkit.runtime.execution.device import choose

    tell = telling()
    spec = LimitsSpec(**json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    try:
        device = choose(spec.device, _to_stderr)
        tell({"machine": machine(device)})
        for found in measure(spec, device):
            tell(asdict(found))
    except StreamkitError as error:
        tell({"error": str(error)})


if __name__ == "__main__":
    main(sys.argv[1:])
