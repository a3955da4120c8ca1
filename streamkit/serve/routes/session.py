# SPDX-License-Identifier: Apache-2.0
"""Signing in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from streamkit.serve import api_models
from streamkit.serve.access import Access, Identity
from streamkit.serve.access_models import SignedIn
from streamkit.serve.audit import note
from streamkit.serve.routes.common import LOCKED_ERRORS, errors, reply
from streamkit.serve.sessions import MAX_AGE_S
from streamkit.serve.token import COOKIE
from streamkit.serve.token_attempts import TooManyGuesses


def add_session(api: APIRouter, access: Access) -> None:
    """Add the routes to sign in and out."""

    @api.get("/session", tags=["session"], response_model=SignedIn)
    def session(request: Request) -> Response:
        """Who this browser is signed in as."""
        state = request.state
        return reply(SignedIn(state.signed_in, state.name, state.role))

    @api.post("/session", tags=["session"], status_code=204, responses=errors(*LOCKED_ERRORS, 422))
    async def sign_in(credentials: api_models.Credentials, request: Request) -> Response:
        """Sign a browser in with a cookie that scripts cannot read."""
        address = request.client.host if request.client else ""
        identities: list[Identity] = []

        def right() -> bool:
            identities.extend(filter(None, [access.with_token(credentials.token)]))
            return bool(identities)

        try:
            is_right = request.state.guesses.judge(address, credentials.token, right)
        except TooManyGuesses as error:
            raise api_models.RequestRejected(429, str(error), {"retry-after": str(error.wait_s)}) from None
        if not is_right:
            raise api_models.RequestRejected(401, "wrong token; the server prints the admin's token when it starts")
        identity = identities[0]
        note(request, identity.name, who=identity.name, role=identity.role)
        if request.state.session:  # of another token: this browser has one session
            access.sessions.end(request.state.session)
        cookie = access.sessions.open(identity.key, address, request.headers.get("user-agent", ""))
        response = Response(status_code=204)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, cookie, max_age=int(MAX_AGE_S), httponly=True, samesite="strict", secure=secure)
        return response

    @api.delete("/session", tags=["session"], status_code=204)
    def sign_out(request: Request) -> Response:
        """Sign this browser out: its session ends."""
        if request.state.session:
            access.sessions.end(request.state.session)
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response
