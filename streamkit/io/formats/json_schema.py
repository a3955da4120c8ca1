"""The records' JSON Schema (draft 2020-12)."""

from __future__ import annotations

from typing import Any

from streamkit.core.records import SCHEMA
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
    groups,
)


def record_schema() -> dict[str, Any]:
    """Return the JSON Schema of all records: of frames, objects and events. Further keys are allowed."""
    frame, one_object, event = (_reference(group) for group in RECORDS.values())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "A record of streamkit: of a frame, as jsonl writes it and emitters with send: frames, of an "
        "object (send: objects), or of an event (send: events). Keys may be added; one that is renamed makes "
        "another version.",
        "type": "object",
        "if": {"required": ["object"], "not": {"required": ["objects"]}},
        "then": one_object,
        "else": {"if": {"required": ["event"], "not": {"required": ["objects"]}}, "then": event, "else": frame},
        "$defs": {group.name: _group(group) for group in groups()},
    }


def _reference(group: Group) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{group.name}"}


def _group(group: Group) -> dict[str, Any]:
    if group.row:
        items = [{"description": field.help, **_type(field.type, field.required)} for field in group.fields]
        n = len(items)
        return {
            "description": f"{group.help}: {', '.join(field.name for field in group.fields)}",
            "type": "array", "prefixItems": items, "items": False, "minItems": n, "maxItems": n,
        }  # fmt: skip
    made: dict[str, Any] = {
        "description": group.help,
        "type": "object",
        "required": [field.name for field in group.fields if field.required],
        "properties": {field.name: _field(field) for field in group.fields},
    }
    return {**made, "additionalProperties": False} if group.closed else made


def _field(field: Field) -> dict[str, Any]:
    return {"description": field.help, **_type(field.type, field.required)}


def _type(type_: Type, required: bool) -> dict[str, Any]:
    match type_:
        case Text(only=None):
            return {"type": "string"}
        case Text(only=only):
            return {"const": only}
        case Whole(bits=bits):
            return {"type": "integer", "minimum": -(2 ** (bits - 1)), "maximum": 2 ** (bits - 1) - 1}
        case Number():  # one that is not finite is left out where that may be
            return {"type": ["number", "null"] if required else "number"}
        case Flag():
            return {"type": "boolean"}
        case Time():
            return {"type": "string", "format": "date-time"}
        case JpegImage():
            return {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/jpeg"}
        case Anything():
            return {}
        case Several(of=of):
            return {"type": "array", "items": _type(of, False)}
        case ByName(of=of):
            return {"type": "object", "additionalProperties": _type(of, False)}
        case Group():
            return _reference(type_)
