# SPDX-License-Identifier: Apache-2.0
"""The messages of the run."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from streamkit.core.logs import StoredMessage
from streamkit.core.masking import without_addresses
from streamkit.core.records import as_json
from streamkit.serve import api_models
from streamkit.serve.engine import ServeEngine
from streamkit.serve.live import EventStream
from streamkit.serve.routes.common import LOCKED_ERRORS, VIEWER, errors, reply
from streamkit.serve.token import covers

Level = Literal["info", "warning", "error"]
_FromLevel = Annotated[Level, Query(description="this level and above")]
_After = Annotated[int, Query(ge=0, le=2**53, description="messages with a number above this one")]
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_MAX_FOLLOWERS = 16
_POLL_S = 0.25
_ALIVE_S = 10.0


def add_logs(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes that read the messages of the run."""
    followers = 0
    locked: dict[str, Any] = {"tags": ["pipeline"], "dependencies": VIEWER}

    @api.get("/logs", response_model=list[api_models.LogMessage], responses=errors(*LOCKED_ERRORS, 422), **locked)
    def logs(
        request: Request,
        level: _FromLevel = "info",
        after: _After = 0,
        limit: Annotated[int, Query(ge=1, le=2000, description="maximum number of messages, the latest")] = 2000,
    ) -> Response:
        """The latest messages, oldest first, of this level and above, with a number above `after`; 2,000 are kept.

        For a viewer, their addresses are shortened to the scheme.
        """
        return reply(_readable(engine, request, after, _LEVELS[level])[-limit:])

    @api.get(
        "/logs/stream",
        response_class=Response,
        responses={
            200: {"content": {"text/event-stream": {}}, "description": "Server-sent events, each a message as JSON"},
            **errors(*LOCKED_ERRORS, 422),
            429: {"model": api_models.ErrorResponse, "description": "Too many followers, or too many wrong tokens"},
        },
        **locked,
    )
    async def stream(request: Request, level: _FromLevel = "info", after: _After = 0) -> Response:
        """Follow the messages as server-sent events; `Last-Event-ID` continues after a message."""
        nonlocal followers
        if followers >= _MAX_FOLLOWERS:
            text = f"the maximum of {_MAX_FOLLOWERS} followers of the messages is reached; close one of them"
            raise api_models.RequestRejected(429, text)
        followers += 1

        def left() -> None:
            nonlocal followers
            followers -= 1

        last_id = request.headers.get("last-event-id", "")
        begin = max(after, int(last_id)) if last_id.isdecimal() and len(last_id) < 17 else after
        return EventStream(_events(engine, request, begin, _LEVELS[level]), left)


def _readable(engine: ServeEngine, request: Request, after: int, level: int) -> list[StoredMessage]:
    """Messages as the sender of a request may read them: only operators see the addresses of cameras and brokers.

    Who may see some camera groups only reads the messages that name one of their cameras, and no other.
    """
    messages = engine.messages.messages(after, level)
    if engine.rights.limited:
        messages = [message for message in messages if engine.rights.may_read(message.text)]
    elif covers(request.state.role, "operator"):
        return messages
    return [replace(message, text=without_addresses(message.text)) for message in messages]


async def _events(engine: ServeEngine, request: Request, after: int, level: int) -> AsyncIterator[bytes]:
    """Server-sent events of the messages after one, until the client leaves or the run ends."""
    silent_s = _ALIVE_S  # a comment at once tells the client that it is connected
    while not engine.running.stopping and not await request.is_disconnected():
        messages = _readable(engine, request, after, level)
        if messages:
            after = messages[-1].number
            silent_s = 0.0
            yield b"".join(_event(message) for message in messages)
        elif silent_s >= _ALIVE_S:
            silent_s = 0.0
            yield b": alive\n\n"
        await anyio.sleep(_POLL_S)
        silent_s += _POLL_S


def _event(message: StoredMessage) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (message.number, as_json(message))
