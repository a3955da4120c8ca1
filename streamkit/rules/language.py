"""Rules with a meaning: which names there are, of what kind each is, and whether a rule is true, plainly evaluated.

What is not known (a name without a fact, NaN) makes what is compared with it unknown; `&&` and `||` are then decided by
what is known, where that is enough, as in CEL. A rule is true when it is known to be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamkit.rules.meaning import (
    BOOL,
    NUMBER,
    ORDER,
    TEXT,
    UNKNOWN,
    Fact,
    Field,
    Meaning,
    Typed,
    Vocabulary,
    facts_of,
)  # fmt: skip
from streamkit.rules.syntax import RuleError, parse
from streamkit.rules.tree import Literal

__all__ = ["BOOL", "NUMBER", "TEXT", "UNKNOWN", "Field", "Program", "RuleError", "Vocabulary", "compile"]


@dataclass(slots=True)
class Program:
    """A rule ready to be evaluated.

    Attributes:
        text: as it was written.
        tree: its parts, each with a meaning.
        for_s: how long it must be true before it is told, in seconds.
    """

    text: str
    tree: Typed
    for_s: float = 0.0

    def value(self, facts: Mapping[str, float | str | bool]) -> bool:
        """Whether the rule is known to be true, whatever it says behind `for`.

        Args:
            facts: values by the names of the vocabulary; one that is missing, None or NaN is not known.
        """
        return value_of(self.tree, facts) is True

    @property
    def facts(self) -> list[Fact]:
        """What it looks up, once each, in the order of the text."""
        return facts_of(self.tree)


def compile(text: str, vocabulary: Vocabulary) -> Program:  # noqa: A001
    """Make a program of a rule.

    Raises:
        RuleError: the text is no rule, or means nothing with these names: with the place, the reason and the way out.
        MissingPackage: cel-python is not installed.
    """
    tree, for_s = parse(text)
    meaning = Meaning(text, vocabulary)
    return Program(text, meaning.condition(tree, "a rule"), for_s)


def value_of(tree: Any, facts: Mapping[str, Any]) -> float | str | bool | None:
    """The value of a part; None where it is not known."""
    if isinstance(tree, Literal):
        return tree.value
    if isinstance(tree, Fact):
        return _fitting(facts.get(tree.key), tree.field.kind)
    op = tree.op
    if op in ("&&", "||"):
        decides, several = op == "||", [value_of(arg, facts) for arg in tree.args]
        return decides if decides in several else None if None in several else not decides
    first = value_of(tree.args[0], facts)
    if first is None:
        return None
    if op == "!":
        return not first
    if op == "neg":
        return -first  # type: ignore[operator]
    if op == "?:":
        return value_of(tree.args[1 if first else 2], facts)
    if op == "in":
        return any(_equal(first, one.value) for one in tree.args[1].items)
    second = value_of(tree.args[1], facts)
    return None if second is None else _two(op, first, second)


def _fitting(value: Any, kind: str) -> float | str | bool | None:
    """A value of that kind; None for one of another."""
    if isinstance(value, str):
        return value if kind == TEXT else None
    if isinstance(value, bool) or kind == BOOL:
        return value if isinstance(value, bool) and kind == BOOL else None
    return None if value is None or kind == TEXT or math.isnan(value) else float(value)


def _equal(first: Any, second: Any) -> bool:
    return isinstance(first, str) == isinstance(second, str) and bool(first == second)


def _two(op: str, first: Any, second: Any) -> float | bool | None:
    if op in ("==", "!="):
        return _equal(first, second) is (op == "==")
    if isinstance(first, str) or isinstance(second, str):
        return None  # what is told by its values only was no number
    if op in ORDER:
        return bool({"<": first < second, "<=": first <= second, ">": first > second, ">=": first >= second}[op])
    if op == "/":
        return first / second if second else None
    return float({"+": first + second, "-": first - second, "*": first * second}[op])
