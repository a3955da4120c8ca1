# SPDX-License-Identifier: Apache-2.0
"""Changes of sources and stages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from streamkit.serve import api_models
from streamkit.serve.audit import note
from streamkit.serve.engine import ServeEngine
from streamkit.serve.routes.common import CHANGE_ERRORS, LOCKED_ERRORS, OPERATOR, SourceId, StageId, errors, reply
from streamkit.serve.token import covers


def add_source(api: APIRouter, engine: ServeEngine) -> None:
    """Add the route that reads one source."""

    @api.get("/sources/{id:path}", tags=["sources"], response_model=api_models.SourceView, responses=errors(404))
    def source(id: SourceId, request: Request) -> Response:  # noqa: A002
        """One source and its state; its address and options only for operators."""
        return reply(engine.source(id, addresses=covers(request.state.role, "operator")))


def add_changes(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes that change sources and stages."""
    change: dict[str, Any] = {"tags": ["sources"], "dependencies": OPERATOR, "response_model": api_models.SourceView}

    @api.post("/sources", status_code=201, responses=errors(*LOCKED_ERRORS, 409, 422), **change)
    def add(new: api_models.NewSource, request: Request) -> Response:
        """Add a source."""
        note(request, new.id, uri=new.uri, options=new.options)
        return reply(engine.add(new), 201)

    @api.post("/sources/{id:path}/pause", responses=errors(*CHANGE_ERRORS), **change)
    def pause(id: SourceId) -> Response:  # noqa: A002
        """Pause a source until it is resumed."""
        return reply(engine.pause(id))

    @api.post("/sources/{id:path}/resume", responses=errors(*CHANGE_ERRORS), **change)
    def resume(id: SourceId) -> Response:  # noqa: A002
        """Resume a paused source."""
        return reply(engine.resume(id))

    @api.post("/sources/{id:path}/record", responses=errors(*CHANGE_ERRORS), **change)
    def record(id: SourceId) -> Response:  # noqa: A002
        """Record a clip of a source now, with every stage that records."""
        return reply(engine.record(id))

    @api.put("/sources/{id:path}", responses=errors(*LOCKED_ERRORS, 404, 409, 422), **change)
    def replace(id: SourceId, new: api_models.ChangedSource, request: Request) -> Response:  # noqa: A002
        """Change the address or options of a source, and restart it; omitted fields are kept."""
        note(request, uri=new.uri, options=new.options)
        return reply(engine.change(id, new))

    @api.delete(
        "/sources/{id:path}", status_code=204, tags=["sources"], dependencies=OPERATOR, responses=errors(*CHANGE_ERRORS)
    )
    def remove(id: SourceId) -> Response:  # noqa: A002
        """Remove a source; its decoded frames are still processed."""
        engine.remove(id)
        return Response(status_code=204)

    @api.patch(
        "/stages/{id}",
        tags=["stages"],
        dependencies=OPERATOR,
        response_model=api_models.StageView,
        responses=errors(*LOCKED_ERRORS, 404, 409, 422),
    )
    def set_(id: StageId, values: dict[str, Any], request: Request) -> Response:  # noqa: A002
        """Change settings of a running stage, or of the parts of one: all of them, or none if one is invalid.

        Those of a detector whose objects are blurred or pixelated need the role admin.
        """
        note(request, values=values)
        engine.rights.check_unlimited("a setting of a stage")
        if not covers(request.state.role, "admin"):
            engine.check_settings(id)
        return reply(engine.set(id, values))
