"""The parts of a rule; `at` is a part's place in the text, in characters from 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text or a truth value; `at` is its place in the rule, in characters from 0."""

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
        """As it can be written: a part that is no word in brackets."""
        parts = [f".{part}" if part.isidentifier() else f'["{part}"]' for part in self.parts]
        return "".join(parts).removeprefix(".")


@dataclass(frozen=True, slots=True)
class Items:
    """A list, as `in` takes it."""

    items: tuple[Any, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function's name and what it is called with; `text` as it was written."""

    name: str
    args: tuple[Any, ...]
    at: int
    text: str = ""

    def shown(self, name: str = "") -> str:
        """The call as it was written, on one line; with another name if one is given."""
        return (name or self.name) + " ".join(self.text.split())[len(self.name) :]


@dataclass(frozen=True, slots=True)
class Op:
    """An operator: `&& || ! == != < <= > >= + - * / neg in ?:`; `at` is the operator's place where it has one."""

    op: str
    args: tuple[Any, ...]
    at: int


Tree = Literal | Name | Items | Call | Op


def walk(tree: Any) -> Iterator[Any]:
    """A tree and all below it, with or without a meaning."""
    yield tree
    for below in getattr(tree, "args", ()) or getattr(tree, "items", ()):
        yield from walk(below)
