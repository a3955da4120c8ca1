# SPDX-License-Identifier: Apache-2.0
"""What the forms of sources need: their options, connection tests, and CSV."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from streamkit.config.checks.hiding import hiding
from streamkit.runtime.ingest.connection_test import ConnectionResult, ConnectionTest
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.audit import note, note_no_change
from streamkit.serve.engine import ServeEngine
from streamkit.serve.routes.common import LOCKED_ERRORS, OPERATOR, errors, reply
from streamkit.serve.source_csv import read_lines, written
from streamkit.serve.source_models import CsvResult, SourceOption, SourcesCsv, TestedConnection, TestedSource
from streamkit.serve.source_options import source_options

MAX_TESTS = 2
"""How many connection tests run at once."""

ExportedIds = Annotated[list[str] | None, Query(description="ids of the sources to export; all if it is left out")]

_POLL_S = 0.05
_GRACE_S = 1.0  # after the time is over, for FFmpeg to notice


def add_source_forms(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes of the forms of sources."""
    form: dict[str, Any] = {"tags": ["sources"], "dependencies": OPERATOR}

    @api.get("/source-options", response_model=dict[str, list[SourceOption]], responses=errors(*LOCKED_ERRORS), **form)
    def options() -> Response:
        """The options of each kind of source, for a form; common ones first."""
        return reply(source_options(engine.graph.config))

    _add_test(api, engine, form)

    @api.get(
        "/sources.csv",
        response_class=Response,
        responses={200: {"content": {"text/csv": {}}, "description": "Sources as CSV"}, **errors(*LOCKED_ERRORS)},
        **form,
    )
    def export(id: ExportedIds = None) -> Response:  # noqa: A002
        """All sources as CSV, or those with the ids, with passwords masked."""
        ids = set(id or ())
        sources = [source for source in engine.sources(addresses=True) if not ids or source.id in ids]
        text = written((source.id, source.address, source.options) for source in sources)
        named = {"content-disposition": 'attachment; filename="sources.csv"'}
        return Response(text, media_type="text/csv", headers=named)

    @api.post("/sources.csv", response_model=CsvResult, responses=errors(*LOCKED_ERRORS, 422), **form)
    def import_(upload: SourcesCsv, request: Request) -> Response:
        """Check the sources of a CSV, and add them: the valid ones, or all or none."""
        read = read_lines(engine, upload.csv)
        result = CsvResult([line for line, _ in read])
        bad = any(line.problem for line in result.lines)
        if upload.mode == "valid" or (upload.mode == "all" and not bad):
            for line, new in read:
                if new is None:
                    continue
                try:
                    engine.add(new)
                    result.added.append(new.id)
                except RequestRejected as error:  # the pipeline stops, or another client was faster
                    line.problem = error.text
            if upload.mode == "all" and len(result.added) < len(read):
                while result.added:
                    engine.remove(result.added.pop())
        if upload.mode == "check":
            note_no_change(request)
        note(request, ", ".join(result.added), mode=upload.mode, lines=len(read))
        return reply(result)


def _add_test(api: APIRouter, engine: ServeEngine, form: dict[str, Any]) -> None:
    running: list[ConnectionTest] = []

    @api.post("/sources/test", response_model=TestedConnection, responses=errors(*LOCKED_ERRORS, 404, 422), **form)
    async def test(tested: TestedSource, request: Request) -> Response:
        """Open an address beside the pipeline, for at most 15 s, and show its first frame or why there is none."""
        note(request, tested.id, uri=tested.uri, options=tested.options)
        config = await anyio.to_thread.run_sync(engine.tested, tested.id, tested.uri, tested.options)
        running[:] = [earlier for earlier in running if not earlier.ready]
        if len(running) >= MAX_TESTS:
            raise RequestRejected(429, f"{MAX_TESTS} connections are being tested; try again in a few seconds")
        connection_test = ConnectionTest(config)
        running.append(connection_test)
        try:
            while not connection_test.ready and not connection_test.late and not await request.is_disconnected():
                await anyio.sleep(_POLL_S)
        finally:
            connection_test.stop()
        with anyio.move_on_after(_GRACE_S):
            while not connection_test.ready:
                await anyio.sleep(_POLL_S)
        return reply(_shown(connection_test.result(), hidden=bool(hiding(engine.graph))))


def _shown(outcome: ConnectionResult, *, hidden: bool) -> TestedConnection:
    """A result for the client, without its image if the pipeline hides parts of images: here nothing hides them."""
    facts = outcome.facts
    image = base64.b64encode(outcome.image).decode() if outcome.image is not None and not hidden else None
    return TestedConnection(
        outcome.image is not None,
        outcome.cause,
        outcome.error,
        facts.get("codec"),
        facts.get("width"),
        facts.get("height"),
        facts.get("fps"),
        facts.get("duration_s"),
        image,
        outcome.took_s,
    )
