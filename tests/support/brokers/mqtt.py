"""MQTT: Mosquitto."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from streamkit.emit.sender import POISON, REFUSED
from support.broker_servers import BrokerServer
from support.place import Place
from support.poison import Poison


class MosquittoServer(BrokerServer):
    """MQTT."""

    name = "mqtt"
    binary = "mosquitto"
    debian_packages = "mosquitto mosquitto-clients"

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


def _limited(place: Place) -> None:
    """Let the broker reject packets above 5,000 bytes."""
    assert place.broker is not None
    command = place.broker.command

    def with_limit() -> list[str]:
        arguments = command()
        with open(arguments[-1], "a") as file:
            file.write("max_packet_size 5000\n")
        return arguments

    place.broker.command = with_limit  # type: ignore[method-assign]
    place.restart()


class MqttPlace(Place):
    """A subscriber is connected whenever the gate is open: MQTT drops messages of topics without one.

    It uses QoS 0 and so sends no acknowledgments: a write to a killed broker ends the connection before all is read.
    """

    kind = "mqtt"
    poisons = (
        Poison(REFUSED, "bytes, and the broker accepts 5000", {"text": "x" * 6000}, prepare=_limited, name="too large"),
        Poison(POISON, "the connection is lost", topic=b"streamkit/a\x1bb", name="topic"),
    )
    server = MosquittoServer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._records: list[dict[str, Any]] = []
        self._marked = threading.Event()
        self._subscribe()

    def _subscribe(self) -> None:
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        assert self.broker is not None
        subscribed = threading.Event()
        self._disconnected = threading.Event()
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.username_pw_set("streamkit", self.broker.password)
        client.on_connect = lambda *_: client.subscribe([("streamkit/#", 0), ("mark", 0)])
        client.on_subscribe = lambda *_: subscribed.set()
        client.on_disconnect = lambda *_, disconnected=self._disconnected: disconnected.set()
        client.on_message = self._take
        client.connect("127.0.0.1", self.broker.port)
        client.loop_start()
        assert subscribed.wait(30)
        self._client = client

    def _take(self, client: Any, data: Any, message: Any) -> None:
        if message.topic == "mark":
            self._marked.set()
            return
        payload = json.loads(message.payload)
        records = payload if isinstance(payload, list) else [payload]
        assert all(message.topic == f"streamkit/{record['source']}" for record in records)
        self._records += records

    def restart(self) -> None:
        assert self.gate is not None
        assert self.broker is not None
        self.broker.kill()
        self.gate.shut()
        self._leave()
        self.broker.start()
        self._subscribe()
        self.gate.open()

    def _leave(self) -> None:
        assert self._disconnected.wait(60)  # what was on its way has been read
        self._client.loop_stop()
        if (socket := self._client.socket()) is not None:
            socket.close()

    def received(self) -> list[dict[str, Any]]:
        """What has come before a mark that is sent now: a broker passes on in the order in which it takes."""
        self._marked.clear()
        self._client.publish("mark", b"", qos=1)
        assert self._marked.wait(60)
        return list(self._records)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        super().close()
