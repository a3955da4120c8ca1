"""The command `run.py models`: lists, downloads and checks model cards."""

from __future__ import annotations

from pathlib import Path

import click

from streamkit.cli.common import DEVICE, PLUGINS, echo, registry
from streamkit.cli.precision import convert, quantize


@click.group()
def models() -> None:
    """List, download and check model cards."""


models.add_command(quantize)
models.add_command(convert)


@models.command("list")
def models_list() -> int:
    """List the built-in cards, and whether their files are present."""
    from streamkit.models.card import list_cards, load_card

    for path in list_cards():
        card = load_card(path)
        there = "ready" if card.file.is_file() else ("run.py models pull " + card.name if card.url else "file missing")
        size = "x".join(map(str, card.input.size))
        echo(f"{card.name:14} {card.task:8} {card.family:10} {size:9} {card.license:12} {there}")
    return 0


@models.command("pull")
@click.argument("names", nargs=-1, required=True)
def models_pull(names: tuple[str, ...]) -> int:
    """Download the networks of these cards."""
    from streamkit.models.card import find_card, load_card
    from streamkit.models.pull import pull

    for name in names:
        echo(f"{name}: {pull(load_card(find_card(name, Path())))}")
    return 0


@models.command("check")
@click.argument("name")
@click.argument("frames", nargs=-1, type=click.Path(path_type=Path))
@DEVICE
@click.option(
    "--max-megapixels", type=click.FloatRange(min=0.001), default=100.0, show_default=True, help="refuse larger images"
)
@PLUGINS
def models_check(
    name: str, frames: tuple[Path, ...], device: str | None, max_megapixels: float, plugins: tuple[Path, ...]
) -> int:
    """Compare a card's tensor and boxes with a plain CPU reference on real frames."""
    from streamkit.models.card import find_card, load_card, shipped_models
    from streamkit.models.check import check as compare
    from streamkit.models.check import frames_of
    from streamkit.runtime.execution.device import choose

    shown = frames_of(frames or [shipped_models().parent / "samples" / "street.mp4"], max_megapixels=max_megapixels)
    card = load_card(find_card(name, Path()), registry(plugins).families)
    report = compare(card, shown, choose(device or "cpu"))
    echo(str(report))
    return 0 if report.passed else 1
