"""Changes of sources and stages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from streamkit.serve import api_models
from streamkit.serve.engine import ServeEngine
from streamkit.serve.routes.common import CHANGE_ERRORS, LOCKED, LOCKED_ERRORS, errors, reply


def add_changes(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes that change sources and stages."""
    change: dict[str, Any] = {"tags": ["sources"], "dependencies": LOCKED, "response_model": api_models.SourceView}

    @api.post("/sources", status_code=201, responses=errors(*LOCKED_ERRORS, 403, 409, 422), **change)
    def add(new: api_models.NewSource) -> Response:
        """Add a source."""
        return reply(engine.add(new), 201)

    @api.post("/sources/{id:path}/pause", responses=errors(*CHANGE_ERRORS), **change)
    def pause(id: str) -> Response:  # noqa: A002
        """Pause a source until it is resumed."""
        return reply(engine.pause(id))

    @api.post("/sources/{id:path}/resume", responses=errors(*CHANGE_ERRORS), **change)
    def resume(id: str) -> Response:  # noqa: A002
        """Resume a paused source."""
        return reply(engine.resume(id))

    @api.post("/sources/{id:path}/record", responses=errors(*CHANGE_ERRORS), **change)
    def record(id: str) -> Response:  # noqa: A002
        """Record a clip of a source now, with every stage that records."""
        return reply(engine.record(id))

    @api.put("/sources/{id:path}", responses=errors(*LOCKED_ERRORS, 403, 404, 409, 422), **change)
    def replace(id: str, new: api_models.ChangedSource) -> Response:  # noqa: A002
        """Change the address or options of a source, and restart it; omitted fields are kept."""
        return reply(engine.change(id, new))

    @api.delete(
        "/sources/{id:path}", status_code=204, tags=["sources"], dependencies=LOCKED, responses=errors(*CHANGE_ERRORS)
    )
    def remove(id: str) -> Response:  # noqa: A002
        """Remove a source; its decoded frames are still processed."""
        engine.remove(id)
        return Response(status_code=204)

    @api.patch(
        "/stages/{id}", tags=["stages"], dependencies=LOCKED, response_model=api_models.StageView,
        responses=errors(*LOCKED_ERRORS, 404, 422),
    )  # fmt: skip
    def set_(id: str, values: dict[str, Any]) -> Response:  # noqa: A002
        """Change settings of a running stage: all of them, or none if one is invalid."""
        return reply(engine.set(id, values))
