# SPDX-License-Identifier: Apache-2.0
"""What stages keep over restarts, in the same SQLite file as live changes; written in the background."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

from streamkit.io.database_error import database_error
from streamkit.runtime.execution.future import ThreadFuture

logger = logging.getLogger(__name__)

_SCHEMA = "CREATE TABLE IF NOT EXISTS stages (stage TEXT, key TEXT, value BLOB, PRIMARY KEY (stage, key))"
_BUSY_S = 10.0


class StageStateFile:
    """The part of the state file that belongs to a stage; see `core/stage.py:StageState`.

    If the file cannot be written, a warning is logged, and the values are written with the next ones.

    Args:
        path: the state file, which `StateStore` has made.
        stage: the stage's id.
    """

    def __init__(self, path: Path, stage: str) -> None:
        self._path, self._stage = path, stage
        self._begun_s = time.monotonic()
        self._running: ThreadFuture[None] | None = None
        self._left: dict[str, bytes | None] = {}

    def load(self) -> dict[str, bytes]:
        """See `StageState.load`. Raises OutputError if the file cannot be read."""
        try:
            with contextlib.closing(self._connection()) as connection, connection:
                rows = connection.execute("SELECT key, value FROM stages WHERE stage = ?", (self._stage,)).fetchall()
        except sqlite3.Error as error:
            raise database_error("state", self._path, error) from None
        return dict(rows)

    def due(self, every_s: float) -> bool:
        """See `StageState.due`."""
        done = self._running is None or self._running.ready
        return done and time.monotonic() - self._begun_s >= every_s

    def save(self, changed: Mapping[str, bytes | None], *, wait: bool = False) -> None:
        """See `StageState.save`."""
        if self._running is not None:
            self._running.result()
        self._begun_s = time.monotonic()
        values = {**self._left, **changed}
        self._left = {}
        self._running = ThreadFuture(lambda stopped: self._write(values), "state")
        if wait:
            self._running.result()

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_S)
        connection.execute(_SCHEMA)
        return connection

    def _write(self, values: dict[str, bytes | None]) -> None:
        gone = [(self._stage, key) for key, value in values.items() if value is None]
        kept = [(self._stage, key, value) for key, value in values.items() if value is not None]
        try:
            with contextlib.closing(self._connection()) as connection, connection:
                connection.executemany("DELETE FROM stages WHERE stage = ? AND key = ?", gone)
                connection.executemany("INSERT OR REPLACE INTO stages VALUES (?, ?, ?)", kept)
        except sqlite3.Error as error:
            self._left = values
            logger.warning(f"cannot write the state {self._path} of {self._stage}: {error}; it is tried again")
