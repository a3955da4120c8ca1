"""Emit: messages to RabbitMQ."""

from __future__ import annotations

from streamkit.emit.amqp import SCHEMES, AmqpClient
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.stage import stage


@stage("amqp")
class Amqp(Emitter):
    """Publish records to RabbitMQ (AMQP 0-9-1), persistent, each confirmed by the broker.

    The exchange must be there, and a queue that is bound to it: the broker keeps records in queues only.

    Options:
        url: the broker, such as "amqps://${USER}:${PASSWORD}@broker:5671/vhost"; amqp:// is not encrypted.
        exchange: where to publish, with {source} in it, or what else the records know; "" goes to the queue that the
            routing key names.
        routing_key: likewise a template; dots in a value become underscores, so that each is one word.
        mandatory: refuse records that the exchange has no queue for, and count them; false lets the broker drop them.
        tls: files for amqps://, such as {ca: ca.pem, cert: me.pem, key: me.key}.
    """

    url: str
    exchange: str = "amq.topic"
    routing_key: str = "streamkit.{source}"
    mandatory: bool = True
    tls: Tls | None = None

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
