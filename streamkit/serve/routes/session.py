"""Signing in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from streamkit.serve import api_models
from streamkit.serve.guesses import TooManyGuesses
from streamkit.serve.routes.common import LOCKED_ERRORS, errors, reply
from streamkit.serve.token import COOKIE, Token


def add_session(api: APIRouter, token: Token) -> None:
    """Add the routes to sign in and out."""

    @api.get("/session", tags=["session"], response_model=dict[str, bool])
    def session(request: Request) -> Response:
        """Whether this browser is signed in."""
        return reply({"signed_in": request.state.signed_in})

    @api.post("/session", tags=["session"], status_code=204, responses=errors(*LOCKED_ERRORS, 422))
    async def sign_in(given: api_models.Credentials, request: Request) -> Response:
        """Sign a browser in with a cookie that scripts cannot read."""
        address = request.client.host if request.client else ""
        try:
            right = request.state.guesses.judge(address, given.token, lambda: token.matches(given.token))
        except TooManyGuesses as error:
            raise api_models.RequestRejected(429, str(error), {"retry-after": str(error.wait_s)}) from None
        if not right:
            raise api_models.RequestRejected(401, "wrong token; the server prints the token when it starts")
        made = Response(status_code=204)
        secure = request.url.scheme == "https"
        made.set_cookie(COOKIE, token.cookie, max_age=30 * 86400, httponly=True, samesite="strict", secure=secure)
        return made

    @api.delete("/session", tags=["session"], status_code=204)
    def sign_out() -> Response:
        """Sign this browser out."""
        made = Response(status_code=204)
        made.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return made
