"""Conversion of records to values of the described types and back, for Avro and Protobuf.

Keys that a group does not describe, and values that do not have the described type, go into `extra` as JSON, so every
record is restored exactly, whatever custom stages put into it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from streamkit.core.records import as_json
from streamkit.io.formats.description import (
    EXTRA,
    Anything,
    ByName,
    Flag,
    Group,
    JpegImage,
    Number,
    Several,
    Text,
    Time,
    Type,
    Whole,
)

Make = Callable[[Any], Any]

_START = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_NAN = float("nan")


class Misfit(ValueError):
    """A value does not have the described type."""


def shaper(group: Group, *, moment: Make = lambda ms: ms, empties: bool = True) -> Make:
    """Return a function that converts a record to typed values: a dict by field, without absent values.

    Args:
        group: the record's description.
        moment: converts milliseconds since 1970 to the format's type.
        empties: whether the format distinguishes an empty list or mapping from an absent one.

    Returns:
        The function; it raises Misfit if a required value is missing.
    """
    return _Shaper(moment, empties).group(group)


class _Shaper:
    def __init__(self, moment: Make, empties: bool) -> None:
        self._moment, self._empties = moment, empties

    def group(self, group: Group) -> Make:
        makes = {field.name: self._field(field.type, field.required) for field in group.fields}
        if group.row:
            return _row(list(makes.items()))
        known, required, closed, name = makes.get, group.required, group.closed, group.name

        def make(value: Any) -> dict[str, Any]:
            if type(value) is not dict:
                raise Misfit(f"{name} must be an object, got {type(value).__name__}")
            made: dict[str, Any] = {}
            left: dict[str, Any] = {}
            for key, one in value.items():
                if (of := known(key)) is None:
                    left[key] = one
                    continue
                try:
                    made[key] = of(one)
                except Misfit:
                    left[key] = one
            if not required <= made.keys():
                lacks = ", ".join(sorted(required - made.keys()))
                raise Misfit(f"{name} must have {lacks}, of the type that the schema says")
            if left:
                if closed:
                    raise Misfit(f"{name} has no {', '.join(left)}")
                made[EXTRA.name] = as_json(left).decode()
            return made

        return make

    def _field(self, type_: Type, required: bool) -> Make:
        match type_:
            case Number():
                return _number_or_nan if required else _number
            case Several(of=of):
                return _several(self._field(of, True), self._empties or required)
            case ByName(of=of):
                return _by_name(self._field(of, True), self._empties or required)
            case Group():
                return self.group(type_)
            case Time():
                return self._time
            case Whole(bits=bits):
                return _whole(2 ** (bits - 1))
            case JpegImage():
                return _picture
            case Anything():
                return lambda value: as_json(value).decode()
            case Flag():
                return _of(bool)
            case Text():
                return _of(str)

    def _time(self, value: Any) -> Any:
        try:
            ms = (datetime.fromisoformat(value) - _START) // _MS
        except (TypeError, ValueError) as error:
            raise Misfit(f"no time: {value!r}") from error
        if _time_back(ms) != value:
            raise Misfit(f"not to the millisecond: {value!r}")
        return self._moment(ms)


def _of(kind: type) -> Make:
    def make(value: Any) -> Any:
        if type(value) is not kind:
            raise Misfit(f"must be {kind.__name__}, got {value!r}")
        return value

    return make


def _whole(limit: int) -> Make:
    def make(value: Any) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise Misfit(f"must be a whole number below {limit}, got {value!r}")
        return value

    return make


def _number(value: Any) -> Any:
    if type(value) is float or (type(value) is int and abs(value) <= 1 << 53):
        return value
    raise Misfit(f"must be a number, got {value!r}")


def _number_or_nan(value: Any) -> Any:
    return _NAN if value is None else _number(value)


def _picture(value: Any) -> bytes:
    try:
        made = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise Misfit("no Base64") from error
    if base64.b64encode(made).decode() != value:
        raise Misfit("no Base64 as it is usually written")
    return made


def _row(makes: list[tuple[str, Make]]) -> Make:
    def make(value: Any) -> dict[str, Any]:
        if type(value) is not list or len(value) != len(makes):
            raise Misfit(f"must be a list of {len(makes)}")
        return {name: of(one) for (name, of), one in zip(makes, value, strict=True)}

    return make


def _several(of: Make, empties: bool) -> Make:
    def make(value: Any) -> list[Any]:
        if type(value) is not list or not (value or empties):
            raise Misfit("must be a list")
        return [of(one) for one in value]

    return make


def _by_name(of: Make, empties: bool) -> Make:
    def make(value: Any) -> dict[str, Any]:
        if type(value) is not dict or not (value or empties):
            raise Misfit("must be an object")
        return {key: of(one) for key, one in value.items()}

    return make


# ---------------------------------------------------------------------------------------------------------------- back


def unshaper(group: Group, *, moment: Make = lambda ms: ms) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that converts typed values back to a record; None and absent values are omitted.

    Args:
        group: the record's description.
        moment: converts the format's type to milliseconds since 1970.
    """
    backs = [(field.name, _back(field.type, moment)) for field in group.fields]
    if group.row:
        return lambda given: [back(given[name]) for name, back in backs]

    def make(given: Mapping[str, Any]) -> dict[str, Any]:
        made = {name: back(value) for name, back in backs if (value := given.get(name)) is not None}
        if (extra := given.get(EXTRA.name)) is not None and not group.closed:
            made.update(orjson.loads(extra))
        return made

    return make


def _back(type_: Type, moment: Make) -> Make:
    match type_:
        case Number():
            return lambda value: None if value != value else value
        case Several(of=of):
            back = _back(of, moment)
            return lambda value: [back(one) for one in value]
        case ByName(of=of):
            back = _back(of, moment)
            return lambda value: {key: back(one) for key, one in value.items()}
        case Group():
            return unshaper(type_, moment=moment)
        case Time():
            return lambda value: _time_back(moment(value))
        case JpegImage():
            return lambda value: base64.b64encode(value).decode()
        case Anything():
            return orjson.loads
        case _:
            return lambda value: value


def _time_back(ms: int) -> str:
    try:
        return (_START + ms * _MS).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError as error:
        raise Misfit(f"no time: {ms} ms") from error
