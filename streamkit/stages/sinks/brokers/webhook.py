# SPDX-License-Identifier: Apache-2.0
"""HTTP POST with httpx, signed according to Standard Webhooks (standardwebhooks.com), acknowledged by a 2xx status."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from streamkit.core.addresses import UNSAFE
from streamkit.core.errors import needs
from streamkit.core.stage import Count, stage
from streamkit.core.text import printable
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
from streamkit.emit.webhook_templates import TemplateName, message_of, template_of

SCHEMES = {"http": (80, False), "https": (443, True)}

_PERMANENT = {400, 405, 406, 410, 413, 415, 422, 431}


class WebhookClient(ServerClient):
    """Posts records as JSON arrays; the webhook id is that of the first record.

    Args:
        server: the parsed address, with credentials for HTTP basic authentication if it has any.
        url: the address as text, to which records are posted.
        tls: files for `https`.
        secret: signs the body; `whsec_` followed by base64, or any text. None for no signature.
        batch: maximum number of records in one request.
        headers: additional headers.
        template: the form of each record, which is then a request of its own; None posts arrays of whole records.
        link: what {link} in the template stands for.

    Raises:
        MissingPackage: httpx is not installed.
    """

    def __init__(
        self,
        server: Address,
        url: str,
        tls: Tls | None = None,
        secret: str | None = None,
        batch: int = 100,
        headers: Mapping[str, str] | None = None,
        template: Mapping[str, Any] | None = None,
        link: str = "",
    ) -> None:
        with needs("httpx", "webhook"):
            import httpx
        super().__init__(server, tls)
        self._httpx = httpx
        self._url = url
        self._batch = batch if template is None else 1
        self._template = template
        self._link = link
        self._secret = None if secret is None else secret_bytes(secret)
        self._headers = {"content-type": "application/json", "user-agent": "streamkit", **(headers or {})}
        self.where = str(replace(server, path=""))  # the path of a hook may be a secret
        secret_path = server.path if len(server.path) > 1 else ""
        self.secrets = [*self.secrets, secret or "", *(headers or {}).values(), secret_path]

    def connect(self) -> None:
        """See `Client.connect`. HTTP keeps no connection to check: the first POST shows whether the server is there."""
        verify: Any = tls_context(self._tls) if self._server.tls else False
        self._connection = self._httpx.Client(verify=verify, timeout=self.timeout_s, headers=self._headers)

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Client.deliver`."""
        for done in range(0, len(messages), self._batch):
            if self.over() and done:
                raise SendError("the run ends", done)
            part = messages[done : done + self._batch]
            body = self._body(part)
            try:
                answer = self._connection.post(self._url, content=body, headers=self._signed(part[0].id, body))
            except (self._httpx.HTTPError, OSError) as error:
                httpx = self._httpx
                cut = isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError))
                reason = f"no answer: {error or type(error).__name__}"
                raise SendError(reason, done, disconnected=cut and self._answers()) from error
            if answer.is_success:
                continue
            text = f"HTTP {answer.status_code} {answer.reason_phrase}"
            raise (RecordRejected if answer.status_code in _PERMANENT else SendError)(text, done)

    def _body(self, messages: Sequence[Message]) -> bytes:
        if self._template is not None:
            return message_of(self._template, messages[0].body, self._link)
        return b"[" + b",".join([message.body for message in messages]) + b"]"

    def _answers(self) -> bool:
        """Whether a server answers at all; a proxy may accept connections for a receiver that is down."""
        try:
            self._connection.head(self._url)
        except (self._httpx.HTTPError, OSError):
            return False
        return True

    def _signed(self, id_: str, body: bytes) -> dict[str, str]:
        now = str(int(time.time()))
        headers = {"webhook-id": id_, "webhook-timestamp": now}
        if self._secret is not None:
            headers["webhook-signature"] = signature(self._secret, id_, now, body)
        return headers


def signature(secret: bytes, id_: str, timestamp: str, body: bytes) -> str:
    """Compute `webhook-signature`: v1 and the base64 HMAC-SHA256 of id, seconds since 1970 and body."""
    digest = hmac.new(secret, f"{id_}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def secret_bytes(secret: str) -> bytes:
    """The signing key that a secret stands for.

    Raises:
        ValueError: the secret starts with `whsec_`, but the rest is not base64. The text contains no part of it.
    """
    if not secret:
        raise ValueError("secret must not be empty; remove it to send without signatures")
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise ValueError("secret must be base64 after whsec_") from None


_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@stage("webhook")
class WebhookSink(Emitter):
    """Post records to an HTTP address, as JSON arrays signed with HMAC-SHA256 (Standard Webhooks)."""

    broker: ClassVar[Broker] = Broker(
        product="an HTTP address",
        acknowledged_by="a 2xx status",
        page="emitters-databases.md#webhooks",
        example="http://127.0.0.1:8000/hook",
        modules=("httpx",),
    )

    url: Annotated[str, 'the address, such as "https://example.com/hook"; status 2xx acknowledges, others are retried.']
    secret: Annotated[str | None, 'the key that signs requests, such as "${HOOK_SECRET}"; unsigned by default.'] = None
    batch: Annotated[Count, "maximum number of records in one request."] = 100
    headers: Annotated[dict[str, str] | None, 'further headers, such as {authorization: "Bearer ${TOKEN}"}.'] = None
    tls: Annotated[Tls | None, "files for https://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None
    template: Annotated[
        TemplateName | dict[str, Any] | None,
        "the form of each record as a message: that of a chat service, or a mapping in whose texts {text}, {source}, "
        "{time}, {stage}, {kind}, {label}, {id} and {link} are replaced. Each record is then a request of its own. If "
        "not set, requests have arrays of whole records.",
    ] = None
    fields: Annotated[
        dict[str, str] | None,
        "further entries of a message, such as {chat_id: ...} for telegram.",
    ] = None
    link: Annotated[str, 'the address for {link}, such as "https://cameras.example.com/#/review".'] = ""

    def check(self) -> None:
        """See `Emitter.check`."""
        if self.template is None and self.fields:
            raise ValueError("fields are entries of a message: set template as well, such as template: slack")
        self._template = None if self.template is None else template_of(self.template, self.fields or {})
        self._server = address(self.url, SCHEMES, self.tls)
        if self.secret is not None:
            secret_bytes(self.secret)
        for name, text in (self.headers or {}).items():
            if not _HEADER.fullmatch(name) or UNSAFE.search(text.replace("\t", " ")):
                raise ValueError(
                    f"headers: {printable(name, one_line=True)} must be a header's name, and its value have no line "
                    "ends and control characters"
                )

    def client(self) -> Client:
        """See `Emitter.client`."""
        return WebhookClient(
            self._server, self.url, self.tls, self.secret, self.batch, self.headers, self._template, self.link
        )
