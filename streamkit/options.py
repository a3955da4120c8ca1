"""The options of a stage, or of another class that a YAML fills: the fields of a dataclass, with types and help."""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import dataclass
from typing import Any

_REQUIRED = dataclasses.MISSING


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a stage, as `explain` and the JSON Schema show it."""

    name: str
    type: Any
    default: Any
    help: str

    @property
    def required(self) -> bool:
        """Whether a YAML must set it."""
        return self.default is _REQUIRED


def options(kind: type[Any]) -> list[Option]:
    """The options of a stage, or of another dataclass that a YAML fills: what its constructor takes, with help.

    A field whose metadata says `wired` is none: the graph fills it with what only the graph knows.
    """
    texts, hints = _option_help(kind), _hints(kind)
    found = []
    for f in dataclasses.fields(kind):
        if f.init and not f.metadata.get("wired"):
            made = f.default_factory() if f.default_factory is not _REQUIRED else f.default
            found.append(Option(f.name, hints[f.name], made, texts.get(f.name, "")))
    return found


def summary(kind: type[Any]) -> str:
    """The first line of a stage's docstring."""
    return (inspect.getdoc(kind) or "").split("\n", 1)[0]


def _hints(kind: type[Any]) -> dict[str, Any]:
    import typing

    return typing.get_type_hints(kind, include_extras=True)


def _option_help(kind: type[Any]) -> dict[str, str]:
    """Read the `Options:` part of the docstrings of a class and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        doc = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        match = re.search(r"^Options:\n((?:[ \t]+.*\n?|\n)*)", doc, re.MULTILINE)
        for name, text in re.findall(r"^ {4}(\w+): ((?:.|\n(?! {4}\w+: ))*)", match[1] if match else "", re.MULTILINE):
            texts[name] = " ".join(text.split())
    return texts
