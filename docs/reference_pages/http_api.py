"""Every route of the HTTP API, and the bodies of its requests and responses, from the OpenAPI document.

The examples are those of `docs/http_examples.json`, which `docs/http_examples.py` takes from a running server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reference_pages.idle_server import idle_server
from reference_pages.markdown import json_text, table, type_of
from streamkit.serve.routes.common import ERRORS

EXAMPLES = Path(__file__).resolve().parents[1] / "http_examples.json"
BODIES = "http-bodies.md"
_ROLES = {
    "": "no token",
    "viewer": "a token with the role `viewer`",
    "operator": "a token with the role `operator`",
    "admin": "a token with the role `admin`",
}
_INTRO = """# HTTP API

`streamkit serve` offers this API below `/api/v1`. [Serving](../serving.md) shows how to use it, and the server has the
same description in `/openapi.json` and, to try it out, at `/docs`.

```sh
export A="Authorization: Bearer $STREAMKIT_TOKEN"
curl localhost:8000/api/v1/status
curl -H "$A" -H 'Content-Type: application/json' localhost:8000/api/v1/sources \\
     -d '{"id": "yard", "uri": "rtsp://10.0.0.8/stream1"}'
```

- Send a token as `Authorization: Bearer TOKEN`. A role includes those before it: `viewer`, `operator`, `admin`.
- Bodies are JSON. An error has the body `{"error": "the reason and the fix"}`.
- Requests to change something need a token in every case; some requests to read do not.
"""


def page() -> Iterator[str]:
    """The parts of the page of the routes."""
    yield _INTRO
    yield from _routes(idle_server().document, json.loads(EXAMPLES.read_text(encoding="utf-8")))
    yield from _sockets()


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Every operation: its method, its path and its description."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _routes(document: Mapping[str, Any], examples: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    documented = list(operations(document))
    tags = dict.fromkeys(operation["tags"][0] for _, _, operation in documented)
    yield "## Errors\n"
    yield table(("status", "meaning"), ((str(status), text) for status, text in ERRORS.items()))
    yield "## Requests\n"
    rows = (
        (f"[`{method} {path}`](#{anchor(method, path)})", role_of(operation) or "-", _summary(operation))
        for tag in tags
        for method, path, operation in documented
        if operation["tags"][0] == tag
    )
    yield table(("request", "role", "what it does"), rows)
    for tag in tags:
        yield f"## {tag.capitalize()}\n"
        for method, path, operation in documented:
            if operation["tags"][0] == tag:
                yield from _operation(method, path, operation, examples.get(f"{method} {path}", {}))


def anchor(method: str, path: str) -> str:
    """The anchor of an operation."""
    words = "".join(sign if sign.isalnum() else "-" for sign in path.removeprefix("/api/v1"))
    return "-".join(filter(None, [method.lower(), *words.split("-")]))


def role_of(operation: Mapping[str, Any]) -> str:
    """The least role of the token that a request needs; empty for none."""
    requirements = operation.get("security", ())
    return next((role for requirement in requirements for roles in requirement.values() for role in roles), "")


def _summary(operation: Mapping[str, Any]) -> str:
    return str(operation["description"]).split("\n\n")[0]


def _operation(method: str, path: str, operation: Mapping[str, Any], example: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{method} {path}` {{ #{anchor(method, path)} }}\n"
    yield f"{operation['description']}\n"
    yield f"Needs {_ROLES[role_of(operation)]}.\n"
    parameters = operation.get("parameters", ())
    if parameters:
        yield table(
            ("parameter", "in", "type", "default", "meaning"),
            (
                (
                    f"`{parameter['name']}`",
                    parameter["in"],
                    _parameter_type(parameter["schema"]),
                    _default(parameter),
                    parameter.get("description", ""),
                )
                for parameter in parameters
            ),
        )
    if body := operation.get("requestBody"):
        yield f"Body: {_content(body)}.\n"
    if "request" in example:
        yield f"```json\n{json_text(example['request'])}\n```\n"
    yield from _responses(operation["responses"])
    if "response" in example:
        yield f"```json\n{json_text(example['response'])}\n```\n"


def _parameter_type(schema: Mapping[str, Any]) -> str:
    """The type of a parameter; one that may be left out is not null."""
    several = [alternative for alternative in schema.get("anyOf", ()) if alternative.get("type") != "null"]
    return type_of({"anyOf": several} if several else schema)


def _default(parameter: Mapping[str, Any]) -> str:
    if parameter.get("required"):
        return "required"
    value = parameter["schema"].get("default")
    return "" if value in (None, "", 2**53) else f"`{json.dumps(value)}`"


def _quoted_default(schema: Mapping[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _responses(responses: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What a request returns, and its errors; of an error that means something else than elsewhere, its text."""
    for status, response in sorted(responses.items()):
        if status < "400":
            text = response["description"].replace("Successful Response", "")
            yield f"Returns {status}: {'; '.join(filter(None, [_content(response), text])) or 'no body'}.\n"
    errors = [status for status in sorted(responses) if status >= "400"]
    if errors:
        usual = {str(status): text for status, text in ERRORS.items()}
        texts = {status: responses[status]["description"] for status in errors}
        shown = (status if texts[status] == usual.get(status) else f"{status} ({texts[status]})" for status in errors)
        yield f"[Errors](#errors): {', '.join(shown)}.\n"


def _content(body: Mapping[str, Any]) -> str:
    types = []
    for kind, content in body.get("content", {}).items():
        schema = content.get("schema")
        types.append(type_of(schema, _link) if schema and kind == "application/json" else f"`{kind}`")
    return " or ".join(types)


def _link(name: str) -> str:
    return f"[{name}]({BODIES}#{name.lower()})"


def _sockets() -> Iterator[str]:
    """The WebSockets, which an OpenAPI document cannot describe."""
    yield "## WebSockets\n"
    yield "They need a token with the role `viewer`, and are opened from this server's own pages or without `Origin`.\n"
    rows = ((f"`{path}`", text) for path, text in idle_server().sockets)
    yield table(("path", "messages"), rows)
    yield "[Live video](../serving.md) describes the messages.\n"


def bodies_page() -> Iterator[str]:
    """The parts of the page of the bodies."""
    yield "# HTTP bodies\n"
    yield "What the requests of the [HTTP API](http-api.md) take and return.\n"
    for name, schema in sorted(idle_server().document["components"]["schemas"].items()):
        yield f"## {name}\n"
        yield f"{schema.get('description', '')}\n"
        required = schema.get("required", ())
        rows = (
            (
                f"`{key}`",
                type_of(property_schema, lambda other: f"[{other}](#{other.lower()})"),
                "required" if key in required else _quoted_default(property_schema),
            )
            for key, property_schema in schema.get("properties", {}).items()
        )
        yield table(("key", "type", "default"), rows)
