"""A PostgreSQL table, written with psycopg: rows in transactions, acknowledged by the commit."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

from streamkit.core.errors import needs
from streamkit.emit.client import Address, Client, Lost, Message, RecordRejected, Tls
from streamkit.emit.rows import COLUMNS, check_columns

SCHEMES = {"postgres": (5432, False), "postgresql": (5432, False)}

_TYPES = {"text": "text", "integer": "bigint", "real": "double precision", "time": "timestamptz"}
_NEVER = ("22", "23", "44", "54", "P0001")
"""Classes of SQLSTATE that a row causes: data, a constraint, a view's check, a limit, a trigger's RAISE."""
_GRACE_S = 1.0  # after the server's statement timeout, whose error is clearer than a lost connection


class PostgresClient(Client):
    """Inserts rows into a table; creates the table if it does not exist.

    Args:
        at: the server; the path is the database.
        table: the table's name, optionally as `schema.table`.
        send: the kind of rows; see `COLUMNS`.
        tls: certificate files; with them, or with `verified`, the server's certificate and name are verified.
        verified: require an encrypted connection with a valid certificate.

    Raises:
        MissingPackage: psycopg is not installed.
    """

    def __init__(self, at: Address, table: str, send: str, tls: Tls | None = None, verified: bool = False) -> None:
        with needs("psycopg", "postgres"):
            import psycopg
        owner = self

        class Impatient(psycopg.Connection[Any]):
            """A connection with a timeout: psycopg has none for servers that do not answer."""

            def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
                return super().wait(owner._limited(gen), *args, **options)

        self._psycopg, self._made, self._at, self._send = psycopg, Impatient, at, send
        self.where, self.secrets = str(at), [at.password or ""]
        self._tls, self._verified = tls or {}, verified or bool(tls)
        self._table = table.split(".")

    def connect(self) -> None:
        """See `Client.connect`."""
        sql, at = self._psycopg.sql, self._at
        options: dict[str, Any] = {"connect_timeout": max(2, round(self.timeout_s)), "application_name": "streamkit"}
        if self._verified:
            options |= {"sslmode": "verify-full", "sslrootcert": self._tls.get("ca", "system")}
            options |= {f"ssl{name}": self._tls[name] for name in ("cert", "key") if name in self._tls}  # type: ignore[literal-required]
        columns = COLUMNS[self._send]
        defined = sql.SQL(", ").join(
            sql.SQL("{} " + _TYPES[column.kind]).format(sql.Identifier(name)) for name, column in columns.items()
        )
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} (id text PRIMARY KEY, {}, record jsonb)")
        milliseconds = max(1, round(self.timeout_s * 1000))  # 0 is without limit
        try:
            self._connection = made = self._made.connect(
                host=at.host, port=at.port, dbname=at.path.strip("/") or at.user, user=at.user, password=at.password,
                autocommit=True, options=f"-c statement_timeout={milliseconds}", keepalives_idle=10,
                tcp_user_timeout=milliseconds, **options,
            )  # fmt: skip
            table = sql.Identifier(*self._table)
            made.execute(create.format(table, defined))
            found = made.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(table)).description
            there = {one.name for one in found or ()}
        except (self._psycopg.Error, OSError) as error:
            raise Lost(str(error)) from error
        check_columns(".".join(self._table), self._send, there)
        values = sql.SQL(", ").join(
            sql.SQL("(record #>> '{{" + ",".join(map(str, column.path)) + "}}')::" + _TYPES[column.kind])
            for column in columns.values()
        )
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        text = sql.SQL(
            "WITH given AS MATERIALIZED (SELECT id, body::jsonb AS record FROM unnest(%b::text[], %b::text[]) "
            "AS one (id, body)) "
            "INSERT INTO {} (id, {}, record) SELECT id, {}, record FROM given ON CONFLICT (id) DO NOTHING"
        )
        self._insert = text.format(table, names, values)

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Client.deliver`: one statement, executed as a whole or not at all."""
        try:
            self._connection.execute(
                self._insert, [[one.id for one in messages], [one.body.decode() for one in messages]]
            )
        except (self._psycopg.Error, OSError) as error:
            state = getattr(error, "sqlstate", None)
            if isinstance(error, self._psycopg.DataError) or (state or "").startswith(_NEVER):
                raise RecordRejected(str(error)) from error
            raise Lost(str(error), broke=state is None and self._connection.closed) from error

    def _limited(self, work: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run psycopg's work for a statement with a timeout, as long as the run continues.

        Sends psycopg the events that the connection is ready for; without activity none, several times a second.
        """
        until_s = time.monotonic() + self.timeout_s + _GRACE_S
        try:
            state = next(work)
            while True:
                ready = yield state
                if ready:
                    until_s = time.monotonic() + self.timeout_s + _GRACE_S
                elif self.over():
                    raise Lost("the run ends")
                elif time.monotonic() > until_s:
                    raise Lost(f"no answer within {self.timeout_s:g} s")
                state = work.send(ready)
        except StopIteration as end:
            return end.value
