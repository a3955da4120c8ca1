# SPDX-License-Identifier: Apache-2.0
"""The id of each request: in its response, in what is logged meanwhile, in the audit log and in error responses."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from streamkit.core.logs import REQUEST_ID

HEADER = "x-request-id"
"""The header of a request that may bring an id, and of every response."""

_VALID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_RESPONSES = ("http.response.start", "websocket.accept", "websocket.http.response.start")

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


class RequestIds:
    """ASGI middleware that gives each request an id, and each response the header `X-Request-ID`.

    Args:
        app: the wrapped application.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Any, send: Send) -> None:
        """Handle one request, or one WebSocket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        id_ = request_id(scope["headers"])
        REQUEST_ID.set(id_)  # for the rest of the task, in which uvicorn logs what the application raises
        header = (HEADER.encode(), id_.encode())
        denies = "websocket.http.response" in scope.get("extensions", {})
        accepted = scope["type"] == "http"

        async def with_id(message: Message) -> None:
            nonlocal accepted
            if message["type"] == "websocket.close" and not accepted and denies:  # uvicorn's own 403 has no id
                await send({"type": "websocket.http.response.start", "status": 403, "headers": [header]})
                await send({"type": "websocket.http.response.body", "body": b""})
                return
            if message["type"] in _RESPONSES:
                accepted = True
                message["headers"] = [*message.get("headers", []), header]
            await send(message)

        await self._app(scope, receive, with_id)


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The id that a request brings, if it is short and has safe characters only; otherwise a new one."""
    sent_id = next((value for name, value in headers if name.lower() == HEADER.encode()), b"")
    return sent_id.decode() if _VALID.fullmatch(sent_id) else new_request_id()


def new_request_id() -> str:
    """A new id, 16 hexadecimal digits."""
    return secrets.token_hex(8)


def error_body(text: str) -> dict[str, str]:
    """The body of an error response: the text, and the id of the request."""
    return {"error": text, "request_id": REQUEST_ID.get()}
