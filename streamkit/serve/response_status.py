# SPDX-License-Identifier: Apache-2.0
"""The status of a response, for middleware that needs it once the response is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any


class StatusWatcher:
    """An ASGI `send` that passes messages on.

    Args:
        send: receives the messages.

    Attributes:
        status: of the response; 500 until it begins, as for an application that fails before.
    """

    def __init__(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        self._send = send
        self.status = 500

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)
