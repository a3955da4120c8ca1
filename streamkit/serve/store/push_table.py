# SPDX-License-Identifier: Apache-2.0
"""The tables of Web Push: browsers that get alerts, the server's key, and what is silenced."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

SCHEMA = """
CREATE TABLE IF NOT EXISTS push_subscriptions (
    endpoint TEXT PRIMARY KEY, p256dh TEXT NOT NULL, auth TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS push_silence (source TEXT PRIMARY KEY, until_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS push_settings (name TEXT PRIMARY KEY, value);
"""

_KEY = "private_key"
_ESCALATE = "escalate_s"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A browser that gets alerts.

    Attributes:
        endpoint: the address at its push service; a secret, as whoever has it can send.
        p256dh: its public key, in base64.
        auth: its shared secret, in base64.
        owner: name of the person.
        key: key of the person's token or account, which ends with it.
    """

    endpoint: str
    p256dh: str
    auth: str
    owner: str
    key: str


@dataclass(frozen=True, slots=True)
class Quiet:
    """What is silenced, and when alerts are sent again.

    Attributes:
        until_s: by source, or "" for all, the time in seconds since 1970 until which nothing is sent.
        escalate_s: seconds after which an alert that no one has reviewed is sent once more; None for never.
    """

    until_s: dict[str, float]
    escalate_s: float | None


def add(connection: sqlite3.Connection, subscription: Subscription, limit: int) -> bool:
    """Add or renew a subscription; return False if there are `limit` others."""
    (others,) = connection.execute(
        "SELECT COUNT(*) FROM push_subscriptions WHERE endpoint != ?", (subscription.endpoint,)
    ).fetchone()
    if others >= limit:
        return False
    values = (subscription.endpoint, subscription.p256dh, subscription.auth, subscription.owner, subscription.key)
    connection.execute("INSERT OR REPLACE INTO push_subscriptions VALUES (?, ?, ?, ?, ?)", values)
    return True


def remove(connection: sqlite3.Connection, endpoint: str) -> None:
    """Remove a subscription."""
    connection.execute("DELETE FROM push_subscriptions WHERE endpoint = ?", (endpoint,))


def subscriptions(connection: sqlite3.Connection) -> list[Subscription]:
    """All subscriptions, the oldest first."""
    rows = connection.execute("SELECT endpoint, p256dh, auth, owner, key FROM push_subscriptions ORDER BY rowid")
    return [Subscription(*row) for row in rows]


def quiet(connection: sqlite3.Connection) -> Quiet:
    """What is silenced, also in the past, and when alerts are sent again."""
    row = connection.execute("SELECT value FROM push_settings WHERE name = ?", (_ESCALATE,)).fetchone()
    silenced = dict(connection.execute("SELECT source, until_s FROM push_silence").fetchall())
    return Quiet(silenced, None if row is None else row[0])


def silence(connection: sqlite3.Connection, source: str, until_s: float) -> None:
    """Set until when nothing is sent about a source."""
    connection.execute("INSERT OR REPLACE INTO push_silence VALUES (?, ?)", (source, until_s))


def escalate_after(connection: sqlite3.Connection, seconds: float | None) -> None:
    """Set when alerts are sent again."""
    connection.execute("INSERT OR REPLACE INTO push_settings VALUES (?, ?)", (_ESCALATE, seconds))


def private_key(connection: sqlite3.Connection) -> bytes | None:
    """The server's private key as PEM; None until it has one."""
    row = connection.execute("SELECT value FROM push_settings WHERE name = ?", (_KEY,)).fetchone()
    return None if row is None else bytes(row[0])


def keep_private_key(connection: sqlite3.Connection, pem: bytes) -> bytes:
    """Keep a private key unless there is one; return the key that is kept."""
    connection.execute("INSERT OR IGNORE INTO push_settings VALUES (?, ?)", (_KEY, pem))
    return private_key(connection) or pem
