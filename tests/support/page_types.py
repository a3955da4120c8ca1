"""The types of the API's answers for the page's modules, made from the OpenAPI document."""

from typing import Any

HEAD = """// The answers of the API, made from its OpenAPI document by tests/serve/test_page_types.py. To write it:
// STREAMKIT_WRITE=1 python -m pytest tests/serve/test_page_types.py
"""
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def types_of(document: dict[str, Any]) -> str:
    """A TypeScript declaration file with an interface for each object of the document."""
    schemas = document["components"]["schemas"]
    return HEAD + "".join(f"\n{_declared(name, schema)}" for name, schema in sorted(schemas.items()))


def _declared(name: str, schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return f"export type {name} = {_type(schema)};\n"
    required = set(schema.get("required", ()))
    lines = [
        f"  {key}{'' if key in required else '?'}: {_type(property_schema)};"
        for key, property_schema in schema["properties"].items()
    ]
    return "\n".join([f"export interface {name} {{", *lines, "}", ""])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(
            f'"{literal}"' if isinstance(literal, str) else str(literal).lower() for literal in schema["enum"]
        )
    if "const" in schema:
        return f'"{schema["const"]}"'
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(_type(alternative) for alternative in schema[key])
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_type(element) for element in schema['prefixItems'])}]"
        inner = _type(schema.get("items", {}))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if schema.get("type") == "object":
        more = schema.get("additionalProperties")
        return f"Record<string, {_type(more) if isinstance(more, dict) else 'any'}>"
    return _PLAIN.get(schema.get("type", ""), "any")
