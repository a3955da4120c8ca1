# SPDX-License-Identifier: Apache-2.0
"""Redis streams with redis-py: XADD in transactions, acknowledged by the entry ids that Redis returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from streamkit.core.errors import needs
from streamkit.core.stage import Count, stage
from streamkit.emit.broker import Broker
from streamkit.emit.client import (
    Address,
    Client,
    Message,
    RecordRejected,
    SendError,
    ServerClient,
    Tls,
    address,
    tls_context,
)
from streamkit.emit.emitter import Emitter

SCHEMES = {"redis": (6379, False), "rediss": (6379, True)}

_PERMANENT = ("WRONGTYPE", "ERR string exceeds")


class RedisClient(ServerClient):
    """Adds to Redis streams; each entry has the fields `id` and `record`.

    Args:
        server: the Redis server; the path is the database number.
        tls: files for `rediss`.
        max_length: approximate maximum number of entries in a stream; None for no limit.

    Raises:
        MissingPackage: redis is not installed.
    """

    def __init__(self, server: Address, tls: Tls | None = None, max_length: int | None = None) -> None:
        with needs("redis", "redis"):
            import redis
        super().__init__(server, tls)
        self._redis = redis
        self._trim: tuple[Any, ...] = () if max_length is None else ("MAXLEN", "~", max_length)

    def connect(self) -> None:
        """See `Client.connect`."""
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        server = self._server
        tls = self._tls or {}
        if server.tls:
            tls_context(self._tls)  # checks the files
        try:
            self._connection = self._redis.Redis(
                server.host,
                server.port,
                int(server.path.strip("/") or 0),
                username=server.user or None,
                password=server.password,
                socket_timeout=self.timeout_s,
                socket_connect_timeout=self.timeout_s,
                single_connection_client=True,
                retry=Retry(NoBackoff(), 0),
                ssl=server.tls,
                ssl_ca_certs=tls.get("ca"),
                ssl_certfile=tls.get("cert"),
                ssl_keyfile=tls.get("key"),
            )
            self._connection.ping()
        except (self._redis.RedisError, OSError) as error:
            raise SendError(f"no connection: {error}") from error

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Client.deliver`: one transaction, so that no record overtakes one for which Redis has no memory."""
        pipe = self._connection.pipeline(transaction=True)
        for message in messages:
            pipe.execute_command("XADD", message.topic, *self._trim, "*", "id", message.id, "record", message.body)
        try:
            answers = pipe.execute(raise_on_error=False)
        except (self._redis.RedisError, OSError) as error:
            disconnected = isinstance(error, self._redis.ConnectionError)
            raise SendError(f"the records are not accepted: {error}", disconnected=disconnected) from error
        for done, answer in enumerate(answers):
            if isinstance(answer, Exception):
                kind = RecordRejected if str(answer).startswith(_PERMANENT) else SendError
                raise kind(str(answer), done)


@stage("redis")
class RedisSink(Emitter):
    """Add records to Redis streams; each entry has the fields id and record."""

    broker: ClassVar[Broker] = Broker(
        product="Redis streams",
        acknowledged_by="the id of the entry",
        page="emitters-brokers.md#redis-streams",
        example="redis://127.0.0.1",
        modules=("redis",),
        id_in="field `id` of the entry",
    )

    template_options: ClassVar[tuple[str, ...]] = ("stream",)

    url: Annotated[str, 'the server, such as "rediss://${USER}:${PASSWORD}@host:6379/0"; redis:// is not encrypted.']
    stream: Annotated[str, "the key, a template with {source} or other variables of records."] = "streamkit:{source}"
    max_length: Annotated[Count | None, "approximate number of entries that a stream keeps; by default all."] = None
    tls: Annotated[Tls | None, "files for rediss://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._server = address(self.url, SCHEMES, self.tls)
        if not (self._server.path.strip("/") or "0").isdigit():
            raise ValueError("url must end with the number of a database, as in redis://host:6379/0")

    def client(self) -> Client:
        """See `Emitter.client`."""
        return RedisClient(self._server, self.tls, self.max_length)
