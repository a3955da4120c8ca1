"""The record schemas as texts, and the files of docs/schema that contain them."""

from __future__ import annotations

import json

from streamkit.io.formats import avro, json_schema, protobuf
from streamkit.io.formats.description import RECORDS


def form(name: str, send: str = "frames") -> str:
    """Return the schema as a text, without a newline at its end.

    Args:
        name: json, avro or proto.
        send: for Avro, which has a schema per kind of record: frames, objects or events.
    """
    if name == "proto":
        return protobuf.proto().rstrip("\n")
    return json.dumps(json_schema.record_schema() if name == "json" else avro.record_schema(send), indent=2)


def files() -> dict[str, str]:
    """Return the content of the checked-in files by name."""
    avros = {f"streamkit-1.{send}.avsc": form("avro", send) for send in RECORDS}
    made = {"streamkit-1.schema.json": form("json"), **avros, protobuf.FILE: form("proto")}
    return {name: f"{text}\n" for name, text in made.items()}
