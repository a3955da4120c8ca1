# SPDX-License-Identifier: Apache-2.0
"""Evaluation of conditions on columns of facts, for many rows at once.

A condition is true (1), false (0) or unknown (0.5): `and` is the minimum, `or` the maximum, `not` 1 minus the value. An
unknown number is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from streamkit.rules.language import BOOL, NUMBER, TEXT, Fact, Typed, facts_of, kind_of
from streamkit.rules.list_file import InFile
from streamkit.rules.scope import Facts
from streamkit.rules.syntax import Literal


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


class FactColumns:
    """The columns of the facts that conditions look up; equal facts share a column.

    Attributes:
        objects: the columns of objects' facts, in order; likewise `frames` for frames' facts.
        words: interned texts.
    """

    def __init__(self, facts: Facts, words: Words) -> None:
        self.facts = facts
        self.words = words
        self.objects: dict[Column, int] = {}
        self.frames: dict[Column, int] = {}

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


_CACHED_NUMBERS = 1 << 17  # 1 MB, as much as a core's own cache


def _comparison(holds: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), 0.5, holds(a, b))


_OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "<": _comparison(np.less),
    "<=": _comparison(np.less_equal),
    ">": _comparison(np.greater),
    ">=": _comparison(np.greater_equal),
    "==": _comparison(np.equal),
    "!=": _comparison(np.not_equal),
    "same": lambda a, b: np.where((a == 0.5) | (b == 0.5), 0.5, a == b),
    "other": lambda a, b: np.where((a == 0.5) | (b == 0.5), 0.5, a != b),
    "&&": np.minimum,
    "||": np.maximum,
    "!": lambda a: 1.0 - a,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": lambda a, b: np.where(b == 0.0, np.nan, a / b),
    "neg": np.negative,
    "choose truth": lambda a, b, c: np.where(a == 1.0, b, np.where(a == 0.0, c, 0.5)),
    "choose": lambda a, b, c: np.where(a == 1.0, b, np.where(a == 0.0, c, np.nan)),
}


class Conditions:
    """Conditions that are evaluated together, equal parts of them once.

    The parts are sorted by depth, and those of a depth with the same operation are computed by one call of NumPy.
    """

    def __init__(self, trees: Iterable[Typed], fact_columns: FactColumns) -> None:
        self._fact_columns = fact_columns
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._depths: list[int] = []
        self._roots = np.array([self._part(tree) for tree in trees], np.int64)
        self._steps = self._group()

    def __len__(self) -> int:
        return len(self._roots)

    @property
    def chunk(self) -> int:
        """How many rows to evaluate at once: the numbers of more would not stay in the cache of a core."""
        return max(16, _CACHED_NUMBERS // max(1, len(self._numbers)))

    def __call__(self, objects: np.ndarray | None, frames: np.ndarray) -> np.ndarray:
        """Return (conditions, n) bool: which conditions are true.

        Args:
            objects: (n, k) float64, the objects' facts; None if no condition looks one up.
            frames: (n, a) float64, the facts of each object's frame.
        """
        numbers = np.empty((len(self._numbers), len(frames)))
        with np.errstate(all="ignore"):
            for operation, rows, args in self._steps:
                if operation == "constant":
                    numbers[rows] = args[0][:, None]
                elif operation == "object":
                    assert objects is not None
                    numbers[rows] = objects.T[args[0]]
                elif operation == "frame":
                    numbers[rows] = frames.T[args[0]]
                else:
                    numbers[rows] = _OPERATIONS[operation](*(numbers[arg] for arg in args))
        return np.asarray(numbers[self._roots] == 1.0)

    def _part(self, tree: Any) -> int:
        """The number of a part."""
        if isinstance(tree, Literal):
            value = tree.value
            return self._number("constant", self._fact_columns.words[value] if isinstance(value, str) else float(value))
        if isinstance(tree, Fact):
            of_object, column = self._fact_columns.column(tree)
            return self._number("object" if of_object else "frame", column)
        if tree.op == "in":
            return self._inside(tree.args[0], tree.args[1])
        args = [self._part(arg) for arg in tree.args]
        if tree.op in ("&&", "||"):
            return self._joined(tree.op, args)
        operation = tree.op
        if operation in ("==", "!=") and kind_of(tree.args[0]) == BOOL:
            operation = "same" if operation == "==" else "other"
        elif operation == "?:":
            operation = "choose truth" if kind_of(tree) == BOOL else "choose"
        return self._number(operation, *args)

    def _inside(self, tree: Any, choices: Any) -> int:
        if isinstance(choices, Fact):  # an `InFile`
            return self._part(choices)
        left = self._part(tree)
        return self._joined("||", [self._number("==", left, self._part(choice)) for choice in choices.items])

    def _joined(self, operation: str, parts: list[int]) -> int:
        """The number of `and` or `or` of several parts, in as few steps as there are doublings of two to them."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self._number(operation, *pair) for pair in pairs] + parts[len(parts) // 2 * 2 :]
        return parts[0]

    def _number(self, operation: str, *args: Any) -> int:
        number = self._numbers.setdefault((operation, *args), len(self._numbers))
        if number == len(self._depths):
            self._depths.append(1 + max(self._depths[arg] for arg in args) if operation in _OPERATIONS else 0)
        return number

    def _group(self) -> list[tuple[str, np.ndarray, list[np.ndarray]]]:
        """Each step: an operation, the parts that it computes, and its arguments."""
        groups: dict[tuple[int, str], list[tuple[Any, ...]]] = {}
        for (operation, *args), number in self._numbers.items():
            groups.setdefault((self._depths[number], operation), []).append((number, *args))
        steps = []
        for (_, operation), parts in sorted(groups.items()):
            rows, *args = map(np.array, zip(*parts, strict=True))
            steps.append((operation, rows, args))
        return steps


class Condition:
    """A condition on named values. An unknown condition is not satisfied."""

    def __init__(self, tree: Typed) -> None:
        self._fact_columns = FactColumns(Facts(), Words())
        self._conditions = Conditions([tree], self._fact_columns)
        self._rule_word_count = len(self._fact_columns.words)
        self._in_files = [fact for fact in facts_of(tree) if isinstance(fact, InFile)]

    def __call__(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true; missing values, None and NaN are unknown."""
        self._fact_columns.words.forget(self._rule_word_count)
        if self._in_files:
            values = {**values, **{fact.key: fact.of(values.get(fact.text.key)) for fact in self._in_files}}
        facts = np.array([self._fact_columns.row(values)])
        return bool(self._conditions(None, facts)[0, 0])
