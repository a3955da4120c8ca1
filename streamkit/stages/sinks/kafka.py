# SPDX-License-Identifier: Apache-2.0
"""Sink: records of Kafka topics."""

from __future__ import annotations

import contextlib
import re
from typing import Annotated, ClassVar, Literal

from streamkit.core.errors import MissingPackage
from streamkit.core.stage import stage
from streamkit.emit.client import Client, EncodingClient, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.kafka import SCHEMES, KafkaClient
from streamkit.io.formats.codec import Format, codec

_LONGEST = 249  # characters of a topic's name


@stage("kafka")
class KafkaSink(Emitter):
    """Produce records to Kafka, acknowledged by all replicas in sync; idempotent, in order for each key."""

    template_options: ClassVar[tuple[str, ...]] = ("topic", "key")
    unsafe: ClassVar[str] = r"[^A-Za-z0-9._-]"

    url: Annotated[str, 'a broker, such as "kafkas://${USER}:${PASSWORD}@broker:9093"; kafka:// is not encrypted.']
    brokers: Annotated[list[str] | None, "further bootstrap brokers, as [host:port]."] = None
    topic: Annotated[str, "the topic, a template with {source} or other variables of the records."] = "streamkit"
    key: Annotated[str, "also a template; records with the same key stay in order."] = "{source}"
    format: Annotated[Format, "of the records; `streamkit schema --records` prints avro and protobuf schemas."] = "json"
    schema_id: Annotated[
        int | None,
        "the schema's number in a registry, written before each record in Confluent's wire format; if not set, Avro "
        "uses its single-object encoding, and Protobuf and JSON have no prefix.",
    ] = None
    sasl: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
        "how the url's user and password are presented to the broker.",
    ] = "PLAIN"
    tls: Annotated[Tls | None, "files for kafkas://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None
    settings: Annotated[dict[str, str | int | bool] | None, "of librdkafka, as in {compression.type: zstd}."] = None

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
                    raise ValueError(f"settings must be librdkafka settings, as its CONFIGURATION.md lists them: {why}")
        if self.schema_id is not None and not 0 <= self.schema_id < 1 << 31:
            raise ValueError(f"schema_id must be the schema's number in its registry, got {self.schema_id}")

    def client(self) -> Client:
        """See `Emitter.client`."""
        encode = codec(self.format, self.send, self.schema_id)
        client = self._producer()
        return client if encode is None else EncodingClient(client, encode)

    def _producer(self) -> KafkaClient:
        return KafkaClient(self._at, self.brokers or (), self.tls, self.sasl, self.settings)
