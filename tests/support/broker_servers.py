"""Brokers for measuring and testing: real ones, each a process of its own on a free port, with its files in a folder.

Faults are real as well: a broker can be killed, frozen and started again on its port.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import psutil

_KAFKA = """
import confluent_kafka, sys, time
cluster = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
found = next(iter(cluster.list_topics(timeout=10).brokers.values()))
print(found.port, flush=True)
while sys.stdin.readline():
    pass
"""


def free_port() -> int:
    """A TCP port that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def listens(port: int) -> bool:
    """Whether something takes connections on this TCP port."""
    with socket.socket() as one:
        one.settimeout(0.2)
        return one.connect_ex(("127.0.0.1", port)) == 0


class BrokerServer:
    """One broker. What it has acknowledged is there after a kill, as far as that broker can do so.

    Args:
        folder: for its files.

    Attributes:
        port: where it listens, on 127.0.0.1; the same after every start.
        password: what it asks for, of the user `streamkit`.
    """

    name: ClassVar[str]
    binary: ClassVar[str]
    start_s: ClassVar[float] = 20.0
    password = "p4ss/w:rd"

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[str] | None = None

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot run here, or None."""
        return None if cls.path() else f"no {cls.binary} on this machine"

    @classmethod
    def path(cls) -> str | None:
        """Its binary; servers are often in a folder that only root's PATH has."""
        return shutil.which(cls.binary, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

    def command(self) -> list[str]:
        """What starts it."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True,
                start_new_session=True, **self._as(),
            )  # fmt: skip
        until_s = time.monotonic() + self.start_s
        while not self._listens():
            if time.monotonic() > until_s or self.process.poll() is not None:
                raise RuntimeError(f"{self.name} does not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def make_room(self) -> None:
        """Make what keeps the records of `streamkit` until somebody takes them, where that must be made."""

    def kill(self) -> None:
        """End it at once, with no time to write anything."""
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.process.kill()
            self.process.wait()

    def freeze(self) -> None:
        """Let it stand still: it takes connections and answers nothing."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def _listens(self) -> bool:
        return listens(self.port)

    def _as(self) -> dict[str, Any]:
        """How its process is made: the user that it runs as, where that must not be root, or its environment."""
        return {}


class MosquittoServer(BrokerServer):
    """MQTT."""

    name, binary = "mqtt", "mosquitto"

    def command(self) -> list[str]:
        """See `BrokerServer.command`."""
        accounts = self.folder / "accounts"
        if not accounts.exists():
            subprocess.run(["mosquitto_passwd", "-b", "-c", str(accounts), "streamkit", self.password], check=True)
            accounts.chmod(0o644)
        text = (
            f"listener {self.port} 127.0.0.1\nallow_anonymous false\npassword_file {accounts}\n"
            "max_inflight_messages 0\nmax_queued_messages 0\nset_tcp_nodelay true\n"
        )
        (self.folder / "mosquitto.conf").write_text(text)
        return [str(self.path()), "-c", str(self.folder / "mosquitto.conf")]


class RedisServer(BrokerServer):
    """Redis, which writes each command to its file before it answers."""

    name, binary = "redis", "redis-server"

    def command(self) -> list[str]:
        """See `BrokerServer.command`."""
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "save": "", "appendonly": "yes"}
        options |= {"requirepass": self.password, "appendfsync": "everysec"}
        return [str(self.path()), *(text for key, value in options.items() for text in (f"--{key}", str(value)))]


class KafkaServer(BrokerServer):
    """Kafka's protocol by librdkafka's own mock cluster. It keeps its topics in memory, so a kill loses them."""

    name, binary = "kafka", "python"

    @classmethod
    def missing(cls) -> str | None:
        """See `BrokerServer.missing`."""
        try:
            import confluent_kafka  # noqa: F401
        except ImportError:
            return "no confluent-kafka on this machine"
        return None

    def start(self) -> None:
        """See `BrokerServer.start`. The mock chooses the port."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _KAFKA], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """See `BrokerServer.kill`."""
        super().kill()
        for pipe in (self.process.stdin, self.process.stdout) if self.process is not None else ():
            if pipe is not None:
                pipe.close()


class NatsServer(BrokerServer):
    """NATS with JetStream."""

    name, binary = "nats", "nats-server"

    def command(self) -> list[str]:
        """See `BrokerServer.command`."""
        (self.folder / "nats.conf").write_text(self.config())
        return [str(self.path()), "-c", str(self.folder / "nats.conf")]

    def config(self) -> str:
        """What it is told."""
        users = f'authorization {{ users = [{{user: streamkit, password: "{self.password}"}}] }}\n'
        return f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self.folder}/js" }}\n{users}'

    def make_room(self) -> None:
        """See `BrokerServer.make_room`."""
        self.add_stream()

    def add_stream(self, *subjects: str, **more: Any) -> None:
        """Make the stream `records`, for `streamkit.>` if not said otherwise, or change it; `more` is nats-py's."""
        import asyncio

        import nats

        async def make() -> None:
            client = await nats.connect(f"nats://127.0.0.1:{self.port}", user="streamkit", password=self.password)
            known = {one.config.name for one in await client.jetstream().streams_info()}
            change = client.jetstream().update_stream if "records" in known else client.jetstream().add_stream
            await change(name="records", subjects=list(subjects or ["streamkit.>"]), **more)
            await client.close()

        asyncio.run(make())


class PostgresServer(BrokerServer):
    """PostgreSQL, as the user postgres: it refuses to run as root."""

    name, binary = "postgres", "postgres"

    @classmethod
    def path(cls) -> str | None:
        """See `BrokerServer.path`."""
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        return str(found[-1]) if found else super().path()

    def command(self) -> list[str]:
        """See `BrokerServer.command`."""
        data, secret = self.folder / "data", self.folder / "secret"
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
