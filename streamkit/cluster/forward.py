# SPDX-License-Identifier: Apache-2.0
"""Passes requests on to the node that can answer them: images, clips, connection tests, metrics.

Everything else of the API is answered by the head from the nodes' reports. The head has checked the client's token,
host and role before; a node wants a token of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from streamkit.cluster.cluster_run import ClusterRun, NodeView
from streamkit.cluster.forward_sockets import add_sockets
from streamkit.cluster.head import cluster_run
from streamkit.cluster.ray_nodes import NodeHandle
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.guard import API
from streamkit.serve.routes.common import OPERATOR, VIEWER, reply

_ANSWER_S = 30.0
_POLL_S = 0.5
_REQUEST_HEADERS = ("range", "if-range", "content-type", "accept")
_RESPONSE_HEADERS = (
    "content-type",
    "content-length",
    "content-range",
    "content-disposition",
    "accept-ranges",
    "cache-control",
    "x-frame",
    "retry-after",
)


class Forwarder:
    """Sends requests to the nodes of a cluster.

    Args:
        engine: the head's engine; its pipeline is a `ClusterPipeline`.
    """

    def __init__(self, engine: ServeEngine) -> None:
        self.engine = engine
        self._client: Any = None

    @property
    def running(self) -> ClusterRun:
        """The run."""
        return cluster_run(self.engine)

    def owner(self, source: str) -> NodeHandle:
        """The node that reads a source. Raises RequestRejected."""
        self.engine.state(source)
        node = self.running.node_of(source)
        if node is None:
            raise RequestRejected(503, f"no node reads {source} at present; it is given to one within seconds")
        return node

    def any_node(self) -> NodeHandle:
        """A node that runs. Raises RequestRejected."""
        node = next(iter(self.running.ready_nodes()), None)
        if node is None:
            raise RequestRejected(503, "no node of the cluster is ready; ray status shows its nodes")
        return node

    async def get(self, node: NodeHandle, path: str, **options: Any) -> Any:
        """An open response of a node. Raises RequestRejected if it does not answer."""
        import httpx

        if self._client is None:  # on the server's loop
            limits = httpx.Limits(max_connections=None)
            timeout = httpx.Timeout(_ANSWER_S, read=None)
            self._client = httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False)
        headers = {"accept-encoding": "identity", **options.pop("headers", {}), "authorization": f"Bearer {node.token}"}
        request = self._client.build_request(options.pop("method", "GET"), node.url + path, headers=headers, **options)
        try:
            with anyio.fail_after(_ANSWER_S):
                return await self._client.send(request, stream=True)
        except (httpx.HTTPError, TimeoutError):
            raise RequestRejected(
                503, f"node {node.node.name} does not answer; its sources move if it is lost"
            ) from None

    async def pass_on(self, request: Request, node: NodeHandle, path: str, content: bytes | None = None) -> Forwarded:
        """The response of a node to the same request, at a path there, or to one with another content."""
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        body = await request.body() if content is None else content
        response = await self.get(
            node, path, method=request.method, headers=headers, params=request.query_params, content=body or None
        )
        return Forwarded(response, request)


class Forwarded(StreamingResponse):
    """A node's response as it arrives; it ends when the client leaves, or may not read it any more.

    Args:
        response: the open response.
        request: the client's request.
    """

    def __init__(self, response: Any, request: Request) -> None:
        headers = {name: response.headers[name] for name in _RESPONSE_HEADERS if name in response.headers}
        self._response = response
        self._request = request
        super().__init__(self._chunks(), response.status_code, headers)

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The body, which ends early if the node is lost."""
        import httpx

        try:
            async for chunk in self._response.aiter_raw():
                yield chunk
        except httpx.HTTPError:
            return

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, then close the connection to the node."""

        async def watch() -> None:
            while not await self._request.is_disconnected():
                await anyio.sleep(_POLL_S)
            group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                await self.stream_response(send)
                group.cancel_scope.cancel()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection to the node."""
        with anyio.CancelScope(shield=True):
            await self._response.aclose()


def add_forwarding(app: FastAPI, api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes of a cluster: its nodes, and those that a node answers."""
    forwarder = Forwarder(engine)

    @api.get("/nodes", tags=["pipeline"], response_model=list[NodeView])
    def nodes() -> Response:
        """The nodes of the cluster, their sources and their load."""
        visible = engine.rights.visible()
        views = forwarder.running.nodes()
        if visible is not None:
            views = [
                replace(view, message="", sources=[id_ for id_ in view.sources if id_ in visible]) for view in views
            ]
        return reply(views)

    _add_sources(api, forwarder)
    _add_events(api, forwarder)
    add_sockets(api, engine)
    _add_metrics(app, forwarder)


def _add_sources(api: APIRouter, forwarder: Forwarder) -> None:
    engine = forwarder.engine
    passed: dict[str, Any] = {"include_in_schema": False, "dependencies": VIEWER}

    @api.get("/sources/{id:path}/snapshot.jpg", **passed)
    @api.get("/sources/{id:path}/live.mjpg", **passed)
    async def image(id: str, request: Request) -> Response:  # noqa: A002
        return await forwarder.pass_on(request, forwarder.owner(id), _path(request.scope))

    @api.post("/sources/test", include_in_schema=False, dependencies=OPERATOR)
    async def test(request: Request) -> Response:
        try:
            body = await request.json()
        except ValueError:  # the node says what is wrong
            body = None
        source_id = body.get("id") if isinstance(body, dict) else None
        if isinstance(source_id, str) and not engine.rights.sees(source_id):  # as if there were none of that id
            content = orjson.dumps({**body, "id": ""})
            return await forwarder.pass_on(request, forwarder.any_node(), _path(request.scope), content)
        node = forwarder.running.node_of(source_id) if isinstance(source_id, str) else None
        return await forwarder.pass_on(request, node or forwarder.any_node(), _path(request.scope))


def _path(scope: Scope) -> str:
    """The path of a request as it was sent, with what is quoted in it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return urlsplit(raw.decode("latin-1")).path


# -------------------------------------------------------------------------------------------------------------- events


def _add_events(api: APIRouter, forwarder: Forwarder) -> None:
    """The files of events, which are on the disk of the node that wrote them; images are in the head's store too."""

    @api.get("/events/{number}/snapshot.jpg", include_in_schema=False, dependencies=VIEWER)
    async def snapshot(number: int, request: Request) -> Response:
        return await _event_file(forwarder, request, number, "snapshot.jpg")

    @api.get("/events/{number}/clip.mp4", include_in_schema=False, dependencies=VIEWER)
    async def clip(number: int, request: Request) -> Response:
        return await _event_file(forwarder, request, number, "clip.mp4")


async def _event_file(forwarder: Forwarder, request: Request, number: int, name: str) -> Response:
    """A file of an event, from its node."""
    visible = forwarder.engine.rights.visible()
    find = partial(forwarder.engine.store.event, number, visible)
    stored = await anyio.to_thread.run_sync(find) if 0 < number < 2**53 else None
    if stored is None:
        raise RequestRejected(404, f"there is no event {number}; old events are discarded")
    where = stored.event.data.get("node")
    there = stored.event.data.get("node_event")
    node = forwarder.running.named(where)
    if node is None:
        raise RequestRejected(503, f"the file of event {number} is on node {where}, which is not there at present")
    path = f"{API}/events/{there}"
    about = await forwarder.get(node, path)
    try:
        node_event = await about.aread() and about.json()
    finally:
        await about.aclose()
    event = stored.event
    identity = node_event.get("source"), node_event.get("kind"), node_event.get("frame")
    if identity != (event.source, event.kind, event.frame):
        raise RequestRejected(404, f"node {where} does not have event {number} any more")
    file = await forwarder.pass_on(request, node, f"{path}/{name}")
    if file.status_code == 404:  # the node's answer has its own number of the event
        await file.close()
        raise RequestRejected(404, f"event {number} has no {name}, or node {where} has removed it")
    return file


# ------------------------------------------------------------------------------------------------------------- metrics


def _add_metrics(app: FastAPI, forwarder: Forwarder) -> None:
    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        texts: dict[str, str] = {}

        async def fetch(node: NodeHandle) -> None:
            try:
                response = await forwarder.get(node, "/metrics")
            except RequestRejected:
                return
            try:
                texts[node.node.name] = (await response.aread()).decode()
            finally:
                await response.aclose()

        async with anyio.create_task_group() as group:
            for node in forwarder.running.ready_nodes():
                group.start_soon(fetch, node)
        views = forwarder.running.nodes()
        text = merged_metrics(texts, views, forwarder.engine.rights.visible())
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


def merged_metrics(texts: dict[str, str], nodes: list[NodeView], visible: Collection[str] | None = None) -> bytes:
    """The metrics of all nodes, each sample with the label `node`; and `streamkit_node_up` of each node.

    Args:
        texts: what each node has answered, by name.
        nodes: all nodes.
        visible: the sources whose samples are wanted, without sums over others; None for all.
    """
    families: dict[str, Metric] = {}
    for name, text in texts.items():
        for node_family in text_string_to_metric_families(text):
            family = families.setdefault(
                node_family.name, Metric(node_family.name, node_family.documentation, node_family.type)
            )
            for sample in node_family.samples:
                if visible is not None and sample.labels.get("source") not in visible:
                    continue
                family.add_sample(sample.name, {"node": name, **sample.labels}, sample.value)
    up = Metric("streamkit_node_up", "1 if the node is ready", "gauge")
    for node in nodes:
        up.add_sample(up.name, {"node": node.name}, float(node.state == "ready"))
    return generate_latest(_Families([*families.values(), up]))  # type: ignore[arg-type]


class _Families(CollectorRegistry):
    """Families of metrics that are known already."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__(auto_describe=False)
        self._families = families

    def collect(self) -> Any:
        """The families."""
        return iter(self._families)
