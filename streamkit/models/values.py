"""Validation of a card's values: each function takes a plain value and returns the checked one.

Each raises ValueError with what the value must be; `CardReader` adds file, line and column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from streamkit.core.detections import Skeleton
from streamkit.core.errors import Problem
from streamkit.core.text import did_you_mean, nearest
from streamkit.core.yaml_tree import YamlNode
from streamkit.models.families import FAMILIES
from streamkit.models.labels import KNOWN
from streamkit.models.skeletons import KNOWN as SKELETONS


class CardReader:
    """Takes the keys out of one mapping, and keeps a list of what is wrong with them."""

    def __init__(self, node: YamlNode, problems: list[Problem], prefix: str) -> None:
        self.node, self.problems, self.prefix = node, problems, prefix
        self.values: dict[str, YamlNode] = dict(node.value) if isinstance(node.value, dict) else {}
        self.known: list[str] = []
        self.unset: list[str] = []
        self.needed: list[str] = []

    def get(self, key: str, read: Callable[[Any], Any], *default: Any) -> Any:
        """Return the checked value of `key`; if it is missing or invalid, the default or None."""
        self.known.append(key)
        if key not in self.values:
            self.unset.append(key)
            if not default:
                self.needed.append(key)
            return default[0] if default else None
        node = self.values[key]
        try:
            return read(node.plain())
        except ValueError as error:
            self.problems.append(node.problem(f"{self.prefix}{key} {error}"))
            return default[0] if default else None

    def finish(self) -> None:
        """Report unknown keys, and missing keys except those that an unknown key may be a misspelling of."""
        others = [key for key in self.values if key not in self.known]
        for key in others:
            told = did_you_mean(key, self.known, all_if_few=True)
            self.problems.append(self.node.problem(f"a card has no key '{self.prefix}{key}'{told}", key))
        meant = {nearest(key, self.known) for key in others}
        for key in self.needed:
            if key not in meant:
                self.problems.append(self.node.problem(f"the key '{self.prefix}{key}' is missing"))


def text(value: Any) -> str:
    """Validate non-empty text; a folded YAML text becomes one line."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be text, got {value!r}")
    return " ".join(value.split())


def one_of(words: Iterable[str]) -> Callable[[Any], str]:
    """Return a validator for one of these words."""
    known = tuple(words)

    def read(value: Any) -> str:
        if value not in known:
            near = did_you_mean(str(value), known)
            raise ValueError(f"must be one of {', '.join(known)}, got {value!r}{near}")
        return str(value)

    return read


def family(value: Any) -> str:
    """Validate the name of a family."""
    return one_of(sorted(FAMILIES))(value)


def url(value: Any) -> str:
    """Validate an http or https address."""
    address = text(value)
    if not address.startswith(("https://", "http://")):
        raise ValueError(f"must begin with https:// or http://, got {value!r}")
    return address


def sha256(value: Any) -> str:
    """Validate a SHA-256 sum; returned in lower case."""
    if not isinstance(value, str):
        raise ValueError("must be text: put quotes around it")
    if len(value) != 64 or set(value.lower()) - set("0123456789abcdef"):
        raise ValueError(f"must be 64 hexadecimal digits, got {value!r}")
    return value.lower()


def number(value: Any) -> float:
    """Validate a number, or a fraction such as `1/255`."""
    parts = value.split("/") if isinstance(value, str) else [value]
    try:
        if isinstance(value, bool) or len(parts) > 2:
            raise ValueError
        return float(parts[0]) / (float(parts[1]) if len(parts) == 2 else 1.0)
    except (ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"must be a number, or a fraction such as 1/255, got {value!r}") from None


def above_zero(value: Any) -> float:
    """Validate a number above 0."""
    found = number(value)
    if found <= 0:
        raise ValueError(f"must be above 0, got {value!r}")
    return found


def per_channel(read: Callable[[Any], float]) -> Callable[[Any], tuple[float, float, float]]:
    """Return a validator for one number for all three channels, or one for each."""

    def three(value: Any) -> tuple[float, float, float]:
        values = value if isinstance(value, list) else [value] * 3
        if len(values) != 3:
            raise ValueError(f"must be one number or one for each of 3 channels, got {value!r}")
        first, second, third = (read(item) for item in values)
        return first, second, third

    return three


def share(value: Any) -> float:
    """Validate a number from 0 to 1."""
    part = number(value)
    if not 0 <= part <= 1:
        raise ValueError(f"must be 0 to 1, got {value!r}")
    return part


def positive(value: Any) -> int:
    """Validate a whole number of pixels, at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a whole number of pixels, at least 1, got {value!r}")
    return value


def padding(value: Any) -> float | tuple[float, float, float]:
    """Validate a pixel value, 0 to 255, or one for each channel."""
    return per_channel(_pixel)(value) if isinstance(value, list) else _pixel(value)


def _pixel(value: Any) -> float:
    found = number(value)
    if not 0 <= found <= 255:
        raise ValueError(f"must be 0 to 255, got {value!r}")
    return found


def size(value: Any) -> tuple[int, int]:
    """Validate width and height in pixels."""
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"must be [width, height] in pixels, got {value!r}")
    return positive(value[0]), positive(value[1])


def keypoints(value: Any) -> Skeleton:
    """Validate a list of names, or the name of a known set of keypoints."""
    if isinstance(value, list):
        if not value or not all(isinstance(name, str) and name for name in value) or len(set(value)) < len(value):
            raise ValueError(f"must be a list of names, each once, got {value!r}")
        return Skeleton(tuple(value))
    return SKELETONS[one_of(SKELETONS)(value)]


def edges(value: Any, names: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Validate pairs of keypoints, given by name; return pairs of indices."""
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise ValueError(f"must be a list of pairs of key points such as [[left_hip, left_knee]], got {value!r}")
    for name in (name for pair in value for name in pair if name not in names):
        raise ValueError(f"names the point {name!r}, which keypoints lacks{did_you_mean(str(name), names)}")
    return tuple((names.index(first), names.index(second)) for first, second in value)


def labels(value: Any, folder: Path) -> tuple[str, ...]:
    """Validate a list of names, a text file with one per line, or the name of a known list."""
    if isinstance(value, list):
        if not value or any(isinstance(name, (list, dict)) or name is None for name in value):
            raise ValueError(f"must be a list of class names, got {value!r}")
        return tuple(str(name) for name in value)
    name = text(value)
    if name in KNOWN:
        return KNOWN[name]
    file = folder / name
    if not file.is_file():
        near = did_you_mean(name, KNOWN)
        raise ValueError(f"{name!r} is neither a known list ({', '.join(KNOWN)}) nor a file: there is no {file}{near}")
    try:
        names = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"file {file} cannot be read: {error}") from None
    found = tuple(line.strip() for line in names if line.strip())
    if not found:
        raise ValueError(f"file {file} is empty: it must have one class name a line")
    return found
