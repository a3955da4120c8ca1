# SPDX-License-Identifier: Apache-2.0
"""The address that a connection comes from, also where a proxy names its client in `X-Forwarded-For`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_KEY = "streamkit.peer"


class KeepPeer:
    """ASGI middleware that keeps the address of the connection before a proxy's headers replace it.

    Args:
        app: the application.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Handle one request, or one WebSocket."""
        scope[_KEY] = (scope.get("client") or ("",))[0]
        await self._app(scope, receive, send)


def peer_of(scope: MutableMapping[str, Any]) -> str:
    """The address of the connection; empty if the server does not tell it."""
    return str(scope.get(_KEY, ""))
