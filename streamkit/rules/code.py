"""Compilation of conditions to the stack code of `kernel.py`: three numbers per operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.rules import kernel as k
from streamkit.rules.language import BOOL, Fact, Typed, kind_of
from streamkit.rules.scope import Facts
from streamkit.rules.syntax import Literal

_COMPARE = {"<": k.LT, "<=": k.LE, ">": k.GT, ">=": k.GE, "==": k.EQ, "!=": k.NE}
_TWO = {"+": k.ADD, "-": k.SUB, "*": k.MUL, "/": k.DIV}


class Words:
    """Interned texts: each has a stable number."""

    def __init__(self) -> None:
        self._codes: dict[str, float] = {}
        self._texts: list[str] = []

    def __getitem__(self, text: str) -> float:
        if text not in self._codes:
            self._codes[text] = float(len(self._texts))
            self._texts.append(text)
        return self._codes[text]

    def __len__(self) -> int:
        return len(self._texts)

    def forget(self, known: int) -> None:
        """Keep only the first `known` texts."""
        self._texts = self._texts[:known]
        self._codes = {text: float(code) for code, text in enumerate(self._texts)}

    def text(self, code: float) -> str:
        """Return the text of a number."""
        return self._texts[int(code)]


Column = tuple[str, str]
"""A fact's key and kind."""


class Code:
    """Compiles conditions; equal facts share a column.

    Attributes:
        objects: the columns of objects' facts, in order; likewise `frames` for frames' facts.
        words: interned texts.
        deepest: maximum stack depth.
    """

    def __init__(self, facts: Facts, words: Words) -> None:
        self.facts, self.words = facts, words
        self.objects: dict[Column, int] = {}
        self.frames: dict[Column, int] = {}
        self.deepest = 1
        self._ops: list[tuple[int, int, int]] = []
        self._constants: dict[float, int] = {}

    @property
    def ops(self) -> np.ndarray:
        """(n, 3) int64: an operation and its two arguments per row."""
        return np.array(self._ops or [(k.END, 0, 0)], np.int64)

    @property
    def constants(self) -> np.ndarray:
        """(c,) float64."""
        return np.array(list(self._constants) or [0.0], np.float64)

    def add(self, tree: Typed) -> int:
        """Add a condition; return its start."""
        begin = len(self._ops)
        self._part(tree, 1)
        self._add(k.END)
        return begin

    def column(self, fact: Fact) -> tuple[bool, int]:
        """Return whether a fact belongs to objects, and its column."""
        if fact.key not in self.facts.objects:
            return False, self.frame_column(fact.key, fact.field.kind)
        return True, self.objects.setdefault((fact.key, fact.field.kind), len(self.objects))

    def frame_column(self, key: str, kind: str) -> int:
        """Return the column of a fact of frames."""
        return self.frames.setdefault((key, kind), len(self.frames))

    def _part(self, tree: Any, depth: int) -> None:
        """Add code that pushes a value, at `depth`."""
        self.deepest = max(self.deepest, depth)
        if isinstance(tree, Literal):
            self._add(k.CONST, self._constant(tree))
        elif isinstance(tree, Fact):
            of_object, column = self.column(tree)
            self._add(k.OBJECT if of_object else k.FRAME, column)
        elif tree.op in ("&&", "||"):
            self._chain(tree, depth)
        elif tree.op == "in":
            self._inside(tree, depth)
        elif tree.op in _COMPARE and kind_of(tree.args[0]) != BOOL:
            self._compared(_COMPARE[tree.op], tree.args[0], tree.args[1], depth)
        else:
            for i, arg in enumerate(tree.args):
                self._part(arg, depth + i)
            self._add(*_operation(tree))

    def _add(self, op: int, arg: int = 0, second: int = 0) -> None:
        self._ops.append((op, arg, second))

    def _constant(self, literal: Literal) -> int:
        value = self.words[literal.value] if isinstance(literal.value, str) else float(literal.value)
        return self._constants.setdefault(value, len(self._constants))

    def _compared(self, op: int, left: Any, right: Any, depth: int) -> None:
        if isinstance(left, Fact) and isinstance(right, Literal):  # what most conditions are made of
            of_object, column = self.column(left)
            self._add(op + (k.OBJECT_AND_CONST if of_object else k.FRAME_AND_CONST), column, self._constant(right))
        else:
            self._part(left, depth)
            self._part(right, depth + 1)
            self._add(op)

    def _chain(self, tree: Any, depth: int) -> None:
        """Add all parts; once one decides the result, the rest are skipped."""
        op, skip = (k.AND, k.SKIP_IF_FALSE) if tree.op == "&&" else (k.OR, k.SKIP_IF_TRUE)
        self._part(tree.args[0], depth)
        skips = []
        for arg in tree.args[1:]:
            skips.append(len(self._ops))
            self._add(skip)
            self._part(arg, depth + 1)
            self._add(op)
        for at in skips:
            self._ops[at] = skip, len(self._ops), 0

    def _inside(self, tree: Any, depth: int) -> None:
        left, (first, *others) = tree.args[0], tree.args[1].items
        self._compared(k.EQ, left, first, depth)
        for item in others:
            self._compared(k.EQ, left, item, depth + 1)
            self._add(k.OR)


def _operation(tree: Any) -> tuple[int, int]:
    if tree.op in _TWO:
        return _TWO[tree.op], 0
    if tree.op in ("==", "!="):  # of two truths
        return (k.SAME if tree.op == "==" else k.OTHER), 0
    if tree.op == "?:":
        return k.CHOOSE, int(kind_of(tree) == BOOL)
    return k.NOT if tree.op == "!" else k.NEG, 0
