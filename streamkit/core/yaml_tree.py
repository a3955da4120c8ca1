# SPDX-License-Identifier: Apache-2.0
"""A YAML file as a tree with the place of each value, typed by the core schema of YAML 1.2.

PyYAML reads YAML 1.1, where `no` is False and `1:30` is 90: it is used here for the syntax only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from yaml.composer import ComposerError

from streamkit.core.environment import variable
from streamkit.core.errors import ConfigError, Problem
from streamkit.core.masking import mask
from streamkit.core.text import did_you_mean

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    "-.inf": float("-inf"),
    ".nan": float("nan"),
}
_LONGEST_NUMBER = 1000
_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_LONGEST = 1000
_DEEPEST = 100
_FEW_ALIASED = 10_000
_MANY_ALIASED = 100_000
_ALIASED_PER_CHARACTER = 20
_TOO_DEEP = f"lists and mappings may stand at most {_DEEPEST} deep in each other"
_TOO_MANY = (
    "the aliases of this file may stand for at most {:,} values together, and *{} exceeds that; aliases of aliases "
    "multiply: write the values out where they are needed"
)


@dataclass(slots=True)
class YamlNode:
    """A value of a YAML file and its place.

    Attributes:
        value: a scalar, a list of nodes, or a dict of nodes.
        file: the file's name in messages.
        line, column: where the value begins, from 1.
        keys: for a dict, the place of each key.
        raw: for a text, its source with quotes.
    """

    value: Any
    file: str
    line: int
    column: int
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    raw: str = ""

    def plain(self) -> Any:
        """The value with plain lists, dicts and scalars inside."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def problem(self, text: str, key: str | None = None) -> Problem:
        """A problem at this value, or at its key `key`; secrets of addresses in the text are masked."""
        line, column = self.keys.get(key, (self.line, self.column)) if key is not None else (self.line, self.column)
        return Problem(self.file, line, column, mask(_shortened(text)))

    def follow(self, path: Iterable[Any]) -> tuple[YamlNode, list[str]]:
        """Walk down `path` as far as the tree goes; return the node there and the steps taken."""
        node = self
        taken = []
        for step in path:
            if isinstance(step, str) and step.startswith("<"):
                continue  # the branch of a union, which is not a step of the tree
            value = node.value
            inside = step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value))
            if not inside:
                break
            node = value[step]
            taken.append(str(step))
        return node, taken


def _shortened(text: str) -> str:
    """Remove the middle of a long message, which quotes a value; the fix is at the end."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 300]} [...] {text[-200:]}"


def within(node: YamlNode, offset: int) -> tuple[int, int]:
    """The line and column of the character at `offset` of a text, or of the text's beginning if it is not found.

    The file contains quotes, escapes, folded lines and indentation that the text does not: characters are matched one
    by one.
    """
    text = str(node.value)
    raw = node.raw
    at = raw.find("\n") + 1 if raw[:1] in ("|", ">") else int(raw[:1] in ("'", '"'))
    for i, character in enumerate(text[: offset + 1]):
        if character.isspace():
            continue
        at = raw.find(character, at) + 1
        if not at:
            return node.line, node.column
        if i == offset:
            at -= 1
    if offset >= len(text) or text[offset].isspace():
        at += max(0, offset - len(text[:offset].rstrip())) if offset < len(text) else 0
    before = raw[:at]
    line = before.count("\n")
    return node.line + line, at - (before.rfind("\n") + 1) + 1 if line else node.column + at


def tree(value: Any, file: str) -> YamlNode:
    """Plain values as a tree with unknown places."""
    if isinstance(value, Mapping):
        children = {str(key): tree(child, file) for key, child in value.items()}
        return YamlNode(children, file, 0, 0, dict.fromkeys(children, (0, 0)))
    return YamlNode([tree(child, file) for child in value] if isinstance(value, list) else value, file, 0, 0)


def expand(value: Any, file: str, environment: Mapping[str, str] | None = None) -> Any:
    """Replace `${NAME}` and `${NAME:-default}` in the texts of plain values, as `load` does in a YAML.

    A text with a variable is typed afterwards: `"${PORT}"` may become a number. Paths become texts; tuples and arrays
    lists, and NumPy's numbers plain ones.

    Raises:
        ConfigError: with every variable that is not set.
    """
    lookup = os.environ if environment is None else environment
    problems: list[Problem] = []

    def expanded(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {key: expanded(child) for key, child in item.items()}
        if isinstance(item, np.ndarray | np.generic):
            item = item.tolist()
        if isinstance(item, list | tuple):
            return [expanded(child) for child in item]
        if isinstance(item, os.PathLike):
            return str(item)
        if not isinstance(item, str) or not _ENV.search(item):
            return item
        return scalar(_expand(item, YamlNode(item, file, 0, 0), lookup, problems))

    expanded_value = expanded(value)
    if problems:
        raise ConfigError(problems)
    return expanded_value


def _expand(text: str, node: YamlNode, environment: Mapping[str, str], problems: list[Problem]) -> str:
    """Replace the variables of a text; those that are not set become problems of the node."""

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        default = match[2]
        try:
            value = variable(name, environment)
        except ValueError as error:
            problems.append(node.problem(str(error)))
            return ""
        if value is None and default is None:
            problems.append(
                node.problem(f"the environment variable {name} is not set; set it, or write ${{{name}:-a default}}")
            )
        return default if not value and default is not None else value or ""

    return _ENV.sub(replace, text)


def load(
    text: str, file: str, environment: Mapping[str, str] | None = None, *, max_aliased: int | None = None
) -> tuple[YamlNode, list[Problem]]:
    """Read a YAML text; return its tree and problems such as duplicate keys and unset variables.

    Args:
        text: the text.
        file: the file's name, for messages.
        environment: the variables that `${NAME}` may name; those of the process by default.
        max_aliased: how many values all aliases may stand for; by default it depends on the length of the text, so that
            a short text of aliases of aliases does not take seconds.

    Raises:
        ConfigError: the text is not YAML.
    """
    text = text.removeprefix("\ufeff")  # libyaml does not count a byte order mark
    variables_ = os.environ if environment is None else environment
    if max_aliased is None:
        max_aliased = min(_MANY_ALIASED, max(_FEW_ALIASED, _ALIASED_PER_CHARACTER * len(text)))
    try:
        return _parse(text, file, variables_, max_aliased)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        reason = f"not valid YAML: {_syntax(error, line)}{_hint(error, text, line)}"
        raise ConfigError([Problem(file, line, column, reason)]) from None
    except yaml.YAMLError as error:
        raise ConfigError([Problem(file, 1, 1, f"not valid YAML: {' '.join(str(error).split())}")]) from None


def _parse(text: str, file: str, environment: Mapping[str, str], max_aliased: int) -> tuple[YamlNode, list[Problem]]:
    """Parse with libyaml, which is ten times as fast; on an error, parse in Python for its better message."""
    try:
        builder = _TreeBuilder(file, environment, text, max_aliased)
        return builder.build(_FastParser(text)), builder.problems
    except (yaml.YAMLError, UnicodeEncodeError):
        builder = _TreeBuilder(file, environment, text, max_aliased)
        return builder.build(yaml.SafeLoader(text)), builder.problems


def variables(text: str) -> set[str]:
    """The environment variables that a YAML's text names, also in comments."""
    return {match[1] for match in _ENV.finditer(text)}


def load_file(path: Path) -> tuple[YamlNode, list[Problem]]:
    """Read a YAML file; see `load`. Raises ConfigError if it cannot be read."""
    return load(read_file(path), str(path))


def read_file(path: Path) -> str:
    """Read the text of a YAML file. Raises ConfigError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file{near_files(path)}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name a YAML file in it") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file: a pipeline is a YAML file in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def near_files(path: Path) -> str:
    """`; did you mean ...?` if there is a file with a similar name, else an empty text."""
    if not path.parent.is_dir():
        return f"; the folder {path.parent} does not exist either"
    names = os.listdir(path.parent) if os.access(path.parent, os.R_OK) else []
    return did_you_mean(path.name, names)


def _syntax(error: yaml.MarkedYAMLError, line: int) -> str:
    """PyYAML's message, with the line in which an unterminated part began."""
    reason = error.problem or str(error.context)
    start = error.context_mark
    if reason.startswith("but "):
        return f"{error.context}, {reason}"
    return f"{reason}, {error.context} from line {start.line + 1} on" if start and start.line + 1 < line else reason


def _hint(error: yaml.MarkedYAMLError, text: str, line: int) -> str:
    """The fix for the most common mistakes."""
    lines = text.splitlines()
    near = " ".join(lines[max(0, line - 2) : line])
    if re.search(r"(?<![\w/.\"'-])[^\s\"']*\{\w+\}", near):
        return '; put quotes around a value with braces in it, as in path: "out/{source}.jsonl"'
    if "\t" in near:
        return "; indent with spaces, not tabs"
    reason = str(error.problem)
    if "<block end>" not in str(error.context) + reason and "mapping values" not in reason:
        return ""
    above = next(
        (
            line_above
            for line_above in reversed(lines[: line - 1])
            if line_above.strip() and line_above.strip()[0] != "#"
        ),
        "",
    )
    deep, deep_above = (
        len(text_line) - len(text_line.lstrip()) for text_line in (lines[line - 1] if line <= len(lines) else "", above)
    )
    if deep == deep_above and ":" not in above:
        return f"; the line above lacks its colon: {above.strip()}:"
    if deep == deep_above:
        return ""
    example = _INDENTED if re.search("^(sources|stages) *:", text, re.M) else ""
    return (
        f"; this line is indented by {deep} space{'s' * (deep != 1)}, which fits no line above it; the keys of a "
        f"mapping begin in the same column, and what belongs to a key is indented further{example}"
    )


_TAGS = "tag:yaml.org,2002:"
_TEXT = _TAGS + "str"
_TAGS_READ = {None, "!", *(_TAGS + name for name in ("str", "int", "float", "bool", "null", "seq", "map"))}
_FastParser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INDENTED = """:
    stages:
      detect:
        model: demo
        min_score: 0.4
      draw: {}"""


@dataclass(slots=True)
class _Anchor:
    """The value of an anchor: its number of values and its nesting depth."""

    node: YamlNode
    values: int
    height: int


class _TreeBuilder:
    """Builds the tree of a text from the events of a parser.

    Args:
        file: the file's name, for messages.
        environment: the variables that `${NAME}` may name.
        text: the text.
        max_aliased: how many values all aliases may stand for.

    Attributes:
        problems: problems with the values.
    """

    def __init__(self, file: str, environment: Mapping[str, str], text: str, max_aliased: int = _FEW_ALIASED) -> None:
        self.file = file
        self.environment = environment
        self.text = text
        self.max_aliased = max_aliased
        self.problems: list[Problem] = []
        self._anchors: dict[str, _Anchor | None] = {}  # None while its value is being built
        self._values = self._aliased = self._deepest = 0

    def build(self, parser: Any) -> YamlNode:
        """Build the tree of a parser's only document.

        Raises:
            ConfigError: it is nested too deeply, or its aliases expand to too many values.
            YAMLError: the text is not YAML.
        """
        self._next = parser.get_event
        self._next()
        begin = self._next()
        if isinstance(begin, yaml.StreamEndEvent):
            return YamlNode({}, self.file, 1, 1)
        root = self._node(self._next(), 0)
        self._next()
        if not isinstance(end := self._next(), yaml.StreamEndEvent):
            context = "expected a single document in the stream"
            problem = "but found another document"
            raise ComposerError(context, begin.start_mark, problem, end.start_mark)
        return root

    def _node(self, event: Any, depth: int) -> YamlNode:
        """Build the value that begins with an event."""
        mark = event.start_mark
        node = YamlNode(None, self.file, mark.line + 1, mark.column + 1)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, node, depth)
        if depth >= _DEEPEST:
            raise ConfigError([*self.problems, node.problem(_TOO_DEEP)])
        self._values += 1
        if event.tag not in _TAGS_READ:
            tag = event.tag.replace(_TAGS, "!!")
            self.problems.append(node.problem(f"the tag {tag} means nothing here; leave it out"))
        if event.anchor is not None:
            self._anchored(event, node, depth)
        else:
            self._fill(event, node, depth)
        return node

    def _fill(self, event: Any, node: YamlNode, depth: int) -> None:
        self._deepest = max(self._deepest, depth)
        first = event.start_mark.index
        last = event.end_mark.index
        if isinstance(event, yaml.ScalarEvent):
            text = _expand(event.value, node, self.environment, self.problems) if "${" in event.value else event.value
            node.value = self._typed(text, node) if not event.style and event.tag != _TEXT else text
            node.raw = self.text[first:last]
        elif isinstance(event, yaml.SequenceStartEvent):
            node.value = items = []
            while not isinstance(entry := self._next(), yaml.SequenceEndEvent):
                items.append(self._node(entry, depth + 1))
        else:
            self._mapping(node, depth)

    def _anchored(self, event: Any, node: YamlNode, depth: int) -> None:
        name = event.anchor
        if name in self._anchors:
            raise ComposerError(None, None, f"found duplicate anchor {name!r}", event.start_mark)
        self._anchors[name] = None
        before = self._values
        outer = self._deepest
        self._deepest = depth
        self._fill(event, node, depth)
        self._anchors[name] = _Anchor(node, 1 + self._values - before, self._deepest - depth)
        self._deepest = max(outer, self._deepest)

    def _alias(self, event: Any, node: YamlNode, depth: int) -> YamlNode:
        if event.anchor not in self._anchors:
            raise ComposerError(None, None, f"found undefined alias {event.anchor!r}", event.start_mark)
        named = self._anchors[event.anchor]
        if named is None:
            self.problems.append(node.problem("an alias cannot stand inside what it names"))
            return node
        if depth + named.height >= _DEEPEST:
            raise ConfigError([*self.problems, node.problem(_TOO_DEEP)])
        self._values += named.values
        self._aliased += named.values
        if self._aliased > self.max_aliased:
            raise ConfigError([*self.problems, node.problem(_TOO_MANY.format(self.max_aliased, event.anchor))])
        self._deepest = max(self._deepest, depth + named.height)
        return _copy(named.node)

    def _mapping(self, node: YamlNode, depth: int) -> None:
        node.value = {}
        while not isinstance(key := self._next(), yaml.MappingEndEvent):
            place = (key.start_mark.line + 1, key.start_mark.column + 1)
            name = key.value if isinstance(key, yaml.ScalarEvent) else ""
            if not name or key.anchor is not None:
                self._node(key, depth + 1)
            value = self._node(self._next(), depth + 1)
            if not name:
                self.problems.append(Problem(self.file, *place, "a key must be a word"))
            elif name == "<<":
                text = "YAML's merge key << is not read here; write the options out, or give them as an alias: *name"
                self.problems.append(Problem(self.file, *place, text))
            elif name in node.value:
                first = node.keys[name][0]
                text = f"the key {name!r} is here twice, first in line {first}"
                self.problems.append(Problem(self.file, *place, text))
            else:
                node.value[name] = value
                node.keys[name] = place

    def _typed(self, text: str, node: YamlNode) -> Any:
        try:
            return scalar(text)
        except ConfigError as error:
            self.problems.append(node.problem(str(error)))
            return None


def _copy(node: YamlNode) -> YamlNode:
    """Copy the value for each alias: `--set` may change one of them."""
    value = node.value
    if isinstance(value, dict):
        value = {key: _copy(child) for key, child in value.items()}
    elif isinstance(value, list):
        value = [_copy(child) for child in value]
    return YamlNode(value, node.file, node.line, node.column, dict(node.keys), node.raw)


def scalar(text: str) -> Any:
    """Type a plain scalar by the core schema of YAML 1.2 (YAML 1.2.2, section 10.3.2).

    Raises:
        ConfigError: an integer has more digits than Python converts (`sys.get_int_max_str_digits`).
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        if len(text) > _LONGEST_NUMBER:
            raise ConfigError(f"a number has at most {_LONGEST_NUMBER} digits, got {len(text)}; put quotes around text")
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
