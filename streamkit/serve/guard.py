# SPDX-License-Identifier: Apache-2.0
"""ASGI middleware for every request and response: host and token checks, body size, and security headers."""

from __future__ import annotations

import ipaddress
import math
import re
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from enum import Enum
from typing import Any

import orjson
from starlette.requests import HTTPConnection

from streamkit.core.counters import Counters
from streamkit.serve.access import Access
from streamkit.serve.identity import IDENTITY, Identity
from streamkit.serve.live import MAX_VIEWERS
from streamkit.serve.oidc import CALLBACK, START
from streamkit.serve.peer import peer_of
from streamkit.serve.request_id import error_body
from streamkit.serve.token import SAFE, bearer, from_this_origin
from streamkit.serve.token_attempts import Guesses, TooManyGuesses

API = "/api/v1"
"""Prefix of the API's paths."""

MAX_BODY_BYTES = 1_000_000
"""Maximum size of a request's body, in bytes."""

NO_TOKEN = "this request needs a token: send Authorization: Bearer TOKEN, or sign in"

NOT_THE_PROXY = "only the proxy that --access names may send this header, and once: a person is not signed in by it"

METRICS = "/metrics"
"""Path of the metrics."""

_PAGE = "/page/"
_OPEN = frozenset(
    {"/", "/docs", "/openapi.json", "/live", "/ready", f"{API}/session", f"{API}{START}", f"{API}{CALLBACK}"}
)
"""What tells nothing about the pipeline: the page without its data, the probes, and signing in."""
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
_CHECK_EVERY_S = 0.25
"""How often the token of an open WebSocket is checked, at most: the check reads the state of a file."""

_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::[0-9]*)?")
_MAX_DISCARDED_BYTES = 16 * MAX_BODY_BYTES  # of a rejected body, so that the client gets the response

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
        "connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of every response."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Readers(Enum):
    """Who may read the state of the pipeline, its events and metrics without a token."""

    EVERYBODY = "everybody"
    THIS_MACHINE = "this machine"
    """Requests that come to localhost and were not passed on by a proxy, as long as there are no people."""
    SIGNED_IN = "signed in"
    """Only requests with a token."""


def readers_of(listening: socket.socket, *, public: bool) -> Readers:
    """Who may read without a token from a server that listens on a socket.

    Args:
        listening: the listening socket.
        public: whether reading is open to everybody.
    """
    if public:
        return Readers.EVERYBODY
    return Readers.THIS_MACHINE if is_loopback(listening.getsockname()[0]) else Readers.SIGNED_IN


class Guard:
    """ASGI middleware that sets who sent a request: `role`, `name`, `session` and `signed_in` of `request.state`.

    All are empty for a request without a token. A revoked token, or a session that ends, also ends responses that are
    still being sent and open WebSockets.

    Args:
        app: the wrapped application.
        access: the people, tokens and sessions; one of them is required to change anything.
        allowed_hosts: host names of this server, beside IP addresses and localhost.
        guesses: counts wrong tokens.
        refused: counts refused requests, by cause.
        readers: who may read without a token.
        sockets: maximum number of open WebSockets.
    """

    def __init__(
        self,
        app: Callable[[Message, Receive, Send], Awaitable[None]],
        access: Access,
        allowed_hosts: Collection[str] = (),
        guesses: Guesses | None = None,
        refused: Counters | None = None,
        readers: Readers = Readers.THIS_MACHINE,
        sockets: int = 2 * MAX_VIEWERS,
    ) -> None:
        self._app = app
        self._access = access
        self._readers = readers
        self._open_sockets = 0
        self._max_sockets = sockets
        self._hosts = {host_of(name) for name in allowed_hosts}
        self._guesses = guesses or Guesses()
        self._refused = refused or Counters()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request, or the opening of one WebSocket."""
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _guarded(send)
        request = HTTPConnection(scope)
        if not host_allowed(request.headers.get("host", ""), self._hosts):
            self._refused.add("host")
            text = "unknown host name: use the server's IP address, or start the server with --allowed-host"
            await _refuse(receive, send, 421, text)
            return
        changes = scope["method"] not in SAFE and scope["path"] != f"{API}/session"
        state = scope.setdefault("state", {})
        locked = changes or not self._open(scope, request.headers)
        state["guesses"] = self._guesses
        identity = None
        _put(state, None)
        try:
            identity = self._identify(scope["method"], request)
            _put(state, identity)
        except NotTheProxy:
            self._refused.add("proxy header")
            await _refuse(receive, send, 403, NOT_THE_PROXY)
            return
        except TooManyGuesses as error:
            self._refused.add("too many wrong tokens")
            state["wait_s"] = error.wait_s
            if locked:
                await _refuse(receive, send, 429, str(error), {"retry-after": str(error.wait_s)})
                return
        if locked and identity is None:
            self._refused.add("token")
            await _refuse(receive, send, 401, NO_TOKEN, {"www-authenticate": "Bearer"})
        elif scope["method"] not in SAFE:
            await self._with_body(scope, receive, send)
        elif identity is not None and scope["path"].startswith(f"{API}/"):
            await self._until_revoked(identity, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let a WebSocket open that has the token, from this origin: a browser sends the cookie from any page."""
        request = HTTPConnection(scope)
        cause = ""
        if not host_allowed(request.headers.get("host", ""), self._hosts):
            cause = "host"
        else:
            try:
                identity = self._identify("POST", request)
            except TooManyGuesses:
                cause = "too many wrong tokens"
            except NotTheProxy:
                cause = "proxy header"
            else:
                if identity is not None and self._open_sockets < self._max_sockets:
                    _put(scope.setdefault("state", {}), identity)
                    self._open_sockets += 1
                    try:
                        await self._app(scope, receive, self._closing(identity, send))
                    finally:
                        self._open_sockets -= 1
                    return
                cause = "token" if identity is None else "too many WebSockets"
        self._refused.add(cause)
        await receive()
        await send({"type": "websocket.close", "code": 1008})

    def _open(self, scope: Message, headers: Mapping[str, str]) -> bool:
        """Whether a request that changes nothing needs no token."""
        path = scope["path"]
        if path in _OPEN or path.startswith(_PAGE) or scope["state"].get(METRICS_PORT):
            return True
        if self._readers is Readers.THIS_MACHINE:
            if self._access.private:
                return False
            return is_loopback(host_of(headers.get("host", ""))) and not any(name in headers for name in _FORWARDED)
        return self._readers is Readers.EVERYBODY

    def _identify(self, method: str, request: HTTPConnection) -> Identity | None:
        """Return the identity of the sender of a request.

        Only tokens count as guesses. A session's cookie has 256 random bits: it cannot be guessed, and after a restart
        the old cookies of many browsers behind one address must not lock them out.

        A proxy's header comes before the cookie: at a browser that people share, the cookie may be another person's.

        Raises:
            TooManyGuesses: the address has to wait.
            NotTheProxy: another client sends the header by which a proxy signs people in.
        """
        named = self._named_by_proxy(request)
        header, token = bearer(request.headers)
        if not header:
            identity = named or self._access.with_cookie(request.cookies)
            return identity if identity is not None and from_this_origin(method, request.headers) else None
        address = request.client.host if request.client else ""
        identities: list[Identity] = []

        def right() -> bool:
            identities.extend(filter(None, [self._access.with_token(token)]))
            return bool(identities)

        return identities[0] if self._guesses.judge(address, header, right) else None

    def _named_by_proxy(self, request: HTTPConnection) -> Identity | None:
        """The person whom the proxy names in its headers. Raises NotTheProxy."""
        proxy = self._access.external.proxy
        if proxy is None:
            return None
        names = request.headers.getlist(proxy.name_header)
        groups = request.headers.getlist(proxy.groups_header)
        if not names and not groups:
            return None
        if len(names) > 1 or len(groups) > 1 or not proxy.trusts(peer_of(request.scope)):
            raise NotTheProxy
        listed = groups[0].split(",") if groups else []
        return self._access.with_headers(names[0], {name.strip() for name in listed}) if names else None

    async def _until_revoked(self, identity: Identity, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on. A stream ends once the token is revoked or the session has ended.

        The application then hears that the client has gone. It does not end the response, so that this does.
        """
        revoked = unfinished = False

        async def watched() -> Message:
            nonlocal revoked
            revoked = revoked or not self._access.active(identity)
            return {"type": "http.disconnect"} if revoked else await receive()

        async def sent(message: Message) -> None:
            nonlocal unfinished
            unfinished = message["type"] == "http.response.start" or bool(message.get("more_body"))
            await send(message)

        await self._app(scope, watched, sent)
        if revoked and unfinished:
            await send({"type": "http.response.body", "body": b""})

    def _closing(self, identity: Identity, send: Send) -> Send:
        """A `send` of a WebSocket that closes it once its token is revoked or its session has ended."""
        closed = False
        checked_s = -math.inf

        async def watched(message: Message) -> None:
            nonlocal closed, checked_s
            now_s = time.monotonic()
            if not closed and now_s - checked_s >= _CHECK_EVERY_S:
                checked_s = now_s
                if not self._access.active(identity):
                    closed = True
                    await send({"type": "websocket.close", "code": 1008})
            if closed:
                raise OSError("the token was revoked, or the session has ended")
            await send(message)

        return watched

    async def _with_body(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body, or refuse the body as soon as it is too large."""
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        body = bytearray()
        last = False
        while not last and int(announced) <= MAX_BODY_BYTES and len(body) <= MAX_BODY_BYTES:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            last = not message.get("more_body", False)
        if not last or len(body) > MAX_BODY_BYTES:
            self._refused.add("body too large")
            body.clear()
            await _refuse(
                receive, send, 413, f"the body of a request may have at most {MAX_BODY_BYTES:,} bytes", more=not last
            )
            return
        left: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replayed() -> Message:
            return left.pop() if left else await receive()

        await self._app(scope, replayed, send)


class NotTheProxy(Exception):
    """A header by which a proxy signs people in does not come from the proxy, or comes twice."""


METRICS_PORT = "metrics_port"
"""Key of a request's state: it came to the port for metrics, which takes no token."""


class MetricsOnly:
    """ASGI application for the port for metrics: the metrics of another application, without a token.

    Args:
        app: the application, behind a `Guard`.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request; nothing but the metrics is there."""
        if scope["type"] == "http" and scope["path"] == METRICS and scope["method"] in SAFE:
            scope.setdefault("state", {})[METRICS_PORT] = True
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _refuse(receive, _guarded(send), 404, f"this port has {METRICS} only")
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})


def _put(state: Message, identity: Identity | None) -> None:
    """Store the identity of the sender of a request."""
    IDENTITY.set(identity)
    state["identity"] = identity
    state["signed_in"] = identity is not None
    state["session"] = identity.session if identity is not None else ""
    state["key"] = identity.key if identity is not None else ""
    state["name"], state["role"] = (identity.name, identity.role) if identity is not None else ("", "")


def _guarded(send: Send) -> Send:
    """Add the security headers to every response."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            added = [(k.encode(), v.encode()) for k, v in SECURITY_HEADERS.items() if k.encode() not in present]
            message["headers"] = [*message["headers"], *added]
            if b"cache-control" not in present:
                message["headers"].append((b"cache-control", b"no-store"))
        await send(message)

    return guarded


async def _refuse(
    receive: Receive, send: Send, status: int, text: str, headers: dict[str, str] | None = None, more: bool = True
) -> None:
    """Respond at once, then discard the rest of the body: a client that is cut off while sending gets no response."""
    body = orjson.dumps(error_body(text))
    standard_headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    pairs = [(name.encode(), value.encode()) for name, value in {**standard_headers, **(headers or {})}.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    size = 0
    while more and size <= _MAX_DISCARDED_BYTES:
        message = await receive()
        size += len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def host_of(header: str) -> str:
    """The host of a `Host` header: lower case, without port, brackets and the trailing dot."""
    text = header.strip().lower()
    parts = _HOST.fullmatch(text)
    return text if parts is None else (parts[1] or parts[2]).removesuffix(".")


def is_loopback(host: str) -> bool:
    """Whether a host, as `host_of` returns it, is this machine's own name for itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_allowed(header: str, allowed: Collection[str] = ()) -> bool:
    """Whether a `Host` header names an IP address, localhost or an allowed name.

    Against DNS rebinding: another site may point its name at this machine.

    Args:
        header: the header's value; empty if it is missing.
        allowed: names in lower case.
    """
    host = host_of(header)
    if host == "localhost" or host in allowed:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
