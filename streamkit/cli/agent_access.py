# SPDX-License-Identifier: Apache-2.0
"""What a pipeline of a coding agent may read and write: files in the working folder, and results in a temporary one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.core.environment import variable
from streamkit.core.errors import ConfigError, Problem
from streamkit.core.masking import mask

if TYPE_CHECKING:
    from streamkit.config.plan import Graph, Node
    from streamkit.core.yaml_tree import YamlNode

_SECRET_KEY = re.compile(r"pass|token|secret|credential|api_key|authorization", re.IGNORECASE)
_QUOTED = re.compile(r"""["']([^"']*)["']""")
_NO_FILE = re.compile(r"\0|\n|\A/dev/video\d+\Z")  # a text of several lines, or a webcam
_MIN_SECRET = 4  # shorter texts, such as a port, appear in messages by chance
_INPUT_OPTIONS = frozenset({"model"})


@dataclass(frozen=True, slots=True)
class YamlText:
    """A text of a YAML.

    Attributes:
        node: the text and its place.
        keys: the keys that lead to it; items of a list have their list's.
    """

    node: YamlNode
    keys: tuple[str, ...]


def texts(node: YamlNode, keys: tuple[str, ...] = ()) -> Iterator[YamlText]:
    """Every text of a YAML, with environment variables replaced by their values."""
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from texts(child, (*keys, str(key)))
    elif isinstance(node.value, list):
        for child in node.value:
            yield from texts(child, keys)
    elif isinstance(node.value, str):
        yield YamlText(node, keys)


def secrets_of(text: str, scalars: Sequence[YamlText]) -> set[str]:
    """The values of a YAML that no answer may contain: of environment variables, and of keys such as `password`."""
    from streamkit.core.yaml_tree import variables

    values = [value for name in variables(text) if (value := _variable(name)) is not None]
    values += [scalar.node.value for scalar in scalars if any(map(_SECRET_KEY.search, scalar.keys))]
    return {value for value in values if len(value) >= _MIN_SECRET}


def _variable(name: str) -> str | None:
    try:
        return variable(name)
    except ValueError:  # its file cannot be read, which the check reports
        return None


def without_secrets(answer: Any, secrets: Sequence[str]) -> Any:
    """An answer with these texts, and the passwords of addresses, replaced by `***`."""
    if isinstance(answer, dict):
        return {without_secrets(key, secrets): without_secrets(child, secrets) for key, child in answer.items()}
    if isinstance(answer, list):
        return [without_secrets(child, secrets) for child in answer]
    if not isinstance(answer, str):
        return answer
    for secret in secrets:
        answer = answer.replace(secret, "***")
    return mask(answer)


def is_within(path: Path, folders: Sequence[Path]) -> bool:
    """Whether a path, with its links followed, is in one of these resolved folders."""
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or no path at all
        return False
    return any(resolved.is_relative_to(folder) for folder in folders)


def reading_problems(scalars: Sequence[YamlText], base: Path, folders: Sequence[Path]) -> list[Problem]:
    """A problem for each path outside of the folders that a pipeline may read.

    Args:
        scalars: the texts of the YAML.
        base: the folder of the YAML.
        folders: the resolved folders.
    """
    return [
        scalar.node.problem(
            f"{'.'.join(scalar.keys)} leads out of the working folder {folders[0]}; name a file within it, or start "
            "the server with another --folder"
        )
        for scalar in scalars
        if not all(is_within(base / path, folders) for path in _paths_of(scalar.node.value))
    ]


def _paths_of(text: str) -> Iterator[str]:
    """The paths that a text may be, or may quote, as in `plate in file("plates.txt")`; none for an address."""
    for part in (text, *_QUOTED.findall(text)):
        scheme, separator, rest = part.partition("://")
        if not separator and not _NO_FILE.search(part):
            yield str(Path.home()) if part.startswith("~") else part.removeprefix("file:")
        elif scheme.lower() == "file":
            yield rest


def sending_problems(graph: Graph, scalars: Sequence[YamlText]) -> list[Problem]:
    """A problem for each stage that sends data to other machines, or that is a plugin's sink."""
    problems = [_sending(node.place, node.id) for node in graph.nodes.values() if _sends(node)]
    problems += [
        _sending(scalar.node, ".".join(scalar.keys))
        for scalar in scalars
        if _is_of_stage(scalar) and "://" in scalar.node.value
    ]
    return problems


def _sending(place: YamlNode, name: str) -> Problem:
    return place.problem(f"{name} sends data to other machines; remove it, or start the server with --allow-write")


def writing_problems(scalars: Sequence[YamlText], output: Path, folders: Sequence[Path]) -> list[Problem]:
    """A problem for each path of an output outside of the folders that a pipeline may write to.

    Args:
        scalars: the texts of the YAML.
        output: the folder that relative paths of outputs start from.
        folders: the resolved folders.
    """
    problems = []
    for scalar in scalars:
        path = Path(scalar.node.value.partition("\0")[0])
        leaves = path.is_absolute() or ".." in path.parts
        if leaves and _is_of_stage(scalar) and not is_within(output / path, folders):
            text = f"{'.'.join(scalar.keys)} leads out of the folder of the outputs; write a relative path without .."
            problems.append(scalar.node.problem(text))
    return problems


def _is_of_stage(scalar: YamlText) -> bool:
    """Whether a text may be where a stage, or the run, writes to."""
    return scalar.keys[:1] in (("stages",), ("state",)) and scalar.keys[-1] not in _INPUT_OPTIONS


def _sends(node: Node) -> bool:
    """Whether a stage is a plugin's sink, or sends to the network."""
    from streamkit.core.stage import Sink, options, ships
    from streamkit.emit.emitter import Emitter

    if node.type.name == "ask":
        return True
    if not issubclass(node.type, Sink):
        return False
    is_local = any(option.name == "path" for option in options(node.type))
    return not ships(node.type) or (issubclass(node.type, Emitter) and not is_local) or node.type.spec.target == "url"


def refuse(problems: Sequence[Problem]) -> None:
    """Raise ConfigError with these problems if there are any."""
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
