"""Markdown tables, and the types of JSON Schema in words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from streamkit.config.describe import cell

Link = Callable[[str], str]
"""The Markdown for a reference to a named schema."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; signs that Markdown would interpret are escaped, except in code spans and links."""
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    lines += [f"| {' | '.join(cell(' '.join(text.split())) for text in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def page_links(text: str, docs: str) -> str:
    """A text with a link in place of each `docs/PAGE.md`; `docs` is the way to that folder, such as `../`."""
    return re.sub(r"\bdocs/([\w-]+)\.md", lambda match: f"[{match[1].replace('-', ' ')}]({docs}{match[1]}.md)", text)


def type_of(schema: Mapping[str, Any], link: Link = lambda name: name) -> str:
    """The type of a JSON Schema: `whole number 1..500`, `list of text`, `a | b`, `text or null`."""
    if "$ref" in schema:
        return link(str(schema["$ref"]).rpartition("/")[2])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(type_of(alternative, link) for alternative in several))
    if isinstance(kind := schema.get("type"), list):
        return " or ".join(type_of({**schema, "type": type_name}, link) for type_name in kind)
    if kind == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(type_of(element, link) for element in schema['prefixItems'])}]"
        return f"list of {type_of(schema.get('items', {}), link)}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"mapping to {type_of(values, link)}" if isinstance(values, dict) and values else "mapping"
    if kind in ("number", "integer"):
        return f"{'number' if kind == 'number' else 'whole number'}{_range(schema)}"
    if kind == "string":
        return "date and time" if schema.get("format") == "date-time" else "text"
    return {"boolean": "true | false", "null": "null"}.get(str(kind), "anything")


def json_text(content: Any, indent: str = "") -> str:
    """JSON with lines of at most 100 characters, where that is possible."""
    flat = json.dumps(content, ensure_ascii=False)
    if len(indent) + len(flat) <= 100 or not isinstance(content, (dict, list)):
        return flat
    deeper = f"{indent}  "
    if isinstance(content, dict):
        parts = [f"{json.dumps(key)}: {json_text(child, deeper)}" for key, child in content.items()]
    else:
        parts = [json_text(child, deeper) for child in content]
    inner = f",\n{deeper}".join(parts)
    opening, closing = "{}" if isinstance(content, dict) else "[]"
    return f"{opening}\n{deeper}{inner}\n{indent}{closing}"


_LARGE = 2**31 - 1


def _range(schema: Mapping[str, Any]) -> str:
    """The limits of a number, if they are not those of its storage."""
    lowest = schema.get("minimum")
    highest = schema.get("maximum")
    lowest = None if lowest is not None and lowest < -_LARGE else lowest
    highest = None if highest is not None and highest >= _LARGE else highest
    if lowest is None and highest is None:
        return ""
    if highest is None:
        return f" from {lowest:g}"
    return f" up to {highest:g}" if lowest is None else f" {lowest:g}..{highest:g}"
