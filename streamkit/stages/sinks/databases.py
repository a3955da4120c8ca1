# SPDX-License-Identifier: Apache-2.0
"""Sinks: rows of a table in PostgreSQL or SQLite."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from streamkit.core.stage import stage
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.postgres import SCHEMES as POSTGRES_SCHEMES
from streamkit.emit.postgres import PostgresClient
from streamkit.emit.sqlite import SqliteClient
from streamkit.io.outputs import check_path


@stage("postgres")
class PostgresSink(Emitter):
    """Insert records into a table of PostgreSQL, each exactly once."""

    url: Annotated[str, 'the database, such as "postgres://${USER}:${PASSWORD}@host:5432/cameras".']
    table: Annotated[str | None, "table or schema.table, created if missing; default frames, objects or events."] = None
    encryption: Annotated[
        Literal["prefer", "verify"],
        "verify requires an encrypted connection and a valid certificate; prefer uses what the server offers.",
    ] = "prefer"
    tls: Annotated[Tls | None, "files for encryption: verify, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, POSTGRES_SCHEMES)
        if self.tls is not None and self.encryption != "verify":
            raise ValueError("tls applies to verified connections only; add encryption: verify")
        if self.table is not None and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", self.table, re.ASCII):
            raise ValueError(f"table must be a name or schema.name, got {self.table!r}")

    def client(self) -> Client:
        """See `Emitter.client`."""
        return PostgresClient(self._at, self.table or self.send, self.send, self.tls, self.encryption == "verify")


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
