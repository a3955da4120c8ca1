# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit models`: lists, downloads, writes and checks model cards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from streamkit.cli.common import DEVICE, PLUGINS, echo, registry
from streamkit.cli.precision import convert, quantize
from streamkit.core.errors import ConfigError


@click.group()
def models() -> None:
    """List, download, write and check model cards."""


models.add_command(quantize)
models.add_command(convert)


@models.command("list")
def models_list() -> int:
    """List the built-in cards whose networks are present or can be downloaded, then the names of the others."""
    for line in card_lines():
        echo(line)
    return 0


def card_lines() -> Iterator[str]:
    """Yield what `list` shows: the cards whose networks are present or can be downloaded, and the names of others."""
    from streamkit.models.card import AUTO, DEFAULT_CARD, list_cards, load_card

    without_network = []
    for path in list_cards():
        card = load_card(path)
        if not card.file.is_file() and not card.url:
            without_network.append(card.name)
            continue
        there = "ready" if card.file.is_file() else f"streamkit models pull {card.name}"
        size = "x".join(map(str, card.input.size))
        yield f"{card.name:15} {card.task:8} {card.family:10} {size:9} {card.license:12} {there}"
    yield f"{AUTO}: {DEFAULT_CARD}, which is downloaded when a pipeline names it"
    if without_network:
        yield f"Networks that you export yourself, as the note in the card says: {', '.join(without_network)}"


@models.command("pull")
@click.argument("names", nargs=-1, required=True)
def models_pull(names: tuple[str, ...]) -> int:
    """Download the networks of these cards into the user's cache.

    NAMES are cards, or auto. A network for one image at a time is changed to take several, where onnx is installed.
    """
    from streamkit.models.card import AUTO, DEFAULT_CARD, downloaded_network, find_card, load_card
    from streamkit.models.dynamic_batch import with_batches
    from streamkit.models.pull import pull

    for name in names:
        card = load_card(find_card(DEFAULT_CARD if name == AUTO else name, Path()))
        network = pull(card)
        echo(f"{name}: {with_batches(network) if network == downloaded_network(card.name, card.sha256) else network}")
    return 0


@models.command("new")
@click.argument("network", type=click.Path(path_type=Path))
@click.option("--family", default="", help="how the outputs are read; by default the only family that fits")
@click.option("--labels", default="", help="a file with one class name per line, or a known list such as coco")
@click.option("--size", metavar="WIDTHxHEIGHT", help="of the input, where the file leaves it open")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="the card [default: beside the network]")
@click.option("--force", is_flag=True, help="replace an existing card")
@PLUGINS
def models_new(
    network: Path,
    family: str,
    labels: str,
    size: str | None,
    out: Path | None,
    force: bool,
    plugins: tuple[Path, ...],
) -> int:
    """Write the card of an ONNX file, with the origin of each value."""
    from streamkit.io.outputs import AtomicFile
    from streamkit.models.card import load_card
    from streamkit.models.derive import derive
    from streamkit.models.network import check_model

    out = out or network.with_suffix(".yaml")
    if out.suffix not in (".yaml", ".yml"):
        raise click.UsageError(f"--out {out} must end in .yaml")
    if out.exists() and not force:
        raise ConfigError(f"{out} exists; write another file with --out, or replace it with --force")
    families = registry(plugins).families
    derived = derive(network, family=family, labels=labels, size=_size(size), assume=bool(family), families=families)
    AtomicFile(out).write(derived.text(out.parent).encode())
    card = check_model(load_card(out, families))
    size = "x".join(map(str, card.input.size))
    classes = len(card.labels)
    number = f", {classes} class{'' if classes == 1 else 'es'}" if classes else ""
    echo(f"{out}: {card.task}, family {card.family}, {size}{number}")
    for text in derived.assumed:
        echo(f"check     {text}")
    if "note" in derived.facts:
        echo(f"note      {derived.facts['note'].value}")
    return 0


def _size(text: str | None) -> tuple[int, int] | None:
    """Read `640x480`."""
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    if not (width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise click.UsageError(f"--size {text}: write WIDTHxHEIGHT in pixels, such as 640x640")
    return int(width), int(height)


@models.command("check")
@click.argument("name")
@click.argument("frames", nargs=-1, type=click.Path(path_type=Path))
@DEVICE
@click.option(
    "--max-megapixels", type=click.FloatRange(min=0.001), default=100.0, show_default=True, help="refuse larger images"
)
@PLUGINS
@click.option("--draw", type=click.Path(path_type=Path, dir_okay=False), help="draw a frame's objects into this .png")
@click.option("--prompts", metavar="TEXT,...", help="what an open-vocabulary network is to find")
def models_check(
    name: str,
    frames: tuple[Path, ...],
    device: str | None,
    max_megapixels: float,
    plugins: tuple[Path, ...],
    draw: Path | None,
    prompts: str | None,
) -> int:
    """Compare a card's tensor and boxes with a plain CPU reference on real frames.

    NAME is a card, or an ONNX file. FRAMES are images, videos, or folders of them; without any, the included video is
    used. Other values of the card's input are tried on the frames too; where one finds clearly more, a hint says so.
    """
    from streamkit.models.card import sample_video
    from streamkit.models.check import check as compare
    from streamkit.models.check import frames_of
    from streamkit.models.derive import open_model
    from streamkit.models.finder import check_drawable, draw_best
    from streamkit.models.hints import hints
    from streamkit.runtime.execution.device import choose

    card = open_model(name, Path(), registry(plugins).families)
    if draw is not None and card.takes_prompts:
        raise ConfigError("--draw is for networks without prompts; the pipeline's stage draw shows their objects")
    if draw is not None:
        check_drawable(card, draw)
    shown = frames_of(_check_files(frames or [sample_video()]), max_megapixels=max_megapixels)
    texts = None if prompts is None else [text.strip() for text in prompts.split(",")]
    report = compare(card, shown, choose(device or "cpu"), texts)
    if line := _engine_line(card):
        echo(line)
    echo(str(report))
    if card.derived and card.note:
        echo(f"note      {card.note}")
    if draw is not None:
        echo(f"drawn     {draw_best(card, shown, draw)}")
    for text in () if card.takes_prompts else hints(card, shown):
        echo(f"hint      {text}")
    return 0 if report.passed else 1


def _engine_line(card: Any) -> str:
    """Return how much of a network the fused engine can run; empty without `onnx`, which reads the network."""
    from streamkit.engine.errors import EngineError
    from streamkit.models.arithmetic import has_onnx
    from streamkit.models.fused import share_that_can_be_fused
    from streamkit.models.network_file import inspect

    if not has_onnx() or card.takes_prompts:
        return ""
    try:
        share = share_that_can_be_fused(inspect(card.file), card.input.size)
    except EngineError as error:
        return f"engine    ONNX Runtime runs all of it on a GPU: {error}"
    return f"engine    on a GPU, {share:.1%} of its multiply-adds can be fused (engine: fused)"


_IMAGES_OF_A_FOLDER = 64


def _check_files(paths: Sequence[Path]) -> list[Path]:
    """Return the images and videos of files and folders; of a folder with many images, some, evenly."""
    from streamkit.media.spread_frames import images_and_videos

    files: list[Path] = []
    for path in paths:
        images, videos = images_and_videos([path])
        step = max(1, -(-len(images) // _IMAGES_OF_A_FOLDER))
        some = images[::step]
        if step > 1:
            echo(f"note      {path}: {len(some)} of {len(images):,} images are compared")
        files += [*some, *videos]
    return files
