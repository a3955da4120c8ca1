"""What a client of a broker must do, and how its address and certificates are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from streamkit.media.uris import mask
from streamkit.messages import did_you_mean

if TYPE_CHECKING:
    import ssl

WINDOW = 1000
"""Records that are sent before their acknowledgements are waited for."""


class Message(NamedTuple):
    """A record on its way.

    Attributes:
        id: no other record of any spool has it; receivers drop repeats by it. It stands in the body, too.
        topic: where it goes, in the broker's own sense.
        key: what it goes with; empty where there is none.
        body: a JSON object in UTF-8.
    """

    id: str
    topic: str
    key: str
    body: bytes


class Lost(Exception):
    """The broker cannot be reached, or does not answer: try again later.

    Args:
        text: why.
        done: how many records at the head of those given have been acknowledged.
        broke: the broker was there and ended the connection while it had records to take: one of them may be the cause.
    """

    def __init__(self, text: str, done: int = 0, *, broke: bool = False) -> None:
        super().__init__(text)
        self.done, self.broke = done, broke


class Refused(Lost):
    """The broker answers that it will never take the record behind the first `done`; the connection holds.

    Args:
        text: why.
        done: see `Lost`.
        whole: none of the records behind those will be taken, not only the first.
    """

    def __init__(self, text: str, done: int = 0, *, whole: bool = False) -> None:
        super().__init__(text, done)
        self.whole = whole


class Client:
    """Sends records to one broker, on the sender's thread. Made once; connected and closed any number of times.

    Attributes:
        where: the broker, as it may be shown.
        secrets: texts that must not be seen in any message.
        timeout_s: how long an answer may take, in seconds.
        gather_s: how long records wait for others to be delivered with them, in seconds.
        held: how many of the records that were delivered it holds back, the last ones: they are not acknowledged yet.
        draining: whether nothing more will come than what is in the spool: what is held back is to go when it is empty.
        over: whether the run ends: waits are to end, with `Lost`.
        say: for what the user should know while a wait goes on.
    """

    where = ""
    secrets: Sequence[str] = ()
    timeout_s = 10.0
    gather_s = 0.0
    held = 0
    draining: Callable[[], bool] = staticmethod(lambda: False)
    over: Callable[[], bool] = staticmethod(lambda: False)
    say: Callable[[str], None] = staticmethod(lambda text: None)

    def connect(self) -> None:
        """Connect, and be sure that the broker is there.

        Raises:
            Lost: it is not, or does not let us in.
        """
        raise NotImplementedError

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str] | None:
        """Send records in order; come back when the broker has acknowledged every one that is not `held`.

        Returns:
            Where the broker tells them apart: those that it will never take, by their place, and why; all others
            have been acknowledged.

        Raises:
            Lost: some were not; `done` says how many were.
            Refused: one never will be.
        """
        raise NotImplementedError

    def idle(self) -> None:
        """Nothing is to be sent for now: keep the connection alive. Raises Lost."""

    def close(self) -> None:
        """Disconnect. What has not been acknowledged will be sent again."""

    def hide(self, text: str) -> str:
        """A text on one line and without any secret."""
        text = mask(" ".join(text.split()))
        for secret in self.secrets:
            text = text.replace(secret, "***") if secret else text
        return text


class Tls(TypedDict, total=False):
    """Files for a connection by TLS.

    Keys:
        ca: certificates of who signs the broker's, where the system does not know them.
        cert: our own certificate.
        key: its private key.
    """

    ca: str
    cert: str
    key: str


Tls.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]


def tls_context(tls: Tls | None) -> ssl.SSLContext:
    """A context that checks the broker's certificate and name.

    Raises:
        Lost: a file cannot be read; it may be there later.
    """
    import ssl

    tls = tls or {}
    try:
        made = ssl.create_default_context(cafile=tls.get("ca"))
        if "cert" in tls:
            made.load_cert_chain(tls["cert"], tls.get("key"))
    except (OSError, ssl.SSLError) as error:
        raise Lost(f"the certificates cannot be used ({', '.join(map(str, tls.values()))}): {error}") from error
    return made


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's address. As text it has no credentials in it."""

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
    """Read an address; `schemes` gives each scheme's usual port and whether it is encrypted.

    Raises:
        ValueError: it cannot be read. The text has nothing of the address but its scheme.
    """
    known = list(schemes)
    scheme, found, _ = url.partition("://")
    if not found or scheme not in schemes:
        way = did_you_mean(scheme, known) if found else ""
        raise ValueError(
            f"url must begin with {' or '.join(f'{one}://' for one in known)}, as in {known[0]}://host{way}"
        )
    default, encrypted = schemes[scheme]
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit(f"{scheme}://")
    found_port = re.search(r":([^:\]]+)$", parts.netloc.rpartition("@")[2])
    port = found_port[1] if found_port else str(default)
    good = re.fullmatch(r"[0-9]{1,5}", port) is not None and 0 < int(port) < 1 << 16
    behind = parts.path if good else parts.path + parts.query + parts.fragment
    if not parts.hostname or "@" in behind:  # a password with such a letter in it ends the host too early
        raise ValueError(
            f"url must be {scheme}:// and a host, as in {scheme}://broker.example:{default}; user:password@ goes "
            "before it, and in a user or password write %2F for /, %40 for @, %3A for :, %23 for #, %3F for ?"
        )
    if not good:
        raise ValueError(f"the port in url must be a number from 1 to 65535, as in {scheme}://broker.example:{default}")
    if tls and not encrypted:
        secure = next(one for one, (_, safe) in schemes.items() if safe)
        raise ValueError(f"tls needs an encrypted address: write {secure}:// in the url, or leave tls out")
    return Address(
        scheme,
        parts.hostname,
        int(port),
        parts.path,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        encrypted,
    )
