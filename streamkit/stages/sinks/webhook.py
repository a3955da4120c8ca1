"""Sink: signed HTTP requests."""

from __future__ import annotations

from streamkit.core.stage import Count, stage
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.webhook import SCHEMES, WebhookClient, secret_bytes


@stage("webhook")
class WebhookSink(Emitter):
    """Post records to an HTTP address, as JSON arrays signed with HMAC-SHA256 (Standard Webhooks).

    Options:
        url: the address, such as "https://example.com/hook"; status 2xx acknowledges, others are retried.
        secret: the key that signs requests, such as "${HOOK_SECRET}"; by default they are not signed.
        batch: maximum number of records in one request.
        headers: further headers, such as {authorization: "Bearer ${TOKEN}"}.
        tls: files for https://, such as {ca: ca.pem, cert: me.pem, key: me.key}.
    """

    url: str
    secret: str | None = None
    batch: Count = 100
    headers: dict[str, str] | None = None
    tls: Tls | None = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES, self.tls)
        if self.secret is not None:
            secret_bytes(self.secret)

    def client(self) -> Client:
        """See `Emitter.client`."""
        return WebhookClient(self._at, self.url, self.tls, self.secret, self.batch, self.headers)
