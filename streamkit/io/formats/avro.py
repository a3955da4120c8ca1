# SPDX-License-Identifier: Apache-2.0
"""Avro schemas and encoding of records, with fastavro."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from streamkit.core.errors import needs
from streamkit.io.formats.description import RECORDS, ByName, Field, Group, Scalar, Several, Type, fields_of
from streamkit.io.formats.shaping import shaper

NAMESPACE = "streamkit.v1"
_SINGLE_OBJECT = b"\xc3\x01"


def record_schema(send: str) -> dict[str, Any]:
    """Return the Avro schema of an emitter's records with `send`: frames, objects or events."""
    return {"namespace": NAMESPACE, **_type(RECORDS[send], set())}


def _type(type_: Type, defined_names: set[str]) -> Any:
    match type_:
        case Scalar():
            return type_.avro
        case Several(of=of):
            return {"type": "array", "items": _type(of, defined_names)}
        case ByName(of=of):
            return {"type": "map", "values": _type(of, defined_names)}
        case Group(name=name):
            if name in defined_names:
                return name  # Avro defines a record at its first use, and only names it afterwards
            defined_names.add(name)
            fields = [_field(field, defined_names) for field in fields_of(type_)]
            return {"type": "record", "name": name, "doc": type_.help, "fields": fields}


def _field(field: Field, defined_names: set[str]) -> dict[str, Any]:
    avro_type = _type(field.type, defined_names)
    if field.required:
        return {"name": field.name, "doc": field.help, "type": avro_type}
    return {"name": field.name, "doc": field.help, "type": ["null", avro_type], "default": None}


def _package() -> Any:
    with needs("fastavro", "avro", "format: avro"):
        import fastavro
        import fastavro.schema
    return fastavro


def encoder(send: str) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that encodes a record as Avro binary; it raises ValueError for other kinds of records.

    Raises:
        MissingPackage: fastavro is not installed.
    """
    package = _package()
    schema = package.parse_schema(record_schema(send))
    shape = shaper(RECORDS[send])

    def encode(record: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        package.schemaless_writer(out, schema, shape(record))
        return out.getvalue()

    return encode


def single_object_prefix(send: str) -> bytes:
    """Return the prefix of Avro's single-object encoding: a marker and the schema's fingerprint."""
    package = _package()
    canonical = package.schema.to_parsing_canonical_form(record_schema(send))
    return _SINGLE_OBJECT + bytes.fromhex(package.schema.fingerprint(canonical, "CRC-64-AVRO"))
