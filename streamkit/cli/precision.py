# SPDX-License-Identifier: Apache-2.0
"""The commands `streamkit models quantize` and `models convert`: a network in int8 or f16, and how it compares."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamkit.cli.common import DEVICE, PLUGINS, echo, registry
from streamkit.core.errors import ConfigError

if TYPE_CHECKING:
    from streamkit.core.data import Frame
    from streamkit.models.precision import PrecisionRequest

logger = logging.getLogger(__name__)

_EXISTING = click.Path(path_type=Path)
_OPTIONS = (
    click.argument("name", metavar="CARD"),
    click.argument("clips", nargs=-1, type=_EXISTING),
    click.option("--data", multiple=True, type=_EXISTING, help="a folder of images or videos; as one of CLIPS"),
    click.option("--truth", type=_EXISTING, help="ground truth of the images in COCO's format: compares AP with it"),
    click.option(
        "--out",
        type=click.Path(path_type=Path, dir_okay=False),
        help="the card to write; by default CARD_int8.yaml or CARD_f16.yaml here",
    ),
    click.option(
        "--frames",
        type=click.IntRange(min=2),
        default=64,
        show_default=True,
        help="frames of all clips together: half for the ranges of values, half to compare",
    ),
    click.option(
        "--max-loss",
        type=click.FloatRange(0, 1),
        default=0.02,
        show_default=True,
        help="largest loss of agreement or AP; above it, nothing is written and the exit code is 1",
    ),
    click.option("--overwrite", is_flag=True, help="replace existing files"),
    click.option(
        "--max-megapixels",
        type=click.FloatRange(min=0.001),
        default=100.0,
        show_default=True,
        help="refuse larger images",
    ),
    DEVICE,
    PLUGINS,
)


def _options(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("quantize")
@_options
@click.option(
    "--reduce-range/--full-range", default=None, help="weights of 7 or 8 bits; by default 7 on processors without VNNI"
)
@click.option("--symmetric", is_flag=True, help="activations around zero, for TensorRT; slower on a CPU")
def quantize(reduce_range: bool | None, symmetric: bool, **command_options: Any) -> int:
    """Write an int8 network for the CPU, and its card: static quantization with frames of CLIPS.

    Both networks are compared on other frames of the clips. If the int8 one loses more than --max-loss, nothing is
    written.
    """
    from streamkit.models.int8 import int8_instructions
    from streamkit.models.precision import quantize_card

    request = _request("int8", **command_options)
    if request.device.kind == "cuda" and not symmetric:
        logger.warning(
            f"ONNX Runtime's CUDA provider runs int8 slower than f16; for a GPU use: streamkit models convert "
            f"{command_options['name']} --f16"
        )
    report = quantize_card(request, reduce_range, symmetric)
    echo(str(report))
    if request.device.kind == "cpu" and not symmetric and report.comparison.speedup < 1:
        logger.warning(f"int8 is not faster than float for this network on this processor ({int8_instructions()})")
    return 0 if report.file else 1


@click.command("convert")
@_options
@click.option("--f16", is_flag=True, help="half precision, for a GPU")
def convert(f16: bool, **command_options: Any) -> int:
    """Write an f16 network for a GPU, and its card; without CLIPS, it is compared on the included video."""
    from streamkit.models.card import sample_video
    from streamkit.models.precision import convert_card

    if not f16:
        raise click.UsageError("name the precision: --f16, or use: streamkit models quantize CARD CLIPS... for int8")
    if not command_options["clips"] and not command_options["data"]:
        command_options["clips"] = (sample_video(),)
    request = _request("f16", **command_options)
    report = convert_card(request)
    echo(str(report))
    if request.device.kind == "cpu":
        logger.warning("a CPU computes f16 as f32: compare speed and results on the GPU with --device cuda")
    return 0 if report.file else 1


def _request(
    kind: str,
    *,
    name: str,
    clips: Sequence[Path],
    data: Sequence[Path],
    truth: Path | None,
    out: Path | None,
    frames: int,
    max_loss: float,
    overwrite: bool,
    max_megapixels: float,
    device: str | None,
    plugins: tuple[Path, ...],
) -> PrecisionRequest:
    """Return what the command's options ask for, with the frames read."""
    from streamkit.models.card import family_of
    from streamkit.models.card_comparison import read_truth
    from streamkit.models.card_writer import check_targets
    from streamkit.models.derive import open_model
    from streamkit.models.network import check_model
    from streamkit.models.precision import PrecisionRequest
    from streamkit.runtime.execution.device import choose

    paths = [*clips, *data]
    if not paths:
        raise click.UsageError("name clips, images or folders that show what the network will see")
    card = check_model(open_model(name, Path(), registry(plugins).families))
    if card.takes_prompts:
        raise ConfigError(f"{card.name} takes prompts, and a network is converted with its images as the only input")
    if family_of(card).takes_clips:
        raise ConfigError(
            f"{card.name} takes clips, and a network is converted with single images; on a GPU, precision: f16 of the "
            "stage makes it faster"
        )
    target = out or Path(f"{card.name}_{kind}.yaml")
    if target.suffix.lower() not in (".yaml", ".yml"):
        raise click.UsageError(f"--out {target} is the card: give it the suffix .yaml; the network goes beside it")
    check_targets((target, target.with_suffix(".onnx")), overwrite)
    ground_truth = read_truth(truth, card) if truth else None
    calibration, shown = _frames(paths, frames, ground_truth.image_ids if ground_truth else None, max_megapixels)
    return PrecisionRequest(
        card,
        target,
        calibration,
        shown,
        choose(device or "cpu"),
        ground_truth,
        max_loss,
        overwrite,
    )


def _frames(
    paths: Sequence[Path], count: int, truth: Any, max_megapixels: float
) -> tuple[list[Frame], Iterable[Frame]]:
    """Return the frames for the ranges of values and those to compare; with truth, all of its images are compared."""
    from streamkit.core.errors import ModelError
    from streamkit.media.spread_frames import images_and_videos, spread_frames, still_frames

    images, videos = images_and_videos(paths)
    if truth is None:
        frames = spread_frames(images, videos, count, max_megapixels=max_megapixels)
        return frames[::2], frames[1::2]
    labeled = [image for image in images if image.name in truth]
    if not labeled:
        raise ModelError("none of the images has ground truth: name the folder of its images with --data")
    others = [image for image in images if image.name not in truth]
    if not others and not videos:
        logger.warning("the ranges of values come from images that AP is measured on; name other clips too")
        others = labeled
    half = -(-count // 2)
    calibration = spread_frames(others, videos, half, max_megapixels=max_megapixels)
    return calibration, still_frames(labeled, max_megapixels=max_megapixels)
