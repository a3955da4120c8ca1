"""Access control with one token: in a header for programs, in a cookie for the page."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

COOKIE = "streamkit"
MIN_LENGTH = 16

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""


class Token:
    """The token of one server; compared in constant time.

    Args:
        text: the token, or None to generate one.

    Raises:
        ValueError: it has fewer than 16 characters, which could be guessed.
    """

    def __init__(self, text: str | None = None) -> None:
        self.generated = text is None
        self.text = secrets.token_urlsafe(24) if text is None else text
        if len(self.text) < MIN_LENGTH:
            raise ValueError(f"a token has at least {MIN_LENGTH} characters, got {len(self.text)}")

    def matches(self, given: str) -> bool:
        """Whether `given` is the token."""
        return _same(given, self.text)

    @property
    def cookie(self) -> str:
        """The value of the page's cookie: derived from the token, without revealing it."""
        return hmac.new(self.text.encode(), b"streamkit page", hashlib.sha256).hexdigest()

    @staticmethod
    def given(headers: Mapping[str, str], cookies: Mapping[str, str]) -> str:
        """The credentials of a request, right or wrong: its `Authorization` header, else the page's cookie, else ""."""
        header = headers.get("authorization", "")
        return header if header.partition(" ")[2] else cookies.get(COOKIE, "")

    def presented_in(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> bool:
        """Whether a request has the token, in `Authorization: Bearer TOKEN` or the page's cookie."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if given:
            return scheme.lower() == "bearer" and self.matches(given.strip())
        return _same(cookies.get(COOKIE, ""), self.cookie)

    def allows(self, method: str, headers: Mapping[str, str], cookies: Mapping[str, str]) -> bool:
        """Whether a request has the token, and may use its method.

        A browser also sends the cookie with requests from a page on another port of this host; so a request with only
        the cookie must come from this origin to change anything.
        """
        if not self.presented_in(headers, cookies):
            return False
        origin = headers.get("origin")
        if method in SAFE or origin is None or headers.get("authorization", "").partition(" ")[2]:
            return True
        return urlsplit(origin).netloc == headers.get("host", "")


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape"))
