"""What every request and answer passes: bodies have a limit, and answers say how a browser is to treat them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

LARGEST = 1_000_000
"""Bytes of a request's body, at most."""

_PATIENCE = 16 * LARGEST  # so much of a larger one is read, and not kept, so that the sender gets to hear the answer

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """An ASGI middleware.

    Args:
        app: what is behind it.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                added = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in given]
                message["headers"] = [*message["headers"], *added]
                if b"cache-control" not in given:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, guarded)
            return
        body, size, last = bytearray(), 0, False
        while not last and size <= _PATIENCE:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            part = message.get("body", b"")
            size += len(part)
            if size <= LARGEST:
                body += part
            last = not message.get("more_body", False)
        if size > LARGEST:
            await _too_large(guarded)
            return
        left: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replayed() -> Message:
            return left.pop() if left else await receive()

        await self._app(scope, replayed, guarded)


async def _too_large(send: Send) -> None:
    body = orjson.dumps({"error": f"a request's body has at most {LARGEST:,} bytes"})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 413, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
