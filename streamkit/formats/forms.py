"""The forms of the records' schema as texts, and the files of docs/schema that hold them."""

from __future__ import annotations

import json

from streamkit.formats import avro, json_schema, protobuf
from streamkit.formats.description import RECORDS


def form(name: str, send: str = "frames") -> str:
    """The schema as a text, without a newline at its end.

    Args:
        name: json, avro or proto.
        send: for Avro, whose schemas are of one record each: frames, objects or events.
    """
    if name == "proto":
        return protobuf.proto().rstrip("\n")
    return json.dumps(json_schema.record_schema() if name == "json" else avro.record_schema(send), indent=2)


def files() -> dict[str, str]:
    """The files that are checked in, by their names."""
    avros = {f"streamkit-1.{send}.avsc": form("avro", send) for send in RECORDS}
    made = {"streamkit-1.schema.json": form("json"), **avros, protobuf.FILE: form("proto")}
    return {name: f"{text}\n" for name, text in made.items()}
