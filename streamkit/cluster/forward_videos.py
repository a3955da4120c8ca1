# SPDX-License-Identifier: Apache-2.0
"""Passes on the videos that a client chooses, over one WebSocket to each node that reads some of their sources."""

from __future__ import annotations

import json
from typing import Any

import anyio
from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from streamkit.cluster.node_sockets import connected
from streamkit.cluster.ray_nodes import NodeHandle
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.guard import API
from streamkit.serve.live_sockets import VideoChoice
from streamkit.serve.routes.live import serve

_POLL_S = 0.25


def add_videos(api: APIRouter, engine: ServeEngine) -> None:
    """Add the WebSocket of the live view."""

    @api.websocket("/live")
    async def videos(socket: WebSocket) -> None:
        choice = VideoChoice()
        await serve(socket, lambda: _send_videos(engine, socket, choice), choice.read)


async def _send_videos(engine: ServeEngine, socket: WebSocket, choice: VideoChoice) -> None:
    """Follow each node that reads a chosen source, and tell the client which sources there are not."""
    try:
        await _pass_on(engine, engine.running, socket, choice)
    except* (WebSocketDisconnect, RuntimeError, OSError):  # it left
        pass


async def _pass_on(engine: ServeEngine, running: Any, socket: WebSocket, choice: VideoChoice) -> None:
    followed, unknown = set[NodeHandle](), set[str]()

    async def follow(node: NodeHandle) -> None:
        try:
            await _videos_of(running, socket, node, choice)
        finally:
            followed.discard(node)

    async with anyio.create_task_group() as group:
        while not running.stopping:
            unknown &= set(choice.sources)
            for source in choice.sources:
                if source in unknown:
                    continue
                try:
                    engine.state(source)
                except RequestRejected as error:
                    unknown.add(source)
                    await socket.send_text(json.dumps([{"source": source, "error": error.text}]))
            for node in running.ready_nodes():
                if node not in followed and _chosen_of(running, node, choice):
                    followed.add(node)
                    group.start_soon(follow, node)
            await anyio.sleep(_POLL_S)
        group.cancel_scope.cancel()


def _chosen_of(running: Any, node: NodeHandle, choice: VideoChoice) -> list[str]:
    """The sources of a node that a client has chosen."""
    of_node = set(running.sources.of(node))
    return [id_ for id_ in choice.sources if id_ in of_node]


async def _videos_of(running: Any, socket: WebSocket, node: NodeHandle, choice: VideoChoice) -> None:
    """Pass a node's messages on as they are, until it leaves or none of its sources is chosen."""
    from websockets.exceptions import WebSocketException

    asked: list[str] = []
    try:
        async with connected(node, f"{API}/live") as found:
            while chosen := _chosen_of(running, node, choice):
                if chosen != asked:
                    asked = chosen
                    await found.send(json.dumps({"sources": chosen}))
                with anyio.move_on_after(_POLL_S):
                    while True:
                        message = await found.recv()
                        await (socket.send_text(message) if isinstance(message, str) else socket.send_bytes(message))
    except (OSError, TimeoutError, WebSocketException):  # the node is lost; its sources move
        await anyio.sleep(_POLL_S)
