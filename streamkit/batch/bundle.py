"""Packs the files of a pipeline into a folder, to send them to other machines."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamkit.batch.job import BatchSettings
from streamkit.batch.pipeline import config_for
from streamkit.config.pipeline_config import replace_value
from streamkit.core.yaml_tree import load_file


def pack(settings: BatchSettings, folder: Path) -> Path:
    """Copy a pipeline's files into `folder` with their relative layout, so that relative paths stay valid.

    These are the YAML, its plugins, its cards, and the files that those name. Links are copied as files.

    Args:
        settings: the pipeline and its overrides.
        folder: an empty folder.

    Returns:
        The YAML's path relative to `folder`.

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


def _plugins(yaml: Path, settings: BatchSettings) -> Iterator[Path]:
    """Yield the plugins' files."""
    root, problems = load_file(yaml)
    for name, text in settings.overrides:
        replace_value(root, name, text, problems)
    node = root.value.get("plugins")
    for item in [] if node is None else node.value if isinstance(node.value, list) else [node]:
        path = _plain(yaml.parent / str(item.value))
        yield from path.glob("*.py") if path.is_dir() else [path]


def _of_cards(settings: BatchSettings) -> Iterator[Path]:
    """The cards that the pipeline names, with their networks, external weights and label files."""
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
    """The file at a card's path option; None for the name of a known list."""
    path = _plain(card.parent / node.value) if node is not None and isinstance(node.value, str) else None
    return path if path is not None and path.is_file() else None


def _plain(path: Path) -> Path:
    """The absolute path without `..`; links are kept, because a file is sent to where the link is."""
    return Path(os.path.abspath(path))
