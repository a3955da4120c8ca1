# SPDX-License-Identifier: Apache-2.0
"""NATS JetStream with nats-py: each record is acknowledged by the stream that stores it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import orjson

from streamkit.core.addresses import UNSAFE
from streamkit.core.errors import needs
from streamkit.core.stage import stage
from streamkit.emit.broker import Broker
from streamkit.emit.client import (
    Address,
    Client,
    Deadline,
    Message,
    RecordRejected,
    SendError,
    ServerClient,
    Tls,
    address,
    tls_context,
)
from streamkit.emit.emitter import Emitter

SCHEMES = {"nats": (4222, False), "tls": (4222, True)}

_PING_S = 20
_POLL_S = 0.1
_TURN_S = 0.001
_CLOSE_S = 1.0
_HEADER_BYTES = 64  # of a record's header, without its id
_NOBODY = "503"  # the status of "no responders"
_NO_STREAM = "no stream has the subject {0}; create one, as with nats stream add NAME --subjects '{0}'"
_NO_JETSTREAM = "; this server runs without JetStream; start it with nats-server -js"
_DENIED = "this user may not publish to that subject"
_PERMANENT = {10054, 10097}  # the message or its header is larger than the stream's limit


class NatsClient(ServerClient):
    """Publishes to JetStream: a message's topic is its subject; streams drop repeats by its id.

    nats-py supports asyncio only: its loop runs while a method of this class runs, on the sender's thread.

    Args:
        server: a server; a user without a password is a token.
        others: further servers, as host:port.
        tls: files for `tls`.
        creds: a file with a user's JWT and key, as `nsc` writes it.

    Raises:
        MissingPackage: nats-py is not installed, or for `creds` nkeys.
    """

    def __init__(
        self, server: Address, others: Sequence[str] = (), tls: Tls | None = None, creds: str | None = None
    ) -> None:
        import asyncio

        with needs("nats-py", "nats"):
            from nats import errors
            from nats.aio.client import Client as Nats
        if creds is not None:
            with needs("nkeys", "nats"):
                import nkeys  # type: ignore[import-untyped,import-not-found]  # noqa: F401  nats-py needs it

        owner = self

        class EncryptingNats(Nats):
            """Rejects unencrypted servers: nats-py encrypts only if the server asks, and would send a password."""

            def _connect_command(self) -> bytes:  # contains the credentials
                if server.tls and not self._server_info.get("tls_required"):
                    raise errors.Error("the server does not encrypt; write nats:// in the url if that is intended")
                owner._jetstream = bool(self._server_info.get("jetstream"))
                return super()._connect_command()

        self._asyncio = asyncio
        self._errors = errors
        self._client_class = EncryptingNats
        super().__init__(server, tls)
        self._creds = creds
        self._servers = [f"{server.scheme}://{host}" for host in (str(server).split("/")[2], *others)]
        self.secrets = [server.user or "" if server.password is None else server.password]
        self._loop: Any = None
        self._client: Any = None
        self._changed = asyncio.Event()
        self._inbox = ""
        self._round = 0
        self._answers: dict[int, tuple[int, str] | None] = {}  # by index: error code and reason, or None if stored
        self._jetstream = False  # whether the server has it
        self._reported: list[str] = []  # errors reported by the server or nats-py

    def connect(self) -> None:
        """See `Client.connect`."""
        self._loop = self._asyncio.new_event_loop()
        self._client = self._client_class()
        self._reported.clear()
        self._run(self._connect(), Deadline(self))

    async def _connect(self) -> None:
        server = self._server
        options: dict[str, Any] = {"user_credentials": None if self._creds is None else Path(self._creds)}
        if server.password is not None:
            options |= {"user": server.user, "password": server.password}
        elif server.user is not None:
            options["token"] = server.user
        if server.tls:
            options["tls"] = tls_context(self._tls)
        self._changed = self._asyncio.Event()
        try:
            await self._client.connect(
                self._servers,
                error_cb=self._on_error,
                name="streamkit",
                allow_reconnect=False,
                connect_timeout=self.timeout_s + _CLOSE_S,
                max_reconnect_attempts=1,
                reconnect_time_wait=_POLL_S,
                ping_interval=_PING_S,
                **options,
            )
            self._reported.clear()  # errors of servers that were tried before
            self._inbox = self._client.new_inbox()
            await self._client.subscribe(f"{self._inbox}.>", cb=self._on_reply)
            await self._synchronize()
        except (self._errors.Error, OSError, ValueError, TimeoutError) as error:
            raise SendError(f"no connection: {self._why(error)}") from error
        if self._reported:
            hint = "let this user subscribe to _INBOX.>"
            raise SendError(f"the answers of streams cannot be received: {self._reported[-1]}; {hint}")

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str]:
        """See `Client.deliver`."""
        self._round += 1
        self._answers.clear()
        self._reported.clear()
        refused: dict[int, str] = {}
        try:
            deadline = Deadline(self, "acknowledgement", "; does a stream have these subjects?")
            self._run(self._exchange(messages, refused), deadline)
        except SendError as error:
            error.done = next((n for n in range(len(messages)) if self._answers.get(n, 0) is not None), 0)
            raise
        return refused

    async def _exchange(self, messages: Sequence[Message], refused: dict[int, str]) -> None:
        """Publish all messages, and receive an answer for each."""
        client = self._client
        inbox = f"{self._inbox}.{self._round}."
        max_bytes = client.max_payload - _HEADER_BYTES
        try:
            for index, message in enumerate(messages):
                if len(message.body) + len(message.id) > max_bytes:
                    refused[index] = f"it has {len(message.body)} bytes, and the server accepts {client.max_payload}"
                    continue
                try:
                    await client.publish(message.topic, message.body, f"{inbox}{index}", {"Nats-Msg-Id": message.id})
                except self._errors.BadSubjectError:
                    refused[index] = "its topic is not a valid subject"
            while len(self._answers) + len(refused) < len(messages):
                self._changed.clear()
                await self._changed.wait()
                if self._denied():
                    await self._synchronize()
                    self._reject_denied(messages, refused)
        except self._errors.Error as error:
            raise SendError(f"the connection is lost: {self._why(error)}", disconnected=client.is_closed) from error
        for index, answer in sorted(self._answers.items()):
            if answer is not None and answer[0] in _PERMANENT:
                refused[index] = answer[1]
            elif answer is not None:
                raise SendError(answer[1].replace("{0}", messages[index].topic))

    async def _synchronize(self) -> None:
        """Wait until the server has processed everything written before; it answers in order."""
        for _ in range(2):  # the first ping may overtake earlier data; the second cannot
            await self._client.flush(self.timeout_s)

    def idle(self) -> None:
        """See `Client.idle`: exchanges pings."""
        self._loop.run_until_complete(self._asyncio.sleep(_TURN_S))
        if self._client.is_closed:
            raise SendError(f"the connection is lost: {self._why(None)}")

    def close(self) -> None:
        """See `Client.close`."""
        loop = self._loop
        self._loop = None
        if loop is None:
            return
        try:
            loop.run_until_complete(self._disconnect())
        finally:
            loop.close()

    # --------------------------------------------------------------------------------------------------- inside

    def _run(self, work: Coroutine[Any, Any, None], deadline: Deadline) -> None:
        """Run the loop until the work is done, as long as answers arrive and the run continues."""
        asyncio = self._asyncio
        loop = self._loop
        task = loop.create_task(work)
        try:
            while True:
                before = len(self._answers)
                loop.run_until_complete(asyncio.wait({task}, timeout=_POLL_S))
                if task.done():
                    break
                if self._client.is_closed:
                    raise SendError(f"the connection is lost: {self._why(None)}", disconnected=True)
                if len(self._answers) > before:
                    deadline.restart()
                deadline.check()
        finally:
            task.cancel()
        task.result()

    async def _disconnect(self) -> None:
        """Close the connection; drop data that a stalled server has not accepted."""
        asyncio = self._asyncio
        client = self._client
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.close(), _CLOSE_S)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer = getattr(client._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
            await asyncio.sleep(0)

    async def _on_reply(self, message: Any) -> None:
        _, number, index = message.subject.rsplit(".", 2)
        if int(number) != self._round:
            return
        answer: tuple[int, str] | None = None
        if not message.data and (message.headers or {}).get("Status") == _NOBODY:
            answer = int(_NOBODY), _NO_STREAM if self._jetstream else _NO_STREAM + _NO_JETSTREAM
        else:
            reply = _parsed(message.data)
            if isinstance(error := reply.get("error"), dict):
                answer = error.get("err_code", 0), f"the stream does not accept a record: {error.get('description')}"
            elif not (isinstance(reply.get("stream"), str) and isinstance(reply.get("seq"), int)):
                return  # an answer from another subscriber; only a stream's counts
        self._answers[int(index)] = answer
        self._changed.set()

    async def _on_error(self, error: Exception) -> None:
        self._reported.append(self._why(error))
        self._changed.set()

    def _denied(self) -> set[str]:
        """Subjects that this user may not publish to: the server reports them only as errors, in lower case."""
        return {match[1] for text in self._reported if (match := re.search(r'publish to "([^"]*)"', text))}

    def _reject_denied(self, messages: Sequence[Message], refused: dict[int, str]) -> None:
        """Reject the records that permission errors are about.

        Raises:
            RecordRejected: subjects differ in case only, so they are ambiguous; records must be sent one by one.
        """
        for subject in self._denied():
            meant = [index for index, message in enumerate(messages) if message.topic.lower() == subject]
            if len({messages[index].topic for index in meant}) > 1:
                raise RecordRejected(_DENIED)
            refused.update((index, _DENIED) for index in meant if index not in self._answers)
        self._reported.clear()

    def _why(self, error: Exception | None) -> str:
        if error is None or isinstance(error, self._errors.NoServersError):
            if self._reported:
                return self._reported[-1]
            error = self._client.last_error
        return str(error or "the server has gone").removeprefix("nats: ").strip("'") or type(error).__name__


def _parsed(data: bytes) -> dict[str, Any]:
    """Parse an answer; empty if it is not a stream's answer."""
    try:
        reply = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return reply if isinstance(reply, dict) else {}


@stage("nats")
class NatsSink(Emitter):
    """Publish records to NATS JetStream, each acknowledged by the stream that stores it.

    A stream with these subjects must exist, as from `nats stream add CAMERAS --subjects 'streamkit.>'`; until then
    records wait. The stream discards repeats by their id, within its duplicate window.
    """

    broker: ClassVar[Broker] = Broker(
        product="NATS JetStream",
        acknowledged_by="the stream's PubAck",
        page="emitters-brokers.md#nats-jetstream",
        example="nats://127.0.0.1",
        modules=("nats", "nkeys"),
        id_in="header `Nats-Msg-Id`",
        repeats="the stream discards them within its duplicate window",
    )

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
        self._server = address(self.url, SCHEMES, self.tls)
        for server in self.servers or ():
            if UNSAFE.search(server) or not re.fullmatch(r"[^\s/@]+:\d+", server):
                raise ValueError("servers must be a list of host:port; credentials of all servers are in url")
        if re.search(r"[\s*>]|^\.|\.\.|\.$", self.subject):
            raise ValueError(f"subject must be words joined by dots, without spaces, * and >, got {self.subject!r}")
        if self.creds is not None and self._server.user is not None:
            raise ValueError("creds identifies the user; leave the user out of url")

    @classmethod
    def clean(cls, text: str) -> str:
        """See `Emitter.clean`: one word of a subject."""
        return super().clean(text) or "_"

    def client(self) -> Client:
        """See `Emitter.client`."""
        return NatsClient(self._server, self.servers or (), self.tls, self.creds)
