# SPDX-License-Identifier: Apache-2.0
"""Compilation of conditions to the stack code of `kernel.py`: three numbers per operation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from streamkit.rules import kernel as k
from streamkit.rules.language import BOOL, NUMBER, TEXT, Fact, Typed, facts_of, kind_of
from streamkit.rules.list_file import InFile
from streamkit.rules.scope import Facts
from streamkit.rules.syntax import Literal

_COMPARE = {"<": k.LT, "<=": k.LE, ">": k.GT, ">=": k.GE, "==": k.EQ, "!=": k.NE}
_OPERATIONS = {"+": k.ADD, "-": k.SUB, "*": k.MUL, "/": k.DIV, "?:": k.CHOOSE, "!": k.NOT, "neg": k.NEG}


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

    def forget(self, count: int) -> None:
        """Keep only the first `count` texts."""
        self._texts = self._texts[:count]
        self._codes = {text: float(code) for code, text in enumerate(self._texts)}

    def text(self, code: float) -> str:
        """Return the text of a number."""
        return self._texts[int(code)]


UNKNOWN_NUMBER = {BOOL: 0.5, NUMBER: np.nan, TEXT: np.nan}
"""The number that stands for an unknown value of each kind."""

Column = tuple[str, str]
"""A fact's key and kind."""


def number_of(value: Any, kind: str, words: Words) -> float:
    """Return the number that stands for a value in conditions; a missing value or one of another kind is unknown."""
    if kind == TEXT:
        return words[value] if isinstance(value, str) else np.nan
    fits = isinstance(value, (int, float)) and isinstance(value, bool) == (kind == BOOL)
    return float(value) if fits else UNKNOWN_NUMBER[kind]


class Code:
    """Compiles conditions; equal facts share a column.

    Attributes:
        objects: the columns of objects' facts, in order; likewise `frames` for frames' facts.
        words: interned texts.
    """

    def __init__(self, facts: Facts, words: Words) -> None:
        self.facts = facts
        self.words = words
        self.objects: dict[Column, int] = {}
        self.frames: dict[Column, int] = {}
        self._deepest = 1
        self._ops: list[tuple[int, int, int]] = []
        self._constants: dict[float, int] = {}

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """The code once it is complete: (n, 3) int64, an operation and its arguments; (c,) float64, the constants."""
        ops = np.array(self._ops or [(k.END, 0, 0)], np.int64)
        return ops, np.array(list(self._constants) or [0.0], np.float64)

    @cached_property
    def stack(self) -> np.ndarray:
        """Scratch space for the evaluation of the deepest condition."""
        return np.empty(self._deepest + 2)

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

    def row(self, values: Mapping[str, Any]) -> list[float]:
        """Return the columns of frames' facts from values by key."""
        return [number_of(values.get(key), kind, self.words) for key, kind in self.frames]

    def _part(self, tree: Any, depth: int) -> None:
        """Add code that pushes a value, at `depth`."""
        self._deepest = max(self._deepest, depth)
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
        if isinstance(left, Fact) and isinstance(right, Literal):  # the most common comparison
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
        if isinstance(tree.args[1], Fact):  # an `InFile`
            self._part(tree.args[1], depth)
            return
        for i, item in enumerate(tree.args[1].items):
            self._compared(k.EQ, tree.args[0], item, depth + min(i, 1))
            if i:
                self._add(k.OR)


def _operation(tree: Any) -> tuple[int, int]:
    if tree.op in ("==", "!="):  # of two truths
        return (k.SAME if tree.op == "==" else k.OTHER), 0
    return _OPERATIONS[tree.op], int(tree.op == "?:" and kind_of(tree) == BOOL)


class Condition:
    """A condition on named values, evaluated in plain Python. An unknown condition is not satisfied."""

    def __init__(self, tree: Typed) -> None:
        self._code = code = Code(Facts(), Words())
        code.add(tree)
        self._rule_word_count = len(code.words)
        self._in_files = [fact for fact in facts_of(tree) if isinstance(fact, InFile)]

    def __call__(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true; missing values, None and NaN are unknown."""
        code = self._code
        code.words.forget(self._rule_word_count)
        if self._in_files:
            values = {**values, **{fact.key: fact.of(values.get(fact.text.key)) for fact in self._in_files}}
        facts = np.array([code.row(values)])
        with np.errstate(all="ignore"):
            return k.value(*code.arrays, 0, facts, 0, facts, 0, code.stack) == 1.0
