"""Syntax tree of a rule; `at` is a part's position in the text, in characters from 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text or a truth value."""

    value: float | str | bool
    at: int


@dataclass(frozen=True, slots=True)
class Name:
    """A name of one or several parts: `speed`, `zone.door`."""

    parts: tuple[str, ...]
    at: int

    def __str__(self) -> str:
        return ".".join(self.parts)

    @property
    def written(self) -> str:
        """The name as source text; parts that are not identifiers are in brackets."""
        parts = [f".{part}" if part.isidentifier() else f'["{part}"]' for part in self.parts]
        return "".join(parts).removeprefix(".")


@dataclass(frozen=True, slots=True)
class Items:
    """A list, the right side of `in`."""

    items: tuple[Any, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; `text` is its source text."""

    name: str
    args: tuple[Any, ...]
    at: int
    text: str = ""

    def shown(self, name: str = "") -> str:
        """The source text of the call on one line; with another function name if one is given."""
        return (name or self.name) + " ".join(self.text.split())[len(self.name) :]


@dataclass(frozen=True, slots=True)
class Op:
    """An operator: `&& || ! == != < <= > >= + - * / neg in ?:`; `at` is the operator's position if it has one."""

    op: str
    args: tuple[Any, ...]
    at: int


Tree = Literal | Name | Items | Call | Op


def walk(tree: Any) -> Iterator[Any]:
    """Yield a tree and all its descendants, typed or not."""
    yield tree
    for below in getattr(tree, "args", ()) or getattr(tree, "items", ()):
        yield from walk(below)
