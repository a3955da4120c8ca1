"""Emit: rows of a SQLite table."""

from __future__ import annotations

import re

from streamkit.emit.client import Client
from streamkit.emit.emitter import Emitter
from streamkit.emit.sqlite import SqliteClient
from streamkit.outputs import check_path
from streamkit.stage import stage


@stage("sqlite")
class Sqlite(Emitter):
    """Insert records into a table of a SQLite file, each exactly once.

    Options:
        path: the file, such as out/results.db.
        table: the table; if not set, frames, objects or events. It is made where it is not there.
    """

    path: str
    table: str | None = None

    def check(self) -> None:
        """See `Emitter.check`."""
        check_path(self.path, ())
        if self.table is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.table):
            raise ValueError(f"table must be letters, digits and underscores, got {self.table!r}")

    def client(self) -> Client:
        """See `Emitter.client`."""
        return SqliteClient(self.path, self.table or self.send, self.send)
