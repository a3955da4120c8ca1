# SPDX-License-Identifier: Apache-2.0
"""People, tokens, sessions and the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from streamkit.serve.access import Access
from streamkit.serve.access_models import NewToken, SessionView, TokenCreated, TokenView
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.audit import AuditEntry, AuditFilter, AuditLog, note
from streamkit.serve.routes.common import ADMIN, LOCKED_ERRORS, VIEWER, errors, reply
from streamkit.serve.routes.people import add_people

_SINCE = "entries from this time on, in seconds since 1970"
_UNTIL = "entries before this time, in seconds since 1970"


def add_access(api: APIRouter, access: Access, log: AuditLog) -> None:
    """Add the routes of people, tokens, sessions and the audit log."""
    add_people(api, access)
    _add_tokens(api, access)
    _add_sessions(api, access)

    @api.get(
        "/audit",
        tags=["access"],
        dependencies=ADMIN,
        response_model=list[AuditEntry],
        responses=errors(*LOCKED_ERRORS, 422, 503),
    )
    def audit(
        who: Annotated[str, Query(max_length=64, description="name of the person or token")] = "",
        action: Annotated[
            str, Query(max_length=64, description="an action such as sources.add, or a topic such as sources")
        ] = "",
        text: Annotated[str, Query(max_length=200, description="a part of the target or of the detail")] = "",
        since_s: Annotated[float | None, Query(ge=0, le=1e12, description=_SINCE)] = None,
        until_s: Annotated[float | None, Query(ge=0, le=1e12, description=_UNTIL)] = None,
        before: Annotated[
            int | None, Query(ge=0, le=2**53, description="number of the last entry of the previous page")
        ] = None,
        failed: Annotated[
            bool | None, Query(description="true for rejected changes only, false for the others")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=500, description="maximum number of entries")] = 100,
    ) -> Response:
        """The changes that clients made or tried, newest first."""
        wanted = AuditFilter(who, action, text, since_s, until_s, before, failed)
        return reply(log.entries(wanted, limit))


def _add_tokens(api: APIRouter, access: Access) -> None:
    @api.get(
        "/tokens", tags=["access"], dependencies=ADMIN, response_model=list[TokenView], responses=errors(*LOCKED_ERRORS)
    )
    def tokens() -> Response:
        """All tokens, without their texts."""
        opened = [open_session.key for open_session in access.sessions.all()]
        return reply(
            [
                TokenView(
                    token.name,
                    token.role,
                    token.origin,
                    token.created_s,
                    token.created_by,
                    opened.count(token.key),
                    None if token.groups is None else list(token.groups),
                )
                for token in access.tokens()
            ]
        )

    @api.post(
        "/tokens",
        tags=["access"],
        dependencies=ADMIN,
        response_model=TokenCreated,
        status_code=201,
        responses=errors(*LOCKED_ERRORS, 409, 422, 503),
    )
    def create(new: NewToken, request: Request) -> Response:
        """Create a token. The response is the only place where its text appears."""
        note(request, new.name, gives=new.role, groups=new.groups)
        text = access.create(new.name, new.role, request.state.name, new.groups)
        return reply(TokenCreated(new.name, new.role, text), 201)

    @api.delete(
        "/tokens/{name}",
        tags=["access"],
        dependencies=ADMIN,
        status_code=204,
        responses=errors(*LOCKED_ERRORS, 404, 409, 503),
    )
    def revoke(name: Annotated[str, Path(description="name of the token")]) -> Response:
        """Revoke a token that was created on the page; its sessions end at once."""
        access.revoke(name)
        return Response(status_code=204)


def _add_sessions(api: APIRouter, access: Access) -> None:
    def visible(request: Request) -> list[SessionView]:
        owners = {session.id: access.owner(session) for session in access.sessions.all()}
        return [
            SessionView(
                session.id,
                owner.name,
                owner.role,
                session.address,
                session.agent,
                round(session.begun_s, 3),
                round(session.used_s, 3),
                session.id == request.state.session,
            )
            for session in access.sessions.all()
            if (owner := owners.get(session.id)) is not None
            and (request.state.role == "admin" or owner.key == request.state.identity.key)
        ]

    @api.get(
        "/sessions",
        tags=["access"],
        dependencies=VIEWER,
        response_model=list[SessionView],
        responses=errors(*LOCKED_ERRORS),
    )
    def sessions(request: Request) -> Response:
        """The signed-in browsers, the last used first: all for an admin, the own ones for others."""
        return reply(visible(request))

    @api.delete(
        "/sessions/{id}", tags=["access"], dependencies=VIEWER, status_code=204, responses=errors(*LOCKED_ERRORS, 404)
    )
    def end(id: Annotated[str, Path(description="id of the session")], request: Request) -> Response:  # noqa: A002
        """Sign a browser out: any of them for an admin, the own ones for others."""
        view = next((view for view in visible(request) if view.id == id), None)
        if view is None:
            raise RequestRejected(404, f"there is no session {id!r}")
        note(request, view.name, session=id)
        access.sessions.end(id)
        return Response(status_code=204)
