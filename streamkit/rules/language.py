"""Rules with typed names, and their plain evaluation.

Unknown values (a missing fact, NaN) make comparisons unknown; `&&` and `||` are then decided by the known operands if
these suffice, as in CEL. Unknown never satisfies a rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamkit.rules.ast import Literal
from streamkit.rules.syntax import RuleError, parse
from streamkit.rules.typecheck import (
    BOOL,
    NUMBER,
    ORDER,
    TEXT,
    UNKNOWN,
    Fact,
    RuleField,
    TypeChecker,
    Typed,
    Vocabulary,
    facts_of,
)  # fmt: skip

__all__ = ["BOOL", "NUMBER", "TEXT", "UNKNOWN", "Program", "RuleError", "RuleField", "Vocabulary", "compile"]


@dataclass(slots=True)
class Program:
    """A rule ready to be evaluated.

    Attributes:
        text: source text.
        tree: typed tree.
        for_s: how long it must be true before it is raised, in seconds.
    """

    text: str
    tree: Typed
    for_s: float = 0.0

    def value(self, facts: Mapping[str, float | str | bool]) -> bool:
        """Whether the rule is true, regardless of `for`; unknown counts as false.

        Args:
            facts: values by the vocabulary's names; missing, None and NaN are unknown.
        """
        return value_of(self.tree, facts) is True

    @property
    def facts(self) -> list[Fact]:
        """The facts it looks up, once each, in the order of the text."""
        return facts_of(self.tree)


def compile(text: str, vocabulary: Vocabulary) -> Program:  # noqa: A001
    """Compile a rule.

    Raises:
        RuleError: the text is not a valid rule with these names; has the position, the reason and the fix.
        MissingPackage: cel-python is not installed.
    """
    tree, for_s = parse(text)
    meaning = TypeChecker(text, vocabulary)
    return Program(text, meaning.condition(tree, "a rule"), for_s)


def value_of(tree: Any, facts: Mapping[str, Any]) -> float | str | bool | None:
    """Return the value of a part; None if unknown."""
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
    """Return a value of that kind; None for another kind."""
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
        return None  # a value of unknown type is no number
    if op in ORDER:
        return bool({"<": first < second, "<=": first <= second, ">": first > second, ">=": first >= second}[op])
    if op == "/":
        return first / second if second else None
    return float({"+": first + second, "-": first - second, "*": first * second}[op])
