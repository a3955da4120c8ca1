# SPDX-License-Identifier: Apache-2.0
"""Live video and records over WebSockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query, WebSocket
from starlette.websockets import WebSocketDisconnect

from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.live import Watchers
from streamkit.serve.live_sockets import VideoChoice, send_records, send_videos
from streamkit.serve.routes.common import error_reply


def add_live(api: APIRouter, engine: ServeEngine, watchers: Watchers) -> None:
    """Add the WebSockets of live video and records; OpenAPI does not describe WebSockets, docs/serving-api.md does."""

    @api.websocket("/videos")
    async def videos(socket: WebSocket) -> None:
        """The videos of the sources that the client names, as fragmented MP4 for Media Source Extensions."""
        choice = VideoChoice()
        await serve(socket, lambda: send_videos(engine, watchers, choice, socket), choice.read)

    @api.websocket("/records")
    async def records(
        socket: WebSocket, source: Annotated[list[str] | None, Query()] = None, batch: bool = False
    ) -> None:
        """The record of each frame of these sources, or of all, and the events."""
        try:
            for id_ in source or ():
                engine.state(id_)
            with _admitted(watchers):
                ids = frozenset(source) if source else None
                await serve(socket, lambda: send_records(engine, ids, socket, batch=batch))
        except RequestRejected as error:
            await refuse(socket, error)


@contextmanager
def _admitted(watchers: Watchers) -> Iterator[None]:
    watchers.admit()
    try:
        yield
    finally:
        watchers.release()


async def serve(
    socket: WebSocket, send: Callable[[], Awaitable[Any]], received: Callable[[str], None] = lambda text: None
) -> None:
    """Accept a client, and send to it until `send` is done or the client leaves.

    Args:
        socket: the client.
        send: sends to it.
        received: called with each text that it sends; raises ValueError, with the reason, to close the connection.
    """
    await socket.accept()

    async def receives() -> None:
        while (message := await socket.receive())["type"] != "websocket.disconnect":
            try:
                received(message.get("text") or "")
            except ValueError as error:
                with suppress(WebSocketDisconnect, RuntimeError, OSError):
                    await socket.close(1008, str(error))
                break
        group.cancel_scope.cancel()

    async def sends() -> None:
        try:
            await send()
            await socket.close(1001)
        except* (WebSocketDisconnect, RuntimeError, OSError):  # it left, or reads nothing
            pass
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(receives)
        group.start_soon(sends)


async def refuse(socket: WebSocket, error: RequestRejected) -> None:
    """Reject a WebSocket before it is accepted."""
    await socket.send_denial_response(error_reply(error.text, error.status))
