# SPDX-License-Identifier: Apache-2.0
"""Protobuf encoding of records: the .proto for consumers, and the same as a descriptor, without generated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamkit.core.errors import needs
from streamkit.io.formats.description import (
    RECORDS,
    TIME,
    ByName,
    Field,
    Group,
    Scalar,
    Several,
    fields_of,
    groups,
)
from streamkit.io.formats.shaping import shaper

PACKAGE = "streamkit.v1"
FILE = "streamkit-1.proto"


def proto() -> str:
    """Return the .proto of all records. The messages of `RECORDS` come first."""
    lines = [
        "// Records of streamkit, schema streamkit/1. Made by: streamkit schema --records proto",
        'syntax = "proto3";',
        "",
        f"package {PACKAGE};",
        "",
        'import "google/protobuf/timestamp.proto";',
    ]
    for group in groups():
        lines += ["", f"// {group.help}", f"message {group.name} {{"]
        for field in fields_of(group):
            label, name = _label_and_type(field)
            type_ = f"map<string, {name}>" if label == "map" else f"{label} {name}".strip()
            lines += [f"  // {field.help}", f"  {type_} {field.name} = {field.number};"]
        lines.append("}")
    return "\n".join([*lines, ""])


def _label_and_type(field: Field) -> tuple[str, str]:
    """Return `repeated`, `map`, `optional` or nothing, and the Protobuf type of the field or of its values.

    A field needs `optional` to distinguish absent from 0; messages, lists and mappings do not.
    """
    match field.type:
        case Several(of=Scalar(protobuf=name) | Group(name=name)):
            return "repeated", name
        case ByName(of=Scalar(protobuf=name) | Group(name=name)):
            return "map", name
        case Scalar(protobuf=name) if not field.required and field.type is not TIME:
            return "optional", name
        case Scalar(protobuf=name) | Group(name=name):
            return "", name
        case _:
            raise TypeError(f"{field.name}: Protobuf has no lists of lists")


def message_class(send: str) -> Any:
    """Return the message class of an emitter's records with `send`, built from the description.

    Raises:
        MissingPackage: protobuf is not installed.
    """
    with needs("protobuf", "protobuf", "format: protobuf"):
        from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file_descriptor().SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{RECORDS[send].name}"))


def file_descriptor() -> Any:
    """Return the `FileDescriptorProto` of the .proto."""
    from google.protobuf import descriptor_pb2

    descriptor = descriptor_pb2.FileDescriptorProto(name=FILE, package=PACKAGE, syntax="proto3")
    descriptor.dependency.append("google/protobuf/timestamp.proto")
    for group in groups():
        message = descriptor.message_type.add(name=group.name)
        for field in fields_of(group):
            _describe(message, field)
    return descriptor


def _describe(message: Any, field: Field) -> None:
    label, name = _label_and_type(field)
    if label == "map":
        entry = message.nested_type.add(name=field.name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, **_typed("string"))
        entry.field.add(name="value", number=2, label=1, **_typed(name))
        name = f"{message.name}.{entry.name}"
    many = label in ("repeated", "map")
    field_descriptor = message.field.add(name=field.name, number=field.number, label=3 if many else 1, **_typed(name))
    if label == "optional":
        field_descriptor.proto3_optional = True
        field_descriptor.oneof_index = len(message.oneof_decl)
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
