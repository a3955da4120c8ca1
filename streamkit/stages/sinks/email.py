# SPDX-License-Identifier: Apache-2.0
"""Sink: e-mails."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from dataclasses import field
from typing import Annotated, ClassVar, Literal

from streamkit.core.addresses import UNSAFE
from streamkit.core.stage import Count, Seconds, stage
from streamkit.emit.broker import Broker
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.email import SCHEMES, SEPARATOR, EmailClient
from streamkit.emit.emitter import MAX_BACKOFF, TIMEOUT, Emitter
from streamkit.emit.mail_format import VARIABLES as MORE
from streamkit.emit.mail_format import MailFormat, address_in
from streamkit.emit.record_selection import VARIABLES
from streamkit.emit.topics import Topics


@stage("email")
class EmailSink(Emitter):
    """Send e-mails: several events per mail, a limited number per hour, with images.

    Templates have the variables of topics, and also {text}, the event in words, and {time}. An event's image is
    attached if its data has `snapshot`, the path of a file.
    """

    broker: ClassVar[Broker] = Broker(
        product="a mail server",
        acknowledged_by="SMTP 250",
        page="email.md",
        example="smtp://127.0.0.1",
        id_in="header `Message-ID`",
    )

    url: Annotated[
        str,
        'the server, such as "smtp://${USER}:${PASSWORD}@mail.example:587", which must offer STARTTLS, or smtps://.',
    ] = field(kw_only=True)
    mail_from: Annotated[str, 'the sender\'s address, such as "Cameras <cameras@example.com>".'] = field(kw_only=True)
    to: Annotated[str | list[str], "the recipient's address, or a list."] = field(kw_only=True)
    send: Annotated[
        Literal["frames", "objects", "events"],
        "one line in a mail for each of the frames, of the objects, or of the events.",
    ] = field(default="events", kw_only=True)
    subject: Annotated[str, "a template, filled from a mail's first record."] = "{text}"
    body: Annotated[str, "a template, filled from each record."] = "{time}  {text}"
    batch_window: Annotated[Seconds, "how long an event waits for others that go into the same mail."] = 10.0
    max_per_hour: Annotated[Count, "maximum mails in any hour; further events are summarized in one mail then."] = 20
    max_images: Annotated[int, "maximum number of images attached to one mail; 0 for none."] = 4
    link: Annotated[str | None, "an address at the end of each mail, such as the page of `streamkit serve`."] = None
    unencrypted: Annotated[bool, "send without encryption, to a server on this machine only."] = False
    tls: Annotated[Tls | None, "files, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None
    timeout: Annotated[Seconds, TIMEOUT] = field(default=30.0, kw_only=True)
    max_backoff: Annotated[Seconds, MAX_BACKOFF] = field(default=300.0, kw_only=True)

    def check(self) -> None:
        """See `Emitter.check`."""
        self._server = address(self.url, SCHEMES, None if not self.unencrypted else self.tls)
        if self.unencrypted and self._server.tls:
            raise ValueError("unencrypted is for smtp://; smtps:// is encrypted from its first byte")
        if self.unencrypted and not _on_this_machine(self._server.host):
            raise ValueError(
                "unencrypted sends passwords and mails in plain text, which is allowed to a server on this machine "
                "only, as in smtp://127.0.0.1:25; leave it out"
            )
        recipients = [self.to] if isinstance(self.to, str) else self.to
        if not recipients:
            raise ValueError("to must contain at least one address")
        for option, mail_address in [("mail_from", self.mail_from), *(("to", recipient) for recipient in recipients)]:
            if mail_address.count("@") > 1:
                raise ValueError(f"{option} must be one address such as ops@example.com; write several as a list")
            if not _is_address(mail_address):
                raise ValueError(f"{option} must be an address such as ops@example.com, got {mail_address!r}")
        if self.link is not None and (UNSAFE.search(self.link) or not re.fullmatch(r"https?://\S+", self.link)):
            raise ValueError(f"link must be an address such as https://10.0.0.2:8000/, got {self.link!r}")
        if self.max_images < 0:
            raise ValueError(f"max_images must be 0 or more, got {self.max_images}")
        Topics({"subject": self.subject, "body": self.body}, (*VARIABLES[self.send], *MORE))
        self._form = MailFormat(
            self.mail_from, tuple(dict.fromkeys(recipients)), self.subject, self.body, self.link, self.max_images
        )

    def templates(self) -> dict[str, str]:
        """See `Emitter.templates`: not a topic, but the values that fill the mail's templates."""
        return {"topic": SEPARATOR.join(f"{{{name}}}" for name in VARIABLES[self.send])}

    def client(self) -> Client:
        """See `Emitter.client`."""
        context = self.context
        return EmailClient(
            self._server,
            self._form,
            VARIABLES[self.send],
            self.max_per_hour,
            self.folder / "mails",
            self.batch_window,
            self.tls,
            self.unencrypted,
            context.counters.add,
        )


def _is_address(text: str) -> bool:
    """Whether it is one address, with or without a display name, that any server accepts."""
    mailbox = address_in(text)
    name, at, host = mailbox.rpartition("@")
    return bool(name and at and host) and mailbox.isascii() and text.isprintable() and " " not in mailbox


def _on_this_machine(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"
