# SPDX-License-Identifier: Apache-2.0
"""The messages of the run."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from streamkit.core.logs import StoredMessage
from streamkit.core.records import as_json
from streamkit.serve import api_models
from streamkit.serve.engine import ServeEngine
from streamkit.serve.live import EventStream
from streamkit.serve.routes.common import LOCKED_ERRORS, VIEWER, errors, reply

Level = Literal["info", "warning", "error"]
_FromLevel = Annotated[Level, Query(description="this level and above")]
_After = Annotated[int, Query(ge=0, le=2**53, description="messages with a number above this one")]
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_MAX_FOLLOWERS = 16
_POLL_S, _ALIVE_S = 0.25, 10.0


def add_logs(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes that read the messages of the run."""
    followers = 0
    locked: dict[str, Any] = {"tags": ["pipeline"], "dependencies": VIEWER}

    @api.get("/logs", response_model=list[api_models.LogMessage], responses=errors(*LOCKED_ERRORS, 422), **locked)
    def logs(
        level: _FromLevel = "info",
        after: _After = 0,
        limit: Annotated[int, Query(ge=1, le=2000, description="maximum number of messages, the latest")] = 2000,
    ) -> Response:
        """The latest messages, oldest first, of this level and above, with a number above `after`; 2,000 are kept."""
        return reply(engine.messages.messages(after, _LEVELS[level])[-limit:])

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

        given = request.headers.get("last-event-id", "")
        begin = max(after, int(given)) if given.isdecimal() and len(given) < 17 else after
        return EventStream(_events(engine, begin, _LEVELS[level], request.is_disconnected), left)


async def _events(
    engine: ServeEngine, after: int, level: int, gone: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Server-sent events of the messages after one, until the client leaves or the run ends."""
    silent_s = _ALIVE_S  # a comment at once tells the client that it is connected
    while not engine.running.stopping and not await gone():
        found = engine.messages.messages(after, level)
        if found:
            after, silent_s = found[-1].number, 0.0
            yield b"".join(map(_event, found))
        elif silent_s >= _ALIVE_S:
            silent_s = 0.0
            yield b": alive\n\n"
        await anyio.sleep(_POLL_S)
        silent_s += _POLL_S


def _event(message: StoredMessage) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (message.number, as_json(message))
