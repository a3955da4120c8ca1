# SPDX-License-Identifier: Apache-2.0
"""Request and response bodies of tokens and sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Len

from streamkit.serve.api_models import RequestBody
from streamkit.serve.token import Role


@dataclass
class NewToken(RequestBody):
    """A token to create: the name of its owner, and its role: viewer, operator or admin."""

    name: Annotated[str, Len(1, 64)]
    role: Role


@dataclass(slots=True)
class TokenCreated:
    """A new token. Its text is shown here only."""

    name: str
    role: Role
    token: str


@dataclass(slots=True)
class TokenView:
    """A token without its text.

    `origin` is `server` for the token of `--token`, `file` for one of `--tokens`, and `page` for one that was created
    by an admin; only those of the page can be revoked here. `created_s` is in seconds since 1970; `sessions` is the
    number of browsers that are signed in with it.
    """

    name: str
    role: Role
    origin: str
    created_s: float | None
    created_by: str
    sessions: int


@dataclass(slots=True)
class SessionView:
    """A signed-in browser: whose token it used, from which address, and which browser it is.

    `begun_s` and `used_s` are in seconds since 1970; `own` marks the session of this request.
    """

    id: str
    name: str
    role: Role
    address: str
    agent: str
    begun_s: float
    used_s: float
    own: bool


@dataclass(slots=True)
class SignedIn:
    """Who this browser or token is; `name` and `role` are empty if it is not signed in."""

    signed_in: bool
    name: str
    role: str
