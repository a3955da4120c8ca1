# SPDX-License-Identifier: Apache-2.0
"""Sinks: messages to RabbitMQ, NATS JetStream and Redis, and signed HTTP requests."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from streamkit.core.addresses import UNSAFE
from streamkit.core.stage import Count, stage
from streamkit.core.text import printable
from streamkit.emit.amqp import SCHEMES as AMQP_SCHEMES
from streamkit.emit.amqp import AmqpClient
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.nats import SCHEMES as NATS_SCHEMES
from streamkit.emit.nats import NatsClient
from streamkit.emit.redis import SCHEMES as REDIS_SCHEMES
from streamkit.emit.redis import RedisClient
from streamkit.emit.webhook import SCHEMES as WEBHOOK_SCHEMES
from streamkit.emit.webhook import WebhookClient, secret_bytes

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@stage("amqp")
class AmqpSink(Emitter):
    """Publish records to RabbitMQ (AMQP 0-9-1), persistent, each confirmed by the broker.

    The exchange must exist, and a queue bound to it: the broker stores records in queues only.
    """

    unsafe: ClassVar[str] = r"\."

    url: Annotated[str, 'the broker, such as "amqps://${USER}:${PASSWORD}@host:5671/vhost"; amqp:// is not encrypted.']
    exchange: Annotated[
        str,
        'the exchange, a template with {source} or other variables of the records; "" publishes to the queue that the '
        "routing key names.",
    ] = "amq.topic"
    routing_key: Annotated[str, "also a template; dots in a value become underscores."] = "streamkit.{source}"
    mandatory: Annotated[bool, "reject and count records without a queue; if false, the broker drops them."] = True
    tls: Annotated[Tls | None, "files for amqps://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, AMQP_SCHEMES, self.tls)
        if "/" in self._at.path[1:]:
            raise ValueError("url must end with one virtual host, as in amqp://host/vhost; write %2F for / in its name")

    def templates(self) -> dict[str, str]:
        """See `Emitter.templates`."""
        return {"routing_key": self.routing_key, **({"exchange": self.exchange} if self.exchange else {})}

    def client(self) -> Client:
        """See `Emitter.client`."""
        return AmqpClient(self._at, self.tls, self.mandatory)


@stage("nats")
class NatsSink(Emitter):
    """Publish records to NATS JetStream, each acknowledged by the stream that stores it.

    A stream with these subjects must exist, as from `nats stream add CAMERAS --subjects 'streamkit.>'`; until then
    records wait. The stream discards repeats by their id, within its duplicate window.
    """

    template_options: ClassVar[tuple[str, ...]] = ("subject",)
    unsafe: ClassVar[str] = r"[\s.*>\x00]"

    url: Annotated[
        str,
        'a server, such as "tls://${USER}:${PASSWORD}@host:4222" or "tls://${TOKEN}@host"; nats:// is not encrypted.',
    ]
    servers: Annotated[list[str] | None, "further servers of the same cluster, as [host:port]."] = None
    subject: Annotated[
        str, "a template with {source} or other variables of the records; each value is one token, without dots."
    ] = "streamkit.{source}"
    creds: Annotated[str | None, 'a file with a user\'s JWT and key, such as "${NATS_CREDS}".'] = None
    tls: Annotated[Tls | None, "files for tls://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, NATS_SCHEMES, self.tls)
        for server in self.servers or ():
            if UNSAFE.search(server) or not re.fullmatch(r"[^\s/@]+:\d+", server):
                raise ValueError("servers must be a list of host:port; credentials of all servers are in url")
        if re.search(r"[\s*>]|^\.|\.\.|\.$", self.subject):
            raise ValueError(f"subject must be words joined by dots, without spaces, * and >, got {self.subject!r}")
        if self.creds is not None and self._at.user is not None:
            raise ValueError("creds identifies the user; leave the user out of url")

    @classmethod
    def clean(cls, text: str) -> str:
        """See `Emitter.clean`: one word of a subject."""
        return super().clean(text) or "_"

    def client(self) -> Client:
        """See `Emitter.client`."""
        return NatsClient(self._at, self.servers or (), self.tls, self.creds)


@stage("redis")
class RedisSink(Emitter):
    """Add records to Redis streams; each entry has the fields id and record."""

    template_options: ClassVar[tuple[str, ...]] = ("stream",)

    url: Annotated[str, 'the server, such as "rediss://${USER}:${PASSWORD}@host:6379/0"; redis:// is not encrypted.']
    stream: Annotated[str, "the key, a template with {source} or other variables of records."] = "streamkit:{source}"
    max_length: Annotated[Count | None, "approximate number of entries that a stream keeps; by default all."] = None
    tls: Annotated[Tls | None, "files for rediss://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, REDIS_SCHEMES, self.tls)
        if not (self._at.path.strip("/") or "0").isdigit():
            raise ValueError("url must end with the number of a database, as in redis://host:6379/0")

    def client(self) -> Client:
        """See `Emitter.client`."""
        return RedisClient(self._at, self.tls, self.max_length)


@stage("webhook")
class WebhookSink(Emitter):
    """Post records to an HTTP address, as JSON arrays signed with HMAC-SHA256 (Standard Webhooks)."""

    url: Annotated[str, 'the address, such as "https://example.com/hook"; status 2xx acknowledges, others are retried.']
    secret: Annotated[str | None, 'the key that signs requests, such as "${HOOK_SECRET}"; unsigned by default.'] = None
    batch: Annotated[Count, "maximum number of records in one request."] = 100
    headers: Annotated[dict[str, str] | None, 'further headers, such as {authorization: "Bearer ${TOKEN}"}.'] = None
    tls: Annotated[Tls | None, "files for https://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, WEBHOOK_SCHEMES, self.tls)
        if self.secret is not None:
            secret_bytes(self.secret)
        for name, text in (self.headers or {}).items():
            if not _HEADER.fullmatch(name) or UNSAFE.search(text.replace("\t", " ")):
                raise ValueError(
                    f"headers: {printable(name, one_line=True)} must be a header's name, and its value have no line "
                    "ends and control characters"
                )

    def client(self) -> Client:
        """See `Emitter.client`."""
        return WebhookClient(self._at, self.url, self.tls, self.secret, self.batch, self.headers)
