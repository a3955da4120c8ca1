# SPDX-License-Identifier: Apache-2.0
"""Kafka with confluent-kafka (librdkafka): an idempotent producer, acknowledged by all in-sync replicas."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from streamkit.core.errors import MissingPackage, needs
from streamkit.core.stage import stage
from streamkit.emit.broker import Broker
from streamkit.emit.client import (
    Address,
    Client,
    EncodingClient,
    Message,
    RecordRejected,
    SendError,
    ServerClient,
    Tls,
    address,
    quiet_logger,
)
from streamkit.emit.emitter import Emitter
from streamkit.io.formats.codec import Format, codec

SCHEMES = {"kafka": (9092, False), "kafkas": (9093, True)}

_PERMANENT = {"MSG_SIZE_TOO_LARGE", "TOPIC_EXCEPTION", "INVALID_MSG", "INVALID_RECORD", "_INVALID_ARG"}
_POLL_S = 0.1


class KafkaClient(ServerClient):
    """Produces to Kafka. Records of one key go to one partition, and stay in order there.

    If a record is not acknowledged in time, it and all records after it are sent again by a new producer: librdkafka
    itself never reorders or drops one.

    Args:
        server: a bootstrap broker.
        others: further bootstrap brokers, as host:port.
        tls: files for `kafkas`.
        sasl: the mechanism if the address has a user.
        more: librdkafka settings, which override these.

    Raises:
        MissingPackage: confluent-kafka is not installed.
    """

    def __init__(
        self,
        server: Address,
        others: Sequence[str] = (),
        tls: Tls | None = None,
        sasl: str = "PLAIN",
        more: Mapping[str, Any] | None = None,
    ) -> None:
        with needs("confluent-kafka", "kafka"):
            import confluent_kafka
        super().__init__(server, tls)
        self._kafka = confluent_kafka
        self._producer: Any = None
        self._why = ""
        self._settings: dict[str, Any] = {
            "bootstrap.servers": ",".join([f"{server.host}:{server.port}", *others]),
            "security.protocol": ("SASL_" if server.user else "") + ("SSL" if server.tls else "PLAINTEXT"),
            "enable.idempotence": True,
            "message.timeout.ms": 0,  # no timeout: the sender decides, so that no record is skipped
            "linger.ms": 5,
            "socket.keepalive.enable": True,
            "logger": None,
            "error_cb": self._failed,
        }
        if server.user:
            password = server.password or ""
            self._settings |= {"sasl.mechanism": sasl, "sasl.username": server.user, "sasl.password": password}
        for key, name in (("ca", "ssl.ca.location"), ("cert", "ssl.certificate.location"), ("key", "ssl.key.location")):
            if tls and key in tls:
                self._settings[name] = tls[key]  # type: ignore[literal-required]
        self._settings |= more or {}
        hidden = (str(value) for name, value in (more or {}).items() if "password" in name or "secret" in name)
        self.secrets = [*self.secrets, *hidden]

    def unusable(self) -> str | None:
        """The reason why librdkafka rejects the settings, or None. Does not connect.

        Problems with a certificate file are no reason: they may be fixed later.
        """
        brokers = ("bootstrap.servers", "metadata.broker.list")
        settings = {name: value for name, value in self._settings.items() if name not in (*brokers, "logger")}
        try:
            self._kafka.Producer({**settings, "log_level": 0})
        except self._kafka.KafkaException as error:
            text = error.args[0].str()
            return None if ": ssl." in text else self.redact(text)
        except (TypeError, ValueError) as error:
            return self.redact(str(error))
        return None

    def connect(self) -> None:
        """See `Client.connect`."""
        self._why = ""
        until_s = time.monotonic() + self.timeout_s
        try:
            self._producer = self._kafka.Producer({**self._settings, "logger": quiet_logger(__name__)})
        except self._kafka.KafkaException as error:  # unknown settings
            raise SendError(error.args[0].str()) from error
        while True:
            try:
                self._producer.list_topics(timeout=5 * _POLL_S)
                return
            except self._kafka.KafkaException as error:
                self._producer.poll(0)
                if self.over() or time.monotonic() > until_s:
                    raise SendError(f"no connection: {self._why or error.args[0].str()}") from error

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Client.deliver`."""
        producer = self._producer
        assert producer is not None
        answers: list[Any] = [self] * len(messages)  # None if it has arrived, or Kafka's error

        def answered(i: int) -> Any:
            return lambda error, message: answers.__setitem__(i, error)

        try:
            for i, message in enumerate(messages):
                headers = [("id", message.id.encode())]
                producer.produce(
                    message.topic, message.body, message.key.encode() or None, on_delivery=answered(i), headers=headers
                )
        except BufferError:  # librdkafka's queue is full; the records after these are sent again
            pass
        except self._kafka.KafkaException as error:
            answers[i] = error.args[0]
        until_s = time.monotonic() + self.timeout_s
        while producer.flush(_POLL_S) and time.monotonic() < until_s and not self.over():
            pass
        for done, answer in enumerate(answers):
            if answer is self:
                raise SendError(f"no acknowledgement within {self.timeout_s:g} s{self._why and ': '}{self._why}", done)
            if answer is not None:
                raise (RecordRejected if answer.name() in _PERMANENT else SendError)(answer.str(), done)

    def idle(self) -> None:
        """See `Client.idle`."""
        self._producer.poll(0)

    def close(self) -> None:
        """See `Client.close`."""
        producer = self._producer
        self._producer = None
        if producer is not None:
            producer.purge()
            producer.flush(1.0)

    def _failed(self, error: Any) -> None:
        self._why = error.str()


_LONGEST = 249  # characters of a topic's name


@stage("kafka")
class KafkaSink(Emitter):
    """Produce records to Kafka, acknowledged by all replicas in sync; idempotent, in order for each key."""

    broker: ClassVar[Broker] = Broker(
        product="Kafka",
        acknowledged_by="all in-sync replicas",
        page="emitters-brokers.md#kafka",
        example="kafka://127.0.0.1",
        modules=("confluent_kafka",),
        id_in="message header `id`, and the record",
    )

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
        self._server = address(self.url, SCHEMES, self.tls)
        literal = re.sub(r"\{[^{}]*\}", "", self.topic)
        if self.clean(literal) != literal or self.topic in (".", "..") or len(literal) > _LONGEST:
            what = f"letters from a to z, digits, dots, _ and -, at most {_LONGEST}, as in cameras.{{source}}"
            raise ValueError(f"topic must be of {what}, got {self.topic!r}")
        if self.settings:
            with contextlib.suppress(MissingPackage):
                if (reason := self._producer().unusable()) is not None:
                    raise ValueError(
                        f"settings must be librdkafka settings, as its CONFIGURATION.md lists them: {reason}"
                    )
        if self.schema_id is not None and not 0 <= self.schema_id < 1 << 31:
            raise ValueError(f"schema_id must be the schema's number in its registry, got {self.schema_id}")

    def client(self) -> Client:
        """See `Emitter.client`."""
        encode = codec(self.format, self.send, self.schema_id)
        client = self._producer()
        return client if encode is None else EncodingClient(client, encode)

    def _producer(self) -> KafkaClient:
        return KafkaClient(self._server, self.brokers or (), self.tls, self.sasl, self.settings)
