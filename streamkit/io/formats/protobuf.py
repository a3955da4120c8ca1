"""Protobuf encoding of records: the .proto for consumers, and the same as a descriptor, without generated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamkit.core.errors import MissingPackage
from streamkit.io.formats.description import (
    RECORDS,
    TIME,
    ByName,
    Field,
    Group,
    Scalar,
    Several,
    Type,
    fields_of,
    groups,
)
from streamkit.io.formats.shaping import shaper

PACKAGE = "streamkit.v1"
FILE = "streamkit-1.proto"


def proto() -> str:
    """Return the .proto of all records. The messages of `RECORDS` come first."""
    lines = [
        "// Records of streamkit, schema streamkit/1. Made by: run.py schema --records proto",
        'syntax = "proto3";', "", f"package {PACKAGE};", "", 'import "google/protobuf/timestamp.proto";',
    ]  # fmt: skip
    for group in groups():
        lines += ["", f"// {group.help}", f"message {group.name} {{"]
        for field in fields_of(group):
            lines += [f"  // {field.help}", f"  {_declaration(field)} {field.name} = {field.number};"]
        lines.append("}")
    return "\n".join([*lines, ""])


def _declaration(field: Field) -> str:
    match field.type:
        case Several(of=of):
            return f"repeated {_name(of)}"
        case ByName(of=of):
            return f"map<string, {_name(of)}>"
        case type_:
            return f"optional {_name(type_)}" if _has_presence(field) else _name(type_)


def _has_presence(field: Field) -> bool:
    """Whether a field needs `optional` to distinguish absent from 0; messages, lists and mappings do not."""
    return not field.required and isinstance(field.type, Scalar) and field.type is not TIME


def _name(type_: Type) -> str:
    assert isinstance(type_, (Scalar, Group)), "Protobuf has no lists of lists"
    return type_.protobuf if isinstance(type_, Scalar) else type_.name


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
    label, name = 1, ""
    match field.type:
        case Several(of=of):
            label, name = 3, _name(of)
        case ByName(of=of):
            label, entry = 3, message.nested_type.add(name=field.name.title().replace("_", "") + "Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=1, **_typed("string"))
            entry.field.add(name="value", number=2, label=1, **_typed(_name(of)))
            name = f"{message.name}.{entry.name}"
        case type_:
            name = _name(type_)
    made = message.field.add(name=field.name, number=field.number, label=label, **_typed(name))
    if _has_presence(field):
        made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _typed(name: str) -> dict[str, Any]:
    if name.islower() and "." not in name:
        return {"type": f"TYPE_{name.upper()}"}
    return {"type": "TYPE_MESSAGE", "type_name": f".{name}" if name == TIME.protobuf else f".{PACKAGE}.{name}"}


def encoder(send: str) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that encodes a record as Protobuf; it raises ValueError for other kinds of records.

    Raises:
        MissingPackage: protobuf is not installed.
    """
    message = message_class(send)
    shape = shaper(RECORDS[send], moment=_timestamp, empties=False)
    return lambda record: bytes(message(**shape(record)).SerializeToString())


def message_index(send: str) -> bytes:
    """Return the message index of Confluent's wire format: the length of the path and its steps, in zigzag."""
    at = list(RECORDS).index(send)
    return b"\x00" if at == 0 else bytes([2, 2 * at])


def _timestamp(ms: int) -> dict[str, int]:
    return {"seconds": ms // 1000, "nanos": ms % 1000 * 1_000_000}
