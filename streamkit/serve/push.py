# SPDX-License-Identifier: Apache-2.0
"""Web Push (RFC 8030, 8291, 8292): alerts on telephones and desktops, also while the page is closed.

A browser subscribes and gives the address of its maker's push service; the server sends an encrypted message there for
each alert. Messages go out on a thread of their own, so that no slow service delays the store.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamkit.core.counters import Counters
from streamkit.core.errors import describe, needs
from streamkit.core.logs import LogOnce
from streamkit.emit.segment_file import open_private
from streamkit.runtime.execution.future import start
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.store.review_table import ReviewItem

logger = logging.getLogger(__name__)

SERVICES = ("googleapis.com", "push.services.mozilla.com", "notify.windows.com", "push.apple.com")
"""The hosts of the makers of Chrome, Firefox, Edge and Safari, with their subdomains.

Others need `--push-service`, or a signed-in person could make the server send requests to any host."""

CONTACT = "mailto:operator@localhost"
MAX_SUBSCRIPTIONS = 200
_WAITING = 1000  # messages
_TTL_S = 3600
_TIMEOUT_S = 10.0
_GONE = (404, 410)
_ESCALATE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Subscription:
    """A browser that wants alerts.

    Attributes:
        endpoint: the address at its push service; a secret, as whoever has it can send.
        p256dh: its public key, in base64.
        auth: its shared secret, in base64.
        owner: name of the person.
        key: key of the person's token or account, which ends with it.
    """

    endpoint: str
    p256dh: str
    auth: str
    owner: str
    key: str


@dataclass(slots=True)
class Quiet:
    """What is silenced, and when alerts are sent again.

    Attributes:
        until_s: by source, or "" for all, the time in seconds since 1970 until which nothing is sent.
        escalate_s: seconds after which an alert that nobody has reviewed is sent once more; None for never.
    """

    until_s: dict[str, float]
    escalate_s: float | None = None


class PushCenter:
    """Sends alerts to the browsers that have subscribed. Thread-safe.

    Args:
        folder: the server's data folder; it keeps the key and the subscriptions, for their owner only.
        may_see: whether the owner of a key may still see a source.
        name_of: what people call a source.
        services: hosts of push services beyond `SERVICES`; an address with http:// is accepted for these only.
        is_open: whether an alert is still not reviewed.
        clock: seconds since 1970.

    Attributes:
        counts: messages sent and not sent, by cause.
    """

    def __init__(
        self,
        folder: Path,
        may_see: Callable[[str, str], bool],
        name_of: Callable[[str], str],
        services: Collection[str] = (),
        is_open: Callable[[int], bool] = lambda id_: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.counts = Counters()
        self._key_file = folder / "push_key.pem"
        self._file = folder / "push.json"
        self._may_see = may_see
        self._name_of = name_of
        self._services = tuple(services)
        self._is_open = is_open
        self._clock = clock
        self._lock = threading.Lock()
        self._messages: queue.Queue[tuple[ReviewItem, bool] | None] = queue.Queue(_WAITING)
        self._sent: dict[int, tuple[float, ReviewItem]] = {}
        self._warn = LogOnce(logger.warning)
        self._subscriptions, self._quiet = self._read()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------------- subscriptions

    def public_key(self) -> str:
        """The key that a browser subscribes with, in URL-safe base64 without padding.

        Raises:
            MissingPackage: pywebpush is not installed.
        """
        from base64 import urlsafe_b64encode

        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        point = self._vapid().public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return urlsafe_b64encode(point).rstrip(b"=").decode()

    def subscribe(self, subscription: Subscription) -> None:
        """Add a browser, or renew its subscription.

        Raises:
            RequestRejected: its address is not one of a push service, or there are 200 subscriptions.
            OutputError: the data folder cannot be written.
        """
        check_endpoint(subscription.endpoint, self._services)
        with self._lock:
            others = [known for known in self._subscriptions if known.endpoint != subscription.endpoint]
            if len(others) >= MAX_SUBSCRIPTIONS:
                raise RequestRejected(409, f"{MAX_SUBSCRIPTIONS} browsers get alerts, the maximum; end one there first")
            self._subscriptions = [*others, subscription]
            self._write()

    def unsubscribe(self, endpoint: str) -> None:
        """Remove a browser."""
        with self._lock:
            self._subscriptions = [known for known in self._subscriptions if known.endpoint != endpoint]
            self._write()

    def subscribed(self, key: str) -> int:
        """How many browsers the owner of a key has subscribed."""
        return sum(known.key == key for known in self._subscriptions)

    # ---------------------------------------------------------------------------------------------------- silence

    @property
    def quiet(self) -> Quiet:
        """What is silenced now."""
        now_s = self._clock()
        return Quiet({source: s for source, s in self._quiet.until_s.items() if s > now_s}, self._quiet.escalate_s)

    def silence(self, source: str, until_s: float) -> None:
        """Send nothing about a source, or with "" about all, until a time in seconds since 1970; 0 ends it."""
        with self._lock:
            self._quiet = self.quiet
            self._quiet.until_s.pop(source, None)
            if until_s > self._clock():
                self._quiet.until_s[source] = until_s
            self._write()

    def escalate_after(self, seconds: float | None) -> None:
        """Send an alert once more if nobody has reviewed it within this time; None ends this."""
        with self._lock:
            self._quiet.escalate_s = seconds
            self._write()

    # ---------------------------------------------------------------------------------------------------- sending

    def announce(self, item: ReviewItem) -> None:
        """Send an alert to all who may see its source; returns at once."""
        self._offer(item, again=False)

    def _offer(self, item: ReviewItem, *, again: bool) -> None:
        quiet = self.quiet.until_s
        if "" in quiet or item.source in quiet:
            self.counts.add("alerts not sent: silenced")
            return
        try:
            self._messages.put_nowait((item, again))
        except queue.Full:
            self.counts.add("alerts not sent: too many wait")

    def start(self) -> None:
        """Start the thread that sends."""
        self._thread = start("push", self._run)

    def close(self) -> None:
        """End the thread; what still waits is not sent."""
        if self._thread is not None:
            with self._messages.mutex:
                self._messages.queue.clear()
            self._messages.put(None)
            self._thread.join(_TIMEOUT_S + 1)

    def _run(self) -> None:
        while True:
            try:
                message = self._messages.get(timeout=_ESCALATE_EVERY_S)
            except queue.Empty:
                self.escalate()
                continue
            if message is None:
                return
            item, again = message
            try:
                self.send(item, again=again)
            except Exception as error:  # a message must not end those after it
                self._warn(f"an alert could not be sent to browsers: {describe(error)}")
                self.counts.add("alerts not sent: failed")
            self.escalate()

    def escalate(self) -> None:
        """Send the alerts again that nobody has reviewed for too long."""
        after_s = self._quiet.escalate_s
        if after_s is None:
            self._sent.clear()
            return
        now_s = self._clock()
        for id_, (sent_s, item) in list(self._sent.items()):
            if now_s - sent_s >= after_s:
                del self._sent[id_]
                if self._is_open(id_):
                    self._offer(item, again=True)

    def send(self, item: ReviewItem, *, again: bool = False) -> None:
        """Send an alert to every browser whose owner may see its source, one after the other."""
        if not again:
            self._sent[item.id] = (self._clock(), item)
        data = {
            "title": ("Still open: " if again else "") + self._name_of(item.source),
            "body": item.text,
            "url": f"/#/review?item={item.id}",
            "tag": f"streamkit-{item.id}",
            "time_s": item.started_s,
        }
        text = json.dumps(data)
        for subscription in list(self._subscriptions):
            if self._may_see(subscription.key, item.source):
                self._send_to(subscription, text)

    def _send_to(self, subscription: Subscription, text: str) -> None:
        from pywebpush import WebPushException, webpush

        host = urlsplit(subscription.endpoint).hostname
        keys = {"p256dh": subscription.p256dh, "auth": subscription.auth}
        contact = os.environ.get("STREAMKIT_PUSH_CONTACT", CONTACT)
        try:
            webpush(
                {"endpoint": subscription.endpoint, "keys": keys},
                text,
                vapid_private_key=self._vapid(),
                vapid_claims={"sub": contact},
                ttl=_TTL_S,
                timeout=_TIMEOUT_S,
                headers={"urgency": "high"},
            )
        except WebPushException as error:
            status = getattr(error.response, "status_code", None)
            if status in _GONE:  # the person has revoked it
                self.unsubscribe(subscription.endpoint)
                self.counts.add("browsers gone")
                return
            self.counts.add("alerts not sent: refused")
            self._warn(f"the push service {host} refuses alerts: HTTP {status}")
        except Exception as error:  # requests raises many kinds, and their texts have the address
            self.counts.add("alerts not sent: no answer")
            self._warn(f"the push service {host} cannot be reached: {type(error).__name__}")
        else:
            self.counts.add("alerts sent")

    # ------------------------------------------------------------------------------------------------------- files

    def _vapid(self) -> Any:
        with needs("pywebpush", "push"):
            from py_vapid import Vapid02

        with self._lock:
            if not self._key_file.exists():
                vapid = Vapid02()
                vapid.generate_keys()
                self._replace(self._key_file, vapid.private_pem())
            return Vapid02.from_pem(self._key_file.read_bytes())

    def _read(self) -> tuple[list[Subscription], Quiet]:
        try:
            content = json.loads(self._file.read_bytes())
            subscriptions = [Subscription(**known) for known in content["subscriptions"]]
            return subscriptions, Quiet(dict(content["silenced"]), content["escalate_s"])
        except FileNotFoundError:
            return [], Quiet({})
        except (OSError, ValueError, TypeError, KeyError) as error:
            logger.warning(f"{self._file} cannot be read, so no browser gets alerts: {describe(error)}")
            return [], Quiet({})

    def _write(self) -> None:
        content = {
            "subscriptions": [asdict(known) for known in self._subscriptions],
            "silenced": self._quiet.until_s,
            "escalate_s": self._quiet.escalate_s,
        }
        self._replace(self._file, json.dumps(content).encode())

    @staticmethod
    def _replace(file: Path, data: bytes) -> None:
        part = file.with_name(f".{file.name}.part")
        handle = open_private(part, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(part, file)


def check_endpoint(endpoint: str, services: Collection[str]) -> None:
    """Check that an address is one of a push service.

    Raises:
        RequestRejected: it is not; the text has the host only, since the rest is secret.
    """
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname or ""
    except ValueError:
        raise RequestRejected(422, "endpoint must be an https address of a push service") from None
    if host in services and parts.scheme in ("http", "https"):
        return
    trusted = any(host == service or host.endswith(f".{service}") for service in SERVICES)
    if not host:
        raise RequestRejected(422, "endpoint must be an https address of a push service")
    if parts.scheme != "https" or not trusted or parts.username is not None or parts.netloc.lower() != host:
        hint = f"start the server with --push-service {host} if it is"
        raise RequestRejected(422, f"{host} over {parts.scheme} is not a known push service; {hint}")
