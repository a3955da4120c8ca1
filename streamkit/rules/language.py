# SPDX-License-Identifier: Apache-2.0
"""Type checking of rules against a vocabulary.

Unknown values (a missing fact, NaN) make comparisons unknown; `&&` and `||` are then decided by the known operands if
these suffice, as in CEL. Unknown never satisfies a rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.core.text import did_you_mean
from streamkit.rules.syntax import Call, Items, Literal, Name, Op, RuleError, Tree, parse, walk

NUMBER = "number"
TEXT = "text"
BOOL = "bool"
UNKNOWN = "unknown"
"""The type of a part of a rule. `UNKNOWN` is known from its values only and may be compared with anything."""

_TYPES = {NUMBER: "a number", TEXT: "a text", BOOL: "true or false", UNKNOWN: "anything"}
ORDER = ("<", "<=", ">", ">=")
_FEW = 12  # values that a message lists
_EXAMPLE = {NUMBER: "0", TEXT: '"..."', BOOL: "true"}


@dataclass(frozen=True, slots=True)
class RuleField:
    """A name that rules may use.

    Attributes:
        kind: NUMBER, TEXT, BOOL or UNKNOWN.
        values: all possible values of a text, if known; others are rejected.
        help: description and unit.
    """

    kind: str
    values: tuple[str, ...] | None = None
    help: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A part of a rule whose value is looked up: a name of the vocabulary, or one of its calls.

    Attributes:
        key: lookup key; equal for parts with the same checker.
        field: its kind.
        at: its position in the rule.
        shown: its source text, if that is not its key.
    """

    key: str
    field: RuleField
    at: int
    shown: str = ""


Typed = Literal | Fact | Items | Op


@dataclass(slots=True)
class Vocabulary:
    """The names that rules may use. Subclasses add calls and composed names.

    Args:
        fields: names, with dots if they have several parts, each with a `RuleField` or its kind.
        what: what messages call the user of the names, such as `alarms`.
    """

    fields: Mapping[str, RuleField | str] = field(default_factory=dict)
    what: str = "rules"

    def name(self, name: Name, checker: TypeChecker) -> Typed:
        """Return the meaning of a name; raise RuleError, created by `checker.error`, if it has none."""
        rule_field = self.fields.get(str(name))
        if rule_field is None:
            raise checker.unknown(name.at, f"{self.what} know no name {str(name)!r}", str(name), self.fields)
        return Fact(str(name), rule_field if isinstance(rule_field, RuleField) else RuleField(rule_field), name.at)

    def call(self, call: Call, checker: TypeChecker) -> Typed:
        """Return the meaning of a call; raise RuleError if it has none."""
        raise checker.unknown(call.at, f"{self.what} know no function {call.name!r}", call.name, self.fields)

    def inside(self, op: Op, checker: TypeChecker) -> Typed | None:
        """Return the meaning of `a in b` if b is not a list; None if it has none."""
        return None

    def foreign(self, name: Name) -> bool:
        """Whether an unknown name may be a text without quotes."""
        return len(name.parts) == 1


class TypeChecker:
    """Resolves and types the parts of one rule."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self.text = text
        self.vocabulary = vocabulary

    def error(self, at: int, reason: str) -> RuleError:
        """Return the error at a position of the rule."""
        return RuleError(self.text, at, reason)

    def unknown(self, at: int, reason: str, word: str, choices: Iterable[str], way: str = "") -> RuleError:
        """Return the error for an unknown word, with the nearest known word, or all, or else `way`."""
        return self.error(at, reason + (did_you_mean(word, choices, all_if_few=True) or way))

    def condition(self, tree: Tree, what: str) -> Typed:
        """Type a part that must be true or false."""
        typed = self.of(tree)
        kind = kind_of(typed)
        if kind in (NUMBER, TEXT):
            hint = f"; compare it, as in {words(tree)} {'> 0' if kind == NUMBER else '== ' + _EXAMPLE[TEXT]}"
            raise self.error(tree.at, f"{what} must be true or false, and this is {_TYPES[kind]}{hint}")
        return _as(typed, BOOL)

    def of(self, tree: Tree) -> Typed:
        """Type any part."""
        if isinstance(tree, Literal):
            return tree
        if isinstance(tree, Name):
            return self.vocabulary.name(tree, self)
        if isinstance(tree, Call):
            return self.vocabulary.call(tree, self)
        if isinstance(tree, Items):
            raise self.error(tree.at, 'a list is allowed after in only, as in label in ["car", "truck"]')
        if tree.op in ("&&", "||", "!"):
            return Op(tree.op, self._operands(tree), tree.at)
        if tree.op == "in":
            return self._inside(tree)
        args: tuple[Typed, ...]
        if tree.op == "?:":
            first, left, right = map(self.of, tree.args)
            first = self._need(tree.args[0], first, BOOL, "the condition before ? must be true or false")
            args = first, *self._same(tree, left, right, "both results of ?: must have the same type")
        elif tree.op in ("==", "!="):
            args = self._same(tree, *self._compared(tree), "only values of the same type can be compared")
        elif tree.op == "%":
            raise self.error(tree.at, "rules have no operator %; numbers have + - * /")
        else:
            reason = f"{'<, <=, > and >=' if tree.op in ORDER else '+ - * /'} want numbers"
            args = tuple(self._need(arg, self.of(arg), NUMBER, reason) for arg in tree.args)
        return Op(tree.op, args, tree.at)

    def _compared(self, tree: Op) -> tuple[Typed, Typed]:
        """Type both sides of a comparison; detect a text with missing quotes."""
        try:
            return self.of(tree.args[0]), self.of(tree.args[1])
        except RuleError:
            for arg, other in (tree.args, tree.args[::-1]):
                lonely = isinstance(arg, Name) and self.vocabulary.foreign(arg) and not self._means(arg)
                if lonely and self._means(other, TEXT):
                    text = f"{arg} is no name that {self.vocabulary.what} know; if it is a text, put it in quotes"
                    raise self.error(arg.at, f'{text}: "{arg}"') from None
            raise

    def _means(self, tree: Tree, kind: str | None = None) -> bool:
        try:
            return kind_of(self.of(tree)) == (kind or kind_of(self.of(tree)))
        except RuleError:
            return False

    def _operands(self, tree: Op) -> tuple[Typed, ...]:
        """Type the parts of `and`, `or` and `not`; the error has those of all parts."""
        operands: list[Typed] = []
        errors: list[RuleError] = []
        for arg in tree.args:
            try:
                operands.append(self._operand(arg, tree))
            except RuleError as error:
                errors += error.all
        if errors:
            errors[0].others = tuple(errors[1:])
            raise errors[0]
        return tuple(operands)

    def _operand(self, arg: Tree, tree: Op) -> Typed:
        typed = self.of(arg)
        kind = kind_of(typed)
        if kind in (NUMBER, TEXT):
            word = {"&&": "and", "||": "or", "!": "not"}[tree.op]
            hint = f"; compare {words(arg)} with something"
            if tree.op == "!":
                hint = f", as in not ({words(arg)} == {_EXAMPLE[kind]})"
            raise self.error(arg.at, f"{word} wants true or false, and {words(arg)} is {_TYPES[kind]}{hint}")
        return _as(typed, BOOL)

    def _need(self, arg: Tree, typed: Typed, kind: str, why: str) -> Typed:
        actual_kind = kind_of(typed)
        if actual_kind not in (kind, UNKNOWN):
            raise self.error(arg.at, f"{why}, and {words(arg)} is {_TYPES[actual_kind]}{self._way(arg, typed, kind)}")
        return _as(typed, kind)

    def _way(self, arg: Tree, typed: Typed, kind: str) -> str:
        if isinstance(typed, Literal) and kind == NUMBER and isinstance(typed.value, str):
            return "; write the number without quotes"
        if kind_of(typed) == TEXT:
            return '; texts are compared with == and !=, or in ["...", "..."]'
        if isinstance(arg, Op) and arg.op in (*ORDER, "==", "!="):
            return "; compare in two steps, as in 1 < x and x < 5"
        return ""

    def _same(self, tree: Op, left: Typed, right: Typed, why: str) -> tuple[Typed, Typed]:
        first = kind_of(left)
        second = kind_of(right)
        if first == second == UNKNOWN:
            text = f"the types of {words(left)} and {words(right)} are unknown before the run"
            raise self.error(tree.at, f"{text}; compare each with a value")
        if UNKNOWN not in (first, second) and first != second:
            types = f"{words(left)} is {_TYPES[first]} and {words(right)} is {_TYPES[second]}"
            raise self.error(tree.at, f"{why}; {types}{_mended(left, right)}")
        for side, other in ((left, right), (right, left)):
            values = side.field.values if isinstance(side, Fact) else None
            if isinstance(other, Literal) and values is not None and other.value not in values:
                near = did_you_mean(str(other.value), values, all_if_few=len(values) <= _FEW)
                raise self.error(other.at, f"{words(side)} is never {other.value!r}{near}")
        return _as(left, second), _as(right, first)

    def _inside(self, tree: Op) -> Typed:
        left, right = tree.args
        if not isinstance(right, Items):
            meaning = self.vocabulary.inside(tree, self)
            if meaning is None:
                raise self.error(right.at, 'in needs a list after it, as in label in ["car", "truck"]')
            return meaning
        typed_left = self.of(left)
        items = tuple(map(self.of, right.items))
        if not items:
            raise self.error(right.at, "an empty list matches nothing; list the allowed values")
        for item in items:
            if not isinstance(item, Literal) or isinstance(item.value, bool):
                raise self.error(item.at, "a list has numbers and texts only")
            reason = "a list must have the type of the left side"
            typed_left, _ = self._same(Op("in", (left, right), item.at), typed_left, item, reason)
        return Op("in", (typed_left, Items(items, right.at)), tree.at)


def _mended(left: Typed, right: Typed) -> str:
    """Return the fix if two kinds do not match."""
    for side, other in ((left, right), (right, left)):
        if isinstance(other, Literal) and isinstance(other.value, float) and kind_of(side) == TEXT:
            return f'; write {words(side)} == "{other.value:g}" if that text is meant'
        if (
            isinstance(other, Literal)
            and isinstance(other.value, bool)
            and isinstance(side, Fact)
            and side.field.values
        ):
            return f"; its values are {', '.join(map(json.dumps, side.field.values[:_FEW]))}"
        if isinstance(other, Literal) and isinstance(other.value, str) and kind_of(side) == NUMBER:
            return f"; compare {words(side)} with a number"
        if isinstance(other, Fact) and kind_of(side) == TEXT and kind_of(other) == BOOL:
            return f'; if {words(other)} is a text, put it in quotes: "{words(other)}"'
    return ""


def _as(typed: Typed, kind: str) -> Typed:
    """Return the part with its unknown kind set."""
    if isinstance(typed, Fact) and typed.field.kind == UNKNOWN != kind:
        return replace(typed, field=replace(typed.field, kind=kind))
    return typed


def kind_of(typed: Typed) -> str:
    """Return the kind of a part: NUMBER, TEXT, BOOL or UNKNOWN."""
    if isinstance(typed, Fact):
        return typed.field.kind
    if isinstance(typed, Literal):
        return BOOL if isinstance(typed.value, bool) else TEXT if isinstance(typed.value, str) else NUMBER
    if isinstance(typed, Op) and typed.op == "?:":
        return kind_of(typed.args[1])
    return NUMBER if isinstance(typed, Op) and typed.op in ("+", "-", "*", "/", "neg") else BOOL


def words(part: Any) -> str:
    """Return a part as short text."""
    if isinstance(part, Fact):
        return part.shown or part.key
    if isinstance(part, Literal):
        if isinstance(part.value, bool):
            return "true" if part.value else "false"
        return json.dumps(part.value, ensure_ascii=False) if isinstance(part.value, str) else f"{part.value:g}"
    if isinstance(part, Call):
        return f"{part.name}({', '.join(map(words, part.args))})"
    if isinstance(part, Items):
        return f"[{', '.join(map(words, part.items))}]"
    if isinstance(part, Op):
        args = [f"({words(arg)})" if isinstance(arg, Op) else words(arg) for arg in part.args]
        if part.op == "?:":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        sign = {"&&": " and ", "||": " or ", "!": "not ", "neg": "-"}.get(part.op, f" {part.op} ")
        return sign.join(args) if len(args) > 1 else sign + args[0]
    return str(part)


def facts_of(tree: Typed) -> list[Fact]:
    """Return the facts a condition looks up, once each, in the order of the text."""
    facts: dict[str, Fact] = {}
    for part in walk(tree):
        if isinstance(part, Fact):
            facts.setdefault(part.key, part)
    return list(facts.values())


def compile_rule(text: str, vocabulary: Vocabulary) -> tuple[Typed, float]:
    """Return a rule's condition, and how long it must be true before the rule is raised, in seconds.

    Raises:
        RuleError: the text is not a valid rule with these names; has the position, the reason and the fix.
        MissingPackage: cel-python is not installed.
    """
    tree, for_s = parse(text)
    return TypeChecker(text, vocabulary).condition(tree, "a rule"), for_s
