# SPDX-License-Identifier: Apache-2.0
"""The state of the pipeline: sources, stages and alarms."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from streamkit.serve import api_models
from streamkit.serve.engine import ServeEngine
from streamkit.serve.routes.common import reply
from streamkit.serve.token import covers


def add_pipeline(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes that read the state of the pipeline."""

    @api.get("/status", tags=["pipeline"], response_model=api_models.Status)
    def status() -> Response:
        """The pipeline as a whole."""
        return reply(engine.status())

    @api.get("/sources", tags=["sources"], response_model=list[api_models.SourceView])
    def sources(request: Request) -> Response:
        """List all sources and their state; addresses and options only for operators."""
        return reply(engine.sources(addresses=covers(request.state.role, "operator")))

    @api.get("/stages", tags=["stages"], response_model=list[api_models.StageView])
    def stages() -> Response:
        """The graph: its stages, their inputs and counters, and the settings that can be changed."""
        return reply(engine.stages())
