# SPDX-License-Identifier: Apache-2.0
"""Alarms, their history and acknowledgement, and what is wrong with the pipeline."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from streamkit.serve import api_models
from streamkit.serve.audit import note
from streamkit.serve.engine import ServeEngine
from streamkit.serve.routes.common import CHANGE_ERRORS, LOCKED_ERRORS, OPERATOR, errors, reply


def add_alarms(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes of alarms and problems."""

    @api.get("/problems", tags=["pipeline"], response_model=list[api_models.PipelineProblem])
    def problems() -> Response:
        """What is wrong with the pipeline, one for each cause, errors first; empty if nothing is."""
        return reply(engine.status_problems())

    @api.post(
        "/problems/acknowledge",
        tags=["pipeline"],
        dependencies=OPERATOR,
        response_model=api_models.PipelineProblem,
        responses=errors(*LOCKED_ERRORS, 404, 422),
    )
    def acknowledge_problem(problem: api_models.AcknowledgedProblem, request: Request) -> Response:
        """Note that a person knows of a problem and its alarms; the note lasts until the problem is over."""
        note(request, problem.id)
        return reply(engine.acknowledge(problem.id))

    @api.get("/alarms", tags=["events"], response_model=list[api_models.AlarmView])
    def alarms() -> Response:
        """The alarms on the pipeline itself, and where they are raised; raising and clearing are events as well."""
        return reply(engine.alarms())

    @api.get("/alarms/history", tags=["events"], response_model=list[api_models.AlarmChange], responses=errors(422))
    def history(limit: Annotated[int, Query(ge=1, le=500, description="maximum number of changes")] = 100) -> Response:
        """The latest raised and cleared alarms since the start, newest first."""
        return reply(engine.alarm_changes(limit))

    @api.post(
        "/alarms/{name}/acknowledge",
        tags=["events"],
        dependencies=OPERATOR,
        response_model=api_models.AlarmView,
        responses=errors(*CHANGE_ERRORS),
    )
    def acknowledge(
        name: Annotated[str, Path(description="name of the alarm")], acknowledgement: api_models.Acknowledgement
    ) -> Response:
        """Note that a person knows of a raised alarm; the note lasts until the alarm is cleared, or the server ends."""
        return reply(engine.acknowledge_alarm(name, acknowledgement.source))
