"""Kafka: librdkafka's own mock cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from streamkit.emit.sender import REFUSED
from support.broker_servers import BrokerServer
from support.place import Place
from support.poison import Poison

_KAFKA = """
import confluent_kafka, sys, time
cluster = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(cluster.list_topics(timeout=10).brokers.values()))
print(broker.port, flush=True)
while sys.stdin.readline():
    pass
"""


class KafkaServer(BrokerServer):
    """Kafka's protocol by librdkafka's own mock cluster. It keeps its topics in memory, so a kill loses them."""

    name = "kafka"
    binary = "python"

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
            [sys.executable, "-c", _KAFKA],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """See `BrokerServer.kill`."""
        super().kill()
        for pipe in (self.process.stdin, self.process.stdout) if self.process is not None else ():
            if pipe is not None:
                pipe.close()


class KafkaPlace(Place):
    """The mock tells everybody its own port, so there is no gate; it keeps the newest only, so it is read along."""

    kind = "kafka"
    poisons = (Poison(REFUSED, "too large", {"text": "x" * 2_000_000}),)
    has_gate = False
    server = KafkaServer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._records: list[dict[str, Any]] = []
        self._over = threading.Event()
        self._quiet_s = time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def options_at(cls, folder: Path, port: int, password: str) -> dict[str, Any]:
        return {"url": f"kafka://127.0.0.1:{port}"}

    def restart(self) -> None:
        """It is frozen for longer than the emitter waits."""
        assert self.broker is not None
        self.broker.freeze()
        time.sleep(1.5)
        self.broker.thaw()

    def _read(self) -> None:
        import confluent_kafka

        assert self.broker is not None
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{self.broker.port}",
                "group.id": "all",
                "auto.offset.reset": "earliest",
                "log_level": 0,
                "error_cb": lambda error: None,
                "allow.auto.create.topics": True,
            }
        )
        while not (partitions := consumer.list_topics("streamkit", timeout=10).topics["streamkit"].partitions):
            time.sleep(0.1)
        consumer.assign([confluent_kafka.TopicPartition("streamkit", number, 0) for number in partitions])
        while not self._over.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    record = json.loads(message.value())
                    assert message.key().decode() == record["source"]
                    assert dict(message.headers())["id"].decode() == record["id"]
                    self._records.append(record)
                    self._quiet_s = time.monotonic()
        consumer.close()

    def received(self) -> list[dict[str, Any]]:
        self._quiet_s = time.monotonic()
        while time.monotonic() - self._quiet_s < 2:
            time.sleep(0.1)
        return list(self._records)

    def close(self) -> None:
        self._over.set()
        self._reader.join(10)
        super().close()
