# SPDX-License-Identifier: Apache-2.0
"""Connection limits: how many connections there may be, and how long a client may take.

uvicorn keeps a connection for as long as its client likes. Here a client has deadlines for sending a request and for
reading the response; if all connections are in use, the one that has waited longest for its client is closed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from streamkit.core.counters import Counters
from streamkit.serve.live import MAX_VIEWERS
from streamkit.serve.request_id import HEADER, new_request_id

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    import asyncio

MAX_CONNECTIONS = 256
"""Maximum number of connections."""

MAX_MESSAGE_BYTES = 65_536
"""Maximum size of a message that a client sends over a WebSocket: the ids of the sources that it wants."""

_MIN_CONNECTIONS = 8
_LOG_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for clients.

    Attributes:
        connections: maximum number of connections.
        send_s: seconds for all headers of a request, and again for its body.
        read_s: seconds for which a client may stop reading while a response is pending.
    """

    connections: int = MAX_CONNECTIONS
    send_s: float = 10.0
    read_s: float = 30.0

    @property
    def viewers(self) -> int:
        """Maximum number of live streams: the other half of the connections stays free."""
        return min(MAX_VIEWERS, self.connections // 2)


def allowed_connections(wanted: int = MAX_CONNECTIONS) -> int:
    """Limit connections to a quarter of the files that this process may open: the pipeline needs the rest."""
    try:
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError):  # not Unix: there is no such limit
        return wanted
    return wanted if files == resource.RLIM_INFINITY else max(_MIN_CONNECTIONS, min(wanted, files // 4))


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 connection, with deadlines and a limit on the number of connections.

    Args:
        limits: limits for clients.
        refused: counts closed connections, by cause.
        given: uvicorn's arguments for a connection.
    """

    def __init__(self, *, limits: Limits, refused: Counters, **protocol_options: Any) -> None:
        super().__init__(**protocol_options)
        self._limits = limits
        self._refused = refused
        self._phase: object = None
        self._deadline: asyncio.TimerHandle | None = None
        self._read_deadline: asyncio.TimerHandle | None = None
        self._since_s = 0.0
        self._aborted = False

    @property
    def waits_for_client(self) -> bool:
        """Whether the server waits for the client: for the rest of a request, or for it to read a response."""
        return self._deadline is not None or self._read_deadline is not None or self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the client; at the limit, close the connection that has waited longest for its client."""
        super().connection_made(transport)
        here = [
            connection
            for connection in self.connections
            if isinstance(connection, Connection) and not connection._aborted
        ]
        if len(here) > self._limits.connections:
            waiting = [connection for connection in here if connection is not self and connection.waits_for_client]
            min(waiting, key=lambda connection: connection._since_s, default=self)._abort("too many connections")
        if not self._aborted:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        for timer in (self._deadline, self._read_deadline):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reset the deadline when the request has reached its next part."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Start the deadline of the next request."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        super().pause_writing()
        if self._read_deadline is None:
            self._read_deadline = self.loop.call_later(self._limits.read_s, self._abort, "answer not read")

    def resume_writing(self) -> None:
        """Cancel the deadline for a client that reads again."""
        super().resume_writing()
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None

    def send_400_response(self, msg: str) -> None:
        """Reject a request that is not HTTP, and count it."""
        self._refused.add("not HTTP")
        self._reject(400, msg)

    def _watch(self) -> None:
        """Set a deadline for each part of a request, regardless of what the client sends in between."""
        state = self.conn.their_state
        upgraded = self.transport.get_protocol() is not self  # a WebSocket, which has pings in place of deadlines
        phase = (state, id(self.cycle)) if state in (h11.IDLE, h11.SEND_BODY) and not upgraded else None
        if phase == self._phase:
            return
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if phase is not None and not self.transport.is_closing():
            self._since_s = self.loop.time()
            words = "headers" if state is h11.IDLE else "body"
            self._deadline = self.loop.call_later(self._limits.send_s, self._on_deadline, words)

    def _on_deadline(self, part: str) -> None:
        if self.transport.is_closing():
            return
        self._refused.add(f"{part} too slow")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # no response has started
            self._reject(408, f"the {part} of a request must arrive within {self._limits.send_s:g} seconds")
        self.transport.close()

    def _reject(self, status: int, text: str) -> None:
        """Respond without the application, and close the connection."""
        id_ = new_request_id()
        body = orjson.dumps({"error": text, "request_id": id_})
        headers = [("content-type", "application/json"), ("connection", "close"), (HEADER, id_)]
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _abort(self, why: str) -> None:
        self._refused.add(why)
        self._aborted = True
        self.transport.abort()


class SocketConnection(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket; a refusal with a response completes the handshake, too.

    Otherwise uvicorn logs an error for each refusal, and fails at the end of the server while a client is slow.
    """

    async def send(self, message: Any) -> None:
        """Send a message of the application."""
        await super().send(message)
        self.handshake_complete = self.handshake_complete or self.close_sent


def failed_accepts(refused: Counters) -> Callable[[asyncio.AbstractEventLoop, Any], None]:
    """An event loop's error handler that counts failed accepts, and logs a message at most once a minute.

    Args:
        refused: counts connections that could not be accepted.
    """
    logged_s = -_LOG_EVERY_S

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged_s
        if not str(context.get("message", "")).startswith("socket.accept()"):
            loop.default_exception_handler(context)
            return
        refused.add("not accepted")
        if (now_s := time.monotonic()) - logged_s >= _LOG_EVERY_S:
            logged_s = now_s
            logger.warning(
                f"the server cannot accept a connection: {context.get('exception')}; {refused['not accepted']} times "
                "so far. Raise the limit of open files, as with ulimit -n 4096, or lower --max-connections"
            )

    return handle
