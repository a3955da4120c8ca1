# SPDX-License-Identifier: Apache-2.0
"""The sessions of signed-in browsers. They are kept in a file, so that screens on a wall outlive a restart."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from streamkit.io.private_file import write_private

logger = logging.getLogger(__name__)

IDLE_S = 12 * 3600.0
"""A session without requests for so long ends, in seconds."""

MAX_AGE_S = 7 * 86400.0
"""A session ends after this time in any case, in seconds."""

_SAVE_EVERY_S = 60.0  # the time of the last use is saved at most so often
_MAX_SESSIONS = 1000
_AGENT = 120  # characters that are kept of a browser's description


@dataclass(slots=True)
class BrowserSession:
    """One signed-in browser.

    Attributes:
        id: its public name; the secret in the cookie cannot be derived from it.
        key: the key of the token that it was opened with.
        address: the client's address when it signed in.
        agent: the browser's description of itself.
        begun_s, used_s: when it was opened and last used, in seconds since 1970.
    """

    id: str
    key: str
    address: str
    agent: str
    begun_s: float
    used_s: float


class Sessions:
    """The open sessions. Only hashes of the cookies' values are kept.

    Args:
        clock: the time in seconds since 1970.
        path: a file that keeps them, which only its owner may read; None for memory only. If it cannot be read or
            written, that is logged, and a restart ends the sessions.
    """

    def __init__(self, clock: Callable[[], float] = time.time, path: Path | None = None) -> None:
        self._clock = clock
        self._path = path
        self._saved_s = -_SAVE_EVERY_S
        self._open: dict[str, BrowserSession] = {}
        self._load()

    def open(self, key: str, address: str, agent: str) -> str:
        """Open a session for the token `key`; return the value for the cookie. The oldest of 1,000 others ends."""
        self._discard_expired()
        while len(self._open) >= _MAX_SESSIONS:
            del self._open[min(self._open, key=lambda digest: self._open[digest].used_s)]
        secret = secrets.token_urlsafe(32)
        now_s = self._clock()
        self._open[_digest(secret)] = BrowserSession(secrets.token_hex(6), key, address, agent[:_AGENT], now_s, now_s)
        self._save()
        return secret

    def use(self, cookie: str) -> BrowserSession | None:
        """The session of a cookie, which counts as used now; None if there is none or it has ended.

        The cookie's hash is looked up, so that the time of the look-up tells nothing about a cookie.
        """
        session = self._open.get(digest := _digest(cookie)) if cookie else None
        if session is None:
            return None
        if self._expired(session):
            del self._open[digest]
            return None
        session.used_s = self._clock()
        if session.used_s - self._saved_s >= _SAVE_EVERY_S:
            self._save()
        return session

    def active(self, id_: str) -> bool:
        """Whether a session has not ended; unlike `use`, this does not count as use."""
        return any(session.id == id_ and not self._expired(session) for session in list(self._open.values()))

    def all(self) -> list[BrowserSession]:
        """The open sessions, the last used first."""
        self._discard_expired()
        return sorted(self._open.values(), key=lambda session: -session.used_s)

    def end(self, id_: str) -> bool:
        """End a session; return whether there was one."""
        return self._end(lambda session: session.id == id_)

    def end_of(self, key: str) -> None:
        """End all sessions of a token."""
        self._end(lambda session: session.key == key)

    def _end(self, ends: Callable[[BrowserSession], bool]) -> bool:
        ended = [digest for digest, session in list(self._open.items()) if ends(session)]
        for digest in ended:
            self._open.pop(digest, None)
        if ended:
            self._save()
        return bool(ended)

    def _load(self) -> None:
        try:
            text = self._path.read_text() if self._path is not None else "{}"
            self._open = {digest: BrowserSession(**fields) for digest, fields in json.loads(text).items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError) as error:
            logger.warning(f"the sessions in {self._path} cannot be read, so that browsers must sign in again: {error}")

    def _save(self) -> None:
        self._saved_s = self._clock()
        if self._path is None:
            return
        try:
            sessions = {digest: asdict(session) for digest, session in list(self._open.items())}
            write_private(self._path, json.dumps(sessions))
        except OSError as error:
            logger.warning(f"the sessions cannot be kept in {self._path}, so that a restart ends them: {error}")

    def _expired(self, session: BrowserSession) -> bool:
        now_s = self._clock()
        return now_s - session.used_s > IDLE_S or now_s - session.begun_s > MAX_AGE_S

    def _discard_expired(self) -> None:
        self._end(self._expired)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).hexdigest()
