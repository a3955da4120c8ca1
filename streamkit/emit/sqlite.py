# SPDX-License-Identifier: Apache-2.0
"""A table in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import ClassVar

from streamkit.emit.client import RecordRejected, SendError
from streamkit.emit.rows import RecordColumn, TableClient
from streamkit.emit.segment_file import open_private

_PERMANENT = (sqlite3.IntegrityError, sqlite3.DataError)  # the table's constraints and triggers; too large values


class SqliteClient(TableClient):
    """See `TableClient`; `where` is the database file. `ORDER BY rowid` gives the records' order."""

    types: ClassVar = {"text": "TEXT", "integer": "INTEGER", "real": "REAL", "time": "TEXT", "json": "TEXT"}
    rows_sql = "VALUES (:id, {values}, :record)"
    errors = (OSError, sqlite3.Error)

    def open(self) -> sqlite3.Connection:
        """See `TableClient.open`."""
        path = Path(self.where)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(open_private(path, os.O_RDWR))
        connection = sqlite3.connect(path, timeout=self.timeout_s, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def value_sql(self, column: RecordColumn) -> str:
        """See `TableClient.value_sql`."""
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in column.path)
        return f"json_extract(:record, '${path}')"

    def insert(self, ids: list[str], bodies: list[str]) -> None:
        """See `TableClient.insert`."""
        with self._connection as transaction:  # commits, or rolls back
            transaction.execute("BEGIN IMMEDIATE")
            rows = ({"id": id_, "record": body} for id_, body in zip(ids, bodies, strict=True))
            transaction.executemany(self.insert_sql, rows)

    def failure(self, error: Exception) -> SendError:
        """See `TableClient.failure`."""
        never = isinstance(error, _PERMANENT) or str(error).startswith("malformed JSON")
        return RecordRejected(str(error)) if never else SendError(str(error))
