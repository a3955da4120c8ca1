"""Protobuf encoding of records: the .proto for consumers, and the same as a descriptor, without generated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamkit.core.errors import MissingPackage
from streamkit.io.formats.description import (
    RECORDS,
    Anything,
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
    groups,
)
from streamkit.io.formats.shaping import shaper, unshaper

PACKAGE = "streamkit.v1"
FILE = "streamkit-1.proto"
_TIME = "google.protobuf.Timestamp"


def proto() -> str:
    """Return the .proto of all records. The messages of `RECORDS` come first."""
    head = (
        f"// Records of streamkit, schema streamkit/1. Made by: run.py schema --records proto\n"
        f'syntax = "proto3";\n\npackage {PACKAGE};\n\nimport "google/protobuf/timestamp.proto";\n'
    )
    return head + "".join(f"\n{_message_text(group)}" for group in groups())


def _message_text(group: Group) -> str:
    lines = [f"// {group.help}", f"message {group.name} {{"]
    for field in fields_of(group):
        lines += [f"  // {field.help}", f"  {_field_text(field)} {field.name} = {field.number};"]
    return "\n".join([*lines, "}", ""])


def _field_text(field: Field) -> str:
    match field.type:
        case Several(of=of):
            return f"repeated {_name(of)}"
        case ByName(of=of):
            return f"map<string, {_name(of)}>"
        case type_:
            return f"optional {_name(type_)}" if _tells_presence(field) else _name(type_)


def _tells_presence(field: Field) -> bool:
    """Whether a field needs `optional` to distinguish absent from 0; messages, lists and mappings do not."""
    return not field.required and not isinstance(field.type, (Several, ByName, Group, Time))


def _name(type_: Type) -> str:
    match type_:
        case Whole(bits=bits):
            return f"int{bits}"
        case Number():
            return "double"
        case Flag():
            return "bool"
        case Time():
            return _TIME
        case JpegImage():
            return "bytes"
        case Group(name=name):
            return name
        case Text() | Anything() | _:
            return "string"


# ------------------------------------------------------------------------------------------------------------- at work


def message_class(send: str) -> Any:
    """Return the message class of an emitter's records with `send`, built from the description.

    Raises:
        MissingPackage: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
    except ImportError as error:
        raise MissingPackage("protobuf", "protobuf", "format: protobuf") from error
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file_descriptor().SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{RECORDS[send].name}"))


def file_descriptor() -> Any:
    """Return the `FileDescriptorProto` of the .proto."""
    from google.protobuf import descriptor_pb2

    made = descriptor_pb2.FileDescriptorProto(name=FILE, package=PACKAGE, syntax="proto3")
    made.dependency.append("google/protobuf/timestamp.proto")
    for group in groups():
        message = made.message_type.add(name=group.name)
        for field in fields_of(group):
            _describe(message, field)
    return made


def _describe(message: Any, field: Field) -> None:
    is_list, is_map = isinstance(field.type, Several), isinstance(field.type, ByName)
    made = message.field.add(name=field.name, number=field.number, label=3 if is_list or is_map else 1)
    if is_map:
        name = "".join(part.capitalize() for part in field.name.split("_")) + "Entry"
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        _typed(entry.field.add(name="key", number=1, label=1), "string")
        _typed(entry.field.add(name="value", number=2, label=1), _name(field.type.of))  # type: ignore[union-attr]
        made.type, made.type_name = made.TYPE_MESSAGE, f".{PACKAGE}.{message.name}.{name}"
        return
    _typed(made, _name(field.type.of if isinstance(field.type, Several) else field.type))
    if _tells_presence(field):
        made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _typed(made: Any, name: str) -> None:
    scalar = getattr(made, f"TYPE_{name.upper()}", None)
    if scalar is not None:
        made.type = scalar
    else:
        made.type, made.type_name = made.TYPE_MESSAGE, f".{name}" if "." in name else f".{PACKAGE}.{name}"


def encoder(send: str) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that encodes a record as Protobuf; it raises ValueError for other kinds of records.

    Raises:
        MissingPackage: protobuf is not installed.
    """
    message = message_class(send)
    shape = shaper(RECORDS[send], moment=_timestamp, empties=False)
    return lambda record: bytes(message(**shape(record)).SerializeToString())


def decoder(send: str) -> Callable[[bytes], dict[str, Any]]:
    """Return a function that decodes a record that `encoder` encoded. Raises MissingPackage."""
    message, group = message_class(send), RECORDS[send]
    unshape = unshaper(group, moment=lambda time: time.seconds * 1000 + time.nanos // 1_000_000)
    return lambda data: unshape(_values(message.FromString(data), group))


def message_index(send: str) -> bytes:
    """Return the message index of Confluent's wire format: the length of the path and its steps, in zigzag."""
    at = list(RECORDS).index(send)
    return b"\x00" if at == 0 else bytes([2, 2 * at])


def _timestamp(ms: int) -> dict[str, int]:
    return {"seconds": ms // 1000, "nanos": ms % 1000 * 1_000_000}


def _values(message: Any, group: Group) -> dict[str, Any]:
    """Return the fields of a message that have a value."""
    made: dict[str, Any] = {}
    for field in fields_of(group):
        value = getattr(message, field.name)
        match field.type:
            case Several(of=of):
                if value or field.required:
                    made[field.name] = [_values(one, of) for one in value] if isinstance(of, Group) else list(value)
            case ByName(of=of):
                if value or field.required:
                    made[field.name] = {
                        key: _values(value[key], of) if isinstance(of, Group) else value[key] for key in value
                    }
            case Group() as inner:
                if message.HasField(field.name):
                    made[field.name] = _values(value, inner)
            case _:
                if field.required or message.HasField(field.name):
                    made[field.name] = value
    return made
