# SPDX-License-Identifier: Apache-2.0
"""Edits values in the text of a YAML: only the characters of what changes are replaced.

Comments, order, quotes, blank lines and the style of everything else are not changed. A round trip through a YAML
writer would lay out other lines again. An edit that would change another place, through an anchor, is refused.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from streamkit.core.errors import ConfigError
from streamkit.core.yaml_tree import scalar

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_LONGEST_LINE = 110
_STEP = 2  # spaces of indentation

REMOVED = object()
"""The value of a key that is to be removed."""


class EditError(ConfigError):
    """An edit that cannot be made in the text; says why, and that the text itself can be edited."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}; edit the YAML as text instead")


def digest(text: str) -> str:
    """The SHA-256 of a text in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def diff(before: str, after: str, name: str) -> str:
    """The unified diff of two texts of a file; empty if they are equal."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def replaced(text: str, path: Sequence[str], value: Any) -> str:
    """The text with another value at a path; missing mappings on the way are added.

    Args:
        text: the YAML, which is valid.
        path: keys from the top, such as `stages`, `zone`, `polygon`.
        value: plain lists, dicts with texts as keys, texts, numbers, truth values and None; or `REMOVED`.

    Raises:
        EditError: the edit would change another place too, or cannot be made in this form of the text.
    """
    root = _parse(text)
    wanted = _with(_plain(root), path, value)
    edited = _Editor(text, _named(root)).edit(root, path, value)
    if _plain(_parse(edited)) != wanted:  # never write what reads differently
        raise EditError(f"{'.'.join(path)} is written in a form that cannot be changed here")
    return edited


# ------------------------------------------------------------------------------------------------------ parts of a text


@dataclass(slots=True)
class _Part:
    """A value in the text.

    Attributes:
        start, end: the characters that it takes, without comments and blank lines after it.
        line, column: of its start, from 0.
        value: of a scalar, typed.
        items: of a list.
        keys: of a mapping, its keys as parts, in order; `values` are theirs.
        kind: scalar, list or map.
        flow: whether it is written in brackets.
        anchor: its anchor.
        alias: the anchor that it refers to; it is a scalar then.
    """

    start: int
    end: int
    line: int
    column: int
    kind: str = "scalar"
    value: Any = None
    items: list[_Part] = field(default_factory=list)
    keys: list[_Part] = field(default_factory=list)
    values: list[_Part] = field(default_factory=list)
    flow: bool = False
    anchor: str | None = None
    alias: str | None = None

    def child(self, key: str) -> _Part | None:
        """The value of a key of a mapping."""
        return next((child for name, child in zip(self.keys, self.values, strict=True) if name.value == key), None)

    def inside(self) -> Iterator[_Part]:
        """The part and all parts within it."""
        yield self
        for child in (*self.items, *self.values):
            yield from child.inside()


def _parse(text: str) -> _Part:
    try:
        loader: Any = yaml.SafeLoader(text)
        loader.get_event()
        if isinstance(loader.get_event(), yaml.StreamEndEvent):
            return _Part(0, 0, 0, 0, "map")
        return _read(loader.get_event(), loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise EditError(f"the YAML cannot be read: {' '.join(str(error).split())}") from None


def _read(event: Any, loader: Any) -> _Part:
    begin = event.start_mark
    end = event.end_mark
    part = _Part(begin.index, end.index, begin.line, begin.column, anchor=getattr(event, "anchor", None))
    if isinstance(event, yaml.AliasEvent):
        part.alias = event.anchor
        part.anchor = None
        return part
    if isinstance(event, yaml.ScalarEvent):
        plain = not event.style and event.tag is None
        part.value = scalar(event.value) if plain else event.value
        if event.style in ("|", ">"):
            part.end -= len(event.value) - len(event.value.rstrip("\n"))
        return part
    part.flow = bool(event.flow_style)
    part.kind = "list" if isinstance(event, yaml.SequenceStartEvent) else "map"
    ended: Any = yaml.SequenceEndEvent if part.kind == "list" else yaml.MappingEndEvent
    while not isinstance(child_event := loader.get_event(), ended):
        child = _read(child_event, loader)
        if part.kind == "list":
            part.items.append(child)
        else:
            child.value = child_event.value if isinstance(child_event, yaml.ScalarEvent) else None
            part.keys.append(child)
            part.values.append(_read(loader.get_event(), loader))
    if part.flow:
        part.end = child_event.end_mark.index
    else:  # the parser's end of a block is where the next value begins, behind comments
        part.end = max([child.end for child in (*part.items, *part.values, *part.keys)], default=begin.index)
    return part


def _named(root: _Part) -> dict[str, int]:
    """The anchors that are used, each with the line of its first alias, from 1."""
    alias_lines: dict[str, int] = {}
    for part in root.inside():
        if part.alias is not None:
            alias_lines.setdefault(part.alias, part.line + 1)
    return alias_lines


@dataclass(frozen=True, slots=True)
class _Alias:
    """An alias among plain values."""

    name: str


def _plain(part: _Part) -> Any:
    if part.alias is not None:
        return _Alias(part.alias)
    if part.kind == "list":
        return [_plain(element) for element in part.items]
    if part.kind == "map":
        return {str(key.value): _plain(child) for key, child in zip(part.keys, part.values, strict=True)}
    return part.value


def _with(plain: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    mapping = plain if isinstance(plain, dict) else {}
    if value is REMOVED and (path[0] not in mapping or len(path) == 1):
        return {key: child for key, child in mapping.items() if key != path[0]}
    return {**mapping, path[0]: _with(mapping.get(path[0]), path[1:], value)}


def _same(first: Any, second: Any) -> bool:
    """Whether two plain values are written the same way, apart from the form of numbers; 1 is not true."""
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(_same(first[key], second[key]) for key in first)
    return bool(first == second) and isinstance(first, bool) == isinstance(second, bool)


# -------------------------------------------------------------------------------------------------------------- writing


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    if _PLAIN.fullmatch(text) and isinstance(scalar(text), str) and text.lower() not in ("yes", "no", "on", "off"):
        return text
    return json.dumps(text, ensure_ascii=False)


def _in_line(value: Any) -> str:
    """A value in brackets, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_in_line(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_in_line, value)) + "]"
    return _scalar(value)


def _in_block(value: Any, indent: int) -> str:
    """What stands after the colon of a key that is indented by `indent`, or after its dash, with the space before."""
    line = _in_line(value)
    space = " " * (indent + _STEP)
    if isinstance(value, Mapping) and value:
        lines = (f"{space}{_scalar(key)}:{_in_block(child, indent + _STEP)}" for key, child in value.items())
        return "\n" + "\n".join(lines)
    if isinstance(value, list | tuple) and indent + len(line) > _LONGEST_LINE:
        return "\n" + "\n".join(f"{space}- {_in_line(element)}" for element in value)
    return f" {line}"


class _Editor:
    """Collects replacements of parts of a text.

    Args:
        text: the text.
        named: the anchors that are used, with the line of an alias.
    """

    def __init__(self, text: str, named: Mapping[str, int]) -> None:
        self._text = text
        self._named = named
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._splices: list[tuple[int, int, str]] = []

    def edit(self, root: _Part, path: Sequence[str], value: Any) -> str:
        """The text with another value at a path."""
        part = root
        for at, key in enumerate(path):
            self._check(part, path[:at])
            child = part.child(key) if part.kind == "map" else None
            if value is REMOVED and (child is None or at + 1 == len(path)):
                if child is not None and len(part.keys) == 1:
                    self._put(part, {}, self._indent(part), path[:at])
                elif child is not None:
                    self._remove_keys(
                        part, [[part_value is child for part_value in part.values].index(True)], path[:at]
                    )
                return self._apply_splices()
            if child is None:
                rest = value
                for step in reversed(path[at + 1 :]):
                    rest = {step: rest}
                if part.kind == "map" and part.keys:
                    self._append(part, key, rest)
                elif part.kind == "map" or part.value is None:
                    self._put(part, {key: rest}, self._indent(part))
                else:
                    raise EditError(f"{'.'.join(path[:at])} is no mapping, so {key} cannot be set in it")
                return self._apply_splices()
            part = child
        self._change(part, value, path)
        return self._apply_splices()

    def _apply_splices(self) -> str:
        text = self._text
        ordered = sorted(
            enumerate(self._splices), key=lambda numbered: (numbered[1][0], numbered[1][1], numbered[0]), reverse=True
        )
        for _, (start, end, new) in ordered:
            text = text[:start] + new.replace("\n", self._newline) + text[end:]
        return text

    def _check(self, part: _Part, path: Sequence[str]) -> None:
        """Refuse to change within a value that stands in several places."""
        what = ".".join(path) or "the file"
        if part.alias is not None:
            raise EditError(f"line {part.line + 1}: {what} is *{part.alias}, a value that stands elsewhere too")
        if part.anchor in self._named:
            raise EditError(
                f"line {part.line + 1}: {what} is &{part.anchor}, which line {self._named[str(part.anchor)]} uses too"
            )

    def _check_all(self, part: _Part, path: Sequence[str]) -> None:
        """Refuse to remove a part with an anchor that is used."""
        for inner in part.inside():
            if inner.anchor in self._named:
                self._check(inner, path)

    def _change(self, part: _Part, value: Any, path: Sequence[str]) -> None:
        """Change as little of a part as possible, so that it becomes a value."""
        self._check(part, path)
        if _same(_plain(part), value):
            return
        if part.kind == "map" and isinstance(value, Mapping) and part.keys and value:
            self._change_map(part, value, path)
        elif part.kind == "list" and isinstance(value, list | tuple) and part.items and value:
            self._change_list(part, list(value), path)
        else:
            self._put(part, value, self._indent(part), path)

    def _put(self, part: _Part, value: Any, indent: int, path: Sequence[str] = ()) -> None:
        """Replace a whole part."""
        self._check_all(part, path)
        in_line = part.flow and not (part.kind == "list" and isinstance(value, Mapping))  # several need more room
        if in_line or not self._is_alone_on_line(part) or not isinstance(value, Mapping | list | tuple):
            empty = part.start == part.end
            self._splices.append((part.start, part.end, f"{' ' * empty}{_in_line(value)}"))
            return
        start = len(self._text[: part.start].rstrip(" \t\r\n"))
        if self._text[start - 1 : start] not in (":", "-"):  # a comment stands between the key and its value
            self._splices.append((part.start, part.end, _in_block(value, part.column - _STEP).lstrip()))
            return
        self._splices.append((start, part.end, _in_block(value, indent)))

    def _is_alone_on_line(self, part: _Part) -> bool:
        """Whether a part ends its line, apart from a comment, and is not in brackets: it may become a block."""
        ahead = self._text[part.end :].partition("\n")[0].strip()
        return (not ahead or ahead.startswith("#")) and not any(
            other.flow and other.start < part.start < other.end for other in _parse(self._text).inside()
        )

    def _indent(self, part: _Part) -> int:
        """The indentation of the line of a part's key."""
        start = len(self._text[: part.start].rstrip(" \t\r\n"))
        line = self._text[self._text.rfind("\n", 0, start) + 1 : start]
        return len(line) - len(line.lstrip(" ")) if part.start else -_STEP

    def _line_end(self, at: int) -> int:
        end = self._text.find("\n", at)
        end = len(self._text) if end < 0 else end
        return end - (self._text[end - 1 : end] == "\r")

    def _append(self, part: _Part, key: str, value: Any) -> None:
        """Add a key at the end of a mapping that has keys."""
        if part.flow:
            self._splices.append((part.values[-1].end, part.values[-1].end, f", {_scalar(key)}: {_in_line(value)}"))
            return
        end = self._line_end(max(part.end, part.keys[-1].end))
        indent = part.keys[0].column
        self._splices.append((end, end, f"\n{' ' * indent}{_scalar(key)}:{_in_block(value, indent)}"))

    def _change_map(self, part: _Part, value: Mapping[str, Any], path: Sequence[str]) -> None:
        names = [str(key.value) for key in part.keys]
        removed = [name for name in names if name not in value]
        added = [name for name in value if name not in names]
        renamed: dict[str, str] = {}
        places = list(map(list(value).index, added)), list(map(names.index, removed))
        if places[0] == places[1] or len(removed) == len(names):  # each is in the place of another
            renamed = dict(zip(removed, added, strict=False))
        for name, key, child in zip(names, part.keys, part.values, strict=True):
            if name in renamed:
                self._splices.append((key.start, key.end, _scalar(renamed[name])))
            if name in value or name in renamed:
                new = renamed.get(name, name)
                self._change(child, value[new], (*path, new))
        self._remove_keys(part, [names.index(name) for name in removed if name not in renamed], path)
        for name in added:
            if name not in renamed.values():
                self._append(part, name, value[name])

    def _remove_keys(self, part: _Part, places: Sequence[int], path: Sequence[str]) -> None:
        for at in places:
            self._check_all(part.values[at], (*path, str(part.keys[at].value)))
        parts = [
            _Part(key.start, max(child.end, key.end), key.line, key.column)
            for key, child in zip(part.keys, part.values, strict=True)
        ]
        self._remove(parts, places, flow=part.flow, before="")

    def _change_list(self, part: _Part, value: list[Any], path: Sequence[str]) -> None:
        before = [_plain(element) for element in part.items]
        first = last = 0
        while first < min(len(before), len(value)) and _same(before[first], value[first]):
            first += 1
        while last < min(len(before), len(value)) - first and _same(before[-1 - last], value[-1 - last]):
            last += 1
        olds = part.items[first : len(before) - last]
        news = value[first : len(value) - last]
        both = min(len(olds), len(news))
        for number, (old, new) in enumerate(zip(olds, news, strict=False), first):
            self._change(old, new, (*path, str(number)))
        removed = range(first + both, first + len(olds))
        for at in removed:
            self._check_all(part.items[at], (*path, str(at)))
        self._remove(part.items, removed, flow=part.flow, before="-")
        if news[both:]:
            self._insert(part, first + both, news[both:])

    def _insert(self, part: _Part, at: int, values: list[Any]) -> None:
        """Insert items before the item `at` of a list that has items."""
        if part.flow:
            texts = ", ".join(map(_in_line, values))
            behind = part.items[at - 1].end if at else part.items[0].start
            self._splices.append((behind, behind, f", {texts}" if at else f"{texts}, "))
            return
        dash = self._text.rindex("-", 0, part.items[0].start)
        indent = dash - (self._text.rfind("\n", 0, dash) + 1)
        lines = [f"{' ' * indent}- {_in_line(element)}" for element in values]
        if at:
            end = self._line_end(part.items[at - 1].end)
            self._splices.append((end, end, "".join(f"\n{line}" for line in lines)))
        else:
            self._splices.append((dash, dash, "".join(f"{line.lstrip()}\n{' ' * indent}" for line in lines)))

    def _remove(self, parts: Sequence[_Part], places: Sequence[int], *, flow: bool, before: str) -> None:
        """Remove some of several parts in brackets, or their lines; `before` is the sign that begins one in a block."""
        if flow:
            for at in places:  # each with its comma: the one behind it, or before it if all behind it are removed
                behind = next((n for n in range(at + 1, len(parts)) if n not in places), None)
                if behind is not None:
                    self._splices.append((parts[at].start, parts[at + 1].start, ""))
                else:
                    self._splices.append((parts[at - 1].end if at else parts[at].start, parts[at].end, ""))
            return
        for part in (parts[at] for at in places):
            start = self._text.rindex(before, 0, part.start) if before else part.start
            line = self._text.rfind("\n", 0, start) + 1
            if self._text[line:start].strip():
                raise EditError(f"line {part.line + 1} has something before what is to be removed")
            end = self._text.find("\n", part.end) + 1 or len(self._text)
            self._splices.append((line, end, ""))
