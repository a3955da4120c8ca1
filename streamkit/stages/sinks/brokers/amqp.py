# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ (AMQP 0-9-1) with pika: persistent messages, each acknowledged by a publisher confirm."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar
from urllib.parse import unquote

from streamkit.core.errors import needs
from streamkit.core.stage import stage
from streamkit.emit.broker import Broker
from streamkit.emit.client import (
    Address,
    Client,
    Deadline,
    Message,
    SendError,
    ServerClient,
    Tls,
    address,
    quiet_logger,
    tls_context,
)
from streamkit.emit.emitter import Emitter

logger = logging.getLogger(__name__)

SCHEMES = {"amqp": (5672, False), "amqps": (5671, True)}

_HEARTBEAT_S = 30
_PERSISTENT = 2
_NOT_THERE = 404
_FORCED = 320  # an operator closed it, or the broker is shutting down
_POLL_S = 0.1
_CLOSE_S = 1.0


class AmqpClient(ServerClient):
    """Publishes to exchanges: a message's topic is its routing key, its key is the exchange.

    pika resolves host names on a short-lived thread; everything else runs on the sender's thread.

    Args:
        server: the broker; the path is the virtual host, `/` if there is none.
        tls: files for `amqps`.
        mandatory: whether a record for which the exchange has no queue is rejected; otherwise the broker drops it.

    Raises:
        MissingPackage: pika is not installed.
    """

    def __init__(self, server: Address, tls: Tls | None = None, mandatory: bool = True) -> None:
        with needs("pika", "amqp"):
            import pika  # type: ignore[import-untyped,import-not-found]
            import pika.exceptions  # type: ignore[import-untyped,import-not-found]
        super().__init__(server, tls)
        self._pika = pika
        self._mandatory = mandatory
        self._max_message_bytes: int | None = None  # maximum bytes of a message, once the broker has reported it
        self._reset()

    def _reset(self) -> None:
        self._loop: Any = None
        self._connection: Any = None
        self._channel: Any = None
        self._lost_why: str | None = None  # why the connection, or its channel, is lost
        self._disconnected = False  # whether a record may be the cause
        self._blocked: str | None = None  # why the broker accepts nothing for now
        self._tag = 0  # number of the last message on this channel
        self._open: dict[int, int] = {}  # indices of messages without an answer, by their rising numbers
        self._nacked: set[int] = set()  # indices of messages that the broker did not accept
        self._returned: dict[str, str] = {}  # why a message has no queue, by its id

    def connect(self) -> None:
        """See `Client.connect`."""
        from pika.adapters.select_connection import IOLoop  # type: ignore[import-untyped,import-not-found]

        pika = self._pika
        server = self._server
        quiet_logger("pika")
        options: dict[str, Any] = {}
        if server.tls:
            options["ssl_options"] = pika.SSLOptions(tls_context(self._tls), server.host)
        if server.user is not None:
            options["credentials"] = pika.PlainCredentials(server.user, server.password or "", erase_on_connect=False)
        parameters = pika.ConnectionParameters(
            server.host,
            server.port,
            unquote(server.path[1:]) or "/",
            heartbeat=_HEARTBEAT_S,
            connection_attempts=1,
            socket_timeout=self.timeout_s,
            stack_timeout=self.timeout_s + _CLOSE_S,
            client_properties={"connection_name": "streamkit"},
            **options,
        )
        self._reset()
        self._loop = IOLoop()
        self._connection = pika.SelectConnection(
            parameters,
            self._on_open,
            lambda _, error: self._fail(f"no connection: {_why(error)}"),
            lambda _, error: self._fail(f"the connection is lost: {_why(error)}", _may_be_a_record(error)),
            self._loop,
        )
        deadline = Deadline(self)
        while self._channel is None:
            self._run_loop(_POLL_S)
            self._check(deadline)

    def _on_open(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(lambda _, frame: self._on_blocked(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda _, frame: self._on_blocked(None))
        connection.channel(on_open_callback=self._on_channel_open)

    def _on_channel_open(self, channel: Any) -> None:
        channel.add_on_close_callback(lambda _, error: self._on_channel_closed(error))
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, lambda _: self._on_ready(channel))

    def _on_ready(self, channel: Any) -> None:
        self._channel = channel
        self._loop.stop()

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str]:
        """See `Client.deliver`. Waits while the broker blocks the connection for lack of disk space or memory."""
        refused: dict[int, str] = {}
        self._open.clear()
        self._nacked.clear()
        self._returned.clear()
        for index, message in enumerate(messages):
            if self._max_message_bytes is not None and len(message.body) > self._max_message_bytes:
                refused[index] = (
                    f"it has {len(message.body)} bytes, and the broker accepts {self._max_message_bytes} in a message"
                )
                continue
            properties = self._pika.BasicProperties(
                content_type="application/json", delivery_mode=_PERSISTENT, message_id=message.id
            )
            try:
                self._channel.basic_publish(message.key, message.topic, message.body, properties, self._mandatory)
            except self._pika.exceptions.ShortStringTooLong:
                refused[index] = "names of exchanges and routing keys have at most 255 bytes"
                continue
            except self._pika.exceptions.AMQPError as error:
                reason = self._lost_why or f"the connection is lost: {_why(error)}"
                raise SendError(reason, disconnected=self._disconnected) from error
            self._tag += 1
            self._open[self._tag] = index
        try:
            self._collect()
        except SendError as error:
            left = {*self._open.values(), *self._nacked, *refused, *self._unroutable(messages)}
            error.done = min(left, default=0)
            raise
        return refused | self._unroutable(messages)

    def idle(self) -> None:
        """See `Client.idle`: exchanges heartbeats."""
        self._run_loop(0.0)
        self._check(Deadline(self))

    def close(self) -> None:
        """See `Client.close`."""
        connection = self._connection
        loop = self._loop
        if connection is not None:
            if not connection.is_closed:
                if connection.is_open and self._blocked is None:
                    connection.close()
                    self._run_until(lambda: connection.is_closed)
                if not connection.is_closed:  # a broker that hangs, or reads nothing for now
                    connection._terminate_stream(self._pika.exceptions.AMQPConnectionError("left"))
                    self._run_until(lambda: connection.is_closed)
            loop.close()
        self._reset()

    # --------------------------------------------------------------------------------------------------- inside

    def _collect(self) -> None:
        """Wait for the answers to all published messages."""
        deadline = Deadline(self, "acknowledgement")
        while self._open:
            before = len(self._open)
            self._run_loop(_POLL_S)
            if self._blocked is not None or len(self._open) < before:
                deadline.restart()
            self._check(deadline)
        if self._nacked:
            reason = "a queue may be full with overflow: reject-publish"
            raise SendError(f"the broker does not accept a record now: {reason}")

    def _run_loop(self, wait_s: float) -> None:
        """Let pika send and receive, until something is settled or the time is over."""
        timer = self._loop.call_later(wait_s, self._loop.stop)
        self._loop.start()
        self._loop.remove_timeout(timer)

    def _run_until(self, done: Callable[[], bool]) -> None:
        until_s = time.monotonic() + _CLOSE_S
        while not done() and time.monotonic() < until_s:
            self._run_loop(_POLL_S / 10)

    def _check(self, deadline: Deadline) -> None:
        if self._lost_why is not None:
            raise SendError(self._lost_why, disconnected=self._disconnected)
        deadline.check()

    def _fail(self, why: str, disconnected: bool = False) -> None:
        if self._lost_why is None:  # the first error is the cause
            self._lost_why = why
            self._disconnected = disconnected
        self._loop.stop()

    def _on_blocked(self, why: str | None) -> None:
        self._blocked = why
        blocked = f"accepts nothing for now: {why}; records wait in the spool"
        then = "accepts records again" if why is None else blocked
        logger.log(logging.INFO if why is None else logging.WARNING, self.redact(f"{self.where} {then}"))

    def _unroutable(self, messages: Sequence[Message]) -> dict[int, str]:
        """Reasons for records without a queue, by index."""
        return {
            index: self._returned[message.id] for index, message in enumerate(messages) if message.id in self._returned
        }

    def _on_return(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        exchange = f"the exchange {method.exchange}" if method.exchange else "the default exchange"
        self._returned[properties.message_id] = (
            f"{method.reply_text}: {exchange} has no queue for it; bind one, or set mandatory: false"
        )

    def _on_confirm(self, frame: Any) -> None:
        """Process a confirm or a nack, of one message or of all up to it."""
        tag = frame.method.delivery_tag
        if not frame.method.multiple:
            indices = [self._open.pop(tag)] if tag in self._open else []
        else:
            indices = []
            while self._open and (first := next(iter(self._open))) <= tag:
                indices.append(self._open.pop(first))
        if frame.method.NAME == "Basic.Nack":
            self._nacked.update(indices)
        if not self._open:
            self._loop.stop()

    def _on_channel_closed(self, error: Any) -> None:
        text = _why(error)
        if getattr(error, "reply_code", None) == _NOT_THERE:
            text = f"{text}; create it: records in the spool are addressed to it"
        elif limit := re.search(r"larger than (?:configured )?max size (\d+)", text):
            self._max_message_bytes = int(limit[1])  # larger messages are rejected from now on
        self._fail(text, _may_be_a_record(error))


def _may_be_a_record(error: Any) -> bool:
    """Whether a record may have made the broker close the connection; a missing exchange may still be created."""
    return getattr(error, "reply_code", None) not in (_NOT_THERE, _FORCED)


def _why(error: Any) -> str:
    """The root cause in pika's error, as text."""
    while inner := _inner(error):
        error = inner
    if code := getattr(error, "reply_code", None):
        return f"{error.reply_text} ({code})"
    if closed := re.search(
        r"ConnectionClosedByBroker: \((\d+)\) '(.*?)'", str(error)
    ):  # before the connection was open
        return f"{closed[2]} ({closed[1]})"
    return str(error) or type(error).__name__


def _inner(error: Any) -> BaseException | None:
    """The cause of a pika error: the last of several, if it tried more than one address."""
    causes = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), *getattr(error, "args", ())]
    return next((cause for cause in reversed(causes) if isinstance(cause, BaseException)), None)


@stage("amqp")
class AmqpSink(Emitter):
    """Publish records to RabbitMQ (AMQP 0-9-1), persistent, each confirmed by the broker.

    The exchange must exist, and a queue bound to it: the broker stores records in queues only.
    """

    broker: ClassVar[Broker] = Broker(
        product="RabbitMQ (AMQP 0-9-1)",
        acknowledged_by="a publisher confirm",
        page="emitters-brokers.md#rabbitmq",
        example="amqp://127.0.0.1",
        modules=("pika",),
        id_in="property `message-id`",
    )

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
        self._server = address(self.url, SCHEMES, self.tls)
        if "/" in self._server.path[1:]:
            raise ValueError("url must end with one virtual host, as in amqp://host/vhost; write %2F for / in its name")

    def templates(self) -> dict[str, str]:
        """See `Emitter.templates`."""
        return {"routing_key": self.routing_key, **({"exchange": self.exchange} if self.exchange else {})}

    def client(self) -> Client:
        """See `Emitter.client`."""
        return AmqpClient(self._server, self.tls, self.mandatory)
