# SPDX-License-Identifier: Apache-2.0
"""Identities in readable form: what the results depend on, of the pipeline without sources and sinks, and of a file.

Runs with the same identity give the same rows, so files that one has done are skipped by the other. Paths, the device,
the batch size and everything else that does not change results are not part of it.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from streamkit import __version__
from streamkit.batch.job import BatchSettings, VideoFile
from streamkit.batch.pipeline import PREFIX, attach
from streamkit.config.plan import Graph, Node
from streamkit.rules.list_file import list_file_path
from streamkit.rules.syntax import Call, parse, walk

_CARD = ("task", "family", "input", "labels", "score", "iou", "skeleton")
_DERIVED = ("path", "tables", "names", "labels", "tracked")  # options that follow from the rest
_SHORT = 60


def pipeline_identity(graph: Graph, settings: BatchSettings) -> dict[str, Any]:
    """Everything in a pipeline that changes its results, as JSON values.

    Raises:
        ConfigError: a model's file is missing, or a format does not exist.
    """
    recorded = attach(graph, settings)
    ids = {node.table for node in recorded.nodes.values()}
    sinks = [node for node in recorded.nodes.values() if node.id.startswith(f"{PREFIX}.")]
    stages = {
        stage.id: {
            "stage": stage.type.name,
            **{name: _plain(value) for name, value in stage.options.items()},
            "insert": [[insert.after, insert.type.name, _plain(insert.options)] for insert in stage.insert],
            "on_error": stage.run.on_error,
            "from": stage.inputs,
        }
        for stage in graph.config.stages
        if stage.id in ids
    }
    return {
        "streamkit": __version__,
        "stages": stages,
        "models": dict(_models(recorded)),
        "plugins": dict(_plugins(recorded)),
        **({"lists": lists} if (lists := dict(_lists(recorded))) else {}),
        **({"strict": True} if settings.strict else {}),
        "selection": dataclasses.asdict(settings.selection),
        "formats": sorted(settings.formats),
        "records": {
            node.id.removeprefix(f"{PREFIX}."): {
                "from": node.inputs,
                **{name: _plain(value) for name, value in node.options.items() if name not in _DERIVED},
            }
            for node in sinks
        },
    }


def pipeline_key(identity: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of an identity's SHA-256."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What a `file_key` consists of. That of a data set from elsewhere must be checked before a path is made of it."""


def file_key(file: VideoFile, pipeline: str, *, path: bool = False) -> str:
    """The name of a file's outputs: its stem, limited to characters of every file system, and 16 hexadecimal digits.

    The digits are a hash of the file's name, size and version, and of the pipeline.

    Args:
        file: the file.
        pipeline: the `pipeline_key`.
        path: hash its path too, to distinguish it from another file with the same name, size and version.
    """
    size = "" if file.size is None else str(file.size)
    text = "\0".join((file.name, size, file.version, pipeline, *([file.uri] if path else [])))
    stem = re.sub(r"[^A-Za-z0-9_]+", "-", Path(file.name).stem).strip("-")[:60] or "video"
    return f"{stem}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The differences between two identities, one phrase each; one for a whole stage, model or plugin."""
    old = dict(old)
    new = dict(new)
    whole = list[str]()
    for part in ("stages", "models", "plugins", "lists"):
        was = old.get(part, {})
        now = new.get(part, {})
        whole += [f"{part}.{name} is new" for name in now if name not in was]
        whole += [f"{part}.{name} was removed" for name in was if name not in now]
        old[part], new[part] = (
            {name: parts[name] for name in parts if name in was and name in now} for parts in (was, now)
        )
    if old.get("formats") != new.get("formats"):
        old["records"] = new["records"] = None
    before = dict(_leaves(old))
    after = dict(_leaves(new))
    changes = []
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            changes.append(f"{name} was {_short(before[name])} and is no longer set")
        elif name not in before:
            changes.append(f"{name} is {_short(after[name])} and was not set")
        elif before[name] != after[name]:
            changes.append(f"{name} was {_short(before[name])} and is {_short(after[name])}")
    return changes + whole


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _short(value: Any) -> str:
    words = isinstance(value, list) and all(isinstance(item, str) for item in value)
    text = value if isinstance(value, str) else ", ".join(value) if words else json.dumps(value)
    return (
        text if len(text) <= _SHORT else f"{text[: _SHORT - 16]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"
    )


# ---------------------------------------------------------------------------------------------------- values and files


def _plain(value: Any) -> Any:
    """A value as JSON, the same in every process and on every machine."""
    from streamkit.models.card import Card

    if isinstance(value, Card):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(_plain, value), key=str)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value) if isinstance(value, Path) else type(value).__qualname__


def _models(graph: Graph) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each card by its name: the fields that change results, and the SHA-256 of its network."""
    from streamkit.models.card import Card

    cards = [value for node in graph.nodes.values() for value in node.options.values() if isinstance(value, Card)]
    by_name: dict[str, Card] = {}
    for card in cards:
        other = by_name.setdefault(card.name, card)
        name = card.name if other.path == card.path else f"{card.path.parent.name}/{card.name}"
        by_name[name] = card
    for name, card in by_name.items():
        about = {"sha256": network_sum(card.file), **{key: _plain(getattr(card, key)) for key in _CARD}}
        if card.task == "read":
            about["blank"] = card.blank
        if card.text is not None and card.takes_prompts:  # texts do not change the embeddings of images
            files = {"tokenizer": card.text.tokenizer, "encoder": card.text.encoder}
            about["text"] = {key: network_sum(file) for key, file in files.items() if file is not None}
            about["text"] |= {key: getattr(card.text, key) for key in ("template", "length", "pad_id")}
        yield name, about


def network_sum(file: Path) -> str:
    """The SHA-256 of a file, together with the external weights of a large network."""
    from streamkit.core.errors import ModelError

    digest = hashlib.sha256()
    try:
        for part in (file, *sorted(file.parent.glob(f"{file.name}?data"))):
            with part.open("rb") as opened:
                while block := opened.read(1 << 20):
                    digest.update(block)
    except OSError as error:
        raise ModelError(f"the model's file {file} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _plugins(graph: Graph) -> Iterator[tuple[str, str]]:
    """The SHA-256 of each file outside streamkit that defines stages of the pipeline."""
    files: dict[Path, None] = {}
    for node in graph.nodes.values():
        for kind in _classes(node):
            files.update(dict.fromkeys(_files(sys.modules.get(kind.__module__), set())))
    for file in sorted(files):
        yield f"{file.parent.name}/{file.name}", hashlib.sha256(file.read_bytes()).hexdigest()


def _lists(graph: Graph) -> Iterator[tuple[str, str]]:
    """The SHA-256 of each file that a rule names as `file("known.txt")`, by that name."""
    stages: list[Any] = [node.type(**node.options) for node in graph.nodes.values() if node.type.spec.has_rules]
    rules = [options for stage in stages for _, options, _ in stage.named()]
    for condition in filter(None, (rule.get(option) for rule in rules for option in ("when", "clear"))):
        for part in walk(parse(condition)[0]):
            if isinstance(part, Call) and part.name == "file":
                name = part.args[0].value
                file = list_file_path(name, graph.config.folder)
                yield name, hashlib.sha256(file.read_bytes()).hexdigest()


def _classes(node: Node) -> list[type]:
    kinds = [node.type, *(value for value in node.options.values() if isinstance(value, type))]
    bases = [base for kind in kinds for base in kind.__mro__]
    return [base for base in bases if base.__module__.split(".")[0] not in ("streamkit", "builtins")]


def _files(module: ModuleType | None, seen: set[str]) -> Iterator[Path]:
    """The file of a module, and of the modules beside it that it imports."""
    if module is None or module.__name__ in seen or not getattr(module, "__file__", None):
        return
    seen.add(module.__name__)
    path = Path(str(module.__file__))
    yield path
    for node in ast.walk(ast.parse(path.read_bytes())) if path.suffix == ".py" else ():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for other in filter(None, map(sys.modules.get, names)):
            if Path(str(getattr(other, "__file__", None) or "/")).parent == path.parent:
                yield from _files(other, seen)
