# SPDX-License-Identifier: Apache-2.0
"""The records' JSON Schema (draft 2020-12), and the schemas of all formats as text."""

from __future__ import annotations

import json
from typing import Any

from streamkit.core.records import SCHEMA
from streamkit.io.formats import avro, protobuf
from streamkit.io.formats.description import NUMBER, RECORDS, ByName, Field, Group, Scalar, Several, Type, groups


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of all records: of frames, objects and events. Further keys are allowed."""
    frame, object_, event = (_type(group) for group in RECORDS.values())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "A record of streamkit: of a frame, as jsonl writes it and emitters with send: frames, of an "
        "object (send: objects), or of an event (send: events). Keys may be added; one that is renamed makes "
        "another version.",
        "type": "object",
        "if": {"required": ["object"], "not": {"required": ["objects"]}},
        "then": object_,
        "else": {"if": {"required": ["event"], "not": {"required": ["objects"]}}, "then": event, "else": frame},
        "$defs": {group.name: _definition(group) for group in groups()},
    }


def _definition(group: Group) -> dict[str, Any]:
    fields = {field.name: _field(field) for field in group.fields}
    if group.row:
        n = len(fields)
        return {
            "description": f"{group.help}: {', '.join(fields)}",
            "type": "array",
            "prefixItems": list(fields.values()),
            "items": False,
            "minItems": n,
            "maxItems": n,
        }
    schema: dict[str, Any] = {
        "description": group.help,
        "type": "object",
        "required": [field.name for field in group.fields if field.required],
        "properties": fields,
    }
    return {**schema, "additionalProperties": False} if group.closed else schema


def _field(field: Field) -> dict[str, Any]:
    null = {"type": ["number", "null"]} if field.type is NUMBER and field.required else {}  # not finite
    return {"description": field.help, **_type(field.type), **null}


def _type(type_: Type) -> dict[str, Any]:
    match type_:
        case Scalar():
            return dict(type_.json)
        case Several(of=of):
            return {"type": "array", "items": _type(of)}
        case ByName(of=of):
            return {"type": "object", "additionalProperties": _type(of)}
        case Group(name=name):
            return {"$ref": f"#/$defs/{name}"}


def form(name: str, send: str = "frames") -> str:
    """Return a schema as text, without a newline at its end.

    Args:
        name: json, avro or proto.
        send: for Avro, which has a schema per kind of record: frames, objects or events.
    """
    if name == "proto":
        return protobuf.proto().rstrip("\n")
    return json.dumps(json_schema() if name == "json" else avro.record_schema(send), indent=2)


def files() -> dict[str, str]:
    """Return the content of the files in docs/schema by name."""
    avros = {f"streamkit-1.{send}.avsc": form("avro", send) for send in RECORDS}
    texts = {"streamkit-1.schema.json": form("json"), **avros, protobuf.FILE: form("proto")}
    return {name: f"{text}\n" for name, text in texts.items()}
