"""NATS with JetStream."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from streamkit.emit.sender import POISON
from support.broker_servers import BrokerServer
from support.place import Place
from support.poison import Poison


class NatsServer(BrokerServer):
    """NATS with JetStream."""

    name = "nats"
    binary = "nats-server"
    debian_packages = "nats-server"

    def command(self) -> list[str]:
        """See `BrokerServer.command`."""
        (self.folder / "nats.conf").write_text(self.config())
        return [str(self.path()), "-c", str(self.folder / "nats.conf")]

    def config(self) -> str:
        """Return the contents of the configuration file."""
        users = f'authorization {{ users = [{{user: streamkit, password: "{self.password}"}}] }}\n'
        return f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self.folder}/js" }}\n{users}'

    def make_room(self) -> None:
        """See `BrokerServer.make_room`."""
        self.add_stream()

    def add_stream(self, *subjects: str, **more: Any) -> None:
        """Make the stream `records`, for `streamkit.>` if not said otherwise, or change it; `more` is nats-py's."""
        import asyncio

        import nats

        async def add() -> None:
            client = await nats.connect(f"nats://127.0.0.1:{self.port}", user="streamkit", password=self.password)
            streams = {stream.config.name for stream in await client.jetstream().streams_info()}
            change = client.jetstream().update_stream if "records" in streams else client.jetstream().add_stream
            await change(name="records", subjects=list(subjects or ["streamkit.>"]), **more)
            await client.close()

        asyncio.run(add())


class NatsPlace(Place):
    """A stream that takes the records, and drops repeats by their ids."""

    kind = "nats"
    poisons = (Poison(POISON, "the connection is lost", topic=b"streamkit." + b"x" * 5000),)
    server = NatsServer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.broker.add_stream()

    def received(self) -> list[dict[str, Any]]:
        return asyncio.run(self._got())

    async def _got(self) -> list[dict[str, Any]]:
        import nats

        records = []
        user = {"user": "streamkit", "password": self.broker.password}
        client = await nats.connect(f"nats://127.0.0.1:{self.broker.port}", **user)
        stream = await client.jetstream().stream_info("records")
        reader = await client.jetstream().subscribe("streamkit.>", stream="records", ordered_consumer=True)
        while len(records) < stream.state.messages:
            message = await reader.next_msg(timeout=30)
            record = json.loads(message.data)
            assert message.headers["Nats-Msg-Id"] == record["id"]
            assert message.subject == f"streamkit.{record['source']}"
            records.append(record)
        await client.close()
        return records
