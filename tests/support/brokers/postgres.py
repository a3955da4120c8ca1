"""PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil

from streamkit.emit.sender import REFUSED
from support.broker_servers import BrokerServer
from support.place import Place
from support.poison import Poison


class PostgresServer(BrokerServer):
    """PostgreSQL, as the user postgres: it refuses to run as root."""

    name = "postgres"
    binary = "postgres"
    debian_packages = "postgresql"

    @classmethod
    def path(cls) -> str | None:
        """See `BrokerServer.path`."""
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        return str(programs[-1]) if programs else super().path()

    def command(self) -> list[str]:
        """See `BrokerServer.command`."""
        data = self.folder / "data"
        secret = self.folder / "secret"
        if not data.exists():
            secret.write_text(self.password)
            self._hand_over()
            make = [str(Path(str(self.path())).with_name("initdb")), "-D", str(data), "-U", "streamkit"]
            make += ["--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
            subprocess.run(make, check=True, capture_output=True, cwd=self.folder, **self._as())
        (data / "postmaster.pid").unlink(missing_ok=True)  # what a kill has left
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}"]
        return [str(self.path()), "-D", str(data), "-p", str(self.port), *options, "-c", "fsync=off"]

    def kill(self) -> None:
        """See `Broker.kill`. No other server can start while one of its children lives."""
        running = self.process is not None and self.process.poll() is None
        children = psutil.Process(self.process.pid).children(recursive=True) if running and self.process else []
        super().kill()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=self.start_s)

    def _listens(self) -> bool:
        if not super()._listens():
            return False
        import psycopg

        try:
            psycopg.connect(host="127.0.0.1", port=self.port, user="streamkit", password="x", connect_timeout=2)
        except psycopg.OperationalError as error:
            return "password authentication failed" in str(error)
        return True

    def _hand_over(self) -> None:
        if os.geteuid() == 0:
            for path in (self.folder, *self.folder.iterdir()):
                shutil.chown(path, "postgres", "postgres")

    def _as(self) -> dict[str, Any]:
        return {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}


def _strict(place: Place) -> None:
    """Create the table with a constraint."""
    import psycopg

    assert place.broker is not None
    options: dict[str, Any] = {"user": "streamkit", "password": place.broker.password, "dbname": "postgres"}
    with psycopg.connect(host="127.0.0.1", port=place.broker.port, **options) as client:
        client.execute(
            "CREATE TABLE frames (id text PRIMARY KEY, source text, frame bigint, pts_s double precision, "
            "time timestamptz, error text, record jsonb, CHECK (error IS NULL))"
        )


class PostgresPlace(Place):
    kind = "postgres"
    poisons = (
        Poison(REFUSED, "violates check constraint", {"error": "no"}, prepare=_strict, name="constraint"),
        Poison(REFUSED, "Unicode", {"error": "a\0b"}, name="text"),
    )
    path = "/postgres"
    freezes = False  # the process of a connection has a process group of its own
    server = PostgresServer

    def received(self) -> list[dict[str, Any]]:
        import psycopg

        assert self.broker is not None
        options = {"user": "streamkit", "password": self.broker.password, "dbname": "postgres"}
        with psycopg.connect(host="127.0.0.1", port=self.broker.port, **options) as client:
            text = "SELECT record FROM frames ORDER BY source, frame"  # a table has no order of its own
            return [row[0] for row in client.execute(text)]
