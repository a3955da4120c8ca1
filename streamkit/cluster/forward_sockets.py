# SPDX-License-Identifier: Apache-2.0
"""Passes on the live video and the records that nodes send, over one WebSocket to each node for each client.

Messages are passed on one by one: while a client is slow to read, the nodes wait for it, and drop what is too much.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import urlencode

import anyio
import orjson
from fastapi import APIRouter, Query
from starlette.websockets import WebSocket

from streamkit.cluster.cluster_run import ClusterRun
from streamkit.cluster.head import cluster_run
from streamkit.cluster.ray_nodes import NodeHandle
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.event_models import EventView
from streamkit.serve.guard import API
from streamkit.serve.live_sockets import VideoChoice, send
from streamkit.serve.routes.common import reply
from streamkit.serve.routes.live import refuse, serve
from streamkit.serve.store.event_table import StoredEvent

_ANSWER_S = 30.0
_POLL_S = 0.25
_MAX_EVENTS = 200


def add_sockets(api: APIRouter, engine: ServeEngine) -> None:
    """Add the WebSockets of a cluster; the engine's pipeline is a `ClusterPipeline`."""

    @api.websocket("/videos")
    async def videos(socket: WebSocket) -> None:
        choice = VideoChoice()
        await serve(socket, lambda: _send_videos(engine, socket, choice), choice.read)

    @api.websocket("/records")
    async def records(
        socket: WebSocket, source: Annotated[list[str] | None, Query()] = None, batch: bool = False
    ) -> None:
        try:
            for id_ in source or ():
                engine.state(id_)
        except RequestRejected as error:
            await refuse(socket, error)
            return
        await serve(socket, lambda: _send_records(engine, socket, source, batch))


async def _follow_nodes(
    running: ClusterRun, wanted: Callable[[NodeHandle], list[str]], follow: Callable[[NodeHandle], Awaitable[None]]
) -> None:
    """Follow each node of which sources are wanted, and again when `follow` has returned, until the run stops."""
    from websockets.exceptions import WebSocketException

    followed = set[NodeHandle]()

    async def task(node: NodeHandle) -> None:
        try:
            await follow(node)
        except (OSError, TimeoutError, WebSocketException):  # the node is lost, or does not have a source yet
            await anyio.sleep(_POLL_S)
        finally:
            followed.discard(node)

    async with anyio.create_task_group() as group:
        while not running.stopping:
            for node in running.ready_nodes():
                if node not in followed and wanted(node):
                    followed.add(node)
                    group.start_soon(task, node)
            await anyio.sleep(_POLL_S)
        group.cancel_scope.cancel()


def _connected(node: NodeHandle, path: str) -> Any:
    """An open WebSocket of a node, as a context manager."""
    from websockets.asyncio.client import connect

    url = node.url.replace("http", "ws", 1)
    headers = {"authorization": f"Bearer {node.token}"}
    return connect(
        f"{url}{API}/{path}",
        additional_headers=headers,
        max_size=None,
        compression=None,
        proxy=None,
        open_timeout=_ANSWER_S,
    )


async def _received(opened: Any) -> Any:
    """The next message of a node; None if there is none for a while."""
    with anyio.move_on_after(_POLL_S):
        return await opened.recv()
    return None


# -------------------------------------------------------------------------------------------------------------- videos


async def _send_videos(engine: ServeEngine, socket: WebSocket, choice: VideoChoice) -> None:
    """Send the chosen videos of all nodes, and tell which sources there are not."""
    running = cluster_run(engine)

    def wanted(node: NodeHandle) -> list[str]:
        of_node = set(running.sources.of(node))
        return [id_ for id_ in choice.sources if id_ in of_node and engine.rights.sees(id_)]

    async def follow(node: NodeHandle) -> None:
        subscribed: list[str] = []
        async with _connected(node, "videos") as opened:
            while sources := wanted(node):
                if sources != subscribed:
                    subscribed = sources
                    await opened.send(orjson.dumps({"sources": sources}).decode())
                if (message := await _received(opened)) is not None:
                    await send(socket, message)

    async with anyio.create_task_group() as group:
        group.start_soon(_refuse_unknown, engine, socket, choice)
        await _follow_nodes(running, wanted, follow)
        group.cancel_scope.cancel()


async def _refuse_unknown(engine: ServeEngine, socket: WebSocket, choice: VideoChoice) -> None:
    """Tell which of the chosen sources no node has, once until the client leaves them out."""
    refused = set[str]()
    while True:
        refused &= set(choice.sources)
        for source in set(choice.sources) - refused:
            try:
                engine.state(source)
            except RequestRejected as error:
                refused.add(source)
                await send(socket, orjson.dumps([{"source": source, "error": error.text}]).decode())
        await anyio.sleep(_POLL_S)


# ------------------------------------------------------------------------------------------------------------- records


async def _send_records(engine: ServeEngine, socket: WebSocket, chosen: list[str] | None, batch: bool) -> None:
    """Send the records of all nodes, and the events as the head numbers them."""
    running = cluster_run(engine)

    def wanted(node: NodeHandle) -> list[str]:
        wanted_ids = [id_ for id_ in running.sources.of(node) if chosen is None or id_ in chosen]
        return [id_ for id_ in wanted_ids if engine.rights.sees(id_)]

    async def follow(node: NodeHandle) -> None:
        sources = wanted(node)
        query = urlencode([*(("source", id_) for id_ in sources), ("batch", str(batch).lower())])
        async with _connected(node, f"records?{query}") as opened:
            while wanted(node) == sources:
                message = await _received(opened)
                if message is not None and not message.startswith('{"event":'):  # it has the node's own number
                    await send(socket, message)

    async with anyio.create_task_group() as group:
        group.start_soon(_send_events, engine, socket, chosen)
        await _follow_nodes(running, wanted, follow)
        group.cancel_scope.cancel()


async def _send_events(engine: ServeEngine, socket: WebSocket, chosen: list[str] | None) -> None:
    """Send each new event."""
    gallery = engine.gallery
    last = gallery.last_event
    while True:
        for gallery_event in reversed(gallery.events(_MAX_EVENTS, after=last)):
            last = max(last, gallery_event.number)
            source = gallery_event.event.source
            if (chosen is None or source in chosen) and engine.rights.sees(source):
                view = EventView.of(StoredEvent.unwritten(gallery_event), redacted=engine.rights.redacted)
                await send(socket, bytes(reply({"event": view}).body).decode())
        await anyio.sleep(_POLL_S)
