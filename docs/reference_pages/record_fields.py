"""Every field of the records, from the description that all schemas are generated from."""

from __future__ import annotations

from collections.abc import Iterator

from reference_pages.markdown import page_links, table, type_of
from streamkit.core.records import SCHEMA
from streamkit.io.formats.description import RECORDS, Group, groups
from streamkit.io.formats.schemas import json_schema

_SENT = {name: f"emitters with `send: {name}`" for name in RECORDS} | {
    "frames": "`jsonl`, and emitters with `send: frames`"
}


def page() -> Iterator[str]:
    """The parts of the page."""
    return (page_links(part, "../") for part in _parts())


def _parts() -> Iterator[str]:
    yield "# Record fields\n"
    yield (
        f"Every field of the schema `{SCHEMA}`. [Records](../schema.md) has examples and the JSON Schema, Avro and "
        "Protobuf files, whose field numbers are in the column *number*. Records may have further keys, such as a "
        "plugin's columns.\n"
    )
    schemas = json_schema()["$defs"]
    for group in groups():
        yield from _group(group, schemas[group.name])


def _group(group: Group, schema: dict[str, object]) -> Iterator[str]:
    yield f"## {group.name}\n"
    sent = next((f" Sent by {_SENT[name]}." for name, record in RECORDS.items() if record is group), "")
    row = " In JSON, it is a list of these values in this order." if group.row else ""
    yield f"{group.help[:1].upper()}{group.help[1:]}.{sent}{row}\n"
    parts = schema["prefixItems"] if group.row else list(schema["properties"].values())  # type: ignore[attr-defined,call-overload]
    yield table(
        ("field", "type", "present", "number", "meaning"),
        (
            (
                f"`{field.name}`",
                type_of(part, _link),
                "always" if field.required else "optional",
                str(field.number),
                field.help,
            )
            for field, part in zip(group.fields, parts, strict=True)
        ),
    )


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"
