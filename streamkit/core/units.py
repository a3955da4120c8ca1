# SPDX-License-Identifier: Apache-2.0
"""Option types with units, for the YAML, messages and editors.

Each is an annotated builtin: inside a stage a `Seconds` is a float and a `Bytes` an int.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

_DURATION = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_LAST_S = 253_402_300_799.0  # of the year 9999
_QUANTITY = re.compile(r"\s*((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z]+)\s*")


LONGEST_S = 73_000 * 86_400.0
"""200 years in seconds, the longest duration: operating systems wait with 64-bit nanoseconds, at most 292 years."""
LARGEST_BYTES = 10**18
"""The largest size: file systems and databases use 64-bit numbers."""


class OptionGroup(TypedDict):
    """Base of options that are a mapping in the YAML; other keys than theirs are rejected."""


OptionGroup.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]


def seconds(written: Any) -> float:
    """Read `10s`, `200ms`, `5min`, `1h` or a bare number of seconds, up to 200 years; raise ValueError otherwise."""
    duration_s = _quantity(written, _DURATION, "a duration such as 10s, 200ms or 5min (a bare number is seconds)")
    if duration_s > LONGEST_S:
        raise ValueError(f"must be at most 73000d, which is 200 years, got {written!r}")
    return duration_s


def size_bytes(written: Any) -> int:
    """Read `100MB`, `2GiB` or a bare number of bytes, 10^18 at most; raise ValueError otherwise."""
    count = _quantity(written, _SIZE, "a size such as 100MB (a bare number is bytes)")
    if count > LARGEST_BYTES:
        raise ValueError(f"must be at most 1000000TB, got {written!r}")
    return int(count)


def wall_clock(written: Any) -> float:
    """Read `2026-03-02T23:00:00+01:00`, or a bare number, as seconds since 1970; raise ValueError otherwise."""
    if isinstance(written, (int, float)) and not isinstance(written, bool):
        if not 0 <= written <= _LAST_S:
            raise ValueError(
                f"must be seconds since 1970, from 0 to {_LAST_S:.0f}, which is the year 9999, got {written!r}"
            )
        return float(written)
    try:
        moment = datetime.fromisoformat(written)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"must be a day, a time and its zone, such as 2026-03-02T23:00:00+01:00, got {written!r}")
    return moment.timestamp()


def _quantity(written: Any, units: dict[str, float] | dict[str, int], wanted: str) -> float:
    if isinstance(written, (int, float)) and not isinstance(written, bool):
        number = float(written)
    else:
        match = _QUANTITY.fullmatch(written) if isinstance(written, str) else None
        if match is None or match[2] not in units:
            raise ValueError(f"must be {wanted}, got {written!r}")
        number = float(match[1]) * units[match[2]]
    if not 0 <= number < math.inf:
        raise ValueError(f"must be {wanted}, not negative, got {written!r}")
    return number


@dataclass(frozen=True, slots=True)
class Unit:
    """Annotation of an option: its unit, bounds and parser.

    Attributes:
        name: the unit in help texts.
        read: converts a value of the YAML; raises ValueError.
        minimum: the smallest number.
        maximum: the largest number.
        pattern: the texts that `read` accepts, for editors.
        schema: the option's whole JSON Schema, in place of one that is derived from its type.
    """

    name: str
    read: Callable[[Any], Any] | None = None
    minimum: float | None = None
    maximum: float | None = None
    pattern: str | None = None
    schema: Mapping[str, Any] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        inner = handler(source)
        if self.minimum is not None or self.maximum is not None:
            inner = core_schema.no_info_after_validator_function(self._within, inner)
        return core_schema.no_info_before_validator_function(self.read, inner) if self.read else inner

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        extended = dict(handler(schema) if self.schema is None else self.schema)
        if self.read is not None and self.schema is None:
            extended = {"anyOf": [extended, {"type": "string", "pattern": self.pattern}]}
        for key, bound in (("minimum", self.minimum), ("maximum", self.maximum)):
            if bound is not None:
                extended[key] = bound
        return extended

    def _within(self, value: float) -> float:
        low = self.minimum
        high = self.maximum
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            bounds = (
                f"{low:g} to {high:g}"
                if low is not None and high is not None
                else (f"at least {low:g}" if low is not None else f"at most {high:g}")
            )
            raise ValueError(f"must be {bounds}, got {value:g}")
        return value


_NUMBER = r"^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*"

Score = Annotated[float, Unit("0..1", minimum=0, maximum=1)]
"""A score or share, 0 to 1."""

Seconds = Annotated[float, Unit("seconds", seconds, pattern=_NUMBER + r"(ms|s|min|h|d)\s*$")]
"""A duration in seconds; written as `200ms` or `5min` in YAML."""

Bytes = Annotated[int, Unit("bytes", size_bytes, pattern=_NUMBER + r"[KMGT]?i?B\s*$")]
"""A size in bytes; written as `100MB` in YAML."""

WallClock = Annotated[float, Unit("wall clock", wall_clock, pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[-+].+)$")]
"""A moment in seconds since 1970; written as `2026-03-02T23:00:00+01:00` in YAML."""

Pixels = Annotated[float, Unit("pixels", minimum=0)]
"""A length in source pixels."""

WholePixels = Annotated[int, Unit("pixels", minimum=1)]
"""A length in whole pixels."""

Length = Annotated[float, Unit("pixels, or with units: share, of the frame's height")]
"""A length in the `units` of its stage."""

Count = Annotated[int, Unit("count", minimum=1)]
"""A number of things, at least 1."""

Point = tuple[float, float]
"""x, y in source pixels."""


_PERIODS = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}
_RATE = re.compile(r"\s*([0-9]{1,5})\s*/\s*([a-z]+)\s*")


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of things in a period, at most: `20/min` or `500/day` in YAML.

    Attributes:
        count: the number, 1 to 10,000.
        per: the period: s, min, h or day.
    """

    count: int
    per: str

    @property
    def period_s(self) -> float:
        """The length of the period in seconds."""
        return _PERIODS[self.per]

    @staticmethod
    def read(written: Any) -> Rate:
        """Read a value as written in the YAML; raise ValueError if it is invalid."""
        if isinstance(written, Rate):
            return written
        match = _RATE.fullmatch(written) if isinstance(written, str) else None
        if match is None or match[2] not in _PERIODS or not 1 <= int(match[1]) <= 10_000:
            periods = ", ".join(_PERIODS)
            raise ValueError(f"must be 1 to 10000 in a period ({periods}), such as 20/min or 500/day, got {written!r}")
        return Rate(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.count}/{self.per}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        text = core_schema.to_string_ser_schema()
        return core_schema.no_info_plain_validator_function(cls.read, serialization=text)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        return {"type": "string", "pattern": rf"^\s*[0-9]{{1,5}}\s*/\s*({'|'.join(_PERIODS)})\s*$"}


OF_FORMS = "as detect, detect.person or {stage: detect, labels: [person, car]}"
"""How `Of` is written, for the help of options."""


@dataclass(frozen=True, slots=True)
class Of:
    """The objects that a stage processes: `detect`, `detect.person`, or {stage: detect, labels: [person]} in YAML.

    Attributes:
        stage: the id of their detector.
        labels: the classes; empty for all.
    """

    stage: str
    labels: tuple[str, ...] = ()

    @staticmethod
    def read(written: Any) -> Of:
        """Read a value as written in the YAML; raise ValueError if it is invalid."""
        if isinstance(written, Of):
            return written
        wanted = "must be a stage, a stage and a label as in detect.person, or {stage: detect, labels: [person]}"
        if isinstance(written, str) and written.strip():
            stage, _, label = written.partition(".")  # an id has no dot; a label may have one
            return Of(stage, (label,) if label else ())
        if (
            not isinstance(written, dict)
            or not isinstance(written.get("stage"), str)
            or written.keys() - {"stage", "labels"}
        ):
            raise ValueError(f"{wanted}, got {written!r}")
        labels = written.get("labels", [])
        if written.get("labels") == []:
            raise ValueError("must name a class in labels, or leave labels out for all objects")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError(f"{wanted}, got {written!r}")
        return Of(written["stage"], tuple(labels))

    def __str__(self) -> str:
        return ".".join([self.stage, "|".join(self.labels)]) if self.labels else self.stage

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.read)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        parts = {"stage": {"type": "string"}, "labels": {"type": "array", "items": {"type": "string"}, "minItems": 1}}
        whole = {"type": "object", "properties": parts, "required": ["stage"], "additionalProperties": False}
        return {"anyOf": [{"type": "string"}, whole]}
