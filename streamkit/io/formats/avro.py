"""Avro schemas and encoding of records, with fastavro."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from streamkit.core.errors import MissingPackage
from streamkit.io.formats.description import (
    RECORDS,
    ByName,
    Field,
    Flag,
    Group,
    JpegImage,
    Number,
    Several,
    Text,
    Time,
    Type,
    Whole,
    fields_of,
)
from streamkit.io.formats.shaping import shaper, unshaper

NAMESPACE = "streamkit.v1"
_SINGLE_OBJECT = b"\xc3\x01"
_START = datetime(1970, 1, 1, tzinfo=UTC)


def record_schema(send: str) -> dict[str, Any]:
    """Return the Avro schema of an emitter's records with `send`: frames, objects or events."""
    return {"namespace": NAMESPACE, **_group(RECORDS[send], set())}


def _group(group: Group, known: set[str]) -> Any:
    """Return the record's schema on first use, and only its name later, as Avro requires."""
    if group.name in known:
        return group.name
    known.add(group.name)
    fields = [_field(field, known) for field in fields_of(group)]
    return {"type": "record", "name": group.name, "doc": group.help, "fields": fields}


def _field(field: Field, known: set[str]) -> dict[str, Any]:
    made = _type(field.type, known)
    if field.required:
        return {"name": field.name, "doc": field.help, "type": made}
    return {"name": field.name, "doc": field.help, "type": ["null", made], "default": None}


def _type(type_: Type, known: set[str]) -> Any:
    match type_:
        case Whole(bits=bits):
            return "int" if bits == 32 else "long"
        case Number():
            return "double"
        case Flag():
            return "boolean"
        case Time():
            return {"type": "long", "logicalType": "timestamp-millis"}
        case JpegImage():
            return "bytes"
        case Several(of=of):
            return {"type": "array", "items": _type(of, known)}
        case ByName(of=of):
            return {"type": "map", "values": _type(of, known)}
        case Group():
            return _group(type_, known)
        case Text() | _:
            return "string"


def _package() -> Any:
    try:
        import fastavro
        import fastavro.schema
    except ImportError as error:
        raise MissingPackage("fastavro", "avro", "format: avro") from error
    return fastavro


def encoder(send: str) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that encodes a record as Avro binary; it raises ValueError for other kinds of records.

    Raises:
        MissingPackage: fastavro is not installed.
    """
    package = _package()
    schema, shape = package.parse_schema(record_schema(send)), shaper(RECORDS[send])

    def encode(record: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        package.schemaless_writer(out, schema, shape(record))
        return out.getvalue()

    return encode


def decoder(send: str) -> Callable[[bytes], dict[str, Any]]:
    """Return a function that decodes a record that `encoder` encoded. Raises MissingPackage."""
    package = _package()
    schema, unshape = package.parse_schema(record_schema(send)), unshaper(RECORDS[send], moment=_ms)
    return lambda data: unshape(package.schemaless_reader(io.BytesIO(data), schema, None))


def single_object_prefix(send: str) -> bytes:
    """Return the prefix of Avro's single-object encoding: a marker and the schema's fingerprint."""
    package = _package()
    canonical = package.schema.to_parsing_canonical_form(record_schema(send))
    return _SINGLE_OBJECT + bytes.fromhex(package.schema.fingerprint(canonical, "CRC-64-AVRO"))


def _ms(moment: datetime) -> int:
    return (moment - _START) // timedelta(milliseconds=1)
