"""RabbitMQ (AMQP 0-9-1) with pika: persistent messages, each acknowledged by a publisher confirm."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from streamkit.core.errors import needs
from streamkit.emit.client import Address, Client, Lost, Message, Tls, quiet_logger, tls_context

SCHEMES = {"amqp": (5672, False), "amqps": (5671, True)}

_HEARTBEAT_S = 30
_PERSISTENT = 2
_NOT_THERE = 404
_FORCED = 320  # an operator closed it, or the broker is shutting down
_LOOK_S = 0.1
_CLOSE_S = 1.0


class AmqpClient(Client):
    """Publishes to exchanges: a message's topic is its routing key, its key is the exchange.

    pika resolves host names on a short-lived thread; everything else runs on the sender's thread.

    Args:
        at: the broker; the path is the virtual host, `/` if there is none.
        tls: files for `amqps`.
        mandatory: whether a record for which the exchange has no queue is rejected; otherwise the broker drops it.

    Raises:
        MissingPackage: pika is not installed.
    """

    def __init__(self, at: Address, tls: Tls | None = None, mandatory: bool = True) -> None:
        with needs("pika", "amqp"):
            import pika  # type: ignore[import-untyped,import-not-found]
            import pika.exceptions  # type: ignore[import-untyped,import-not-found]
        self._pika, self._at, self._tls, self._mandatory = pika, at, tls, mandatory
        self.where, self.secrets = str(at), [at.password or ""]
        self._most: int | None = None  # maximum bytes of a message, once the broker has reported it
        self._forget()

    def _forget(self) -> None:
        self._loop: Any = None
        self._connection: Any = None
        self._channel: Any = None
        self._gone: str | None = None  # why the connection, or its channel, is lost
        self._broke = False  # whether a record may be the cause
        self._blocked: str | None = None  # why the broker accepts nothing for now
        self._tag = 0  # number of the last message on this channel
        self._open: dict[int, int] = {}  # indices of messages without an answer, by their rising numbers
        self._nacked: set[int] = set()  # indices of messages that the broker did not accept
        self._returned: dict[str, str] = {}  # why a message has no queue, by its id

    def connect(self) -> None:
        """See `Client.connect`."""
        from pika.adapters.select_connection import IOLoop  # type: ignore[import-untyped,import-not-found]

        pika, at = self._pika, self._at
        quiet_logger("pika")
        options: dict[str, Any] = {}
        if at.tls:
            options["ssl_options"] = pika.SSLOptions(tls_context(self._tls), at.host)
        if at.user is not None:
            options["credentials"] = pika.PlainCredentials(at.user, at.password or "", erase_on_connect=False)
        parameters = pika.ConnectionParameters(
            at.host, at.port, unquote(at.path[1:]) or "/", heartbeat=_HEARTBEAT_S, connection_attempts=1,
            socket_timeout=self.timeout_s, stack_timeout=self.timeout_s + _CLOSE_S,
            client_properties={"connection_name": "streamkit"}, **options,
        )  # fmt: skip
        self._forget()
        self._loop = IOLoop()
        self._connection = pika.SelectConnection(
            parameters, self._opened, lambda _, error: self._lost(f"no connection: {_why(error)}"),
            lambda _, error: self._lost(f"the connection is lost: {_why(error)}", _may_be_a_record(error)), self._loop,
        )  # fmt: skip
        until_s = time.monotonic() + self.timeout_s
        while self._channel is None:
            self._turn(_LOOK_S)
            self._check("answer", until_s)

    def _opened(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(lambda _, frame: self._held(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda _, frame: self._held(None))
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        channel.add_on_close_callback(lambda _, error: self._channel_closed(error))
        channel.add_on_return_callback(self._return)
        channel.confirm_delivery(self._answered, lambda _: self._begin(channel))

    def _begin(self, channel: Any) -> None:
        self._channel = channel
        self._loop.stop()

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str]:
        """See `Client.deliver`. Waits while the broker blocks the connection for lack of disk space or memory."""
        refused: dict[int, str] = {}
        self._open.clear()
        self._nacked.clear()
        self._returned.clear()
        for index, one in enumerate(messages):
            if self._most is not None and len(one.body) > self._most:
                refused[index] = f"it has {len(one.body)} bytes, and the broker accepts {self._most} in a message"
                continue
            properties = self._pika.BasicProperties(
                content_type="application/json", delivery_mode=_PERSISTENT, message_id=one.id
            )
            try:
                self._channel.basic_publish(one.key, one.topic, one.body, properties, self._mandatory)
            except self._pika.exceptions.ShortStringTooLong:
                refused[index] = "names of exchanges and routing keys have at most 255 bytes"
                continue
            except self._pika.exceptions.AMQPError as error:
                raise Lost(self._gone or f"the connection is lost: {_why(error)}", broke=self._broke) from error
            self._tag += 1
            self._open[self._tag] = index
        try:
            self._collect()
        except Lost as error:
            left = {*self._open.values(), *self._nacked, *refused, *self._came_back(messages)}
            raise Lost(str(error), min(left, default=0), broke=error.broke) from error
        return refused | self._came_back(messages)

    def idle(self) -> None:
        """See `Client.idle`: exchanges heartbeats."""
        self._turn(0.0)
        self._check("answer", float("inf"))

    def close(self) -> None:
        """See `Client.close`."""
        connection, loop = self._connection, self._loop
        if connection is not None:
            if not connection.is_closed:
                if connection.is_open and self._blocked is None:
                    connection.close()
                    self._wind_up(lambda: connection.is_closed)
                if not connection.is_closed:  # a broker that hangs, or reads nothing for now
                    connection._terminate_stream(self._pika.exceptions.AMQPConnectionError("left"))
                    self._wind_up(lambda: connection.is_closed)
            loop.close()
        self._forget()

    # --------------------------------------------------------------------------------------------------- inside

    def _collect(self) -> None:
        """Wait for the answers to all published messages."""
        until_s = time.monotonic() + self.timeout_s
        while self._open:
            before = len(self._open)
            self._turn(_LOOK_S)
            if self._blocked is not None or len(self._open) < before:
                until_s = time.monotonic() + self.timeout_s
            self._check("acknowledgement", until_s)
        if self._nacked:
            why = "a queue may be full with overflow: reject-publish"
            raise Lost(f"the broker does not accept a record now: {why}")

    def _turn(self, wait_s: float) -> None:
        """Let pika send and receive, until something is settled or the time is over."""
        timer = self._loop.call_later(wait_s, self._loop.stop)
        self._loop.start()
        self._loop.remove_timeout(timer)

    def _wind_up(self, done: Callable[[], bool]) -> None:
        until_s = time.monotonic() + _CLOSE_S
        while not done() and time.monotonic() < until_s:
            self._turn(_LOOK_S / 10)

    def _check(self, what: str, until_s: float) -> None:
        if self._gone is not None:
            raise Lost(self._gone, broke=self._broke)
        if self.over():
            raise Lost("the run ends")
        if time.monotonic() > until_s:
            raise Lost(f"no {what} within {self.timeout_s:g} s")

    def _lost(self, why: str, broke: bool = False) -> None:
        if self._gone is None:  # the first error is the cause
            self._gone, self._broke = why, broke
        self._loop.stop()

    def _held(self, why: str | None) -> None:
        self._blocked = why
        blocked = f"accepts nothing for now: {why}; records wait in the spool"
        then = "accepts records again" if why is None else blocked
        self.say(f"{self.where} {then}")

    def _came_back(self, messages: Sequence[Message]) -> dict[int, str]:
        """Reasons for records without a queue, by index."""
        return {index: self._returned[one.id] for index, one in enumerate(messages) if one.id in self._returned}

    def _return(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        exchange = f"the exchange {method.exchange}" if method.exchange else "the default exchange"
        self._returned[properties.message_id] = (
            f"{method.reply_text}: {exchange} has no queue for it; bind one, or set mandatory: false"
        )

    def _answered(self, frame: Any) -> None:
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

    def _channel_closed(self, error: Any) -> None:
        text = _why(error)
        if getattr(error, "reply_code", None) == _NOT_THERE:
            text = f"{text}; create it: records in the spool are addressed to it"
        elif limit := re.search(r"larger than (?:configured )?max size (\d+)", text):
            self._most = int(limit[1])  # larger messages are rejected from now on
        self._lost(text, _may_be_a_record(error))


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
    found = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), *getattr(error, "args", ())]
    return next((one for one in reversed(found) if isinstance(one, BaseException)), None)
