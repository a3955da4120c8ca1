# SPDX-License-Identifier: Apache-2.0
"""What stages keep over restarts, in the same SQLite file as live changes, and what they pass on when the pipeline is
rebuilt, in a file of its own; written in the background.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from streamkit.core.carried import SOURCE_KEY
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
        self._path = path
        self._stage = stage
        self._save_start_s = time.monotonic()
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
        return done and time.monotonic() - self._save_start_s >= every_s

    def save(self, changed: Mapping[str, bytes | None], *, wait: bool = False) -> None:
        """See `StageState.save`."""
        if self._running is not None:
            self._running.result()
        self._save_start_s = time.monotonic()
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
        deleted = [(self._stage, key) for key, value in values.items() if value is None]
        written = [(self._stage, key, value) for key, value in values.items() if value is not None]
        try:
            with contextlib.closing(self._connection()) as connection, connection:
                connection.executemany("DELETE FROM stages WHERE stage = ? AND key = ?", deleted)
                connection.executemany("INSERT OR REPLACE INTO stages VALUES (?, ?, ?)", written)
        except sqlite3.Error as error:
            self._left = values
            logger.warning(f"cannot write the state {self._path} of {self._stage}: {error}; it is tried again")


class CarriedState(StageStateFile):
    """What a stage passes on when the pipeline is rebuilt, in a file that is there from then on; see `CarriedFile`."""

    def load(self) -> dict[str, bytes]:
        """See `StageState.load`; empty before the first rebuild."""
        return super().load() if self._path.exists() else {}

    def due(self, every_s: float) -> bool:
        """Whether to save while the stage runs: never."""
        return False

    def save(self, changed: Mapping[str, bytes | None], *, wait: bool = False) -> None:
        """See `StageState.save`; nothing is stored unless a rebuild has started."""
        if self._path.parent.is_dir():
            super().save(changed, wait=wait)


class CarriedFile:
    """The file through which stages pass on their counts; its folder is made when a rebuild begins.

    Attributes:
        path: the file, which all processes of a run know.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir()) / f"streamkit-{secrets.token_hex(8)}" / "carried.db"

    def begin(self) -> None:
        """Let stages that are closed from now on store what they pass on."""
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            logger.warning(f"counts and track ids begin again: cannot write {self.path}: {error.strerror}")

    def keep_sources(self, ids: Collection[str]) -> None:
        """Remove what belongs to other sources than these."""
        if not self.path.exists():
            return
        try:
            with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
                keys = connection.execute("SELECT DISTINCT key FROM stages WHERE key LIKE ?", (f"{SOURCE_KEY}%",))
                others = [(key,) for (key,) in keys.fetchall() if key.removeprefix(SOURCE_KEY) not in ids]
                connection.executemany("DELETE FROM stages WHERE key = ?", others)
        except sqlite3.Error as error:
            logger.warning(f"counts and track ids begin again: cannot read {self.path}: {error}")
            self.remove()

    def remove(self) -> None:
        """Remove the file and its folder."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
