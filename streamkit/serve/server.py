"""Runs the API beside a pipeline: uvicorn on a thread of its own, ended with the pipeline."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamkit.errors import MissingPackage, OutputError
from streamkit.runtime.background import join, start

_GRACE_S = 2


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
        made.listen(128)
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
def serving(app: Any, listening: socket.socket) -> Iterator[None]:
    """Serve `app` on the socket while the block runs; then end, within two seconds.

    Args:
        app: the application.
        listening: a socket that listens; closed at the end.
    """
    import uvicorn

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE_S, lifespan="off",
        server_header=False, ws="none",
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = start("serve", lambda: server.run(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        join(thread)
        listening.close()
