# SPDX-License-Identifier: Apache-2.0
"""The interface of broker clients, clients that convert records, and parsing of addresses and certificates."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from streamkit.core.addresses import ESCAPES, check_characters
from streamkit.core.text import did_you_mean
from streamkit.core.units import OptionGroup
from streamkit.media.uris import mask

if TYPE_CHECKING:
    import ssl

WINDOW = 1000
"""Maximum number of records that are sent before waiting for their acknowledgements."""


class Message(NamedTuple):
    """A record to send.

    Attributes:
        id: unique over all spools, so that receivers can drop repeats; the body contains it as well.
        topic: the destination, in the broker's own terms.
        key: partition key or exchange; empty if there is none.
        body: a JSON object in UTF-8.
    """

    id: str
    topic: str
    key: str
    body: bytes


class SendError(Exception):
    """The broker cannot be reached or does not answer; the records are sent again later.

    Args:
        text: the reason.
        done: number of leading records that have been acknowledged.
        disconnected: the broker ended the connection while it was receiving records: one of them may be the cause.
    """

    def __init__(self, text: str, done: int = 0, *, disconnected: bool = False) -> None:
        super().__init__(text)
        self.done = done
        self.disconnected = disconnected


class RecordRejected(SendError):
    """The broker permanently rejects the record after the first `done`; the connection stays open.

    Args:
        text: the reason.
        done: see `SendError`.
        whole: whether all records after the first `done` are rejected, not only the first of them.
    """

    def __init__(self, text: str, done: int = 0, *, whole: bool = False) -> None:
        super().__init__(text, done)
        self.whole = whole


def quiet_logger(name: str) -> logging.Logger:
    """Silence a logger of a library that would log the errors that its client reports."""
    logger = logging.getLogger(name)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


class Client:
    """Sends records to one broker, on the sender's thread. It can be connected and closed repeatedly.

    Attributes:
        where: the broker's address, without credentials.
        secrets: texts that must not appear in any message.
        timeout_s: maximum time for an answer, in seconds.
        gather_s: how long records wait for others to be delivered with them, in seconds.
        held: number of delivered records, the last ones, that the client holds back: not yet acknowledged.
        draining: whether the spool receives no more records; held records must be sent once it is empty.
        over: whether the run is ending; waits must then end with `SendError`.
    """

    where = ""
    secrets: Sequence[str] = ()
    timeout_s = 10.0
    gather_s = 0.0
    held = 0
    draining: Callable[[], bool] = staticmethod(lambda: False)
    over: Callable[[], bool] = staticmethod(lambda: False)
    _connection: Any = None

    def connect(self) -> None:
        """Connect, and verify that the broker answers.

        Raises:
            SendError: the broker cannot be reached or rejects the login.
        """
        raise NotImplementedError

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str] | None:
        """Send records in order; return when the broker has acknowledged every record that is not `held`.

        Returns:
            Records that the broker permanently rejects, as reason by index, if it reports them one by one; all others
            have been acknowledged.

        Raises:
            SendError: some records were not acknowledged; `done` is the number that were.
            RecordRejected: a record is permanently rejected.
        """
        raise NotImplementedError

    def idle(self) -> None:
        """Keep the connection alive while there is nothing to send. Raises SendError."""

    def close(self) -> None:
        """Disconnect. Records without acknowledgement are sent again later."""
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.close()

    def redact(self, text: str) -> str:
        """Put a text on one line and mask every secret in it."""
        text = mask(" ".join(text.split()))
        for secret in self.secrets:
            text = text.replace(secret, "***") if secret else text
        return text


class ServerClient(Client):
    """A client of a server.

    Args:
        server: the server's address, with credentials if it needs any.
        tls: files for an encrypted connection.
    """

    def __init__(self, server: Address, tls: Tls | None = None) -> None:
        self._server = server
        self._tls = tls
        self.where = str(server)
        self.secrets = [server.password or ""]


class Deadline:
    """How long a client waits for an answer.

    Args:
        client: the client; its `timeout_s` limits the wait, and its `over` ends it.
        what: what is waited for, for the message.
        hint: end of the message.
        grace_s: additional seconds.
    """

    def __init__(self, client: Client, what: str = "answer", hint: str = "", grace_s: float = 0.0) -> None:
        self._client = client
        self._grace_s = grace_s
        self._text = f"no {what} within {client.timeout_s:g} s{hint}"
        self.restart()

    def restart(self) -> None:
        """Start the wait again, after progress."""
        self._until_s = time.monotonic() + self._client.timeout_s + self._grace_s

    def check(self) -> None:
        """Raise SendError if the run or the time is over."""
        if self._client.over():
            raise SendError("the run ends")
        if time.monotonic() > self._until_s:
            raise SendError(self._text)


class EncodingClient(Client):
    """Passes records to another client in another format; they are converted when they leave the spool.

    Args:
        client: the client that sends them.
        encode: converts a record's JSON; a ValueError means that the record has no such form, and it is rejected.
    """

    def __init__(self, client: Client, encode: Callable[[bytes], bytes]) -> None:
        self._client = client
        self._encode = encode
        self.where = client.where
        self.secrets = client.secrets
        self.gather_s = client.gather_s
        self.idle = client.idle  # type: ignore[method-assign]
        self.close = client.close  # type: ignore[method-assign]

    def connect(self) -> None:
        """See `Client.connect`."""
        client = self._client
        client.timeout_s = self.timeout_s
        client.over = self.over
        client.connect()

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str]:
        """See `Client.deliver`."""
        encoded: dict[int, Message] = {}  # by index in `messages`
        refused: dict[int, str] = {}
        for index, message in enumerate(messages):
            try:
                encoded[index] = message._replace(body=self._encode(message.body))
            except ValueError as error:
                refused[index] = f"it cannot be converted to the format: {error}"
        indices = list(encoded)
        try:
            more = self._client.deliver(list(encoded.values())) if encoded else None
        except SendError as error:
            error.done = min([*refused, *indices[error.done :]], default=len(messages))
            raise
        return {**refused, **{indices[i]: reason for i, reason in (more or {}).items()}}


class Tls(OptionGroup, total=False):
    """Files for a TLS connection.

    Keys:
        ca: CA certificates for the broker's certificate, if the system does not have them.
        cert: client certificate.
        key: its private key.
    """

    ca: str
    cert: str
    key: str


def tls_context(tls: Tls | None) -> ssl.SSLContext:
    """Create a TLS context that verifies the broker's certificate and host name.

    Raises:
        SendError: a file cannot be read; the sender retries, as it may appear later.
    """
    import ssl

    tls = tls or {}
    try:
        context = ssl.create_default_context(cafile=tls.get("ca"))
        if "cert" in tls:
            context.load_cert_chain(tls["cert"], tls.get("key"))
    except (OSError, ssl.SSLError) as error:
        raise SendError(f"the certificates cannot be used ({', '.join(map(str, tls.values()))}): {error}") from error
    return context


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's address. Its text form contains no credentials."""

    scheme: str
    host: str
    port: int
    path: str = ""
    user: str | None = None
    password: str | None = None
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def address(url: str, schemes: Mapping[str, tuple[int, bool]], tls: Tls | None = None) -> Address:
    """Parse an address; `schemes` gives each scheme's default port and whether it is encrypted.

    Raises:
        ValueError: the address is invalid. The text contains only its scheme, as the rest may hold a password.
    """
    names = list(schemes)
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in schemes:
        hint = did_you_mean(scheme, names) if separator else ""
        raise ValueError(
            f"url must begin with {' or '.join(f'{name}://' for name in names)}, as in {names[0]}://host{hint}"
        )
    try:
        check_characters(url)  # before `urlsplit`, which drops line ends
    except ValueError as error:
        raise ValueError(f"url {error}") from None
    default, encrypted = schemes[scheme]
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit(f"{scheme}://")
    port_match = re.search(r":([^:\]]+)$", parts.netloc.rpartition("@")[2])
    port = port_match[1] if port_match else str(default)
    is_port = re.fullmatch(r"[0-9]{1,5}", port) is not None and 0 < int(port) < 1 << 16
    behind = parts.path if is_port else parts.path + parts.query + parts.fragment
    if not parts.hostname or "@" in behind:  # an unescaped character of a password ends the host too early
        raise ValueError(
            f"url must be {scheme}:// and a host, as in {scheme}://broker.example:{default}; write user:password@ "
            f"before the host, and in a user or password {ESCAPES}"
        )
    if not is_port:
        raise ValueError(f"the port in url must be a number from 1 to 65535, as in {scheme}://broker.example:{default}")
    if tls and not encrypted:
        secure = next(name for name, (_, safe) in schemes.items() if safe)
        raise ValueError(f"tls needs an encrypted address: write {secure}:// in the url, or leave tls out")
    user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
    return Address(scheme, parts.hostname, int(port), parts.path, user, password, encrypted)
