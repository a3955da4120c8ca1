"""Decodes Avro and Protobuf records, to show that encoding loses nothing."""

import base64
import io
from datetime import UTC, datetime, timedelta

import fastavro
import orjson

from streamkit.io.formats import avro, protobuf
from streamkit.io.formats.description import (
    ANYTHING,
    EXTRA,
    JPEG,
    NUMBER,
    RECORDS,
    TIME,
    ByName,
    Group,
    Scalar,
    Several,
    fields_of,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decoder(format_, send):
    """Return a function that decodes an encoded record of a format."""
    group = RECORDS[send]
    restore = _restorer(group)
    if format_ == "avro":
        schema = fastavro.parse_schema(avro.record_schema(send))
        return lambda data: restore(fastavro.schemaless_reader(io.BytesIO(data), schema, None))
    message = protobuf.message_class(send)
    return lambda data: restore(_values(message.FromString(data), group))


def _restorer(type_):
    """A function that converts typed values back to JSON's; None and absent values are omitted."""
    match type_:
        case Several(of=of):
            restore_element = _restorer(of)
            return lambda value: [restore_element(each) for each in value]
        case ByName(of=of):
            restore_element = _restorer(of)
            return lambda value: {key: restore_element(each) for key, each in value.items()}
        case Group(fields=fields):
            parts = [(field.name, _restorer(field.type)) for field in fields]
            if type_.row:
                return lambda value: [part(value[name]) for name, part in parts]

            def restore(value):
                fields = {name: part(value[name]) for name, part in parts if value.get(name) is not None}
                extra = None if type_.closed else value.get(EXTRA.name)
                return fields if extra is None else {**fields, **orjson.loads(extra)}

            return restore
        case Scalar():
            return {
                NUMBER: lambda value: None if value != value else value,
                TIME: lambda value: value.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                JPEG: lambda value: base64.b64encode(value).decode(),
                ANYTHING: orjson.loads,
            }.get(type_, lambda value: value)


def _values(message, group):
    """Return the fields of a Protobuf message that have a value."""
    fields = {}
    for field in fields_of(group):
        value = getattr(message, field.name)
        of = getattr(field.type, "of", field.type)
        convert = (lambda each: _values(each, of)) if isinstance(of, Group) else lambda each: each  # noqa: B023
        if isinstance(field.type, Several | ByName):
            if not value and not field.required:
                continue
            is_map = isinstance(field.type, ByName)
            fields[field.name] = (
                {key: convert(value[key]) for key in value} if is_map else [convert(each) for each in value]
            )
        elif field.type is TIME:
            if message.HasField(field.name):
                ms = value.seconds * 1000 + value.nanos // 1_000_000
                fields[field.name] = _EPOCH + timedelta(milliseconds=ms)
        elif (field.required and isinstance(field.type, Scalar)) or message.HasField(field.name):
            fields[field.name] = convert(value)
    return fields
