# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL table, written with psycopg."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Annotated, Any, ClassVar, Literal

from streamkit.core.errors import needs
from streamkit.core.stage import stage
from streamkit.emit.broker import Broker
from streamkit.emit.client import Address, Client, Deadline, RecordRejected, SendError, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.rows import RecordColumn, TableClient

SCHEMES = {"postgres": (5432, False), "postgresql": (5432, False)}

_PERMANENT = ("22", "23", "44", "54", "P0001")
"""Classes of SQLSTATE that a row causes: data, a constraint, a view's check, a limit, a trigger's RAISE."""
_GRACE_S = 1.0  # after the server's statement timeout, whose error is clearer than a lost connection


class PostgresClient(TableClient):
    """See `TableClient`; all rows are inserted in one statement.

    Args:
        server: the server; the path is the database.
        table: the table's name, optionally as `schema.table`.
        send: the kind of rows; see `COLUMNS`.
        tls: certificate files; with them, or with `verified`, the server's certificate and name are verified.
        verified: require an encrypted connection with a valid certificate.

    Raises:
        MissingPackage: psycopg is not installed.
    """

    types: ClassVar = {
        "text": "text",
        "integer": "bigint",
        "real": "double precision",
        "time": "timestamptz",
        "json": "jsonb",
    }
    rows_sql = (
        "WITH given AS MATERIALIZED (SELECT id, body::jsonb AS record FROM unnest(%b::text[], %b::text[]) "
        "AS one (id, body)) SELECT id, {values}, record FROM given"
    )

    def __init__(self, server: Address, table: str, send: str, tls: Tls | None = None, verified: bool = False) -> None:
        with needs("psycopg", "postgres"):
            import psycopg
        owner = self

        class TimeoutConnection(psycopg.Connection[Any]):
            """A connection with a timeout: psycopg has none for servers that do not answer."""

            def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
                return super().wait(owner._limited(gen), *args, **options)

        super().__init__(str(server), table, send)
        self._psycopg = psycopg
        self._connection_class = TimeoutConnection
        self._server = server
        self.secrets = [server.password or ""]
        self.errors = (OSError, psycopg.Error)
        self._tls = tls or {}
        self._verified = verified or bool(tls)

    def open(self) -> Any:
        """See `TableClient.open`."""
        server = self._server
        tls_options = dict[str, Any]()
        if self._verified:
            tls_options = {"sslmode": "verify-full", "sslrootcert": self._tls.get("ca", "system")}
            tls_options |= {f"ssl{name}": self._tls[name] for name in ("cert", "key") if name in self._tls}  # type: ignore[literal-required]
        milliseconds = max(1, round(self.timeout_s * 1000))  # 0 means no limit
        return self._connection_class.connect(
            host=server.host,
            port=server.port,
            dbname=server.path.strip("/") or server.user,
            user=server.user,
            password=server.password,
            autocommit=True,
            options=f"-c statement_timeout={milliseconds}",
            keepalives_idle=10,
            tcp_user_timeout=milliseconds,
            connect_timeout=max(2, round(self.timeout_s)),
            application_name="streamkit",
            **tls_options,
        )

    def value_sql(self, column: RecordColumn) -> str:
        """See `TableClient.value_sql`."""
        return f"(record #>> '{{{','.join(map(str, column.path))}}}')::{self.types[column.kind]}"

    def insert(self, ids: list[str], bodies: list[str]) -> None:
        """See `TableClient.insert`."""
        self._connection.execute(self.insert_sql, [ids, bodies])

    def failure(self, error: Exception) -> SendError:
        """See `TableClient.failure`."""
        state = getattr(error, "sqlstate", None)
        if isinstance(error, self._psycopg.DataError) or (state or "").startswith(_PERMANENT):
            return RecordRejected(str(error))
        return SendError(str(error), disconnected=state is None and self._connection.closed)

    def _limited(self, work: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run psycopg's work for a statement with a timeout, as long as the run continues.

        Sends psycopg the events that the connection is ready for; without activity none, several times a second.
        """
        deadline = Deadline(self, grace_s=_GRACE_S)
        try:
            state = next(work)
            while True:
                ready = yield state
                if ready:
                    deadline.restart()
                else:
                    deadline.check()
                state = work.send(ready)
        except StopIteration as end:
            return end.value


@stage("postgres")
class PostgresSink(Emitter):
    """Insert records into a table of PostgreSQL, each exactly once."""

    broker: ClassVar[Broker] = Broker(
        product="a PostgreSQL table",
        acknowledged_by="the commit",
        page="emitters-databases.md",
        example="postgres://127.0.0.1/cameras",
        modules=("psycopg",),
        id_in="primary key",
        repeats="each record is stored exactly once",
    )

    url: Annotated[str, 'the database, such as "postgres://${USER}:${PASSWORD}@host:5432/cameras".']
    table: Annotated[str | None, "table or schema.table, created if missing; default frames, objects or events."] = None
    encryption: Annotated[
        Literal["prefer", "verify"],
        "verify requires an encrypted connection and a valid certificate; prefer uses what the server offers.",
    ] = "prefer"
    tls: Annotated[Tls | None, "files for encryption: verify, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._server = address(self.url, SCHEMES)
        if self.tls is not None and self.encryption != "verify":
            raise ValueError("tls applies to verified connections only; add encryption: verify")
        if self.table is not None and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", self.table, re.ASCII):
            raise ValueError(f"table must be a name or schema.name, got {self.table!r}")

    def client(self) -> Client:
        """See `Emitter.client`."""
        return PostgresClient(self._server, self.table or self.send, self.send, self.tls, self.encryption == "verify")
