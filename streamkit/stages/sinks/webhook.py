"""Sink: signed HTTP requests."""

from __future__ import annotations

from typing import Annotated

from streamkit.core.stage import Count, stage
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.webhook import SCHEMES, WebhookClient, secret_bytes


@stage("webhook")
class WebhookSink(Emitter):
    """Post records to an HTTP address, as JSON arrays signed with HMAC-SHA256 (Standard Webhooks)."""

    url: Annotated[str, 'the address, such as "https://example.com/hook"; status 2xx acknowledges, others are retried.']
    secret: Annotated[
        str | None, 'the key that signs requests, such as "${HOOK_SECRET}"; by default they are not signed.'
    ] = None
    batch: Annotated[Count, "maximum number of records in one request."] = 100
    headers: Annotated[dict[str, str] | None, 'further headers, such as {authorization: "Bearer ${TOKEN}"}.'] = None
    tls: Annotated[Tls | None, "files for https://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES, self.tls)
        if self.secret is not None:
            secret_bytes(self.secret)

    def client(self) -> Client:
        """See `Emitter.client`."""
        return WebhookClient(self._at, self.url, self.tls, self.secret, self.batch, self.headers)
