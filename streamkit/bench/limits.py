"""What each part of a pipeline can do when nothing else is at work: the limits that the whole is held against.

    python -m streamkit.bench.limits SPEC.json

prints an `Alone` as JSON for each part, as it is measured. Decoding is the product's `Reader`, a thread for each source
and nothing behind it. The stages are those of the pipeline itself, with its options, opened as a run opens them and
given the same real pictures again and again, on one thread and one CUDA stream with up to four batches in flight.
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
from streamkit.counters import Counters
from streamkit.data import Batch, Device, Frame
from streamkit.errors import StreamkitError
from streamkit.runtime.background import Stopped, side_by_side

PARTS = ("preprocess", "infer", "postprocess")
"""The stages that are measured, in their order."""

_START_S = 60.0
_WARM = 3


@dataclass(slots=True)
class Spec:
    """What to measure.

    Attributes:
        clips: by codec, a file that is longer than a measurement, or not: it is read again from its start then.
        sources: numbers of sources to decode at once.
        batches: batch sizes for the stages.
        pipeline: a YAML file with a `detect` stage.
        set_: values that replace the file's.
        device: `cpu`, `cuda` or `cuda:N`.
        seconds: for each measurement.
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
    """One part's speed.

    Attributes:
        what: `decode`, or one of `PARTS`.
        fps: frames a second.
        codec: of the video; empty where it does not matter.
        sources: how many at once; 0 for stages.
        batch: frames a batch; 0 for decoding.
    """

    what: str
    fps: float
    codec: str = ""
    sources: int = 0
    batch: int = 0


def decode_alone(clip: str, device: Device, sources: int, seconds: float) -> float:
    """Frames a second of `sources` readers of one clip side by side, from the moment when all have begun.

    Raises:
        SourceError: the clip cannot be read.
        StreamkitError: a reader gave no picture in a minute.
    """
    from streamkit.media.reader import Reader
    from streamkit.media.surfaces import shared_pool
    from streamkit.runtime.host import settle, share_cores
    from streamkit.runtime.sizes import cores

    settle()
    pool, counts = shared_pool(device), [0] * sources
    threads = max(1, cores() // sources)

    def read(number: int, stopped: Stopped) -> None:
        share_cores(device)
        with closing(Reader(clip, device, pool, Counters(), _to_stderr, threads=threads)) as reader:
            while not stopped():
                for _ in reader.pictures():
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
    """Frames a second of each of `PARTS` that the graph has, for batches of one size.

    Args:
        graph: a built pipeline; its first stage of each name counts.
        clip: real pictures, as many as a batch holds.
        device: where.
        batch: frames.
        seconds: for each.

    Raises:
        StreamkitError: a stage cannot be opened.
    """
    from streamkit.runtime.device import lane_device
    from streamkit.runtime.sizes import cores
    from streamkit.stage import Context

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
    """The first frames of a clip, from its start again where it is shorter; all of them stay in memory."""
    from streamkit.media.reader import Reader
    from streamkit.media.surfaces import shared_pool

    frames: list[Frame] = []
    with closing(Reader(clip, device, shared_pool(device), Counters(), _to_stderr)) as reader:
        while len(frames) < count:
            for index, picture in reader.pictures():
                frames.append(Frame("clip", index, picture.pts_s, picture.width, picture.height, picture.surface))
                if len(frames) == count:
                    break
    return frames


def _rate(stage: Any, given: Batch, lane: Any, table: str, seconds: float) -> float:
    """Frames a second of one stage. A table is read once the next batch is on its way, as a sink's lane does."""
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
    """The batch as the stage before left it: stages take away what they have used."""
    return Batch(given.frames, given.xp, given.tensor, given.geometry, dict(given.outputs))


def measure(spec: Spec, device: Device) -> Iterator[Alone]:
    """Everything, one after the other.

    Raises:
        StreamkitError: the pipeline is wrong, a clip cannot be read, or the device cannot be used.
    """
    from streamkit.config import read
    from streamkit.graph import build

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
    """What it was measured on."""
    import platform
    from importlib import metadata

    from streamkit.runtime.device import describe_gpu
    from streamkit.runtime.sizes import cores

    names = ("streamkit", "av", "numpy", "onnxruntime", "onnxruntime-gpu", "cupy-cuda13x", "PyNvVideoCodec")
    versions = {}
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    gpu = describe_gpu(device.index) if device.kind == "cuda" else None
    return {"gpu": gpu, "cores": cores(), "python": platform.python_version(), "versions": versions}


def main(arguments: Sequence[str]) -> None:
    """Measure what the file says."""
    from streamkit.runtime.device import choose

    tell = telling()
    spec = Spec(**json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    try:
        device = choose(spec.device, _to_stderr)
        tell({"machine": machine(device)})
        for found in measure(spec, device):
            tell(asdict(found))
    except StreamkitError as error:
        tell({"error": str(error)})


if __name__ == "__main__":
    main(sys.argv[1:])
