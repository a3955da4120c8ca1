"""Sink: rows of a SQLite table."""

from __future__ import annotations

import re
from typing import Annotated

from streamkit.core.stage import stage
from streamkit.emit.client import Client
from streamkit.emit.emitter import Emitter
from streamkit.emit.sqlite import SqliteClient
from streamkit.io.outputs import check_path


@stage("sqlite")
class SqliteSink(Emitter):
    """Insert records into a table of a SQLite file, each exactly once."""

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
