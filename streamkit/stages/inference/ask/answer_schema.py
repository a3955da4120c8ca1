# SPDX-License-Identifier: Apache-2.0
"""The form of an answer, made from the option `answer`: its JSON Schema, its validation, and its attributes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from streamkit.core.text import did_you_mean
from streamkit.rules.language import NUMBER, TEXT, RuleField

MAX_CHARS = 1000
"""Length of a text in an answer at most."""
YES_NO = ("yes", "no")
"""The labels of an attribute that is true or false."""

_TYPES: dict[str, tuple[str, str]] = {  # by the word in YAML: the JSON type, and the words of the instruction
    "bool": ("boolean", "true or false"),
    "int": ("integer", "a whole number"),
    "float": ("number", "a number"),
    "str": ("string", "a short text"),
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # not tabs and line breaks


class AnswerError(ValueError):
    """An answer that does not have the form; `cause` is one word or two for counters, the text says what is wrong."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class AnswerSchema:
    """The keys of an answer and the type of each.

    Args:
        answer: by key `bool`, `int`, `float`, `str`, or a list of words to choose from.

    Raises:
        ValueError: there is no key, or a name or a type is invalid.
    """

    def __init__(self, answer: Mapping[str, str | Sequence[str]]) -> None:
        if not answer:
            raise ValueError("answer must name at least one value and its type, as in {injured: bool, why: str}")
        for name, kind in answer.items():
            _check(name, kind)
        self._types = dict(answer)

    def fields(self) -> dict[str, RuleField]:
        """The attributes by name, as rules see them: numbers, or texts and their possible values if known."""
        return {
            name: RuleField(NUMBER) if kind in ("int", "float") else RuleField(TEXT, _labels(kind))
            for name, kind in self._types.items()
        }

    def instruction(self) -> str:
        """The form in words, for the end of a prompt; some servers ignore `response_format`."""
        parts = []
        for name, kind in self._types.items():
            words = _TYPES[kind][1] if isinstance(kind, str) else "one of " + ", ".join(kind)
            parts.append(f'"{name}": {words}')
        return f"Answer with a JSON object and nothing else: {{{', '.join(parts)}}}"

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of an answer, of the keywords that servers support."""
        properties = {
            name: {"type": _TYPES[kind][0]} if isinstance(kind, str) else {"type": "string", "enum": list(kind)}
            for name, kind in self._types.items()
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def read(self, text: str) -> dict[str, Any]:
        """Read an answer, also from within a code block or after a model's thoughts.

        Raises:
            AnswerError: it is not JSON, or does not have exactly these keys with these types.
        """
        text = text.rpartition("</think>")[2]
        try:
            answer = orjson.loads(text[text.index("{") : text.rindex("}") + 1])
        except ValueError:
            raise AnswerError("not JSON", "it contains no JSON object") from None
        if missing := [name for name in self._types if name not in answer]:
            raise AnswerError("wrong form", f"it lacks {', '.join(missing)}")
        if unknown := len(answer.keys() - self._types.keys()):
            raise AnswerError("wrong form", f"it has {unknown} keys that the question does not name")
        return {name: _value(name, kind, answer[name]) for name, kind in self._types.items()}

    @staticmethod
    def attributes(answer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The attributes of an object, as in records. Models give no score: it is null."""
        return {name: {"label": _label(value), "score": None} for name, value in answer.items()}


def _check(name: str, kind: Any) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"answer: a name must consist of letters, digits and _, got {name!r}")
    if isinstance(kind, str):
        if kind not in _TYPES:
            hint = did_you_mean(kind, _TYPES)
            kinds = f"{', '.join(_TYPES)}, or a list of words such as [red, green]"
            raise ValueError(f"answer.{name} must be {kinds}, got {kind!r}{hint}")
    elif len(set(kind)) < max(2, len(kind)) or not all(word.strip() and len(word) <= MAX_CHARS for word in kind):
        raise ValueError(f"answer.{name} must list at least two different words, got {list(kind)!r}")


def _labels(kind: str | Sequence[str]) -> tuple[str, ...] | None:
    return (YES_NO if kind == "bool" else None) if isinstance(kind, str) else tuple(kind)


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return YES_NO[not value]
    return value if isinstance(value, str) else f"{value:.10g}" if isinstance(value, float) else str(value)


def _value(name: str, kind: str | Sequence[str], value: Any) -> Any:
    """Return a value of an answer in its type. Raises AnswerError; the text does not contain the value."""
    if isinstance(kind, str):
        if kind == "bool" and isinstance(value, bool):
            return value
        if kind == "int" and type(value) is int and -(2**63) <= value < 2**63:
            return value
        if kind == "float" and type(value) in (int, float) and math.isfinite(value):
            return float(value)
        if kind == "str" and isinstance(value, str) and len(value) <= MAX_CHARS and not _CONTROL.search(value):
            return value
    elif isinstance(value, str) and value in kind:
        return value
    wanted = f"{_TYPES[kind][1]}" if isinstance(kind, str) else f"one of {', '.join(kind)}"
    more = f" of {MAX_CHARS} characters at most, without control characters" if kind == "str" else ""
    raise AnswerError("wrong form", f"{name} must be {wanted}{more}")
