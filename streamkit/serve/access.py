# SPDX-License-Identifier: Apache-2.0
"""Identities: people, the tokens of the server, of a file and of the page, and the sessions opened with them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from streamkit.core.errors import ConfigError
from streamkit.serve.access_file import AccessFile
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.identity import Identity, checked_groups
from streamkit.serve.oidc import ProviderClaims, SignInFailed
from streamkit.serve.passwords import hash_password, one_time_password, verify_password
from streamkit.serve.people import MAX_PEOPLE, PeopleStore, Person
from streamkit.serve.sessions import BrowserSession, Sessions
from streamkit.serve.token import COOKIE, Role, Token
from streamkit.serve.token_store import NAME, KnownToken, TokenStore, name_rule, server_token

_MAX_TOKENS = 200


class Access:
    """The people, tokens and sessions of one server.

    Args:
        token: the token of `--token`, whose role is admin.
        tokens: those of `--tokens`.
        store: the file of those that were created on the page; None for none.
        sessions: the open sessions.
        people: those who sign in with their names; None for none.
        external: who else signs people in: a provider or a proxy.

    Raises:
        ConfigError: a token of the file is called `admin`.
    """

    def __init__(
        self,
        token: Token,
        tokens: Iterable[KnownToken] = (),
        store: Path | None = None,
        sessions: Sessions | None = None,
        people: PeopleStore | None = None,
        external: AccessFile | None = None,
    ) -> None:
        self.sessions = sessions or Sessions()
        self.external = external or AccessFile()
        self._fixed = [server_token(token.text), *tokens]
        if any(fixed_token.name == "admin" for fixed_token in self._fixed[1:]):
            raise ConfigError("--tokens: the name 'admin' is that of --token; use another name")
        self._store = TokenStore(store) if store is not None else None
        self._people = people

    @property
    def private(self) -> bool:
        """Whether people are configured, so that reading needs a sign-in."""
        return self.external.oidc is not None or self.external.proxy is not None or bool(self.people())

    def tokens(self) -> list[KnownToken]:
        """All tokens. One of the page with the name of one of the file is left out."""
        names = {token.name for token in self._fixed}
        stored = self._store.all() if self._store is not None else []
        return [*self._fixed, *(token for token in stored if token.name not in names)]

    def people(self) -> list[Person]:
        """All people; those of a provider only while there is one."""
        people = self._people.all() if self._people is not None else []
        return [person for person in people if person.origin == "page" or self.external.oidc is not None]

    def with_token(self, text: str) -> Identity | None:
        """Who has a token. All tokens are compared, so that the time tells nothing about them."""
        matching = [token for token in self.tokens() if token.matches(text)] if text else []
        return _of_token(matching[0]) if matching else None

    def with_cookie(self, cookies: Mapping[str, str]) -> Identity | None:
        """Whose session the page's cookie is; the session counts as used."""
        session = self.sessions.use(cookies.get(COOKIE, ""))
        if session is None:
            return None
        identity = self.with_key(session.key)
        if identity is None:  # removed by another process
            self.sessions.end_of(session.key)
            return None
        return replace(identity, session=session.id)

    def with_headers(self, name: str, groups: Iterable[str]) -> Identity | None:
        """The person whom the proxy names; None if the groups give no rights, or the name is in use."""
        granted = self.external.granted(set(groups))
        if granted is None or not NAME.fullmatch(name) or self._is_used(name):
            return None
        role, cameras = granted
        return Identity(name, role, f"proxy:{name}", groups=None if cameras is None else frozenset(cameras))

    def active(self, identity: Identity) -> bool:
        """Whether a person or token still has the same rights, and the session has not ended."""
        if identity.key.startswith("proxy:"):
            return True  # the rights are those of each request
        current = self.with_key(identity.key)
        if current is None or (current.role, current.groups) != (identity.role, identity.groups):
            return False
        return not identity.session or self.sessions.active(identity.session)

    def owner(self, session: BrowserSession) -> Identity | None:
        """Whose session it is."""
        return self.with_key(session.key)

    def with_key(self, key: str) -> Identity | None:
        """Who has a key; None if the person or token was removed."""
        identities = (_of_token(token) for token in self.tokens() if token.key == key)
        people = (_of_person(person) for person in self.people() if person.key == key)
        return next(identities, None) or next(people, None)

    def _is_used(self, name: str) -> bool:
        """Whether a name has a person or a token; capital letters do not matter."""
        names = [*(token.name for token in self.tokens()), *(person.name for person in self.people())]
        return name.casefold() in (used.casefold() for used in names)

    def _check_name(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise RequestRejected(422, name_rule(name))
        if any(token.name.casefold() == name.casefold() for token in self.tokens()):
            raise RequestRejected(409, f"the name {name!r} has a token already; revoke it first, or use another name")
        if self._is_used(name):
            raise RequestRejected(409, f"there is a person {name!r} already; use another name")

    # ------------------------------------------------------------------------------------------------------ tokens

    def create(self, name: str, role: Role, by: str, groups: Iterable[str] | None = None) -> str:
        """Create a token; return its text.

        Raises:
            RequestRejected: the name is in use or not allowed, the groups are not, or there are 200 tokens.
        """
        self._check_name(name)
        if len(self.tokens()) >= _MAX_TOKENS or self._store is None:
            raise RequestRejected(409, f"there are {_MAX_TOKENS} tokens, the maximum; revoke one first")
        return self._store.create(name, role, by, _groups(role, groups))

    def revoke(self, name: str) -> None:
        """Revoke a token that was created on the page, and end its sessions.

        Raises:
            RequestRejected: there is none, or it comes from the command line.
        """
        token = next((candidate for candidate in self.tokens() if candidate.name == name), None)
        if token is None:
            raise RequestRejected(404, f"there is no token of {name!r}")
        if token.origin != "page" or self._store is None:
            option = "--token" if token.origin == "server" else "--tokens"
            raise RequestRejected(
                409, f"the token of {name!r} comes from {option}; change it there and restart the server"
            )
        self._store.remove(name)
        self.sessions.end_of(token.key)

    # ------------------------------------------------------------------------------------------------------ people
    # Passwords are hashed on threads; the store is changed on the server's loop only.

    async def create_person(self, name: str, role: Role, groups: Iterable[str] | None, by: str) -> str:
        """Create a person; return the password for the first sign-in. Raises RequestRejected."""
        self._check_name(name)
        checked = _groups(role, groups)
        password = one_time_password()
        password_hash = await hash_password(password)
        self._check_name(name)  # another request may have been faster
        if self._people is None or len(self._people.all()) >= MAX_PEOPLE:
            raise RequestRejected(409, f"there are {MAX_PEOPLE:,} people, the maximum; remove one first")
        self._people.create(name, role, checked, by, password_hash)
        return password

    async def reset_password(self, name: str) -> str:
        """Replace a person's password by a one-time password, which is returned; the sessions end."""
        self._local(name)
        password = one_time_password()
        password_hash = await hash_password(password)
        store, person = self._local(name)
        store.reset(person, password_hash)
        self.sessions.end_of(person.key)
        return password

    def change_person(self, name: str, role: Role, groups: Iterable[str] | None) -> Person:
        """Change what a person may do; what the person watches at the moment ends. Raises RequestRejected."""
        store, person = self._local(name)
        return store.put(replace(person, role=role, groups=_groups(role, groups)))

    def remove_person(self, name: str) -> None:
        """Remove a person, and end the sessions. Raises RequestRejected."""
        store, person = self._named(name)
        store.remove(person)
        self.sessions.end_of(person.key)

    async def with_password(self, name: str, password: str) -> Person | None:
        """The person with this name and password; takes as long if there is none."""
        person = self._people.named(name) if self._people is not None else None
        is_right = await verify_password(password, person.hash if person is not None else "")
        if person is None or not is_right or self._people is None or self._people.expired(person):
            return None
        current = self._people.with_key(person.key)
        is_current = current is not None and current.hash == person.hash  # or it was reset while this one was checked
        return current if is_current else None

    async def choose_password(self, person: Person, password: str) -> Person:
        """Replace a person's password, and end all sessions."""
        password_hash = await hash_password(password)
        store, current = self._named(person.name)
        if current.hash != person.hash:
            raise RequestRejected(409, "the password was changed meanwhile; sign in again")
        chosen = store.choose(current, password_hash)
        self.sessions.end_of(person.key)
        return chosen

    def person(self, identity: Identity) -> Person | None:
        """The person with a password who sent a request; None for tokens and for people of others."""
        people = (person for person in self.people() if person.key == identity.key and person.origin == "page")
        return next(people, None)

    def has_person(self, name: str) -> bool:
        """Whether there is a person of that name."""
        return self._people is not None and self._people.named(name) is not None

    def signed_in(self, person: Person) -> None:
        """Note that a person has signed in."""
        if self._people is not None:
            self._people.seen(person)

    def from_provider(self, claims: ProviderClaims) -> Person:
        """The person that the provider names, with the rights of this sign-in.

        Raises:
            SignInFailed: the groups give no rights, or the name cannot be used.
        """
        provider = self.external.oidc
        granted = self.external.granted(claims.groups)
        if provider is None or self._people is None or granted is None:
            raise SignInFailed("rights", f"none of the groups of {claims.name[:80]!r} has rights here: see grants")
        key = provider_key(provider.issuer, claims.subject)
        previous = self._people.with_key(key)
        renamed = previous is None or previous.name.casefold() != claims.name.casefold()
        if not NAME.fullmatch(claims.name) or (renamed and self._is_used(claims.name)):
            raise SignInFailed("failed", f"the name {claims.name[:80]!r} is not allowed, or in use here")
        created_s = previous.created_s if previous is not None else round(time.time(), 3)
        person = Person(key, claims.name, *granted, "", "provider", created_s, provider.issuer)
        return self._people.seen(person)

    def _named(self, name: str) -> tuple[PeopleStore, Person]:
        person = self._people.named(name) if self._people is not None else None
        if self._people is None or person is None:
            raise RequestRejected(404, f"there is no person {name!r}")
        return self._people, person

    def _local(self, name: str) -> tuple[PeopleStore, Person]:
        store, person = self._named(name)
        if person.origin != "page":
            raise RequestRejected(409, f"{name!r} signs in at {person.created_by}; change password and groups there")
        return store, person


def provider_key(issuer: str, subject: str) -> str:
    """The key of a person of a provider."""
    return f"oidc:{hashlib.sha256(f'{issuer} {subject}'.encode()).hexdigest()[:32]}"


def _groups(role: Role, groups: Iterable[str] | None) -> tuple[str, ...] | None:
    try:
        return checked_groups(role, groups)
    except ValueError as error:
        raise RequestRejected(422, str(error)) from None


def _of_token(token: KnownToken) -> Identity:
    return Identity(token.name, token.role, token.key, groups=_as_set(token.groups))


def _of_person(person: Person) -> Identity:
    return Identity(person.name, person.role, person.key, groups=_as_set(person.groups))


def _as_set(groups: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if groups is None else frozenset(groups)
