# SPDX-License-Identifier: Apache-2.0
"""The roles of clients, and the token that `streamkit serve` prints or is started with: it has the role admin."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Literal, get_args
from urllib.parse import urlsplit

COOKIE = "streamkit"
MIN_LENGTH = 16

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

Role = Literal["viewer", "operator", "admin"]
"""What a client may do; each role may do what those before it may."""

ROLES: tuple[Role, ...] = get_args(Role)


def covers(role: str, needed: str) -> bool:
    """Whether a role may do what needs the role `needed`; who is not signed in has an empty one."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(needed)  # type: ignore[arg-type]


class Token:
    """The token of one server; compared in constant time.

    Args:
        text: the token, or None to generate one.

    Raises:
        ValueError: it has fewer than 16 characters, which could be guessed.
    """

    def __init__(self, text: str | None = None) -> None:
        self.generated = text is None
        self.text = new_token() if text is None else text
        check_length(self.text)

    def matches(self, text: str) -> bool:
        """Whether `text` is the token."""
        return same(text, self.text)


def new_token() -> str:
    """A random token of 192 bits."""
    return secrets.token_urlsafe(24)


def check_length(text: str) -> None:
    """Reject a token with fewer than 16 characters; raise ValueError."""
    if len(text) < MIN_LENGTH:
        raise ValueError(f"a token has at least {MIN_LENGTH} characters, got {len(text)}")


def bearer(headers: Mapping[str, str]) -> tuple[str, str]:
    """The `Authorization` header of a request, and the token in it; both empty without credentials.

    The token is also empty if the header has another scheme than `Bearer`.
    """
    header = headers.get("authorization", "")
    kind, _, credentials = header.partition(" ")
    if not credentials:
        return "", ""
    return header, credentials.strip() if kind.lower() == "bearer" else ""


def from_this_origin(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a request that has only the page's cookie may use its method.

    A browser also sends the cookie with requests from a page on another port of this host; so such a request must come
    from this origin to change anything.
    """
    origin = headers.get("origin")
    if method in SAFE:
        return True
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")


def same(text: str, other_text: str) -> bool:
    """Whether two texts are equal, in constant time."""
    return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), other_text.encode("utf-8", "surrogateescape"))
