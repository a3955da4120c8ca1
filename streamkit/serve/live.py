# SPDX-License-Identifier: Apache-2.0
"""Serves images and live streams without a thread for each client."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from streamkit.runtime.preview.gallery import Thumbnail
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine

MAX_VIEWERS = 64
"""Maximum number of live streams at the same time."""

_WAIT_S = 2.0
_POLL_S = 0.05
_MAX_AGE_S = 0.5


class Watchers:
    """Serves the gallery's images.

    Args:
        engine: the pipeline.
        most: maximum number of live streams watched at once.
    """

    def __init__(self, engine: ServeEngine, max_streams: int = MAX_VIEWERS) -> None:
        self._engine = engine
        self._max_streams = max_streams
        self._streams = 0

    async def image(self, source: str) -> Thumbnail:
        """Wait for the newest image of a source, at most half a second old.

        Raises:
            RequestRejected: there is no such source, or no image within two seconds.
        """
        gallery = self._engine.gallery
        until_s = time.monotonic() + _WAIT_S
        while True:
            self._engine.state(source)
            gallery.request(source)
            thumbnail = gallery.newest(source)
            now_s = time.monotonic()
            if thumbnail is not None and now_s - thumbnail.created_s <= _MAX_AGE_S:
                return thumbnail
            if now_s >= until_s or self._engine.running.stopping:
                break
            await anyio.sleep(_POLL_S)
        if thumbnail is not None:
            return thumbnail
        state = self._engine.source(source)
        reason = f": {state.message}" if state.message else ""
        raise RequestRejected(503, f"there is no image of {source}: the source is {state.state}{reason}")

    def stream(self, source: str, disconnected: Callable[[], Awaitable[bool]]) -> LiveResponse:
        """The source's images as the parts of a multipart response, until the source is removed or the client leaves.

        Args:
            source: the source's id.
            disconnected: returns whether the client has disconnected.

        Raises:
            RequestRejected: there is no such source, or the limit of streams is reached.
        """
        self._engine.state(source)
        self.admit()  # counted before the first image: otherwise many could start at once
        return LiveResponse(self._parts(source, disconnected), self.release)

    def admit(self) -> None:
        """Count one more live stream; call `release` at its end. Raises RequestRejected if the limit is reached."""
        if self._streams >= self._max_streams:
            raise RequestRejected(429, f"the maximum of {self._max_streams} live streams is reached; close one of them")
        self._streams += 1

    def release(self) -> None:
        """Count one live stream less."""
        self._streams -= 1

    async def _parts(self, source: str, disconnected: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
        shown = 0
        gallery = self._engine.gallery
        running = self._engine.running
        while not running.stopping and not await disconnected():
            state = running.states.get(source)
            if state is None or state.removed or not self._engine.rights.sees(source):
                return
            gallery.request(source)
            thumbnail = gallery.newest(source)
            if thumbnail is not None and thumbnail.number != shown:
                shown = thumbnail.number
                head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(thumbnail.jpeg)}\r\n\r\n"
                yield head.encode() + thumbnail.jpeg + b"\r\n"
            await anyio.sleep(_POLL_S)


class LiveResponse(StreamingResponse):
    """A multipart response of JPEG images.

    Args:
        parts: the parts of the response.
        left: called once when the response has ended for any reason, also before the first part.
    """

    media_type = "multipart/x-mixed-replace; boundary=frame"

    def __init__(self, parts: AsyncIterator[bytes], left: Callable[[], None]) -> None:
        super().__init__(parts)
        self._release = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts, then call `left`."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()


class EventStream(LiveResponse):
    """A response of server-sent events."""

    media_type = "text/event-stream"
