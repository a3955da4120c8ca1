"""Redis."""

from __future__ import annotations

import json
from typing import Any

from streamkit.emit.sender import POISON
from support.broker_servers import BrokerServer
from support.place import Place
from support.poison import Poison


class RedisServer(BrokerServer):
    """Redis, which writes each command to its file before it answers."""

    name = "redis"
    binary = "redis-server"
    debian_packages = "redis-server"

    def command(self) -> list[str]:
        """See `BrokerServer.command`."""
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "save": "", "appendonly": "yes"}
        options |= {"requirepass": self.password, "appendfsync": "everysec"}
        return [str(self.path()), *(text for key, value in options.items() for text in (f"--{key}", str(value)))]


def _limited(place: Place) -> None:
    import redis

    assert place.broker is not None
    with redis.Redis(port=place.broker.port, password=place.broker.password) as client:
        client.config_set("proto-max-bulk-len", 1_048_576)


class RedisPlace(Place):
    kind = "redis"
    poisons = (Poison(POISON, "the records are not accepted", {"text": "x" * 2_000_000}, prepare=_limited),)
    user = ""
    server = RedisServer

    def received(self) -> list[dict[str, Any]]:
        import redis

        assert self.broker is not None
        with redis.Redis(port=self.broker.port, password=self.broker.password) as client:
            entries = [entry for key in sorted(client.keys("streamkit:*")) for entry in client.xrange(key)]
        assert all(fields[b"id"].decode() == json.loads(fields[b"record"])["id"] for _, fields in entries)
        return [json.loads(fields[b"record"]) for _, fields in entries]
