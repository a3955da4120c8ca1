"""Measures how fast a GPU computes networks, alone: ONNX Runtime in f32, TF32 and f16, and the fused engine.

    python benchmarks/networks.py yolov8m.onnx rtdetr-l.onnx --batch 32 --out networks.json

All sides run one after the other in one process on one GPU, on frames of samples/street.mp4. Each has as many series of
runs as `--rounds` says; a rate is the median of the series. `--torch` adds PyTorch's compiler in f16, channels-last.
Nothing else should use the GPU. docs/networks-on-a-gpu.md has figures, `export_networks.py` makes networks.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.export_networks import sample_frames
from streamkit.bench.limits import machine
from streamkit.core.data import Device
from streamkit.core.errors import ModelError, describe
from streamkit.doctor.machine import driver
from streamkit.engine.device import relative_error
from streamkit.engine.errors import EngineError
from streamkit.models.arithmetic import F32, Arithmetic
from streamkit.models.network_file import ModelInfo, inspect
from streamkit.models.session import Session
from streamkit.runtime.execution.device import choose, gpu_trouble, lane_device

SCHEMA = "streamkit-networks/1"
SIDES = {
    "onnxruntime_f32": F32,
    "onnxruntime_tf32": Arithmetic("onnxruntime", "tf32"),
    "onnxruntime_f16": Arithmetic("onnxruntime", "f16"),
    "fused": Arithmetic("fused", "f16"),
}
TORCH = "torch_f16_compiled"
_SIZE = (640, 640)
_PACKAGES = ("nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "onnx", "torch")


@dataclass(frozen=True, slots=True)
class Series:
    """How often a network runs.

    Attributes:
        rounds: series, each with a rate.
        runs: of a series.
    """

    rounds: int = 5
    runs: int = 15


@dataclass
class NetworkRates:
    """What was measured of a network.

    Attributes:
        fps: images per second by side, one rate a series.
        errors: of each output against f32 by the norm, by side.
        left_out: why a side was not measured, by side.
        fused_ratio: share of the multiply-adds that the fused engine runs; None if it runs none.
    """

    fps: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, dict[str, float]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    fused_ratio: float | None = None


def measure(
    file: Path, batch: int, device: Device, series: Series, sides: Mapping[str, Arithmetic] = SIDES, torch: bool = False
) -> NetworkRates:
    """Measure a network; a side that cannot run it is left out.

    Args:
        file: the ONNX file.
        batch: images in a run.
        device: where it runs.
        series: how often.
        sides: arithmetics by name; the first is what the others are compared with.
        torch: whether PyTorch's compiler is measured too, on a GPU.
    """
    rates = NetworkRates()
    info = inspect(file)
    batch = info.batch or batch
    expected: dict[str, Any] = {}
    for side, arithmetic in sides.items():
        try:
            with _session(file, device, arithmetic, batch) as (session, feeds):
                outputs = session.run(feeds)
                rates.errors[side] = {
                    name: relative_error(values, expected.setdefault(name, values.astype(np.float32)))
                    for name, values in outputs.items()
                    if values.dtype.kind == "f"
                }
                rates.fps[side] = list(_rates(functools.partial(session.run, feeds), batch, device, series))
                rates.fused_ratio = session.fused_share or rates.fused_ratio
        except (EngineError, ModelError) as error:
            rates.left_out[side] = str(error)
        except Exception as error:  # of ONNX Runtime or cuDNN: the other sides are measured all the same
            rates.left_out[side] = describe(error)
    if torch:
        try:
            rates.fps[TORCH] = list(_torch_rates(info, batch, series))
        except Exception as error:  # of PyTorch or its compiler, or an operator that torch_network.py lacks
            rates.left_out[TORCH] = describe(error)
    return rates


def size_of(info: ModelInfo) -> tuple[int, int]:
    """Return width and height of a network's images; 640 x 640 if its file leaves them open."""
    return info.size or _SIZE


@contextmanager
def _session(
    file: Path, device: Device, arithmetic: Arithmetic, batch: int
) -> Iterator[tuple[Session, dict[str, Any]]]:
    """Open and warm a session on a stream; yield it with its inputs."""
    lane = lane_device(device, on_device=True)
    with lane.activate():
        session = Session(file, device, arithmetic=arithmetic, batch_sizes=(batch,), size=size_of(inspect(file)))
        session.warm((batch,), size_of(session.info))
        yield session, _feeds(session.info, batch, device)
        lane.synchronize()
        del session
        gc.collect()
        if device.kind == "cuda":
            device.xp.get_default_memory_pool().free_all_blocks()


def _feeds(info: ModelInfo, batch: int, device: Device) -> dict[str, Any]:
    """Return the inputs of a run: frames, and the size of the images for what else a network reads."""
    width, height = size_of(info)
    images = sample_frames((width, height), batch)
    tensor = info.inputs[info.image_input]
    if tensor.dtype == np.uint8:
        images = images * 255
    if info.layout == "nhwc":
        images = images.transpose(0, 2, 3, 1)
    feeds = {info.image_input: np.ascontiguousarray(images, tensor.dtype)}
    for name, other in info.inputs.items():
        if name != info.image_input:
            shape = [batch if axis == 0 else 1 if length is None else length for axis, length in enumerate(other.shape)]
            feeds[name] = np.full(shape, width, other.dtype)
    return {name: device.xp.asarray(values) for name, values in feeds.items()}


def _rates(run: Callable[[], Any], batch: int, device: Device, series: Series) -> Iterator[float]:
    """Yield the images per second of each series."""

    def wait() -> None:
        if device.kind == "cuda":
            device.xp.cuda.get_current_stream().synchronize()

    run()
    for _ in range(series.rounds):
        wait()
        start_s = time.perf_counter()
        for _ in range(series.runs):
            run()
        wait()
        yield series.runs * batch / (time.perf_counter() - start_s)


def _torch_rates(info: ModelInfo, batch: int, series: Series) -> Iterator[float]:
    import onnx
    import torch

    from benchmarks.torch_network import TorchNetwork
    from streamkit.engine.graph import simplify

    if len(info.inputs) > 1 or info.layout != "nchw":
        raise ValueError("it is measured for networks with one input in NCHW")
    width, height = size_of(info)
    graph = simplify(onnx.load(info.file), {info.image_input: (batch, 3, height, width)})
    images = torch.from_numpy(sample_frames((width, height), batch)).cuda().half()
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        compiled = torch.compile(TorchNetwork(graph, torch.float16, "cuda"), mode="reduce-overhead")
        for _ in range(3):
            compiled(images)
        for _ in range(series.rounds):
            torch.cuda.synchronize()
            start_s = time.perf_counter()
            for _ in range(series.runs):
                compiled(images)
            torch.cuda.synchronize()
            yield series.runs * batch / (time.perf_counter() - start_s)
    del compiled
    torch._dynamo.reset()
    torch.cuda.empty_cache()


# ------------------------------------------------------------------------------------------------ results


def entry(file: Path, batch: int, device: Device, series: Series, rates: NetworkRates) -> dict[str, Any]:
    """Return the entry of a network in the file, see docs/figures/README.md."""
    width, height = size_of(inspect(file))
    figures = {f"{side}_fps": summary(values) for side, values in rates.fps.items()}
    if rates.fused_ratio is not None:
        figures["fused_multiply_adds_ratio"] = summary([rates.fused_ratio])
    if TORCH in rates.fps and "fused" in rates.fps:
        medians = [statistics.median(rates.fps[side]) for side in ("fused", TORCH)]
        figures["fused_of_torch_ratio"] = summary([medians[0] / medians[1]])
    return {
        "row": file.stem,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "repetitions": series.rounds,
        "error": "; ".join(f"{side}: {reason}" for side, reason in rates.left_out.items()) or None,
        "conditions": {
            "device": str(device),
            "batch": batch,
            "width": width,
            "height": height,
            "runs": series.runs,
            "images": "samples/street.mp4",
        },
        "figures": figures,
        "raw": [{"relative_errors_of_outputs": rates.errors}],
    }


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return median and range of a figure's series, and all of them."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "values": list(values)}


def line(name: str, batch: int, rates: NetworkRates) -> str:
    """Return a measured network as a line of text."""
    parts = [f"{side} {statistics.median(values):,.0f}" for side, values in rates.fps.items()]
    parts += [f"{side} not measured ({reason})" for side, reason in rates.left_out.items()]
    fused = "" if rates.fused_ratio is None else f"; {rates.fused_ratio:.1%} of the multiply-adds are fused"
    return f"{name}, batch {batch}, images/s: {', '.join(parts)}{fused}"


def describe_machine(device: Device) -> dict[str, Any]:
    """Return GPU, driver, cores and versions."""
    facts = machine(device)
    for package in _PACKAGES:
        try:
            facts["versions"][package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    gpu = facts["gpu"] or {}
    return facts | {"gpu": gpu.get("name"), "cuda": gpu.get("runtime"), "driver": driver()[1]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the networks that are named, and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="ONNX files")
    parser.add_argument("--batch", nargs="+", type=int, default=[32], help="images in a run (default: 32)")
    parser.add_argument("--rounds", type=int, default=5, help="series of runs (default: 5)")
    parser.add_argument("--runs", type=int, default=15, help="runs of a series (default: 15)")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="what is measured")
    parser.add_argument("--torch", action="store_true", help="measure PyTorch's compiler too")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N (default: cuda)")
    parser.add_argument("--out", type=Path, help="the JSON file to write")
    options = parser.parse_args(arguments)
    index = int(options.device.partition(":")[2] or 0)
    if trouble := gpu_trouble(index):
        sys.exit(f"networks are measured on a GPU: {trouble}")
    if missing := [str(file) for file in options.files if not file.is_file()]:
        sys.exit(f"there is no file {missing[0]}")
    device = choose(options.device)
    series = Series(options.rounds, options.runs)
    sides = {side: SIDES[side] for side in options.sides}
    now = datetime.now(UTC)
    document = {"schema": SCHEMA, "date": now.date().isoformat(), "machine": describe_machine(device), "rows": []}
    for file in options.files:
        for batch in options.batch:
            rates = measure(file, batch, device, series, sides, options.torch)
            print(line(file.stem, batch, rates), flush=True)
            document["rows"].append(entry(file, batch, device, series, rates))
            if options.out:
                options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
