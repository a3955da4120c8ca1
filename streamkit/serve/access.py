# SPDX-License-Identifier: Apache-2.0
"""Identities: the tokens of the server, of a file and of the page, and the sessions that were opened with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamkit.core.errors import ConfigError
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.sessions import Sessions
from streamkit.serve.token import COOKIE, Role, Token
from streamkit.serve.token_store import NAME, KnownToken, TokenStore, name_rule, server_token

_MAX_TOKENS = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent a request.

    Attributes:
        name: the owner of the token.
        role: what the token may do.
        key: the token's key.
        session: the id of the browser's session; empty for a request with the token itself.
    """

    name: str
    role: Role
    key: str
    session: str = ""


class Access:
    """The tokens and sessions of one server.

    Args:
        token: the token of `--token`, whose role is admin.
        tokens: those of `--tokens`.
        store: the file of those that were created on the page; None for none.
        sessions: the open sessions.

    Raises:
        ConfigError: a token of the file is called `admin`.
    """

    def __init__(
        self,
        token: Token,
        tokens: Iterable[KnownToken] = (),
        store: Path | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self.sessions = sessions or Sessions()
        self._fixed = [server_token(token.text), *tokens]
        if any(fixed_token.name == "admin" for fixed_token in self._fixed[1:]):
            raise ConfigError("--tokens: the name 'admin' is that of --token; use another name")
        self._store = TokenStore(store) if store is not None else None

    def tokens(self) -> list[KnownToken]:
        """All tokens. One of the page with the name of one of the file is left out."""
        names = {token.name for token in self._fixed}
        stored = self._store.all() if self._store is not None else []
        return [*self._fixed, *(token for token in stored if token.name not in names)]

    def with_token(self, text: str) -> Identity | None:
        """Who has a token. All tokens are compared, so that the time tells nothing about them."""
        matching = [token for token in self.tokens() if token.matches(text)] if text else []
        return Identity(matching[0].name, matching[0].role, matching[0].key) if matching else None

    def with_cookie(self, cookies: Mapping[str, str]) -> Identity | None:
        """Whose session the page's cookie is; the session counts as used."""
        session = self.sessions.use(cookies.get(COOKIE, ""))
        if session is None:
            return None
        for token in self.tokens():
            if token.key == session.key:
                return Identity(token.name, token.role, token.key, session.id)
        self.sessions.end_of(session.key)  # its token was revoked by another process
        return None

    def active(self, identity: Identity) -> bool:
        """Whether a token still exists, and its session has not ended."""
        if not any(token.key == identity.key for token in self.tokens()):
            return False
        return not identity.session or self.sessions.active(identity.session)

    def create(self, name: str, role: Role, by: str) -> str:
        """Create a token; return its text.

        Raises:
            RequestRejected: the name is in use or not allowed, or there are 200 tokens.
        """
        if not NAME.fullmatch(name):
            raise RequestRejected(422, name_rule(name))
        existing = self.tokens()
        if any(token.name == name for token in existing):
            raise RequestRejected(409, f"the name {name!r} has a token already; revoke it first, or use another name")
        if len(existing) >= _MAX_TOKENS or self._store is None:
            raise RequestRejected(409, f"there are {_MAX_TOKENS} tokens, the maximum; revoke one first")
        return self._store.create(name, role, by)

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
