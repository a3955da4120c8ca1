"""Mail servers for tests: aiosmtpd on loopback, with TLS and passwords, which refuse and disconnect on demand."""

import asyncio
import contextlib
import email
import email.policy
import shutil
import ssl
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER = "cameras@example.com"
PASSWORD = "s3cret/4711"


class _Server(SMTP):
    """Disconnects within a mail on demand."""

    async def smtp_DATA(self, arg: str) -> None:
        place: MailServer = self.event_handler
        if place.cuts:
            place.cuts -= 1
            await self.push("354 go on")
            await self._reader.readline()
            self.transport.abort()
            return
        await super().smtp_DATA(arg)


class MailServer:
    """A mail server, and the mails that it has accepted.

    Attributes:
        received: the mails, in order of arrival.
        to: the recipients of each.
        answers: what it says to the next RCPT commands instead of taking them; None takes one.
        refuses: what it says to every RCPT of an address.
        data: what it says at the end of the next mails instead of taking them.
        cuts: so many mails it breaks off in the middle of.
        hang_up_at: it ends the connection over every mail with this in it.
        logins: how often somebody has logged in, or tried.
        options: for aiosmtpd's `SMTP`.
    """

    def __init__(
        self, tls: ssl.SSLContext | None = None, *, implicit: bool = False, auth: bool = False, **options: object
    ) -> None:
        self.received: list[EmailMessage] = []
        self.to: list[list[str]] = []
        self.answers: list[str | None] = []
        self.refuses: dict[str, str] = {}
        self.data: list[str] = []
        self.hang_up_at: bytes | None = None
        self.cuts = self.logins = self.port = 0
        self._ssl = tls if implicit else None
        if auth:
            options |= {"auth_required": True, "authenticator": self._authenticate}
        if tls is not None and not implicit:
            options |= {"tls_context": tls, "require_starttls": True}
        elif auth:
            options |= {"auth_require_tls": False}
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Listen; after a stop, at the same port."""
        self._loop = loop = asyncio.new_event_loop()

        def serve() -> SMTP:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a password comes unencrypted is what a test may be about
                return _Server(self, loop=loop, hostname="mail.test", **self._options)

        self._server = loop.run_until_complete(loop.create_server(serve, "127.0.0.1", self.port, ssl=self._ssl))
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=loop.run_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and close every connection."""
        loop = self._loop
        self._loop = None
        if loop is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.run_until_complete(self._end())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    async def _end(self) -> None:
        self._server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # transports that were closed let go of their sockets

    def _authenticate(
        self, server: object, session: object, envelope: object, mechanism: str, data: LoginPassword
    ) -> AuthResult:
        self.logins += 1
        return AuthResult(success=(data.login.decode(), data.password.decode()) == (USER, PASSWORD), handled=False)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answer = self.refuses.get(address) or (self.answers.pop(0) if self.answers else None)
        if answer is not None:
            return answer
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.data:
            return self.data.pop(0)
        assert isinstance(envelope.content, bytes)
        if self.hang_up_at is not None and self.hang_up_at in envelope.content:
            server.transport.abort()
            return "451 gone"
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        self.received.append(message)
        self.to.append(list(envelope.rcpt_tos))
        return "250 taken"

    async def handle_exception(self, error: Exception) -> str:
        if not isinstance(error, (ConnectionError, asyncio.IncompleteReadError)):
            raise error
        return "421 gone"

    @property
    def subjects(self) -> list[str]:
        return [str(message["Subject"]) for message in self.received]


def text_of(mail: EmailMessage) -> str:
    body = mail.get_body(("plain",))
    assert body is not None
    return str(body.get_content()).replace("\r\n", "\n")


@pytest.fixture
def mail_server() -> Iterator[Callable[..., MailServer]]:
    """Make mail servers that listen already; call it with `MailServer`'s options."""
    servers: list[MailServer] = []

    def make(*args: object, **options: object) -> MailServer:
        servers.append(MailServer(*args, **options))  # type: ignore[arg-type]
        servers[-1].start()
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def mail_tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """Return a server's TLS context and its self-signed certificate file for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    folder = tmp_path_factory.mktemp("mail")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem"
    names = ["-subj", "/CN=mail", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *names], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with contextlib.suppress(OSError):
        (folder / "key.pem").unlink()
    return context, folder / "cert.pem"


__all__ = ["PASSWORD", "USER", "MailServer", "mail_server", "mail_tls", "text_of"]
