# SPDX-License-Identifier: Apache-2.0
"""A node: the Ray actor that runs the pipeline and its API on one machine, and follows the head's orders."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import streamkit
from streamkit.cluster.exchange import LEASE_S, NodeEvent, NodeJob, NodeOrders, NodeReport
from streamkit.core.data import Event
from streamkit.core.errors import StreamkitError, describe
from streamkit.core.logs import LogOnce
from streamkit.core.records import as_json
from streamkit.io.outputs import AtomicFile
from streamkit.runtime.execution.cores import cores
from streamkit.runtime.execution.future import PeriodicTimer, join, start
from streamkit.runtime.multiprocess.children import end_at_once
from streamkit.runtime.multiprocess.messages import SourceOrder
from streamkit.runtime.observe.report_merge import WorkerReport
from streamkit.runtime.run import Run

logger = logging.getLogger(__name__)

NO_SOURCES = {"sources": "{}"}
"""In place of the YAML's sources: the head says which of them a node reads."""
_STEP_S = 0.2
_DRAIN_S = 2.0
"""Seconds that decoded frames have after the lease is over; then the process exits."""
_MAX_EVENTS = 500


class ClusterNode:
    """The actor of one machine.

    Args:
        version: the version of streamkit at the head.
        job: a pickled `NodeJob`, which other versions may not understand.
    """

    def __init__(self, version: str, job: bytes) -> None:
        self._engine: Any = None
        self._orders: NodeOrders | None = None
        self._executed = 0
        self._port = 0
        self._failure = ""
        self._numbers: dict[str, int] = {}  # of the orders, by source
        self._refused: dict[str, tuple[SourceOrder, str]] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        self._lease_from_s = self._reported_s = time.monotonic()
        self._left_s = 0.0
        self._gap = 0
        self._warn = LogOnce(logger.warning)
        if version != streamkit.__version__:
            self._failure = (
                f"streamkit is {streamkit.__version__} there and {version} at the head; install the same version"
            )
            return
        self._job: NodeJob = pickle.loads(job)
        self._thread = start("node", self._main)

    # ------------------------------------------------------------------------------------------------ the pipeline

    def _main(self) -> None:
        try:
            self._run(self._job)
        except StreamkitError as error:
            self._failure = str(error)
        except BaseException as error:  # a plugin may raise anything
            self._failure = describe(error)
        self._failure = self._failure or "its run is over"

    def _run(self, job: NodeJob) -> None:
        from streamkit.serve.app import create_app
        from streamkit.serve.prepare import engine_of, open_store, prepare
        from streamkit.serve.server import check_packages, listen, serving
        from streamkit.serve.token import Token

        check_packages()
        folder = job.folder.expanduser() / job.name
        self._files = folder / "pipeline"
        write_files(self._files, job.files)
        os.chdir(folder)  # relative paths of outputs
        _set_missing(job.environment)
        path = self._files / job.pipeline
        store = open_store(folder / "serve", job.keep_events, job.keep_size)
        running, gallery = prepare(lambda: _load(path), path, NO_SOURCES)
        engine = engine_of(running, gallery, store, allow_files=job.allow_files)
        listening = listen(job.address, 0)
        app = WithToken(create_app(engine, Token(job.token), data=folder / "serve"), job.token)
        with (
            engine.observing(),
            store.writing(),
            serving(app, listening, refused=engine.refused),
            PeriodicTimer(_STEP_S, self._step),
        ):
            self._engine = engine
            self._port = listening.getsockname()[1]
            running.run()

    def stop(self) -> None:
        """Stop the sources, and return when decoded frames have drained and all files are closed."""
        if self._engine is not None:
            self._engine.running.stop()
            join(self._thread)

    def apply(self, files: Mapping[str, bytes], environment: Mapping[str, str]) -> str:
        """Replace the pipeline's files, and return why they are rejected; empty if the pipeline runs with them.

        If they are rejected, the pipeline continues with the previous ones.

        Args:
            files: content of the files by relative path.
            environment: variables that the YAML names.
        """
        _set_missing(environment)
        write_files(self._files, files)
        running = self._engine.running
        while not self._failure and (running.pending or not running.ready):
            time.sleep(_STEP_S)
        return str(self._failure or running.rejected)

    def trigger(self, stage: str, source: str, data: Mapping[str, Any]) -> None:
        """Let a stage record a source."""
        self._engine.running.trigger(stage, source, **data)

    def publish(self, event: Event) -> None:
        """Emit an event about the run itself."""
        self._engine.running.alarms.publish(event)

    # ----------------------------------------------------------------------------------------------------- orders

    def _step(self) -> None:
        try:
            self._check_lease()
            orders = self._orders
            running = self._engine and self._engine.running
            if orders is not None and running is not None and running.ready:
                self._execute(orders, running)
        except Exception as error:  # must not end the thread
            self._warn(f"orders could not be executed: {describe(error)}")

    def _check_lease(self) -> None:
        """Stop the sources if the head gives no sign of life: it gives them to other nodes."""
        now_s = time.monotonic()
        if self._left_s and now_s - self._left_s > _DRAIN_S:
            end_at_once()
        if not self._left_s and now_s - self._lease_from_s > LEASE_S and self._engine is not None:
            self._left_s = now_s
            self._failure = f"it had no contact with the head for {LEASE_S:g} s and has stopped its sources"
            logger.error(f"no contact with the head for {LEASE_S:g} s: the sources stop, other nodes read them")
            self._engine.running.stop()

    def _execute(self, orders: NodeOrders, running: Run) -> None:
        """Make the sources and settings those of the orders."""
        for id_ in [id_ for id_ in self._numbers if id_ not in orders.sources]:
            self._remove(id_, running)
        for id_ in [id_ for id_ in self._refused if id_ not in orders.sources]:
            del self._refused[id_]
        for order in orders.sources.values():
            refused = self._refused.get(order.id)
            if refused is not None and refused[0].number == order.number:
                continue
            state = running.states.get(order.id)
            is_new = self._numbers.get(order.id) != order.number
            if state is None or state.removed or is_new:  # a rebuilt pipeline could not keep it
                self._add(order, running, orders.now_s)
            elif not state.done and order.paused != (state.state == "paused"):
                running.pause(order.id, order.paused)
        for id_, values in orders.settings.items():
            if self._settings.get(id_) != values and id_ in running.graph.nodes:
                running.apply(running.graph.nodes[id_], values)
                self._settings[id_] = dict(values)
        self._executed = orders.number

    def _add(self, order: SourceOrder, running: Run, head_s: float) -> None:
        from streamkit.config.pipeline_config import read_source

        if order.id in self._numbers:
            self._remove(order.id, running)
        after = order.after
        if after is not None:  # its time is one of the head's clock
            after = after.on_clock(time.monotonic() - head_s)
        try:
            (source,) = read_source(running.graph.config, order.id, order.entry)
            self._numbers[order.id] = order.number
            running.add(source, after, order.paused)
            self._refused.pop(order.id, None)
        except StreamkitError as error:
            self._numbers.pop(order.id, None)
            self._refused[order.id] = order, str(error)

    def _remove(self, id_: str, running: Run) -> None:
        del self._numbers[id_]
        with contextlib.suppress(StreamkitError):  # it is gone already
            running.remove(id_)
        self._engine.gallery.forget(id_)

    # ----------------------------------------------------------------------------------------------------- reports

    def sync(self, orders: NodeOrders | None, after_event: int, after_message: int) -> bytes:
        """Take orders, and return a pickled `NodeReport`: Ray itself would make its arrays read-only.

        This call acknowledges the previous report: the lease begins when that one was sent.

        Args:
            orders: what to do; None for no change.
            after_event: number of the last event that the head has.
            after_message: number of the last message that the head has.
        """
        self._lease_from_s = self._reported_s
        if orders is not None:
            self._orders = orders
        try:
            report = self._report(after_event, after_message)
        except RuntimeError:  # a counter was added during the copy
            report = self._report(after_event, after_message)
        packed = pickle.dumps(report)
        self._reported_s = time.monotonic()
        return packed

    def _report(self, after_event: int, after_message: int) -> NodeReport:
        engine = self._engine
        if engine is None or self._failure:
            return NodeReport(failure=self._failure, events_until=after_event)
        running = engine.running
        executed = self._executed
        events, until = self._events(engine.store, after_event)
        return NodeReport(
            executed,
            self._port,
            engine.ready,
            "",
            engine.device,
            max((stage.busy for stage in engine.load.stages.values()), default=None),
            cores(),
            sum(device.kind == "cuda" for device in running.devices),
            self._counts(running),
            running.alarms.raised,
            running.alarms.rules(),
            dict(self._refused),
            events,
            until,
            engine.messages.messages(after_message),
        )

    def _counts(self, running: Run) -> WorkerReport:
        numbers = dict(self._numbers)  # before the states: a state must not get the number of its successor
        states = {id_: replace(state, raised=None) for id_, state in list(running.states.items()) if not state.removed}
        return WorkerReport(counts=running.run_counts(), states=states, numbers=numbers, facts=running.health())

    def _events(self, store: Any, after: int) -> tuple[list[NodeEvent], int]:
        """The next events after a number, and the number up to which they are complete.

        An event gets its number shortly before it can be read: where a number is missing, the next call looks again.
        """
        from streamkit.serve.store.event_table import EventQuery

        last = store.last_number
        after = min(after, last)  # this store is new, or was not written to the end
        stored_events = store.events(EventQuery(after=after, before=after + _MAX_EVENTS + 1), _MAX_EVENTS)
        events: list[NodeEvent] = []
        for stored_event in reversed(stored_events):
            if stored_event.number != after + 1 and self._gap != after:
                self._gap = after
                return events, after
            after = stored_event.number
            # what a plugin has put there may not be known at the head
            data = json.loads(as_json(stored_event.event.data))
            image = store.image(stored_event.number) if stored_event.image else None
            events.append(
                NodeEvent(stored_event.number, stored_event.time_s, replace(stored_event.event, data=data), image)
            )
        if not stored_events and after + _MAX_EVENTS < last:  # these were discarded
            after += _MAX_EVENTS
        return events, after


def _load(path: Path) -> Any:
    """The graph of a node: without sources, and without the state file, which the head keeps."""
    from streamkit.config.checks.stages import check_networks
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read

    config = read(path, set_=NO_SOURCES, may_be_empty=True)
    config.state = None
    graph = build(config)
    check_networks(graph)
    return graph


def _set_missing(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        os.environ.setdefault(name, value)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder's files these, each replaced as a whole and only if it differs; the others are removed."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in files and "__pycache__" not in path.parts:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        if not (path.is_file() and path.read_bytes() == content):
            AtomicFile(path).write(content)


class WithToken:
    """ASGI middleware that refuses every request without the token: a node answers its head only.

    Args:
        app: the wrapped application.
        token: the token.
    """

    def __init__(self, app: Callable[..., Any], token: str) -> None:
        from streamkit.serve.token import Token

        self._app = app
        self._token = Token(token)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Handle one request, or the opening of one WebSocket."""
        from streamkit.serve.token import bearer

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", ())}
        if scope["type"] not in ("http", "websocket") or self._token.matches(bearer(headers)[1]):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
            await send({"type": "http.response.body", "body": b"this node of a cluster answers its head only"})
