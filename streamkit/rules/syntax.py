# SPDX-License-Identifier: Apache-2.0
"""Parser of rules and its syntax tree; `at` is a part's position in the text, in characters from 0.

The grammar is CEL's (https://github.com/google/cel-spec), parsed by cel-python, plus `and`, `or`, `not`, and
`for DURATION`. Nothing is evaluated here, and names are not resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from streamkit.core.errors import MissingPackage
from streamkit.core.units import seconds


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


_LONGEST = 2000  # characters of a rule
_DEEPEST = 60  # levels of nesting
_WORDS = {"and": "&& ", "or": "||", "not": "!  "}  # of the same length, so that positions do not change
_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)|(?P<text>[rR]?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))|(?P<word>\.?[A-Za-z_]\w*)"""
    r"""|(?P<number>\d[\w.]*)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<quote>["'])|\s+|(?P<sign>.)""",
    re.DOTALL,
)
_PAIRS = {")": "(", "]": "[", "}": "{"}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|min|h|d)")
_INSTEAD = {
    "=": "write == to compare",
    "&": "write && or and",
    "|": "write || or or",
    "<>": "write != for not equal",
    "AND": "write and",
    "OR": "write or",
    "NOT": "write not",
    "is": "write == to compare",
    "then": "a rule is a condition; leave then out",
    "if": "a rule is a condition; leave if out",
}


class RuleError(ValueError):
    """An invalid rule.

    Attributes:
        text: the rule.
        offset: the position in it, in characters from 0.
        line, column: the same position, from 1.
        reason: the problem and the fix.
        others: further errors of the same rule.
    """

    def __init__(self, text: str, offset: int, reason: str) -> None:
        before = text[:offset]
        self.text = text
        self.offset = offset
        self.reason = reason
        self.others: tuple[RuleError, ...] = ()
        self.line = before.count("\n") + 1
        self.column = offset - before.rfind("\n")
        super().__init__(f"{f'line {self.line}, ' if self.line > 1 else ''}column {self.column}: {reason}")

    @property
    def all(self) -> tuple[RuleError, ...]:
        """All errors of the rule, the earliest first."""
        return (self, *self.others)


@lru_cache(maxsize=4096)
def parse(text: str) -> tuple[Tree, float]:
    """Parse a rule; return its tree, and the seconds after `for`, 0 without it.

    Raises:
        RuleError: the text is not a valid rule.
        MissingPackage: cel-python is not installed.
    """
    if len(text) > _LONGEST:
        raise RuleError(
            text, _LONGEST, f"a rule must have at most {_LONGEST} characters, got {len(text)}; use several rules"
        )
    condition, for_s = _prepared(text)
    if not condition.strip():
        raise RuleError(text, 0, "a rule needs a condition, such as count(person) > 5")
    return _AstBuilder(text, condition).tree, for_s


def _prepared(text: str) -> tuple[str, float]:
    """Return the text for CEL's parser, with all characters in place, and the duration after `for`."""
    characters = list(text)
    for_s = 0.0
    opened = list[int]()
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        token = match[0]
        at = match.start()
        if kind == "quote":
            raise RuleError(text, at, f"the text that begins here is not closed; add a closing {token}")
        if kind == "open":
            opened.append(at)
        elif kind == "close":
            if not opened or text[opened[-1]] != _PAIRS[token]:
                hint = f"; the {text[opened[-1]]} at column {opened[-1] + 1} is still open" if opened else ""
                raise RuleError(text, at, f"this {token} has no opening bracket; remove it{hint}")
            opened.pop()
        elif kind == "word" and token == "for":
            for_s = _duration(text, match.end())
            characters[at:] = " " * (len(text) - at)
            break
        elif kind == "word" and token in _WORDS:
            characters[at : match.end()] = _WORDS[token]
    if opened:
        closing = {begin: end for end, begin in _PAIRS.items()}[text[opened[-1]]]
        raise RuleError(text, opened[-1], f"this {text[opened[-1]]} is not closed; add a {closing} at its end")
    return "".join(characters), for_s


def _duration(text: str, begin: int) -> float:
    duration = text[begin:].strip()
    at = begin + len(text[begin:]) - len(text[begin:].lstrip())
    if _DURATION.fullmatch(duration):
        return seconds(duration)
    if re.fullmatch(r"[0-9.]+", duration):
        raise RuleError(text, at, f"for {duration} needs a unit: write for {duration}s, or ms, min, h, d")
    got = f", got {duration!r}" if duration else ""
    raise RuleError(text, at, f"for needs a duration such as 10s or 5min after it, and nothing else{got}")


class _AstBuilder:
    """Builds a tree from lark's tree."""

    def __init__(self, text: str, condition: str) -> None:
        self.text = text
        try:
            from celpy.celparser import CELParseError, CELParser
        except ImportError as error:
            raise MissingPackage("cel-python", "rules", "a rule") from error
        try:
            parsed = CELParser().parse(condition)
        except CELParseError as error:
            lines_before = condition.splitlines(keepends=True)[: (error.line or 1) - 1]
            offset = sum(map(len, lines_before)) + (error.column or 1) - 1
            raise self.syntax_error(condition, offset, error) from None
        self.tree = self.build(parsed, 0)

    def syntax_error(self, condition: str, at: int, error: Any) -> RuleError:
        """Return the error where CEL's parser stopped."""
        token = getattr(error.__context__, "token", None)
        if token is not None and token.type == "$END":
            text = "the condition is incomplete; an operand is missing at its end"
            return RuleError(self.text, len(condition.rstrip()), text)
        match = _TOKEN.match(self.text, at)
        there = match[0] if match else ""
        two = self.text[at : at + 2]
        if there == ">" and self.text[:at].rstrip().endswith("<"):
            there = "<>"
        if two in ("&&", "||"):
            return RuleError(self.text, at, f"{two} stands between two conditions; one is missing")
        if there in ("and", "or", "not"):
            return RuleError(self.text, at, f"{there} is not allowed here; a condition before or after it is missing")
        if there in _INSTEAD:
            return RuleError(self.text, at, f"{there} means nothing here; {_INSTEAD[there]}")
        number = re.search(r"[0-9.]+$", self.text[:at])
        if number and re.match(r"(ms|s|min|h|d)\b", there):
            text = f"{number[0]}{there} is not allowed here: durations are allowed after for only; write a plain number"
            return RuleError(self.text, at - len(number[0]), f"{text}, in the unit of what it is compared with")
        text = f"{there!r} is not allowed here; an operator such as and, > or == is missing, or it is too much"
        return RuleError(self.text, at, text)

    def build(self, tree: Any, depth: int) -> Tree:
        """Return the tree of one of lark's nodes."""
        while len(tree.children) == 1 and tree.data in _THROUGH:
            tree = tree.children[0]
        at = tree.meta.start_pos
        if depth > _DEEPEST:
            raise RuleError(self.text, at, f"more than {_DEEPEST} levels of nesting; use several rules")
        make = getattr(self, f"_{tree.data}", None)
        if make is None:
            what = _REFUSED.get(tree.data, f"{tree.data} is not part of the rule language; remove it")
            raise RuleError(self.text, at, what)
        node: Tree = make(tree, at, depth + 1)
        return node

    def _expr(self, tree: Any, at: int, depth: int) -> Tree:
        return Op("?:", tuple(self.build(child, depth) for child in tree.children), at)

    def _conditionalor(self, tree: Any, at: int, depth: int) -> Tree:
        """Return `a && b && c` or `a || b || c`, of any length, as one operator with all operands."""
        parts = []
        data = tree.data
        while tree.data == data and len(tree.children) == 2:
            parts.append(tree.children[1])
            tree = tree.children[0]
        args = tuple(self.build(part, depth) for part in [tree, *reversed(parts)])
        return Op("||" if data == "conditionalor" else "&&", args, args[0].at)

    _conditionaland = _conditionalor

    def _relation(self, tree: Any, at: int, depth: int) -> Tree:
        left, right = tree.children
        op = _OPS[left.data]
        begin = right.meta.start_pos
        args = self.build(left.children[0], depth), self.build(right, depth)
        op_at = self.text.find(op, left.children[0].meta.end_pos, begin)
        return Op(op, args, op_at if op_at >= 0 else int(begin))

    _addition = _multiplication = _relation

    def _unary(self, tree: Any, at: int, depth: int) -> Tree:
        sign, right = tree.children
        return Op("!" if sign.data == "unary_not" else "neg", (self.build(right, depth),), at)

    def _ident(self, tree: Any, at: int, depth: int) -> Tree:
        return Name((str(tree.children[0]),), at)

    def _member_dot(self, tree: Any, at: int, depth: int) -> Tree:
        return self._longer(self.build(tree.children[0], depth), str(tree.children[1]), at)

    def _member_index(self, tree: Any, at: int, depth: int) -> Tree:
        key = self.build(tree.children[1], depth)
        if not isinstance(key, Literal) or not isinstance(key.value, str):
            raise RuleError(self.text, key.at, 'only a text is allowed in [ ], as in attributes["color"]')
        return self._longer(self.build(tree.children[0], depth), key.value, at)

    def _longer(self, left: Tree, part: str, at: int) -> Name:
        if not isinstance(left, Name):
            raise RuleError(self.text, at, f"only a name can be followed by .{part}")
        return Name((*left.parts, part), left.at)

    def _ident_arg(self, tree: Any, at: int, depth: int) -> Tree:
        arg_trees = tree.children[1].children if len(tree.children) > 1 else ()
        args = tuple(self.build(arg, depth) for arg in arg_trees)
        return Call(str(tree.children[0]), args, at, self.text[at : tree.meta.end_pos])

    def _paren_expr(self, tree: Any, at: int, depth: int) -> Tree:
        return self.build(tree.children[0], depth)

    def _list_lit(self, tree: Any, at: int, depth: int) -> Tree:
        element_trees = tree.children[0].children if tree.children else ()
        return Items(tuple(self.build(element, depth) for element in element_trees), at)

    def _literal(self, tree: Any, at: int, depth: int) -> Tree:
        token = tree.children[0]
        if token.type == "BOOL_LIT":
            return Literal(str(token) == "true", at)
        if token.type in ("INT_LIT", "UINT_LIT", "FLOAT_LIT"):
            digits = str(token).rstrip("uU")
            return Literal(float(int(digits, 16)) if "x" in digits else float(digits), at)
        if token.type == "STRING_LIT":
            text = str(token)
            raw = text[0] in "rR"
            return Literal(text[2:-1] if raw else re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _character, text[1:-1]), at)
        raise RuleError(self.text, at, f"{token} is not allowed in a rule; write a number, a text, true or false")


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)


_THROUGH = {
    "expr",
    "conditionalor",
    "conditionaland",
    "relation",
    "addition",
    "multiplication",
    "unary",
    "member",
    "primary",
}
_OPS = {
    "relation_lt": "<",
    "relation_le": "<=",
    "relation_gt": ">",
    "relation_ge": ">=",
    "relation_eq": "==",
    "relation_ne": "!=",
    "relation_in": "in",
    "addition_add": "+",
    "addition_sub": "-",
    "multiplication_mul": "*",
    "multiplication_div": "/",
    "multiplication_mod": "%",
}
_REFUSED = {
    "member_dot_arg": "rules have no methods; call functions by their name, as in count(person)",
    "dot_ident": "a name cannot begin with a dot",
    "dot_ident_arg": "a name cannot begin with a dot",
    "map_lit": "rules have no maps",
    "member_object": "rules have no messages; leave the { } out",
}
