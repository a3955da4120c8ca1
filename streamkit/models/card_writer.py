# SPDX-License-Identifier: Apache-2.0
"""Writing a card beside a network that was made from another card's, both or neither."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamkit.core.errors import OutputError
from streamkit.io.outputs import AtomicFile, writing
from streamkit.models.card import Card, TextSpec
from streamkit.models.labels import LABEL_LISTS, SKELETONS
from streamkit.models.network import sha256
from streamkit.ops.letterbox import InputSpec


def check_targets(paths: Iterable[Path], overwrite: bool) -> None:
    """Check that files may be written under these names.

    Raises:
        OutputError: a name is taken, and `overwrite` is false.
    """
    for path in paths:
        if path.exists() and not overwrite:
            raise OutputError(f"{path} exists; replace it with --overwrite, or name another card with --out")


def write_network_and_card(network: Path, file: Path, card: Card, out: Path, comments: Iterable[str]) -> None:
    """Write a network and its card: both are complete before either gets its final name.

    Args:
        network: the network, in a temporary folder.
        file: the network's final name, in the folder of `out`.
        card: the card to write, apart from file and checksum.
        out: the card's final name.
        comments: lines for the card's head.

    Raises:
        OutputError: a file cannot be written.
    """
    text = card_text(card, file.name, sha256(network), comments, out.parent)
    files = AtomicFile(file), AtomicFile(out)
    try:
        for target in files:
            target.begin()
        with writing(file):
            shutil.copyfile(network, files[0].part)
        with writing(out):
            files[1].part.write_text(text, encoding="utf-8")
        for target in files:
            target.finish()
    except BaseException:
        for target in files:
            target.discard()
        raise


def card_text(card: Card, file: str, checksum: str, comments: Iterable[str] = (), folder: Path | None = None) -> str:
    """Return a card as YAML, with another file; everything else is the card's, also what it took from other files.

    With the card's `folder`, the paths of other files are relative to it.
    """
    import yaml

    keys: dict[str, Any] = {"task": card.task, "family": card.family, "file": file, "sha256": checksum}
    keys |= {"input": _Flow(_input(card.input)), **_labels(card.labels, card.task == "read"), **_keypoints(card)}
    if card.text is not None:
        keys["text"] = _Flow(_text(card.text, folder))
    if card.blank:
        keys["blank"] = card.blank
    if card.ignore_outputs:
        keys["ignore_outputs"] = list(card.ignore_outputs)
    if card.precision != "auto":
        keys["precision"] = card.precision
    keys |= {key: value for key in ("score", "iou", "select", "license", "note") if (value := getattr(card, key)) != ""}
    text = yaml.dump(keys, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=110)
    return "".join(f"# {line}\n" for line in comments) + str(text)


class _Flow(dict[str, Any]):
    """A mapping that is written in one line."""


def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(
        _Flow, lambda dumper, mapping: dumper.represent_mapping("tag:yaml.org,2002:map", mapping, True)
    )
    Dumper.add_representer(
        list, lambda dumper, sequence: dumper.represent_sequence("tag:yaml.org,2002:seq", sequence, True)
    )
    return Dumper


def _input(spec: InputSpec) -> dict[str, Any]:
    """Return the keys of `input` that differ from the defaults; layout and dtype are those of the file."""
    keys: dict[str, Any] = {"size": list(spec.size)}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name in ("size", "layout", "dtype") or value == field.default:
            continue
        keys[field.name] = list(value) if isinstance(value, tuple) else value
    inverse = round(1 / spec.scale)
    if "scale" in keys and inverse > 1 and 1 / inverse == spec.scale:
        keys["scale"] = f"1/{inverse}"
    return keys


def _text(spec: TextSpec, folder: Path | None) -> dict[str, Any]:
    """Return the keys of `text` that differ from the defaults."""
    keys: dict[str, Any] = {}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if isinstance(value, Path):
            keys[field.name] = str(value) if folder is None else os.path.relpath(value, folder.resolve())
        elif value != field.default:
            keys[field.name] = value
    return keys


def _labels(labels: tuple[str, ...], reads_text: bool) -> dict[str, Any]:
    if not labels:
        return {}
    if reads_text:
        return {"alphabet": "".join(labels) if max(map(len, labels)) == 1 else list(labels)}
    return {"labels": next((name for name, names in LABEL_LISTS.items() if names == labels), list(labels))}


def _keypoints(card: Card) -> dict[str, Any]:
    if card.skeleton is None:
        return {}
    names = card.skeleton.names
    shipped = next((name for name, skeleton in SKELETONS.items() if skeleton == card.skeleton), None)
    if shipped is not None:
        return {"keypoints": shipped}
    pairs = [[names[a], names[b]] for a, b in card.skeleton.edges]
    return {"keypoints": list(names), **({"skeleton": pairs} if pairs else {})}
