# SPDX-License-Identifier: Apache-2.0
"""Signing in and out, with a token, with a name and password, or at a provider; and changing the own password."""

from __future__ import annotations

import logging
from functools import partial

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from streamkit.serve import api_models
from streamkit.serve.access import Access
from streamkit.serve.access_models import PasswordChange, SignedIn
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.audit import AuditLog, note
from streamkit.serve.identity import Identity
from streamkit.serve.oidc import CALLBACK, PENDING_S, START, Provider, SignInFailed
from streamkit.serve.passwords import check_password
from streamkit.serve.people import Person
from streamkit.serve.routes.common import LOCKED_ERRORS, VIEWER, errors, reply
from streamkit.serve.sessions import MAX_AGE_S
from streamkit.serve.token import COOKIE
from streamkit.serve.token_attempts import TooManyGuesses

logger = logging.getLogger(__name__)

_WRONG_TOKEN = "wrong token; the server prints the admin's token when it starts"
_WRONG_PASSWORD = "wrong name or password; an admin can reset the password in the view Access"
_PENDING_COOKIE = "streamkit_sign_in"


def add_session(api: APIRouter, access: Access) -> None:
    """Add the routes to sign in and out."""

    @api.get("/session", tags=["session"], response_model=SignedIn)
    def session(request: Request) -> Response:
        """Who this browser is signed in as, and how people sign in."""
        state = request.state
        identity: Identity | None = state.identity
        groups = None if identity is None or identity.groups is None else sorted(identity.groups)
        has_password = identity is not None and access.person(identity) is not None
        people = any(person.origin == "page" for person in access.people())
        oidc = access.external.oidc
        label = "" if oidc is None else oidc.label
        return reply(SignedIn(state.signed_in, state.name, state.role, groups, has_password, people, label))

    @api.post("/session", tags=["session"], status_code=204, responses=errors(*LOCKED_ERRORS, 409, 422, 503))
    async def sign_in(credentials: api_models.Credentials, request: Request) -> Response:
        """Sign a browser in with a cookie that scripts cannot read, with a token, or a name and password.

        409 for a one-time password without `new_password`.
        """
        if bool(credentials.token) == bool(credentials.name and credentials.password):
            raise RequestRejected(422, "give either token, or name and password")
        if credentials.token:
            identity = await _with_token(access, credentials.token, request)
        else:
            identity = await _with_password(access, credentials, request)
        note(request, identity.name, who=identity.name, role=identity.role)
        return _opened(access, request, identity.key, Response(status_code=204))

    @api.put(
        "/session/password",
        tags=["session"],
        dependencies=VIEWER,
        status_code=204,
        responses=errors(*LOCKED_ERRORS, 409, 422, 503),
    )
    async def change_password(change: PasswordChange, request: Request) -> Response:
        """Change the own password. The other sessions end, and this browser gets a new one."""
        person = access.person(request.state.identity)
        if person is None:
            raise RequestRejected(409, f"{request.state.name!r} has no password here: only people sign in with one")
        _check(change.new_password, person.name, change.password)
        if await _verified(access, person.name, change.password, request) is None:
            raise RequestRejected(403, "the present password is wrong")
        note(request, person.name)
        await access.choose_password(person, change.new_password)
        response = Response(status_code=204)
        return _opened(access, request, person.key, response) if request.state.session else response

    @api.delete("/session", tags=["session"], status_code=204)
    def sign_out(request: Request) -> Response:
        """Sign this browser out: its session ends."""
        if request.state.session:
            access.sessions.end(request.state.session)
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response


async def _with_token(access: Access, token: str, request: Request) -> Identity:
    identities: list[Identity] = []

    def right() -> bool:
        identities.extend(filter(None, [access.with_token(token)]))
        return bool(identities)

    try:
        is_right = request.state.guesses.judge(_address(request), token, right)
    except TooManyGuesses as error:
        raise _too_many(error) from None
    if not is_right:
        raise RequestRejected(401, _WRONG_TOKEN)
    return identities[0]


async def _with_password(access: Access, credentials: api_models.Credentials, request: Request) -> Identity:
    person = await _verified(access, credentials.name, credentials.password, request)
    if person is None:
        if access.has_person(credentials.name):  # what is no name may be a password in the wrong field
            note(request, credentials.name)
        raise RequestRejected(401, _WRONG_PASSWORD)
    if person.one_time_until_s is not None:
        if not credentials.new_password:
            raise RequestRejected(409, "this password is for one sign-in: choose a new one")
        _check(credentials.new_password, person.name, credentials.password)
        person = await access.choose_password(person, credentials.new_password)
    access.signed_in(person)
    return Identity(person.name, person.role, person.key)


async def _verified(access: Access, name: str, password: str, request: Request) -> Person | None:
    """The person with this name and password. Raises RequestRejected if the client has to wait."""
    people: list[Person] = []

    async def right() -> bool:
        people.extend(filter(None, [await access.with_password(name, password)]))
        return bool(people)

    try:
        is_right = await request.state.guesses.judge_slowly(_address(request), right)
    except TooManyGuesses as error:
        raise _too_many(error) from None
    return people[0] if is_right else None


def _check(new_password: str, name: str, password: str) -> None:
    try:
        check_password(new_password, name)
    except ValueError as error:
        raise RequestRejected(422, f"new_password: {error}") from None
    if new_password == password:
        raise RequestRejected(422, "new_password: it must be another one than before")


def _too_many(error: TooManyGuesses) -> RequestRejected:
    return RequestRejected(429, str(error), {"retry-after": str(error.wait_s)})


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _opened(access: Access, request: Request, key: str, response: Response) -> Response:
    """A response that opens a session, in place of the one that this browser has."""
    if request.state.session:
        access.sessions.end(request.state.session)
    cookie = access.sessions.open(key, _address(request), request.headers.get("user-agent", ""))
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, cookie, max_age=int(MAX_AGE_S), httponly=True, samesite="strict", secure=secure)
    return response


# ------------------------------------------------------------------------------------------------------ OpenID Connect


def add_provider(api: APIRouter, access: Access, log: AuditLog, provider: Provider) -> None:
    """Add the routes that lead a browser to the provider and back. They only ever lead to the provider or the page."""

    @api.get(START, include_in_schema=False)
    async def begin(request: Request) -> Response:
        try:
            address, browser = await provider.begin()
        except SignInFailed as error:
            return _failed(error)
        response = RedirectResponse(address, 303)
        response.set_cookie(
            _PENDING_COOKIE,
            browser,
            max_age=int(PENDING_S),
            path=request.url.path,
            httponly=True,
            samesite="lax",  # the provider leads back from its own site
            secure=request.url.scheme == "https",
        )
        return response

    @api.get(CALLBACK, include_in_schema=False)
    async def finish(request: Request) -> Response:
        try:
            claims = await provider.finish(request.query_params, request.cookies.get(_PENDING_COOKIE, ""))
            person = access.from_provider(claims)
        except SignInFailed as error:
            return _failed(error)
        add = partial(log.add, person.name, "session.add", person.name, {"provider": person.created_by})
        await anyio.to_thread.run_sync(partial(add, role=person.role, address=_address(request)))
        response = _opened(access, request, person.key, RedirectResponse("/", 303))
        response.delete_cookie(_PENDING_COOKIE, path=request.url.path.removesuffix("/callback"), httponly=True)
        return response


def _failed(error: SignInFailed) -> Response:
    """Lead back to the page, which shows what the code means; the log has the details."""
    logger.warning(f"a sign-in at the provider failed: {error}")
    return RedirectResponse(f"/#sign-in={error.code}", 303)
