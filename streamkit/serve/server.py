# SPDX-License-Identifier: Apache-2.0
"""Runs the API beside a pipeline: uvicorn on its own thread, stopped with the pipeline."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from streamkit.core.counters import Counters
from streamkit.core.errors import MissingPackage, OutputError
from streamkit.runtime.execution.future import join, start

if TYPE_CHECKING:
    from streamkit.serve.connections import Limits

_GRACE_S = 2
_AT_ONCE = 16  # connections accepted per loop iteration, before the first of them can be rejected
_WAITING = 128  # connections that the kernel queues


def check_packages() -> None:
    """Check that the packages of the extra `serve` are installed.

    Raises:
        MissingPackage: a package is missing; names it, and the command that installs it.
    """
    import importlib

    for module, package in (
        ("fastapi", "fastapi"),
        ("uvicorn", "uvicorn"),
        ("websockets", "websockets"),
        ("prometheus_client", "prometheus-client"),
        ("argon2", "argon2-cffi"),
        ("httpx", "httpx"),
        ("joserfc", "joserfc"),
    ):
        try:
            importlib.import_module(module)
        except ImportError:
            raise MissingPackage(package, "serve", "streamkit serve") from None


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 picks a free one.

    Raises:
        OutputError: the address is in use, or does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_WAITING)
    except OSError as error:
        listener.close()
        raise OutputError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; give another --port"
        ) from None
    return listener


def address(host: str, listening: socket.socket) -> str:
    """The URL for a browser, for a socket that listens on `host`."""
    port = listening.getsockname()[1]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


@contextmanager
def serving(
    app: Any, listening: socket.socket, limits: Limits | None = None, *, refused: Counters | None = None
) -> Iterator[None]:
    """Serve `app` on the socket while the block runs; stop within two seconds after it.

    Args:
        app: the application.
        listening: a listening socket; closed at the end.
        limits: limits for clients.
        refused: counts refused and closed connections, by cause.
    """
    import uvicorn

    from streamkit.serve.connections import MAX_MESSAGE_BYTES, Connection, Limits, SocketConnection, failed_accepts
    from streamkit.serve.peer import KeepPeer

    counts = refused if refused is not None else Counters()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_GRACE_S,
        lifespan="off",
        server_header=False,
        ws=SocketConnection,
        ws_max_size=MAX_MESSAGE_BYTES,
        loop="asyncio",
        backlog=_AT_ONCE,
        ws_per_message_deflate=False,  # video cannot be compressed further, and the attempt costs a core
        http=partial(Connection, limits=limits or Limits(), refused=counts),  # type: ignore[arg-type]
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listening.listen(
                _WAITING
            )  # uvicorn uses one number for both; a burst of this size would open as many files
            self.servers[0].get_loop().set_exception_handler(failed_accepts(counts))

    config.load()
    config.loaded_app = KeepPeer(config.loaded_app)  # outside of uvicorn's own, which takes X-Forwarded-For
    server = Server(config)
    thread = start("serve", lambda: server.run(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        join(thread)
        listening.close()
