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
    """A token to create: the name of its owner, its role, and the camera groups that it may see; null for all."""

    name: Annotated[str, Len(1, 64)]
    role: Role
    groups: list[str] | None = None


@dataclass
class NewPerson(RequestBody):
    """A person to create: name, role, and the camera groups that the person may see; null for all cameras."""

    name: Annotated[str, Len(1, 64)]
    role: Role
    groups: list[str] | None = None


@dataclass
class PersonRights(RequestBody):
    """What a person may do from now on."""

    role: Role
    groups: list[str] | None = None


@dataclass
class PasswordChange(RequestBody):
    """The own password, and the one that replaces it."""

    password: Annotated[str, Len(1, 256)]
    new_password: Annotated[str, Len(1, 256)]


@dataclass(slots=True)
class OneTimePassword:
    """A password for one sign-in within 7 days, at which the person chooses another. It is shown here only."""

    name: str
    password: str


@dataclass(slots=True)
class PersonView:
    """A person.

    `origin` is `page` for a person whom an admin created, and `provider` for one of OpenID Connect. `groups` are the
    camera groups that the person may see, null for all cameras. `one_time` is true until the person has chosen a
    password. `created_s` and `seen_s` are in seconds since 1970; `seen_s` is null before the first sign-in.
    """

    name: str
    role: Role
    groups: list[str] | None
    origin: str
    created_s: float
    created_by: str
    one_time: bool
    seen_s: float | None
    sessions: int


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
    groups: list[str] | None


@dataclass(slots=True)
class SessionView:
    """A signed-in browser: who uses it, from which address, and which browser it is.

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
    """Who this browser or token is; `name` and `role` are empty if it is not signed in.

    `groups` are the camera groups that may be seen, null for all cameras. `has_password` is true for a person who may
    change a password here. `people` is true if people can sign in with a name and password, and `provider` is what the
    provider of OpenID Connect is called, empty without one.
    """

    signed_in: bool
    name: str
    role: str
    groups: list[str] | None
    has_password: bool
    people: bool
    provider: str
