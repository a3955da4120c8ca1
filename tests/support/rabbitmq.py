"""RabbitMQ for measuring and testing: a process of its own, like the others of brokers.py."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from support.broker_servers import BrokerServer, free_port, listens


class RabbitMqServer(BrokerServer):
    """RabbitMQ without plugins, in one folder, with an epmd (Erlang's register of nodes) of its own.

    Attributes:
        settings: of the application `rabbit`, as Erlang terms; those that are not as they usually are.
    """

    name, binary = "amqp", "rabbitmq-server"
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
        found = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        return str(found) if found.exists() else super().path()

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
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, credentials=user)) as made:
            made.channel().queue_declare("records", durable=True)
            made.channel().queue_bind("records", "amq.topic", "streamkit.#")

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
        asked = ["erl_call", "-address", at, "-c", cookie, "-a", call]
        subprocess.run(asked, check=True, capture_output=True, env=self._as()["env"])

    def _as(self) -> dict[str, Any]:
        here = self.folder
        small = {"PROCESSES": "50000", "ATOMS": "1000000"}
        known = {
            "HOME": str(here), "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_MNESIA_BASE": str(here / "mnesia"), "RABBITMQ_LOG_BASE": str(here / "logs"), "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"), "RABBITMQ_PID_FILE": str(here / "pid"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.config"), "RABBITMQ_CONF_ENV_FILE": str(here / "none"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(here / "generated"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1 -kernel inet_dist_use_interface {127,0,0,1}",
        }  # fmt: skip
        known |= {f"RABBITMQ_MAX_NUMBER_OF_{name}": most for name, most in small.items()}
        return {"env": {**os.environ, **self._ports, **known}}
