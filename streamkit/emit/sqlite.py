"""A table in a SQLite file: rows in transactions, acknowledged by the commit."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from streamkit.emit.client import Client, Lost, Message, RecordRejected
from streamkit.emit.rows import COLUMNS, check_columns
from streamkit.emit.segment_file import private

_TYPES = {"text": "TEXT", "integer": "INTEGER", "real": "REAL", "time": "TEXT"}
_NEVER = (sqlite3.IntegrityError, sqlite3.DataError)  # the table's constraints and triggers; too large values


class SqliteClient(Client):
    """Inserts rows into a table; creates the table if it does not exist. `ORDER BY rowid` gives the records' order.

    Args:
        path: the database file.
        table: the table's name.
        send: the kind of rows; see `COLUMNS`.
    """

    def __init__(self, path: str, table: str, send: str) -> None:
        self.where, self._path, self._table, self._send = path, Path(path), table, send
        columns = COLUMNS[send]
        values = ", ".join(f"json_extract(?2, '{_path(column.path)}')" for column in columns.values())
        self._insert = f'INSERT INTO "{table}" (id, {", ".join(columns)}, record) VALUES (?1, {values}, ?2)'
        self._insert += " ON CONFLICT (id) DO NOTHING"

    def connect(self) -> None:
        """See `Client.connect`."""
        columns = ", ".join(f"{name} {_TYPES[column.kind]}" for name, column in COLUMNS[self._send].items())
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(private(self._path, os.O_RDWR))
            made = self._connection = sqlite3.connect(self._path, timeout=self.timeout_s, isolation_level=None)
            made.execute("PRAGMA journal_mode = WAL")
            made.execute("PRAGMA synchronous = NORMAL")
            made.execute(f'CREATE TABLE IF NOT EXISTS "{self._table}" (id TEXT PRIMARY KEY, {columns}, record TEXT)')
            there = {row[1] for row in made.execute(f'PRAGMA table_info("{self._table}")')}
        except (OSError, sqlite3.Error) as error:
            raise Lost(str(error)) from error
        check_columns(self._table, self._send, there)

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Client.deliver`."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(self._insert, [(one.id, one.body.decode()) for one in messages])
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if not (isinstance(error, _NEVER) or str(error).startswith("malformed JSON")):
                raise Lost(str(error)) from error
            self._connection.execute("ROLLBACK")
            raise RecordRejected(str(error)) from error


def _path(path: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
