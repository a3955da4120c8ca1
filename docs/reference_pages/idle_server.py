"""A server of a pipeline that does not run: what the pages of the HTTP API and of the metrics describe."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

_PIPELINE = "device: cpu\nsources: {street: 'test://'}\nstages: {detect: {model: demo}}\n"


class IdleServer(NamedTuple):
    """What the pages describe.

    Attributes:
        document: the OpenAPI document.
        sockets: path and description of each WebSocket.
        metrics: every family of metrics, without values.
    """

    document: dict[str, Any]
    sockets: list[tuple[str, str]]
    metrics: list[Any]


class _IdleGpu:
    """A GPU, for the metrics that a machine without one lacks."""

    def __init__(self, index: int) -> None:
        pass

    def use(self) -> tuple[float, float]:
        """The load of the GPU and of its decoder."""
        return 0.0, 0.0


@functools.cache
def idle_server() -> IdleServer:
    """Read the description of a server."""
    from fastapi import APIRouter
    from fastapi.routing import APIWebSocketRoute

    from streamkit.cli.serve import engine_of, open_store, prepare
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read_text
    from streamkit.core.data import Device
    from streamkit.runtime.observe import nvml
    from streamkit.serve.app import create_app
    from streamkit.serve.guard import API
    from streamkit.serve.live import Watchers
    from streamkit.serve.metrics import registry
    from streamkit.serve.routes.live import add_live
    from streamkit.serve.token import Token

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running, gallery = prepare(lambda: build(read_text(_PIPELINE)), folder / "pipeline.yaml", {})
        engine = engine_of(running, gallery, open_store(folder, "30d", "2GB"), allow_files=False)
        document = create_app(engine, Token("the token of the documentation"), data=folder).openapi()
        router = APIRouter(prefix=API)
        add_live(router, engine, Watchers(engine, 1))
        routes = [route for route in router.routes if isinstance(route, APIWebSocketRoute)]
        sockets = [(route.path.replace(":path", ""), route.endpoint.__doc__ or "") for route in routes]
        with mock.patch.object(nvml, "Nvml", _IdleGpu), mock.patch.object(running.current, "devices", [Device("cuda")]):
            metrics = list(registry(engine).collect())
        return IdleServer(document, sockets, metrics)
