"""Sink: entries of Redis streams."""

from __future__ import annotations

from typing import Annotated

from streamkit.core.stage import Count, stage
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.redis import SCHEMES, RedisClient


@stage("redis")
class RedisSink(Emitter):
    """Add records to Redis streams; each entry has the fields id and record."""

    url: Annotated[str, 'the server, such as "rediss://${USER}:${PASSWORD}@host:6379/0"; redis:// is not encrypted.']
    stream: Annotated[
        str,
        "the stream's key, a template with {source} or other variables of the records.",
    ] = "streamkit:{source}"
    max_length: Annotated[
        Count | None,
        "approximate number of entries that a stream keeps; the oldest are removed. By default, all are kept.",
    ] = None
    tls: Annotated[Tls | None, "files for rediss://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES, self.tls)
        if not (self._at.path.strip("/") or "0").isdigit():
            raise ValueError("url must end with the number of a database, as in redis://host:6379/0")

    def templates(self) -> dict[str, str]:
        """See `Emitter.templates`."""
        return {"stream": self.stream}

    def client(self) -> Client:
        """See `Emitter.client`."""
        return RedisClient(self._at, self.tls, self.max_length)
