"""Runs the API beside a pipeline: uvicorn on a thread of its own, ended with the pipeline."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from streamkit.counters import Counters
from streamkit.errors import MissingPackage, OutputError
from streamkit.runtime.background import join, start

if TYPE_CHECKING:
    from streamkit.serve.connections import Limits

_GRACE_S = 2
_AT_ONCE = 16  # connections accepted in one turn of the loop, before the first of them can be refused
_WAITING = 128  # connections that the kernel keeps until they are accepted


def check_packages() -> None:
    """Refuse to begin where a package of the extra `serve` is missing.

    Raises:
        MissingPackage: names it, and the command that installs it.
    """
    import importlib

    for module, package in (("fastapi", "fastapi"), ("uvicorn", "uvicorn"), ("prometheus_client", "prometheus-client")):
        try:
            importlib.import_module(module)
        except ImportError:
            raise MissingPackage(package, "serve", "run.py serve") from None


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one.

    Raises:
        OutputError: the address is taken, or is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(_WAITING)
    except OSError as error:
        made.close()
        raise OutputError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; give another --port"
        ) from None
    return made


def address(host: str, listening: socket.socket) -> str:
    """The address a browser takes, for a socket that listens on `host`."""
    port = listening.getsockname()[1]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


@contextmanager
def serving(
    app: Any, listening: socket.socket, limits: Limits | None = None, *, refused: Counters | None = None,
    say: Callable[[str], None] = print,
) -> Iterator[None]:  # fmt: skip
    """Serve `app` on the socket while the block runs; then end, within two seconds.

    Args:
        app: the application.
        listening: a socket that listens; closed at the end.
        limits: what clients may take.
        refused: counts connections that are refused or cut off, by cause.
        say: takes messages for the user.
    """
    import uvicorn

    from streamkit.serve.connections import Connection, Limits, failed_accepts

    counts = refused if refused is not None else Counters()
    config = uvicorn.Config(
        app, log_level="error", access_log=False, timeout_graceful_shutdown=_GRACE_S, lifespan="off",
        server_header=False, ws="none", loop="asyncio", backlog=_AT_ONCE,
        http=partial(Connection, limits=limits or Limits(), refused=counts),  # type: ignore[arg-type]
    )  # fmt: skip

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listening.listen(_WAITING)  # uvicorn's one number is both, and a burst of so many would take as many files
            self.servers[0].get_loop().set_exception_handler(failed_accepts(counts, say))

    server = Server(config)
    thread = start("serve", lambda: server.run(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        join(thread)
        listening.close()
