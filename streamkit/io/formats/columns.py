"""Records as rows of an Arrow table: a column per key, and JSON text for nested values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import orjson

from streamkit.core.records import as_json
from streamkit.io.formats.description import (
    BOX,
    EXTRA,
    RECORDS,
    Anything,
    Field,
    Flag,
    Group,
    JpegImage,
    Number,
    Text,
    Time,
    Type,
    Whole,
)
from streamkit.io.formats.shaping import shaper
from streamkit.io.parquet_file import arrow

_INNER = {"objects": "object", "events": "event"}


@lru_cache(maxsize=8)
def flat(send: str) -> Group:
    """Return the description of a record each of whose fields becomes a column, or the columns of its parts.

    No field is required: a record of another kind fills its known columns, and the rest is in `extra`.
    """
    inner = _INNER.get(send)
    fields = [
        replace(field, type=_flat_group(field.type) if field.name == inner else _simple(field.type), required=False)
        for field in RECORDS[send].fields
    ]
    return replace(RECORDS[send], fields=tuple(fields))


def _flat_group(group: Type) -> Group:
    assert isinstance(group, Group)
    return replace(group, fields=tuple(replace(one, type=_simple(one.type), required=False) for one in group.fields))


def _simple(type_: Type) -> Type:
    return type_ if type_ is BOX or isinstance(type_, (Text, Whole, Number, Flag, Time, JpegImage)) else Anything()


def columns(send: str) -> dict[str, Field]:
    """Return the columns: the frame's, then the object's or event's, and `extra`. The schema's name is omitted."""
    found: dict[str, Field] = {}
    for field in flat(send).fields:
        if isinstance(field.type, Group):
            for part in field.type.fields:
                found.update({one.name: one for one in (BOX.fields if part.type is BOX else (part,))})
        elif field.name != "schema":
            found[field.name] = field
    return {**found, EXTRA.name: EXTRA}


@lru_cache(maxsize=8)
def arrow_schema(send: str) -> Any:
    """Return the Arrow schema of these columns, with descriptions. Raises MissingPackage."""
    pa = arrow("stage: parquet", "parquet")
    return pa.schema([
        pa.field(name, _type(pa, field.type), metadata={"description": field.help})
        for name, field in columns(send).items()
    ])  # fmt: skip


def _type(pa: Any, type_: Type) -> Any:
    match type_:
        case Whole(bits=bits):
            return pa.int32() if bits == 32 else pa.int64()
        case Number():
            return pa.float64()
        case Flag():
            return pa.bool_()
        case Time():
            return pa.timestamp("ms", "UTC")
        case JpegImage():
            return pa.binary()
        case _:
            return pa.string()


class ArrowTableBuilder:
    """Makes Arrow tables of records.

    Args:
        send: kind of the records: frames, objects or events.

    Raises:
        MissingPackage: pyarrow is not installed.
    """

    def __init__(self, send: str) -> None:
        self.schema = arrow_schema(send)
        self._shape, self._inner = shaper(flat(send)), _INNER.get(send, "")

    def table(self, records: Sequence[bytes]) -> Any:
        """Return a table with a row for each of the records, which are JSON."""
        pa = arrow()
        rows = [self._row(self._shape(orjson.loads(one))) for one in records]
        arrays = [
            pa.array([row.get(field.name) for row in rows], field.type, from_pandas=True) for field in self.schema
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _row(self, made: dict[str, Any]) -> Mapping[str, Any]:
        inner = made.pop(self._inner, None)
        if inner is None:
            return made
        if EXTRA.name in made and EXTRA.name in inner:
            both = orjson.loads(inner[EXTRA.name]) | orjson.loads(made[EXTRA.name])
            inner[EXTRA.name] = made[EXTRA.name] = as_json(both).decode()
        box = inner.pop("box", None)
        return {**inner, **(box or {}), **made}
