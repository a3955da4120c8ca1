"""The table of the audit: who changed what, when, and from where."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

KEPT_S = 365 * 86_400.0
"""How long entries are kept, in seconds."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change.

    Attributes:
        time_s: wall clock in seconds since 1970.
        who: name of the user.
        address: network address of the client.
        action: what was done, such as `pause`.
        target: to what, such as the id of a source.
        detail: further text.
        number: increases with each entry; 0 before it is written.
    """

    time_s: float
    who: str
    address: str
    action: str
    target: str
    detail: str
    number: int = 0


def add_entry(connection: sqlite3.Connection, one: AuditEntry) -> None:
    """Insert an entry."""
    connection.execute(
        "INSERT INTO audit (time_s, who, address, action, target, detail) VALUES (?, ?, ?, ?, ?, ?)",
        (one.time_s, one.who, one.address, one.action, one.target, one.detail),
    )


def find_entries(
    connection: sqlite3.Connection, limit: int, before: int | None, who: str | None, action: str | None
) -> list[AuditEntry]:
    """The latest entries, newest first, with a number below `before`."""
    rows = connection.execute(
        "SELECT time_s, who, address, action, target, detail, number FROM audit WHERE (?1 IS NULL OR number < ?1) "
        "AND (?2 IS NULL OR who = ?2) AND (?3 IS NULL OR action = ?3) ORDER BY number DESC LIMIT ?4",
        (before, who, action, limit),
    )
    return [AuditEntry(*row) for row in rows]


def remove_entries(connection: sqlite3.Connection, time_s: float) -> int:
    """Remove older entries; return how many."""
    return connection.execute("DELETE FROM audit WHERE time_s < ?", (time_s,)).rowcount
