# SPDX-License-Identifier: Apache-2.0
"""A table in a SQLite file."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Annotated, ClassVar

from streamkit.core.stage import stage
from streamkit.emit.broker import Broker
from streamkit.emit.client import Client, RecordRejected, SendError
from streamkit.emit.emitter import Emitter
from streamkit.emit.rows import RecordColumn, TableClient
from streamkit.emit.segment_file import open_private
from streamkit.io.outputs import check_path

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


@stage("sqlite")
class SqliteSink(Emitter):
    """Insert records into a table of a SQLite file, each exactly once."""

    broker: ClassVar[Broker] = Broker(
        product="a table in a SQLite file",
        acknowledged_by="the commit",
        page="emitters-databases.md",
        id_in="primary key",
        repeats="each record is stored exactly once",
    )

    path: Annotated[str, "the file, such as out/results.db."]
    table: Annotated[str | None, "the table; by default frames, objects or events. It is created if missing."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        check_path(self.path, ())
        if self.table is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.table):
            raise ValueError(f"table must be letters, digits and underscores, got {self.table!r}")

    def client(self) -> Client:
        """See `Emitter.client`."""
        return SqliteClient(self.path, self.table or self.send, self.send)
