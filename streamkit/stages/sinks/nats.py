"""Sink: messages to NATS JetStream."""

from __future__ import annotations

import re
from typing import Annotated

from streamkit.core.stage import stage
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.nats import SCHEMES, NatsClient


@stage("nats")
class NatsSink(Emitter):
    """Publish records to NATS JetStream, each acknowledged by the stream that stores it.

    A stream with these subjects must exist, as from `nats stream add CAMERAS --subjects 'streamkit.>'`; until then
    records wait. The stream discards repeats by their id, within its duplicate window.
    """

    url: Annotated[
        str,
        'a server, such as "tls://${USER}:${PASSWORD}@host:4222" or "tls://${TOKEN}@host"; nats:// is not encrypted.',
    ]
    servers: Annotated[list[str] | None, "further servers of the same cluster, as [host:port]."] = None
    subject: Annotated[
        str, "a template with {source} or other variables of the records; each value is one token, without dots."
    ] = "streamkit.{source}"
    creds: Annotated[str | None, 'a file with a user\'s JWT and key, such as "${NATS_CREDS}".'] = None
    tls: Annotated[Tls | None, "files for tls://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES, self.tls)
        for one in self.servers or ():
            if not re.fullmatch(r"[^\s/@]+:\d+", one):
                raise ValueError("servers must be a list of host:port; credentials of all servers are in url")
        if re.search(r"[\s*>]|^\.|\.\.|\.$", self.subject):
            raise ValueError(f"subject must be words joined by dots, without spaces, * and >, got {self.subject!r}")
        if self.creds is not None and self._at.user is not None:
            raise ValueError("creds identifies the user; leave the user out of url")

    def templates(self) -> dict[str, str]:
        """See `Emitter.templates`."""
        return {"subject": self.subject}

    @staticmethod
    def clean(text: str) -> str:
        """See `Emitter.clean`: one word of a subject."""
        return re.sub(r"[\s.*>\x00]", "_", text) or "_"

    def client(self) -> Client:
        """See `Emitter.client`."""
        return NatsClient(self._at, self.servers or (), self.tls, self.creds)
