# SPDX-License-Identifier: Apache-2.0
"""Web Push (RFC 8030, 8291, 8292): alerts on telephones and desktops, also while the page is closed.

A browser subscribes and gives the address of its maker's push service; the server sends an encrypted message there for
each alert. Messages go out on a thread of their own, so that no slow service delays the store, which keeps the
subscriptions and the server's key.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any
from urllib.parse import urlsplit

from streamkit.core.counters import Counters
from streamkit.core.errors import describe, needs
from streamkit.core.logs import LogOnce
from streamkit.runtime.execution.future import PeriodicTimer
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.store import push_table
from streamkit.serve.store.push_table import Quiet, Subscription
from streamkit.serve.store.review_table import ReviewItem
from streamkit.serve.store.serve_store import ServeStore

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
_SEND_EVERY_S = 0.5


class PushCenter:
    """Sends alerts to the browsers that have subscribed. Thread-safe.

    Args:
        store: keeps the key, the subscriptions, and what is silenced.
        may_see: whether the owner of a key may see a source.
        name_of: what people call a source.
        services: hosts of push services beyond `SERVICES`; an address with http:// is accepted for these only.
        clock: seconds since 1970.

    Attributes:
        counts: messages sent and not sent, by cause.
    """

    def __init__(
        self,
        store: ServeStore,
        may_see: Callable[[str, str], bool],
        name_of: Callable[[str], str],
        services: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.counts = Counters()
        self._store = store
        self._may_see = may_see
        self._name_of = name_of
        self._services = tuple(services)
        self._clock = clock
        self._messages: deque[tuple[ReviewItem, bool]] = deque()
        self._sent: dict[int, tuple[float, ReviewItem]] = {}
        self._warn = LogOnce(logger.warning)
        self._ends = False

    # ------------------------------------------------------------------------------------------------- subscriptions

    def public_key(self) -> str:
        """The key that a browser subscribes with, in URL-safe base64 without padding.

        Raises:
            MissingPackage: pywebpush is not installed.
            StoreUnreadable: the store cannot be read or written.
        """
        from base64 import urlsafe_b64encode

        vapid = self._vapid()
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        point = vapid.public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return urlsafe_b64encode(point).rstrip(b"=").decode()

    def subscribe(self, subscription: Subscription) -> None:
        """Add a browser, or renew its subscription.

        Raises:
            RequestRejected: its address is not one of a push service, or there are 200 subscriptions.
            StoreUnreadable: the store cannot be written.
        """
        check_endpoint(subscription.endpoint, self._services)
        if not self._store.change(lambda connection: push_table.add(connection, subscription, MAX_SUBSCRIPTIONS)):
            raise RequestRejected(409, f"{MAX_SUBSCRIPTIONS} browsers get alerts, the maximum; end one there first")

    def unsubscribe(self, endpoint: str) -> None:
        """Remove a browser. Raises StoreUnreadable."""
        self._store.change(lambda connection: push_table.remove(connection, endpoint))

    def subscribed(self, key: str) -> int:
        """How many browsers the owner of a key has subscribed. Raises StoreUnreadable."""
        return sum(subscription.key == key for subscription in self._subscriptions())

    def _subscriptions(self) -> list[Subscription]:
        return self._store.read(push_table.subscriptions)

    # ---------------------------------------------------------------------------------------------------- silence

    def quiet(self) -> Quiet:
        """What is silenced now, and when alerts are sent again. Raises StoreUnreadable."""
        stored = self._store.read(push_table.quiet)
        now_s = self._clock()
        until_s = {source: end_s for source, end_s in stored.until_s.items() if end_s > now_s}
        return Quiet(until_s, stored.escalate_s)

    def silence(self, source: str, until_s: float) -> None:
        """Send nothing about a source, or with "" about all, until a time in seconds since 1970; 0 ends it."""
        self._store.change(lambda connection: push_table.silence(connection, source, until_s))

    def escalate_after(self, seconds: float | None) -> None:
        """Send an alert once more if no one has reviewed it within this time; None ends this."""
        self._store.change(lambda connection: push_table.escalate_after(connection, seconds))

    # ---------------------------------------------------------------------------------------------------- sending

    def announce(self, item: ReviewItem) -> None:
        """Send an alert to all who may see its source; returns at once."""
        if len(self._messages) >= _WAITING:
            self.counts.add("alerts not sent: too many wait")
        else:
            self._messages.append((item, False))

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Send what is announced, while the block runs, on a thread."""
        with PeriodicTimer(_SEND_EVERY_S, self.send_due):
            try:
                yield
            finally:
                self._ends = True  # or the end waits for every browser of every alert

    def send_due(self) -> None:
        """Send what waits, and again what no one has reviewed for too long."""
        try:
            quiet = self.quiet()
            self._escalate(quiet)
            while self._messages and not self._ends:
                item, again = self._messages[0]
                if "" in quiet.until_s or item.source in quiet.until_s:
                    self.counts.add("alerts not sent: silenced")
                else:
                    self._send(item, again=again)
                if self._ends:
                    return
                self._messages.popleft()  # only now: the store may be busy
        except Exception as error:  # must not end the thread: the store may be readable again
            self._warn(f"alerts cannot be sent to browsers: {describe(error)}")

    def _escalate(self, quiet: Quiet) -> None:
        if quiet.escalate_s is None:
            self._sent.clear()
        now_s = self._clock()
        for id_, (sent_s, item) in list(self._sent.items()):
            if quiet.escalate_s is not None and now_s - sent_s >= quiet.escalate_s:
                del self._sent[id_]
                stored = self._store.review_item(id_)
                if stored is not None and stored.reviewed_s is None:
                    self._messages.append((item, True))

    def _send(self, item: ReviewItem, *, again: bool) -> None:
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
        for subscription in self._subscriptions():
            if self._ends:
                return
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

    def _vapid(self) -> Any:
        """The server's key, which is made when it is first needed."""
        with needs("pywebpush", "push"):
            from py_vapid import Vapid02

        pem = self._store.read(push_table.private_key)
        if pem is None:
            fresh = Vapid02()
            fresh.generate_keys()
            pem = self._store.change(lambda connection: push_table.keep_private_key(connection, fresh.private_pem()))
        return Vapid02.from_pem(pem)


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
