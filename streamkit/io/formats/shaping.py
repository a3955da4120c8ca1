# SPDX-License-Identifier: Apache-2.0
"""Conversion of records to values of the described types, for Avro, Protobuf and Arrow.

Keys that a group does not describe, and values that do not have the described type, go into `extra` as JSON, so every
record can be restored exactly, whatever custom stages put into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from streamkit.core.records import as_json
from streamkit.io.formats.description import EXTRA, NUMBER, TIME, ByName, Group, Make, Misfit, Scalar, Several, Type

_NAN = float("nan")


def shaper(type_: Type, *, moment: Make = lambda ms: ms, empties: bool = True, required: bool = True) -> Make:
    """Return a function that converts a value in JSON to a typed value: a group to a dict without absent values.

    Args:
        type_: the type, such as that of a record.
        moment: converts milliseconds since 1970 to the format's type.
        empties: whether the format distinguishes an empty list or mapping from an absent one.
        required: whether the value must be present: if it must, a null stands for a number that is not finite.

    Returns:
        The function; it raises Misfit if the value does not have the type, or lacks a required part.
    """
    inner = partial(shaper, moment=moment, empties=empties)
    match type_:
        case Several(of=of):
            return _list(inner(of), empties or required)
        case ByName(of=of):
            return _mapping(inner(of), empties or required)
        case Group(fields=fields):
            makes = {field.name: inner(field.type, required=field.required) for field in fields}
            return _row(list(makes.items())) if type_.row else _object(type_, makes)
        case Scalar(shape=shape):
            if type_ is TIME:
                return lambda value: moment(shape(value))
            if type_ is NUMBER and required:
                return lambda value: _NAN if value is None else shape(value)
            return shape


def _object(group: Group, makes: Mapping[str, Make]) -> Make:
    maker_of = makes.get
    closed = group.closed
    name = group.name
    required = frozenset(field.name for field in group.fields if field.required)

    def shape(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Misfit(f"{name} must be an object, got {type(value).__name__}")
        shaped: dict[str, Any] = {}
        left: dict[str, Any] = {}
        for key, part in value.items():
            if (of := maker_of(key)) is None:
                left[key] = part
                continue
            try:
                shaped[key] = of(part)
            except Misfit:
                left[key] = part
        if not required <= shaped.keys():
            lacks = ", ".join(sorted(required - shaped.keys()))
            raise Misfit(f"{name} must have {lacks}, of the type that the schema says")
        if left:
            if closed:
                raise Misfit(f"{name} has no {', '.join(left)}")
            shaped[EXTRA.name] = as_json(left).decode()
        return shaped

    return shape


def _row(makes: list[tuple[str, Make]]) -> Make:
    def shape(value: Any) -> dict[str, Any]:
        if type(value) is not list or len(value) != len(makes):
            raise Misfit(f"must be a list of {len(makes)}")
        return {name: of(part) for (name, of), part in zip(makes, value, strict=True)}

    return shape


def _list(of: Make, empties: bool) -> Make:
    def shape(value: Any) -> list[Any]:
        if type(value) is not list or not (value or empties):
            raise Misfit("must be a list")
        return [of(part) for part in value]

    return shape


def _mapping(of: Make, empties: bool) -> Make:
    def shape(value: Any) -> dict[str, Any]:
        if type(value) is not dict or not (value or empties):
            raise Misfit("must be an object")
        return {key: of(part) for key, part in value.items()}

    return shape
