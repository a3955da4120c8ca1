# SPDX-License-Identifier: Apache-2.0
"""The audit log: who changed what, from where, and with which result. Secrets are never stored."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import Request
from starlette.responses import JSONResponse

from streamkit.core.errors import OutputError
from streamkit.core.logs import REQUEST_ID
from streamkit.core.masking import mask_address
from streamkit.io.database_error import database_error
from streamkit.serve.request_id import error_body
from streamkit.serve.response_status import StatusWatcher
from streamkit.serve.token import SAFE

logger = logging.getLogger(__name__)

RETENTION_S = 365 * 86400.0
"""How long entries are kept, in seconds."""

MAX_ENTRIES = 100_000
"""How many entries are kept, about 30 MB."""

MAX_REJECTED = 10_000
"""How many rejected changes and failed sign-ins are kept: who may change nothing must not push out the others."""

MAX_WAITING = 10_000
"""How many entries may wait while the file cannot be written; then changes are refused."""

_PRUNE_EVERY = 100
_SECRET = re.compile(r"pass|pwd|token|secret|auth|login|cred|(?<![a-z])(api)?key(?![a-z])|signature", re.IGNORECASE)
_LONGEST = 500
_FAILED_EVERY_S = 1.0
_BUSY_S = 2.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS entries (number INTEGER PRIMARY KEY AUTOINCREMENT, time_s REAL NOT NULL, "
    "who TEXT NOT NULL, role TEXT NOT NULL, address TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, "
    "detail TEXT NOT NULL, status INTEGER NOT NULL, outcome TEXT NOT NULL, request_id TEXT NOT NULL)"
)
_COLUMNS = "number, time_s, who, role, address, action, target, detail, status, outcome, request_id"
_WANTED = (
    "(:who = '' OR who = :who) AND "
    "(:action = '' OR action = :action OR substr(action, 1, length(:action) + 1) = :action || '.') AND "
    "instr(lower(target || ' ' || detail), lower(:text)) > 0 AND "
    "time_s BETWEEN ifnull(:since_s, -9e99) AND ifnull(:until_s, 9e99) AND number < ifnull(:before, 9e18) AND "
    "ifnull((status >= 400) = :failed, 1)"
)  # the fields of AuditFilter
_VERBS = {"POST": "add", "PUT": "change", "PATCH": "change", "DELETE": "remove"}


@dataclass(slots=True)
class AuditEntry:
    """One change, or an attempt.

    `who` is the owner of the token, empty for a failed sign-in; `action` is such as `sources.add`; `target` is what
    was changed; `detail` has the new values, with secrets masked; `status` is the HTTP status of the response, and
    `outcome` its error, or `done`; `request_id` is the id of the request.
    """

    number: int
    time_s: float
    who: str
    role: str
    address: str
    action: str
    target: str
    detail: dict[str, Any]
    status: int
    outcome: str
    request_id: str = ""


@dataclass(slots=True)
class AuditFilter:
    """Which entries are wanted; empty fields select all.

    Attributes:
        who: the owner of the token.
        action: the action, or its topic, such as `sources`.
        text: a part of the target or the detail.
        since_s, until_s: the time, in seconds since 1970.
        before: entries with a lower number.
        failed: True for rejected changes only, False for the others.
    """

    who: str = ""
    action: str = ""
    text: str = ""
    since_s: float | None = None
    until_s: float | None = None
    before: int | None = None
    failed: bool | None = None


class AuditLog:
    """The audit log of a server, in a SQLite file that only its owner may read. Thread-safe.

    While the file cannot be written, entries wait in memory.

    Args:
        path: the file; its folder is created if needed.
        clock: the time in seconds since 1970.

    Raises:
        OutputError: the file cannot be read or written.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._added = 0
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._reason = ""  # how many entries wait, and why
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            path.chmod(0o600)
        except OSError as error:
            raise OutputError(
                f"cannot write the audit log {path}: {error.strerror}; give another folder with --data"
            ) from None
        self._do(_SCHEMA)
        self.prune()

    def add(
        self,
        who: str,
        action: str,
        target: str = "",
        detail: Mapping[str, Any] | None = None,
        *,
        role: str = "",
        address: str = "",
        status: int = 200,
        outcome: str = "done",
        request_id: str = "",
    ) -> None:
        """Add an entry, which waits if it cannot be written. Secrets are masked by their keys, and in addresses."""
        shown = json.dumps(without_secrets(detail or {}), default=str)
        if len(shown) > 4 * _LONGEST:
            shown = json.dumps({"fields": ", ".join(map(str, detail or {}))[:_LONGEST]})
        row = (self._clock(), who, role, address, action, _short(target), shown, status, _short(outcome), request_id)
        self._waiting.append(row)
        self.write_waiting()

    def write_waiting(self) -> str:
        """Write the entries that wait; return why they cannot be written, empty if none waits any more."""
        rows = []
        with contextlib.suppress(IndexError):  # another thread may take some as well
            while True:
                rows.append(self._waiting.popleft())
        if not rows:
            return self._reason
        try:
            self._insert(rows)
        except sqlite3.Error as error:
            self._waiting.extendleft(reversed(rows))
            if not self._reason:
                failure = database_error("audit log", self._path, error)
                logger.error(f"entries of the audit log wait until they can be written: {failure}")
            count = len(self._waiting)
            self._reason = f"{count:,} {'entry waits' if count == 1 else 'entries wait'}: {error}"
            return self._reason
        if self._reason:
            logger.warning(f"the audit log is written again, with {len(rows):,} entries that waited")
        self._reason = ""
        before = self._added
        self._added = self._added + len(rows)
        if self._added // _PRUNE_EVERY > before // _PRUNE_EVERY:
            with contextlib.suppress(OutputError):  # the entries are stored; the next ones try again
                self.prune()
        return ""

    def _insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        statement = f"INSERT INTO entries ({_COLUMNS.partition(', ')[2]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        with contextlib.closing(sqlite3.connect(self._path, timeout=_BUSY_S)) as connection, connection:
            connection.executemany(statement, rows)

    @property
    def full(self) -> bool:
        """Whether so many entries wait that nothing may be changed any more."""
        return len(self._waiting) >= MAX_WAITING

    def close(self) -> None:
        """Write the entries that wait; those that cannot be written are logged as errors."""
        if not self.write_waiting():
            return
        for time_s, who, role, address, action, target, detail, status, outcome, request_id in self._waiting:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))
            entry = f"{at} {who} ({role}) from {address}: {action} {target} {detail}, status {status}, {outcome}"
            logger.error(f"an entry is missing in the audit log: {entry}, request {request_id}")

    def entries(self, wanted: AuditFilter | None = None, limit: int = 100) -> list[AuditEntry]:
        """The wanted entries, newest first, without those that wait. Raises OutputError."""
        text = f"SELECT {_COLUMNS} FROM entries WHERE {_WANTED} ORDER BY number DESC LIMIT :limit"
        rows = self._do(text, asdict(wanted or AuditFilter()) | {"limit": limit})
        return [AuditEntry(*row) for row in ((*fields[:7], json.loads(fields[7]), *fields[8:]) for fields in rows)]

    def prune(self) -> None:
        """Delete entries that are too old or too many."""
        self._do("DELETE FROM entries WHERE time_s < ?", [self._clock() - RETENTION_S])
        self._do("DELETE FROM entries WHERE number <= (SELECT max(number) FROM entries) - ?", [MAX_ENTRIES])
        self._do(
            "DELETE FROM entries WHERE status >= 400 AND number NOT IN "
            "(SELECT number FROM entries WHERE status >= 400 ORDER BY number DESC LIMIT ?)",
            [MAX_REJECTED],
        )

    def _do(self, text: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_BUSY_S)) as connection, connection:
                return connection.execute(text, values).fetchall()
        except sqlite3.Error as error:
            raise database_error("audit log", self._path, error) from None


def without_secrets(detail: Any, name: str = "") -> Any:
    """A detail for the log: what a key such as `password` names becomes `***`, and so do secrets in addresses."""
    if name and _SECRET.search(name):
        return "***"
    if isinstance(detail, Mapping):
        return {str(key): without_secrets(part, str(key)) for key, part in detail.items()}
    if isinstance(detail, (list, tuple)):
        return [without_secrets(part) for part in detail]
    return _short(mask_address(detail)) if isinstance(detail, str) else detail


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# -------------------------------------------------------------------------------------------------------- of requests


@dataclass(slots=True)
class AuditNote:
    """What a route tells about its request; see `note`."""

    who: str | None = None
    role: str | None = None
    target: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    changes: bool = True


def note(
    request: Request, target: str | None = None, *, who: str | None = None, role: str | None = None, **detail: Any
) -> None:
    """Tell the audit log more about a request that changes something: by itself it knows path and result only.

    Args:
        request: the request.
        target: what is changed, if the path does not name it.
        who: who signs in.
        role: likewise.
        detail: the new values; secrets are masked.
    """
    noted: AuditNote = _noted(request.scope)
    noted.target = target if target is not None else noted.target
    noted.who = who if who is not None else noted.who
    noted.role = role if role is not None else noted.role
    noted.detail |= {name: value for name, value in detail.items() if value is not None}


def note_no_change(request: Request) -> None:
    """Tell the audit log that a request changes nothing, although its method might."""
    _noted(request.scope).changes = False


def note_error(request: Request, text: str) -> None:
    """Tell the audit log why a request was rejected."""
    _noted(request.scope).error = text


def _noted(scope: MutableMapping[str, Any]) -> AuditNote:
    audit_note: AuditNote = scope.setdefault("state", {}).setdefault("audit", AuditNote())
    return audit_note


class Audited:
    """ASGI middleware that adds each change by a known client to the log, done or rejected, and failed sign-ins.

    While too many entries wait to be written, it refuses changes.

    Args:
        app: the wrapped application; `Guard` is outside, and tells who sent the request.
        log: the audit log.
        prefix: the prefix of the API's paths.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], log: AuditLog, prefix: str) -> None:
        self._app = app
        self._log = log
        self._prefix = prefix
        self._failed_s = 0.0
        self._in_order = anyio.CapacityLimiter(1)  # or an entry could overtake an earlier one

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Handle one request, then add its entry."""
        if scope["type"] != "http" or scope["method"] in SAFE or not scope["path"].startswith(f"{self._prefix}/"):
            await self._app(scope, receive, send)
            return
        if self._log.full:
            text = f"nothing can be changed until the audit log can be written: {MAX_WAITING:,} entries wait for that"
            await JSONResponse(error_body(text), 503)(scope, receive, send)
            return
        noted = _noted(scope)
        watcher = StatusWatcher(send)
        try:
            await self._app(scope, receive, watcher)
        finally:
            with anyio.CancelScope(shield=True):
                await self._add(scope, noted, watcher.status)

    async def _add(self, scope: MutableMapping[str, Any], noted: AuditNote, status: int) -> None:
        if not noted.changes and status < 400:
            return
        state = scope["state"]
        params = scope.get("path_params") or {}
        who = noted.who or state.get("name", "")
        role = noted.role or state.get("role", "")
        if not who and not self._failed_sign_in(scope, status):
            return
        route = getattr(scope.get("route"), "path", "") or scope["path"]
        action = action_of(scope["method"], route.removeprefix(self._prefix))
        target = noted.target if noted.target is not None else "/".join(map(str, params.values()))
        outcome = "done" if status < 400 else noted.error or f"status {status}"
        address = (scope.get("client") or ("",))[0]
        circumstances: dict[str, Any] = {"role": role, "address": address, "status": status, "outcome": outcome}
        add = partial(self._log.add, who, action, target, noted.detail, request_id=REQUEST_ID.get(), **circumstances)
        await anyio.to_thread.run_sync(add, limiter=self._in_order)

    def _failed_sign_in(self, scope: MutableMapping[str, Any], status: int) -> bool:
        """Whether this is a failed sign-in that is to be logged: one per second, as strangers can cause them."""
        if scope["path"] != f"{self._prefix}/session" or scope["method"] != "POST" or status != 401:
            return False
        now_s = time.monotonic()
        before_s = self._failed_s
        if now_s - before_s < _FAILED_EVERY_S:
            return False
        self._failed_s = now_s
        return True


def action_of(method: str, route: str) -> str:
    """The action of a request, such as `sources.pause` for `POST /sources/{id:path}/pause`.

    Args:
        method: the HTTP method.
        route: the route's path, without the prefix of the API.
    """
    steps = [step for step in route.strip("/").split("/") if step]
    words = [step for step in steps if "{" not in step]
    verb = words[-1] if len(words) > 1 and method == "POST" else _VERBS.get(method, method.lower())
    return f"{words[0].partition('.')[0] if words else 'api'}.{verb}"
