# SPDX-License-Identifier: Apache-2.0
"""A span for each HTTP request, below the caller's if it sends `traceparent`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers

from streamkit.core.logs import REQUEST_ID
from streamkit.runtime.observe.telemetry import Telemetry, set_error
from streamkit.serve.response_status import StatusWatcher

Message = MutableMapping[str, Any]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestSpans:
    """ASGI middleware that records requests with the attributes of OpenTelemetry's conventions.

    The path is not recorded, only the route: a path may name what a caller may not see.

    Args:
        app: the wrapped application.
        telemetry: creates the spans.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Message, receive: Any, send: Callable[[Message], Awaitable[None]]) -> None:
        """Handle one request; its span ends with the response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "HTTP"
        span = self._telemetry.start_request(method, Headers(scope=scope))
        if not span.is_recording():
            await self._app(scope, receive, send)
            return

        watcher = StatusWatcher(send)
        try:
            await self._app(scope, receive, watcher)
        finally:
            route = getattr(scope.get("route"), "path", "")
            status = watcher.status
            about = {
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "url.scheme": scope.get("scheme", "http"),
                "streamkit.request_id": REQUEST_ID.get(),
            }
            span.update_name(f"{method} {route}".strip())
            span.set_attributes({name: value for name, value in about.items() if value != ""})
            if status >= 500:
                set_error(span, f"status {status}")
            span.end()
