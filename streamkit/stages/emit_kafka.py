"""Emit: records of Kafka topics."""

from __future__ import annotations

import contextlib
import re
from typing import Literal

from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.encoded import Encoded
from streamkit.emit.kafka import SCHEMES, KafkaClient
from streamkit.errors import MissingPackage
from streamkit.formats.codec import Format, codec
from streamkit.stage import stage

_LONGEST = 249  # characters of a topic's name


@stage("kafka")
class Kafka(Emitter):
    """Produce records to Kafka, acknowledged by all replicas in sync; idempotent, in order for each key.

    Options:
        url: a broker, such as "kafkas://${USER}:${PASSWORD}@broker:9093"; kafka:// is not encrypted.
        brokers: further brokers to begin with, as [host:port].
        topic: with {source} in it, or what else the records know.
        key: records of one key stay in order, likewise a template.
        format: of the records; avro and protobuf have the schemas that `run.py schema --records` prints.
        schema_id: the schema's number in a registry, which goes before each record in Confluent's wire format; if not
            set, Avro is in its single-object encoding, and Protobuf and JSON go alone.
        sasl: how the user and password of the url are shown to the broker.
        tls: files for kafkas://, such as {ca: ca.pem, cert: me.pem, key: me.key}.
        settings: further settings in librdkafka's own words, such as {compression.type: zstd}.
    """

    url: str
    brokers: list[str] | None = None
    topic: str = "streamkit"
    key: str = "{source}"
    format: Format = "json"
    schema_id: int | None = None
    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    tls: Tls | None = None
    settings: dict[str, str | int | bool] | None = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES, self.tls)
        literal = re.sub(r"\{[^{}]*\}", "", self.topic)
        if self.clean(literal) != literal or self.topic in (".", "..") or len(literal) > _LONGEST:
            what = f"letters from a to z, digits, dots, _ and -, at most {_LONGEST}, as in cameras.{{source}}"
            raise ValueError(f"topic must be of {what}, got {self.topic!r}")
        if self.settings:
            with contextlib.suppress(MissingPackage):
                if (why := self._producer().unusable()) is not None:
                    raise ValueError(f"settings must be ones that librdkafka takes; see its CONFIGURATION.md: {why}")
        if self.schema_id is not None and not 0 <= self.schema_id < 1 << 31:
            raise ValueError(f"schema_id must be the schema's number in its registry, got {self.schema_id}")

    def templates(self) -> dict[str, str]:
        """See `Emitter.templates`."""
        return {"topic": self.topic, "key": self.key}

    @staticmethod
    def clean(text: str) -> str:
        """See `Emitter.clean`: what the name of a topic cannot have becomes an underscore."""
        return re.sub(r"[^A-Za-z0-9._-]", "_", text)

    def client(self) -> Client:
        """See `Emitter.client`."""
        encode = codec(self.format, self.send, self.schema_id)
        client = self._producer()
        return client if encode is None else Encoded(client, encode)

    def _producer(self) -> KafkaClient:
        return KafkaClient(self._at, self.brokers or (), self.tls, self.sasl, self.settings)
