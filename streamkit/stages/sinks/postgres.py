"""Sink: rows of a PostgreSQL table."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from streamkit.core.stage import stage
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.postgres import SCHEMES, PostgresClient


@stage("postgres")
class PostgresSink(Emitter):
    """Insert records into a table of PostgreSQL, each exactly once."""

    url: Annotated[str, 'the database, such as "postgres://${USER}:${PASSWORD}@host:5432/cameras".']
    table: Annotated[
        str | None,
        "the table, alone or as schema.table; by default frames, objects or events. It is created if missing.",
    ] = None
    encryption: Annotated[
        Literal["prefer", "verify"],
        "verify requires an encrypted connection and a valid certificate; prefer uses what the server offers.",
    ] = "prefer"
    tls: Annotated[
        Tls | None, "files, such as {ca: ca.pem, cert: me.pem, key: me.key}; they need encryption: verify."
    ] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES)
        if self.tls is not None and self.encryption != "verify":
            raise ValueError("tls applies to verified connections only; add encryption: verify")
        if self.table is not None and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", self.table, re.ASCII):
            raise ValueError(f"table must be a name or schema.name, got {self.table!r}")

    def client(self) -> Client:
        """See `Emitter.client`."""
        return PostgresClient(self._at, self.table or self.send, self.send, self.tls, self.encryption == "verify")
