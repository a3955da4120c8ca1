"""Emit: rows of a PostgreSQL table."""

from __future__ import annotations

import re
from typing import Literal

from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.postgres import SCHEMES, PostgresClient
from streamkit.stage import stage


@stage("postgres")
class Postgres(Emitter):
    """Insert records into a table of PostgreSQL, each exactly once.

    Options:
        url: the database, such as "postgres://${USER}:${PASSWORD}@host:5432/cameras".
        table: the table, alone or as schema.table; if not set, frames, objects or events. Made where it is not there.
        encryption: verify asks for an encrypted connection and a good certificate; prefer takes what the server has.
        tls: files, such as {ca: ca.pem, cert: me.pem, key: me.key}; they go with encryption: verify.
    """

    url: str
    table: str | None = None
    encryption: Literal["prefer", "verify"] = "prefer"
    tls: Tls | None = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES)
        if self.tls is not None and self.encryption != "verify":
            raise ValueError("tls has files for a checked connection; write encryption: verify, too")
        if self.table is not None and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", self.table, re.ASCII):
            raise ValueError(f"table must be a name or schema.name, got {self.table!r}")

    def client(self) -> Client:
        """See `Emitter.client`."""
        return PostgresClient(self._at, self.table or self.send, self.send, self.tls, self.encryption == "verify")
