# SPDX-License-Identifier: Apache-2.0
"""Passwords of people: their rules, and their hashes by argon2id."""

from __future__ import annotations

import secrets
import unicodedata
from functools import cache, partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from argon2 import PasswordHasher

MIN_LENGTH = 12
MAX_LENGTH = 256
ONE_TIME_S = 7 * 86_400.0
"""How long a one-time password is valid, in seconds."""

_MEMORY_KIB = 19_456  # with two passes, the least that OWASP recommends
_PASSES = 2
_AT_ONCE = 2


def check_password(text: str, name: str) -> None:
    """Check a new password. Raises ValueError with the rule; the text never repeats the password."""
    if not MIN_LENGTH <= len(text) <= MAX_LENGTH:
        raise ValueError(f"a password has {MIN_LENGTH} to {MAX_LENGTH} characters, got {len(text)}")
    if name.casefold() in text.casefold() and len(text) < len(name) + MIN_LENGTH:
        raise ValueError("a password must not be the name with a few characters more")
    if len(set(text)) < 5:
        raise ValueError("a password must have at least 5 different characters")


def one_time_password() -> str:
    """A random password of 80 bits that can be read out: four groups of four letters and digits."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
    return "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(4))


async def hash_password(text: str) -> str:
    """The hash of a password, made on a thread."""
    return await anyio.to_thread.run_sync(_hasher().hash, _normal(text), limiter=_limiter())


async def verify_password(text: str, stored: str) -> bool:
    """Whether a password has this hash; with an empty hash, False after the same work.

    So the time of a sign-in does not tell whether there is a person of that name.
    """
    verify = partial(_verify, _normal(text), stored or _dummy_hash())
    return await anyio.to_thread.run_sync(verify, limiter=_limiter()) and bool(stored)


def _verify(text: str, stored: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(stored, text)
    except (VerificationError, InvalidHashError):
        return False


def _normal(text: str) -> str:
    """The same text for each way in which keyboards compose letters with accents."""
    return unicodedata.normalize("NFKC", text).encode("utf-8", "replace").decode()


@cache
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY_KIB, parallelism=1)


@cache
def _dummy_hash() -> str:
    return _hasher().hash(secrets.token_urlsafe(24))


@cache
def _limiter() -> anyio.CapacityLimiter:
    """Bounds the memory and the cores that sign-ins take."""
    return anyio.CapacityLimiter(_AT_ONCE)
