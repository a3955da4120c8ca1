"""RabbitMQ and NATS as places to send to."""

import asyncio
import json
from pathlib import Path
from typing import Any

from support.broker_servers import NatsServer
from support.place import Gate, Place
from support.rabbitmq import RabbitMqServer


class AmqpPlace(Place):
    """RabbitMQ takes seconds to start, so all tests of a process share one; each has a queue of its own."""

    kind = "amqp"
    made_of = RabbitMqServer

    def __init__(self, folder: Path, broker: RabbitMqServer) -> None:
        self.folder, self.broker = folder, broker
        self.gate = Gate(broker.port)
        with self.channel() as channel:
            channel.queue_declare(self.queue, durable=True)
            channel.queue_bind(self.queue, "amq.topic", "streamkit.#")

    @property
    def queue(self) -> str:
        return self.folder.name

    def channel(self) -> Any:
        """A channel to the broker itself, as a context; the connection closes with it."""
        return Channel(self.broker)

    def got(self) -> list[dict[str, Any]]:
        found = []
        with self.channel() as channel:
            most = channel.queue_declare(self.queue, passive=True).method.message_count
            for method, properties, body in channel.consume(self.queue, inactivity_timeout=5) if most else ():
                if method is None:
                    break
                record = json.loads(body)
                assert properties.message_id == record["id"]
                assert properties.delivery_mode == 2
                assert method.routing_key == f"streamkit.{record['source']}"
                found.append(record)
                if len(found) == most:
                    break
            channel.cancel()  # what was read is in the queue again
        return found

    def close(self) -> None:
        self.gate.close()
        with self.channel() as channel:
            channel.queue_delete(self.queue)


class Channel:
    """A channel of a connection of its own."""

    def __init__(self, broker: RabbitMqServer) -> None:
        self._broker = broker

    def __enter__(self) -> Any:
        import pika
        from pika.adapters.blocking_connection import BlockingConnection

        user = pika.PlainCredentials("streamkit", self._broker.password)
        self._connection = BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self._broker.port, credentials=user, connection_attempts=3)
        )
        return self._connection.channel()

    def __exit__(self, *error: object) -> None:
        self._connection.close()


class NatsPlace(Place):
    """A stream that takes the records, and drops repeats by their ids."""

    kind = "nats"
    made_of = NatsServer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.broker.add_stream()

    def got(self) -> list[dict[str, Any]]:
        return asyncio.run(self._got())

    async def _got(self) -> list[dict[str, Any]]:
        import nats

        found = []
        at, user = f"nats://127.0.0.1:{self.broker.port}", {"user": "streamkit", "password": self.broker.password}
        client = await nats.connect(at, **user)
        known = await client.jetstream().stream_info("records")
        reader = await client.jetstream().subscribe("streamkit.>", stream="records", ordered_consumer=True)
        while len(found) < known.state.messages:
            one = await reader.next_msg(timeout=30)
            record = json.loads(one.data)
            assert one.headers["Nats-Msg-Id"] == record["id"]
            assert one.subject == f"streamkit.{record['source']}"
            found.append(record)
        await client.close()
        return found
