# SPDX-License-Identifier: Apache-2.0
"""Records as rows of an Arrow table: a column per key, and JSON text for nested values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import orjson

from streamkit.core.records import as_json
from streamkit.io.formats.description import ANYTHING, BOX, EXTRA, RECORDS, Field, Group, Scalar
from streamkit.io.formats.shaping import shaper
from streamkit.io.parquet_file import arrow

_INNER = {"objects": "object", "events": "event"}


@lru_cache(maxsize=8)
def flat(send: str) -> Group:
    """Return the description of a record each of whose fields becomes a column, or the columns of its parts.

    No field is required: a record of another kind fills its known columns, and the rest is in `extra`.
    """
    return _flat(RECORDS[send], _INNER.get(send))


def _flat(group: Group, inner: str | None = None) -> Group:
    fields = []
    for field in group.fields:
        type_ = field.type if field.type is BOX or isinstance(field.type, Scalar) else ANYTHING
        if field.name == inner and isinstance(field.type, Group):
            type_ = _flat(field.type)
        fields.append(replace(field, type=type_, required=False))
    return replace(group, fields=tuple(fields))


def columns(send: str) -> dict[str, Field]:
    """Return the columns: the frame's, then the object's or event's, and `extra`. The schema's name is omitted."""
    fields_by_name: dict[str, Field] = {}
    for field in flat(send).fields:
        if isinstance(field.type, Group):
            for part in field.type.fields:
                fields_by_name.update({column.name: column for column in (BOX.fields if part.type is BOX else (part,))})
        elif field.name != "schema":
            fields_by_name[field.name] = field
    return {**fields_by_name, EXTRA.name: EXTRA}


@lru_cache(maxsize=8)
def arrow_schema(send: str) -> Any:
    """Return the Arrow schema of these columns, with descriptions. Raises MissingPackage."""
    pa = arrow("stage: parquet", "parquet")
    fields = []
    for name, field in columns(send).items():
        kind, *arguments = (field.type if isinstance(field.type, Scalar) else ANYTHING).arrow
        fields.append(pa.field(name, getattr(pa, kind)(*arguments), metadata={"description": field.help}))
    return pa.schema(fields)


class ArrowTableBuilder:
    """Makes Arrow tables of records.

    Args:
        send: kind of the records: frames, objects or events.

    Raises:
        MissingPackage: pyarrow is not installed.
    """

    def __init__(self, send: str) -> None:
        self.schema = arrow_schema(send)
        self._shape = shaper(flat(send))
        self._inner = _INNER.get(send, "")

    def table(self, records: Sequence[bytes]) -> Any:
        """Return a table with a row for each of the records, which are JSON."""
        pa = arrow()
        rows = [self._row(self._shape(orjson.loads(record))) for record in records]
        arrays = [
            pa.array([row.get(field.name) for row in rows], field.type, from_pandas=True) for field in self.schema
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _row(self, row: dict[str, Any]) -> Mapping[str, Any]:
        inner = row.pop(self._inner, None)
        if inner is None:
            return row
        if EXTRA.name in row and EXTRA.name in inner:
            both = orjson.loads(inner[EXTRA.name]) | orjson.loads(row[EXTRA.name])
            inner[EXTRA.name] = row[EXTRA.name] = as_json(both).decode()
        box = inner.pop("box", None)
        return {**inner, **(box or {}), **row}
