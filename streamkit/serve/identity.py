# SPDX-License-Identifier: Apache-2.0
"""Who sends a request, and which cameras that person or program may see."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from streamkit.config.plan import SourceConfig
from streamkit.config.source_details import MAX_CHARS
from streamkit.serve.token import Role

MAX_GROUPS = 100


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent a request.

    Attributes:
        name: the person, or the owner of the token.
        role: what the person or token may do.
        key: the key of the person or token.
        session: the id of the browser's session; empty for a request without one.
        groups: the camera groups that the person or token may see; None for all cameras.
    """

    name: str
    role: Role
    key: str
    session: str = ""
    groups: frozenset[str] | None = None


IDENTITY: ContextVar[Identity | None] = ContextVar("identity", default=None)
"""Who sent the request that is being served; None without a sign-in, and outside of requests."""


def may_see(identity: Identity | None, source: SourceConfig | None) -> bool:
    """Whether a client may see a source; with a limit, none that is not there or has no group.

    Args:
        identity: who; None for the server itself, and for readers without a sign-in where those may read.
        source: the source as it is configured now; None if it is not there.
    """
    if identity is None or identity.groups is None:
        return True
    return source is not None and source.details.group in identity.groups


def checked_groups(role: Role, groups: Iterable[str] | None) -> tuple[str, ...] | None:
    """Camera groups as they are stored: without repetition, in order. Raises ValueError with the rule."""
    if groups is None:
        return None
    names = sorted(set(groups))
    if role == "admin":
        raise ValueError("an admin sees all cameras: leave groups out")
    if len(names) > MAX_GROUPS:
        raise ValueError(f"groups must be at most {MAX_GROUPS}, got {len(names)}")
    for name in names:
        if not name.strip() or len(name) > MAX_CHARS or not name.isprintable():
            raise ValueError(f"a camera group has 1 to {MAX_CHARS} printable characters, got {name[:MAX_CHARS]!r}")
    return tuple(names)
