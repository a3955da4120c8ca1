"""Sink: messages to RabbitMQ."""

from __future__ import annotations

from typing import Annotated

from streamkit.core.stage import stage
from streamkit.emit.amqp import SCHEMES, AmqpClient
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter


@stage("amqp")
class AmqpSink(Emitter):
    """Publish records to RabbitMQ (AMQP 0-9-1), persistent, each confirmed by the broker.

    The exchange must exist, and a queue bound to it: the broker stores records in queues only.
    """

    url: Annotated[
        str, 'the broker, such as "amqps://${USER}:${PASSWORD}@broker:5671/vhost"; amqp:// is not encrypted.'
    ]
    exchange: Annotated[
        str,
        'the exchange, a template with {source} or other variables of the records; "" publishes to the queue that the '
        "routing key names.",
    ] = "amq.topic"
    routing_key: Annotated[
        str, "the routing key, also a template; dots in a value become underscores, so each value is one word."
    ] = "streamkit.{source}"
    mandatory: Annotated[
        bool, "reject and count records that the exchange has no queue for; if false, the broker drops them."
    ] = True
    tls: Annotated[Tls | None, "files for amqps://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES, self.tls)
        if "/" in self._at.path[1:]:
            raise ValueError("url must end with one virtual host, as in amqp://host/vhost; write %2F for / in its name")

    def templates(self) -> dict[str, str]:
        """See `Emitter.templates`."""
        return {"routing_key": self.routing_key, **({"exchange": self.exchange} if self.exchange else {})}

    @staticmethod
    def clean(text: str) -> str:
        """See `Emitter.clean`: one word of a routing key."""
        return text.replace(".", "_")

    def client(self) -> Client:
        """See `Emitter.client`."""
        return AmqpClient(self._at, self.tls, self.mandatory)
