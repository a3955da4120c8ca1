# SPDX-License-Identifier: Apache-2.0
"""Records as table rows for databases: the same columns in all of them, extracted from the JSON by the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from streamkit.emit.client import Client, Message, SendError


class RecordColumn(NamedTuple):
    """A column: its type (text, integer, real, time), and the keys and list indices that lead to it in the record."""

    kind: str
    path: tuple[str | int, ...]


_FRAME = {
    "source": RecordColumn("text", ("source",)),
    "frame": RecordColumn("integer", ("frame",)),
    "pts_s": RecordColumn("real", ("pts_s",)),
    "time": RecordColumn("time", ("time",)),
}

COLUMNS: dict[str, dict[str, RecordColumn]] = {
    "frames": {**_FRAME, "error": RecordColumn("text", ("error",))},
    "objects": {
        **_FRAME,
        "label": RecordColumn("text", ("object", "label")),
        "track_id": RecordColumn("integer", ("object", "track_id")),
        "score": RecordColumn("real", ("object", "score")),
        **{name: RecordColumn("real", ("object", "box", i)) for i, name in enumerate(("x1", "y1", "x2", "y2"))},
    },
    "events": {
        **_FRAME,
        "stage": RecordColumn("text", ("event", "stage")),
        "kind": RecordColumn("text", ("event", "kind")),
        "track_id": RecordColumn("integer", ("event", "track_id")),
    },
}
"""The columns of each kind of record, besides `id`, the primary key, and `record`, the whole record."""


class TableClient(Client):
    """Inserts rows into a table in transactions, acknowledged by the commit; creates the table if it does not exist.

    Args:
        where: see `Client`.
        table: the table's name, optionally as `schema.table`; letters, digits and underscores.
        send: the kind of rows; see `COLUMNS`.

    Attributes:
        types: the database's types, by kind of column, and of `record` as `json`.
        rows_sql: the part of INSERT that gives the rows; `{values}` stands for those of `COLUMNS`.
        errors: exceptions of the database's driver.
        insert_sql: the statement that inserts rows.
    """

    types: ClassVar[Mapping[str, str]]
    rows_sql: ClassVar[str]
    errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, where: str, table: str, send: str) -> None:
        self.where = where
        self._table = table
        self._send = send
        columns = COLUMNS[send]
        names = ", ".join(f'"{name}"' for name in columns)
        values = ", ".join(map(self.value_sql, columns.values()))
        self._quoted = ".".join(f'"{part}"' for part in table.split("."))
        self.insert_sql = f"INSERT INTO {self._quoted} (id, {names}, record) {self.rows_sql.format(values=values)}"
        self.insert_sql += " ON CONFLICT (id) DO NOTHING"

    def connect(self) -> None:
        """See `Client.connect`."""
        defined = ", ".join(f'"{name}" {self.types[column.kind]}' for name, column in COLUMNS[self._send].items())
        defined = f"id text PRIMARY KEY, {defined}, record {self.types['json']}"
        try:
            connection = self._connection = self.open()
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self._quoted} ({defined})")
            there = {column[0] for column in connection.execute(f"SELECT * FROM {self._quoted} LIMIT 0").description}
        except self.errors as error:
            raise SendError(str(error)) from error
        if lacks := ", ".join(name for name in ("id", *COLUMNS[self._send], "record") if name not in there):
            raise SendError(
                f"the table {self._table} has no column {lacks}, which send: {self._send} needs; set another table, or "
                "add the columns"
            )

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Client.deliver`: all rows are inserted, or none."""
        try:
            self.insert([message.id for message in messages], [message.body.decode() for message in messages])
        except self.errors as error:
            raise self.failure(error) from error

    def open(self) -> Any:
        """Connect; return the driver's connection. Raises `errors`."""
        raise NotImplementedError

    def value_sql(self, column: RecordColumn) -> str:
        """The expression for a column's value in the record."""
        raise NotImplementedError

    def insert(self, ids: list[str], bodies: list[str]) -> None:
        """Execute `insert_sql` in a transaction. Raises `errors`."""
        raise NotImplementedError

    def failure(self, error: Exception) -> SendError:
        """The error to raise for one of the driver: RecordRejected if a row is the cause."""
        raise NotImplementedError
