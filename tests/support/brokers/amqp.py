"""RabbitMQ."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from streamkit.emit.sender import POISON
from support.broker_servers import BrokerServer, free_port, listens
from support.place import Gate, Place
from support.poison import Poison


class RabbitMqServer(BrokerServer):
    """RabbitMQ without plugins, in one folder, with an epmd (Erlang's register of nodes) of its own.

    Attributes:
        settings: of the application `rabbit`, as Erlang terms; those that are not as they usually are.
    """

    name = "amqp"
    binary = "rabbitmq-server"
    debian_packages = "rabbitmq-server"
    start_s = 300.0  # six seconds of work, on a machine that may have much other

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings = {
            "tcp_listeners": f'[{{"127.0.0.1", {self.port}}}]',
            "default_user": '<<"streamkit">>',
            "default_pass": f'<<"{self.password}">>',
            "loopback_users": "[]",
            "disk_free_limit": "1000000",
        }
        self._ports = {"ERL_EPMD_PORT": str(free_port()), "RABBITMQ_DIST_PORT": str(free_port())}
        self._node = f"streamkit{self.port}@localhost"
        self._epmd: subprocess.Popen[bytes] | None = None

    @classmethod
    def path(cls) -> str | None:
        """See `BrokerServer.path`: Debian wraps it in a script that changes the user, which is not needed here."""
        script = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        return str(script) if script.exists() else super().path()

    def command(self) -> list[str]:
        """See `BrokerServer.command`."""
        settings = ", ".join(f"{{{key}, {value}}}" for key, value in self.settings.items())
        (self.folder / "rabbitmq.config").write_text(f"[{{rabbit, [{settings}]}}].")
        (self.folder / "plugins").write_text("[].")
        epmd = ["epmd", "-address", "127.0.0.1", "-port", self._ports["ERL_EPMD_PORT"]]
        quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self._epmd = subprocess.Popen(epmd, start_new_session=True, **quiet)
        until_s = time.monotonic() + self.start_s
        while not listens(int(self._ports["ERL_EPMD_PORT"])) and time.monotonic() < until_s:
            time.sleep(0.02)  # or else RabbitMQ starts one itself, which nobody ends
        return [str(self.path())]

    def make_room(self) -> None:
        """See `BrokerServer.make_room`: a queue for `streamkit.#`."""
        import pika  # type: ignore[import-untyped,import-not-found]

        user = pika.PlainCredentials("streamkit", self.password)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, credentials=user)) as connection:
            connection.channel().queue_declare("records", durable=True)
            connection.channel().queue_bind("records", "amq.topic", "streamkit.#")

    def kill(self) -> None:
        """See `BrokerServer.kill`: the script that starts it stands beside it, and epmd would remember it."""
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None

    def control(self, call: str) -> None:
        """Have it do something while it runs: module, function and values, as erl_call has them."""
        cookie = (self.folder / ".erlang.cookie").read_text().strip()
        at = f"localhost:{self._ports['RABBITMQ_DIST_PORT']}"
        command = ["erl_call", "-address", at, "-c", cookie, "-a", call]
        subprocess.run(command, check=True, capture_output=True, env=self._as()["env"])

    def _as(self) -> dict[str, Any]:
        here = self.folder
        small = {"PROCESSES": "50000", "ATOMS": "1000000"}
        variables = {
            "HOME": str(here),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_MNESIA_BASE": str(here / "mnesia"),
            "RABBITMQ_LOG_BASE": str(here / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_PID_FILE": str(here / "pid"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.config"),
            "RABBITMQ_CONF_ENV_FILE": str(here / "none"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(here / "generated"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1 -kernel inet_dist_use_interface {127,0,0,1}",
        }
        variables |= {f"RABBITMQ_MAX_NUMBER_OF_{name}": limit for name, limit in small.items()}
        return {"env": {**os.environ, **self._ports, **variables}}


def _closed_exchange(place: AmqpPlace) -> None:
    with place.channel() as channel:
        channel.exchange_declare("closed", "topic", internal=True)


class AmqpPlace(Place):
    """RabbitMQ takes seconds to start, so all tests of a process share one; each has a queue of its own."""

    kind = "amqp"
    poisons = (Poison(POISON, "ACCESS_REFUSED", key=b"closed", prepare=_closed_exchange),)
    shared_server = "rabbitmq"
    server = RabbitMqServer

    def __init__(self, folder: Path, broker: RabbitMqServer) -> None:
        self.folder = folder
        self.broker = broker
        self.gate = Gate(broker.port)
        with self.channel() as channel:
            channel.queue_declare(self.queue, durable=True)
            channel.queue_bind(self.queue, "amq.topic", "streamkit.#")

    @property
    def queue(self) -> str:
        return self.folder.name

    def channel(self) -> Any:
        """A channel to the broker itself, as a context; the connection closes with it."""
        return Channel(self.broker)

    def received(self) -> list[dict[str, Any]]:
        records = []
        with self.channel() as channel:
            count = channel.queue_declare(self.queue, passive=True).method.message_count
            for method, properties, body in channel.consume(self.queue, inactivity_timeout=5) if count else ():
                if method is None:
                    break
                record = json.loads(body)
                assert properties.message_id == record["id"]
                assert properties.delivery_mode == 2
                assert method.routing_key == f"streamkit.{record['source']}"
                records.append(record)
                if len(records) == count:
                    break
            channel.cancel()  # what was read is in the queue again
        return records

    def close(self) -> None:
        self.gate.close()
        with self.channel() as channel:
            channel.queue_delete(self.queue)


class Channel:
    """A channel of a connection of its own."""

    def __init__(self, broker: RabbitMqServer) -> None:
        self._broker = broker

    def __enter__(self) -> Any:
        import pika
        from pika.adapters.blocking_connection import BlockingConnection

        user = pika.PlainCredentials("streamkit", self._broker.password)
        self._connection = BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self._broker.port, credentials=user, connection_attempts=3)
        )
        return self._connection.channel()

    def __exit__(self, *error: object) -> None:
        self._connection.close()
