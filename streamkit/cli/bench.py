# SPDX-License-Identifier: Apache-2.0
"""The commands that measure: `streamkit bench` and `streamkit capacity`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import click

from streamkit.cli.common import FILE, SET, echo, pairs
from streamkit.core.errors import ConfigError

_OUT = click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="write the figures as JSON")
_DATA = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="a folder with models/ and videos/ to use instead of what ships",
)


def _numbers(value: str | tuple[int, ...]) -> tuple[int, ...]:
    """Whole numbers from 1, as in 8,32,64."""
    if isinstance(value, tuple):
        return value
    parts = value.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"{value!r}: give whole numbers from 1, separated by commas, such as 8,32,64")
    return tuple(map(int, parts))


def _processes(value: str | tuple[int | str, ...]) -> tuple[int | str, ...]:
    """`auto` or whole numbers from 1, as in auto,1,3."""
    if isinstance(value, tuple):
        return value
    parts = [part.strip() for part in value.split(",")]
    if not all(part == "auto" or (part.isdecimal() and int(part)) for part in parts):
        raise click.BadParameter(f"{value!r}: give auto or whole numbers from 1, separated by commas, such as auto,1,3")
    return tuple(part if part == "auto" else int(part) for part in parts)


_PROCESSES = click.types.FuncParamType(_processes)
_PROCESSES.name = "auto|N,N,..."
_NUMBERS = click.types.FuncParamType(_numbers)
_NUMBERS.name = "N,N,..."


@click.group()
def bench() -> None:
    """Measure the performance of this machine."""


@bench.command("cpu")
@_OUT
@_DATA
def bench_cpu(out: Path | None, data: Path | None) -> int:
    """Measure the CPU, compared with a plain Python loop."""
    from streamkit.bench.cpu import bench as measure

    return measure(data, out, echo)


@bench.command("gpu")
@_OUT
@_DATA
@click.option("--clip", "clips", multiple=True, metavar="CODEC=FILE", help="video to use instead of the sample video")
@click.option("--codecs", default="h264,hevc", show_default=True, help="codecs of the clips")
@click.option(
    "--models",
    metavar="CARD,...",
    default="",
    help="networks to use instead of YOLOX-nano, one after the other",
)
@click.option("--dtype", type=click.Choice(["f16", "f32"]), default="f16", show_default=True, help="of YOLOX-nano")
@click.option("--batches", type=_NUMBERS, default="8,32,64,128", show_default=True, help="batch sizes")
@click.option("--sources", type=_NUMBERS, default="1,7,14,32", show_default=True, help="numbers of sources")
@click.option("--grid", is_flag=True, help="measure every batch size with every number of sources")
@click.option("--realtime", type=_NUMBERS, default=(), help="also measure this many sources at 30 frames per second")
@click.option(
    "--processes",
    type=_PROCESSES,
    default="auto",
    show_default=True,
    help="processes that share the GPU, as in device.processes; all runs use the first",
)
@click.option("--seconds", type=click.FloatRange(min=0.2), default=3.0, show_default=True, help="of each measurement")
@click.option(
    "--max",
    "max_s",
    type=click.FloatRange(min=1),
    default=None,
    help="seconds in all: 360, or 60 with --quick; what exceeds them is skipped or stopped",
)
@click.option(
    "--extra-stages",
    type=click.Path(path_type=Path, dir_okay=False),
    help="a YAML whose `stages` follow detect in one more run and in --realtime, such as track",
)
@click.option("--quick", is_flag=True, help="one batch size and one number of sources, in a minute")
@click.option("--device", default="cuda", show_default=True, help="cuda, cuda:N or cpu")
@SET
def bench_gpu(
    out: Path | None,
    data: Path | None,
    clips: tuple[str, ...],
    codecs: str,
    models: str,
    device: str,
    max_s: float | None,
    extra_stages: Path | None,
    quick: bool,
    set_: tuple[str, ...],
    **bench_options: Any,
) -> int:
    """Measure a GPU: decoding, preprocessing, inference and postprocessing alone, and whole pipelines.

    With several networks, --out gets a file for each: bench.json becomes bench-yolo11m.json.
    """
    from streamkit.bench.gpu import QUICK_S, WHOLE_S, GpuBenchOptions, stages_of
    from streamkit.bench.gpu import bench as measure
    from streamkit.bench.inputs import clip_of, data_folder
    from streamkit.runtime.execution.device import choose

    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ConfigError(f"--device must be cuda, cuda:N or cpu, because only one device is measured; got {device!r}")
    choose(device)  # report a missing GPU first
    if not all("=" in clip for clip in clips):
        raise ConfigError("--clip must be CODEC=FILE, such as --clip hevc=gate.mp4")
    users_clips = {codec: Path(path) for codec, path in pairs(clips).items()}
    missing = [str(path) for path in users_clips.values() if not path.is_file()]
    if missing:
        raise ConfigError(f"--clip: there is no {' and no '.join(missing)}")
    networks: list[str | None] = [name.strip() for name in models.split(",") if name.strip()]
    folder = None if users_clips and networks else data_folder(data)
    stems = [Path(network).stem for network in networks if network is not None]
    repeated = [stem for stem in stems if stems.count(stem) > 1]
    if out is not None and repeated:
        raise ConfigError(f"--models: results of two networks would be written to {out.stem}-{repeated[0]}{out.suffix}")
    codes = []
    with tempfile.TemporaryDirectory(prefix="streamkit-bench-") as scratch:
        if folder is None and not users_clips:
            echo("the clips are the sample video in 1080p; --clip or --data names others")
        videos = users_clips or {codec: clip_of(codec, folder, Path(scratch)) for codec in codecs.split(",")}
        for network in networks or [None]:
            options = GpuBenchOptions(
                videos,
                folder,
                network,
                device=device,
                max_s=max_s or (QUICK_S if quick else WHOLE_S),
                extra_stages={} if extra_stages is None else stages_of(extra_stages),
                set_=pairs(set_),
                **bench_options,
            )
            file = out
            if out is not None and network is not None and len(networks) > 1:
                file = out.with_name(f"{out.stem}-{Path(network).stem}{out.suffix}")
            codes.append(measure(options.quick() if quick else options, file, echo))
    return max(codes)


@click.command()
@FILE
@SET
@click.option("--device", help="replace the YAML's device: auto, cpu, cuda, cuda:N")
@click.option("--fps", type=click.FloatRange(min=0.001), help="frames per second of a stream; default: the video's")
@click.option(
    "--max-latency",
    "max_latency_ms",
    type=click.FloatRange(min=1),
    default=150.0,
    show_default=True,
    help="milliseconds from when a frame is due, 95th percentile",
)
@click.option("--seconds", type=click.FloatRange(min=0.5), default=4.0, show_default=True, help="of each measurement")
@click.option("--start", type=click.IntRange(min=1), default=1, show_default=True, help="streams to start with")
@click.option("--max-streams", type=click.IntRange(min=1), default=1024, show_default=True, help="streams to end with")
@_OUT
def capacity(
    pipeline: Path, set_: tuple[str, ...], device: str | None, out: Path | None, **capacity_options: Any
) -> int:
    """Find how many streams a pipeline can run on this device, and what limits it."""
    from streamkit.bench.capacity import CapacityOptions
    from streamkit.bench.capacity import capacity as measure

    options = CapacityOptions(max_latency_s=capacity_options.pop("max_latency_ms") / 1e3, **capacity_options)
    return measure(pipeline, pairs(set_), device, options, out, echo)
