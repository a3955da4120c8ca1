"""The files that a pipeline is made of, brought together so that they can be sent to other machines."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamkit.batch.job import Settings
from streamkit.batch.pipeline import config_for
from streamkit.override import replace_value
from streamkit.yamlfile import load_file


def pack(settings: Settings, folder: Path) -> Path:
    """Copy a pipeline's files into `folder`, where they lie to each other as they did: relative paths still hold.

    They are the YAML, its plugins, its cards, and what those name. Each is copied, also where it is a link.

    Args:
        settings: the pipeline and what is set in it.
        folder: an empty one.

    Returns:
        The YAML's path in it, relative to it.

    Raises:
        ConfigError: the YAML cannot be read.
    """
    yaml = _plain(settings.pipeline)
    files = {yaml, *_plugins(yaml, settings), *_of_cards(settings)}
    root = Path(os.path.commonpath([file.parent for file in files]))
    for file in sorted(files):
        if file.is_file():  # what is missing is the worker's to tell
            copy = folder / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    return yaml.relative_to(root)


def _plugins(yaml: Path, settings: Settings) -> Iterator[Path]:
    """The plugins' files."""
    root, problems = load_file(yaml)
    for name, text in settings.overrides:
        replace_value(root, name, text, problems)
    node = root.value.get("plugins")
    for item in [] if node is None else node.value if isinstance(node.value, list) else [node]:
        path = _plain(yaml.parent / str(item.value))
        yield from path.glob("*.py") if path.is_dir() else [path]


def _of_cards(settings: Settings) -> Iterator[Path]:
    """The cards that the pipeline names, and their networks, weights beside those, and label files."""
    from streamkit.models.card import Card

    for node in config_for(settings).nodes.values():
        for card in node.options.values():
            if isinstance(card, Card):
                yield _plain(card.path)
                root, _ = load_file(card.path)
                network, labels = (_named(card.path, root.value.get(key)) for key in ("file", "labels"))
                if network is not None:
                    yield from network.parent.glob(f"{network.name}*")
                if labels is not None:
                    yield labels


def _named(card: Path, node: Any) -> Path | None:
    """The file that a card names by a path of its own; the names of known lists are no files."""
    path = _plain(card.parent / node.value) if node is not None and isinstance(node.value, str) else None
    return path if path is not None and path.is_file() else None


def _plain(path: Path) -> Path:
    """The path without dots, absolute; links are kept, for what is sent lies where the link does."""
    return Path(os.path.abspath(path))
