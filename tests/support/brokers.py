"""What the tests of emitters send to: real brokers, each with somebody who reads what has arrived."""

import json
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.broker_servers import BrokerServer, KafkaServer, MosquittoServer, PostgresServer, RedisServer, free_port
from support.place import Gate, Place
from support.queues import AmqpPlace, NatsPlace

HOOK = """
import http.server, sys
class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if b"poison" in body:
            self.close_connection = True
            return
        with open("got", "ab") as file:
            file.write(body + b"\\n")
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hook).serve_forever()
"""


class Hook(BrokerServer):
    """A receiver of webhooks, in a process of its own; what it answers for stands in its file."""

    name, binary = "webhook", "python3"

    def command(self) -> list[str]:
        return [sys.executable, "-c", HOOK, str(self.port)]


class SqlitePlace(Place):
    kind = "sqlite"

    def options(self, password: str | None = None) -> dict[str, Any]:
        return {"path": str(self.folder / "out.db")}

    def restart(self) -> None:
        """Another program holds the file for a while."""
        held = sqlite3.connect(self.folder / "out.db", timeout=10, isolation_level=None)
        held.execute("BEGIN EXCLUSIVE")
        time.sleep(0.3)
        held.execute("ROLLBACK")
        held.close()

    def got(self) -> list[dict[str, Any]]:
        with sqlite3.connect(self.folder / "out.db") as made:
            found = [json.loads(row[0]) for row in made.execute("SELECT record FROM frames ORDER BY rowid")]
        made.close()
        return found


class RedisPlace(Place):
    kind = "redis"
    made_of = RedisServer

    def got(self) -> list[dict[str, Any]]:
        import redis

        assert self.broker is not None
        with redis.Redis(port=self.broker.port, password=self.broker.password) as client:
            entries = [entry for key in sorted(client.keys("streamkit:*")) for entry in client.xrange(key)]
        assert all(fields[b"id"].decode() == json.loads(fields[b"record"])["id"] for _, fields in entries)
        return [json.loads(fields[b"record"]) for _, fields in entries]

    def options(self, password: str | None = None) -> dict[str, Any]:
        made = super().options(password)
        return {"url": made["url"].replace("streamkit:", ":")}


class PostgresPlace(Place):
    kind, path = "postgres", "/postgres"
    made_of = PostgresServer

    def got(self) -> list[dict[str, Any]]:
        import psycopg

        assert self.broker is not None
        options = {"user": "streamkit", "password": self.broker.password, "dbname": "postgres"}
        with psycopg.connect(host="127.0.0.1", port=self.broker.port, **options) as client:
            text = "SELECT record FROM frames ORDER BY source, frame"  # a table has no order of its own
            return [row[0] for row in client.execute(text)]


class WebhookPlace(Place):
    kind = "webhook"
    made_of = Hook

    def options(self, password: str | None = None) -> dict[str, Any]:
        assert self.gate is not None
        return {"url": f"http://127.0.0.1:{self.gate.port}/hook", "secret": "whsec_c2VjcmV0"}

    def got(self) -> list[dict[str, Any]]:
        text = (self.folder / "broker" / "got").read_text()
        return [one for line in text.splitlines() if line.endswith("]") for one in json.loads(line)]


class KafkaPlace(Place):
    """The mock tells everybody its own port, so there is no gate; it keeps the newest only, so it is read along."""

    kind = "kafka"
    made_of = KafkaServer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._found: list[dict[str, Any]] = []
        self._over, self._quiet_s = threading.Event(), time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def options(self, password: str | None = None) -> dict[str, Any]:
        assert self.broker is not None
        return {"url": f"kafka://127.0.0.1:{self.broker.port}"}

    def restart(self) -> None:
        """It is frozen for longer than the emitter waits."""
        assert self.broker is not None
        self.broker.freeze()
        time.sleep(1.5)
        self.broker.thaw()

    def _read(self) -> None:
        import confluent_kafka

        assert self.broker is not None
        consumer = confluent_kafka.Consumer({
            "bootstrap.servers": f"127.0.0.1:{self.broker.port}", "group.id": "all", "auto.offset.reset": "earliest",
            "log_level": 0, "error_cb": lambda error: None, "allow.auto.create.topics": True,
        })  # fmt: skip
        while not (known := consumer.list_topics("streamkit", timeout=10).topics["streamkit"].partitions):
            time.sleep(0.1)
        consumer.assign([confluent_kafka.TopicPartition("streamkit", number, 0) for number in known])
        while not self._over.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    record = json.loads(message.value())
                    assert message.key().decode() == record["source"]
                    assert dict(message.headers())["id"].decode() == record["id"]
                    self._found.append(record)
                    self._quiet_s = time.monotonic()
        consumer.close()

    def got(self) -> list[dict[str, Any]]:
        self._quiet_s = time.monotonic()
        while time.monotonic() - self._quiet_s < 2:
            time.sleep(0.1)
        return list(self._found)

    def close(self) -> None:
        self._over.set()
        self._reader.join(10)
        super().close()


class MqttPlace(Place):
    """Somebody has subscribed whenever the gate is open: what nobody listens to, MQTT does not keep.

    With QoS 0, so that it writes nothing: who writes to a broker that was killed is told so before all is read.
    """

    kind = "mqtt"
    made_of = MosquittoServer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._found: list[dict[str, Any]] = []
        self._marked = threading.Event()
        self._subscribe()

    def _subscribe(self) -> None:
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        assert self.broker is not None
        there, self._gone = threading.Event(), threading.Event()
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.username_pw_set("streamkit", self.broker.password)
        client.on_connect = lambda *_: client.subscribe([("streamkit/#", 0), ("mark", 0)])
        client.on_subscribe = lambda *_: there.set()
        client.on_disconnect = lambda *_, gone=self._gone: gone.set()
        client.on_message = self._take
        client.connect("127.0.0.1", self.broker.port)
        client.loop_start()
        assert there.wait(30)
        self._client = client

    def _take(self, client: Any, data: Any, message: Any) -> None:
        if message.topic == "mark":
            self._marked.set()
            return
        made = json.loads(message.payload)
        assert all(
            message.topic == f"streamkit/{one['source']}" for one in (made if isinstance(made, list) else [made])
        )
        self._found += made if isinstance(made, list) else [made]

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
        assert self._gone.wait(60)  # what was on its way has been read
        self._client.loop_stop()
        if (left := self._client.socket()) is not None:
            left.close()

    def got(self) -> list[dict[str, Any]]:
        """What has come before a mark that is sent now: a broker passes on in the order in which it takes."""
        self._marked.clear()
        self._client.publish("mark", b"", qos=1)
        assert self._marked.wait(60)
        return list(self._found)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        super().close()


PLACES: dict[str, type[Place]] = {
    one.kind: one
    for one in (MqttPlace, RedisPlace, KafkaPlace, SqlitePlace, PostgresPlace, WebhookPlace, AmqpPlace, NatsPlace)
}


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Place]]:
    """Make a place to send to, by the emitter's name; skipped where its broker is not installed."""
    made: list[Place] = []
    folders: list[Path] = []

    def make(kind: str) -> Place:
        if (broker := PLACES[kind].made_of) is not None and (why := broker.missing()) is not None:
            pytest.skip(why)
        folders.append(Path(tempfile.mkdtemp(prefix="streamkit-emit-")))
        folders[-1].chmod(0o755)  # a broker that does not run as root must come in
        if kind == "amqp":
            made.append(AmqpPlace(folders[-1], request.getfixturevalue("rabbitmq")))
        else:
            made.append(PLACES[kind](folders[-1]))
        return made[-1]

    yield make
    for one in made:
        one.close()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["PLACES", "Gate", "Hook", "Place", "free_port", "place"]
