"""E-mail by smtplib: several records in one mail, so many mails an hour, acknowledged by the server's 250."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.emit import telling
from streamkit.emit.client import Address, Client, Lost, Message, Refused, Tls, tls_context
from streamkit.emit.letters import MOST_BYTES, Form, Told, address_in, told
from streamkit.emit.quota import Quota

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

SCHEMES = {"smtp": (587, False), "smtps": (465, True)}

SENT = "mails sent"
OVER = "records in no mail: over the limit an hour"
REFUSED_TO = "recipients refused"
SEPARATOR = "\x1f"
"""Between the values of a record's variables in its topic."""

_KEPT_S = 5.0  # a connection that nobody uses is ended: servers do not like them
_RATIO = 0.7  # of a mail's bytes are a picture's, as base64 has it, and some more


class EmailClient(Client):
    """Sends mails. A connection is kept for a few seconds only.

    Args:
        at: the server's address, with credentials where it wants any.
        form: what mails look like, and to whom they go.
        names: the variables whose values stand in records' topics.
        quota: mails in an hour; what is more is counted, and told later.
        gather_s: how long records wait for others to go into the same mail.
        tls: files for the encrypted connection.
        plain: nothing is encrypted.
        count: takes what is to be counted.
        say: takes messages for the user.
    """

    def __init__(
        self, at: Address, form: Form, names: Sequence[str], limit: int, kept: Path, gather_s: float = 0.0,
        tls: Tls | None = None, plain: bool = False, count: Callable[..., None] = lambda name, n=1: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        import smtplib

        self._lib = smtplib
        self._at, self._form, self._names, self._tls, self._plain = at, form, tuple(names), tls, plain
        self._limit, self._kept, self.gather_s = limit, kept, gather_s
        self._count, self._say = count, say
        self.where, self.secrets = str(at), [at.password or ""]
        self._smtp: smtplib.SMTP | None = None
        self._used_s = 0.0
        self._quota: Quota | None = None
        self._had: dict[str, set[str]] = {}  # records that a recipient has, while others have not

    @property
    def quota(self) -> Quota:
        """Mails in an hour; read when it is first needed, for the spool's folder is made last."""
        if self._quota is None:
            self._quota = Quota(self._limit, self._kept)
        return self._quota

    # ------------------------------------------------------------------------------------------------ as a client

    def connect(self) -> None:
        """See `Client.connect`: log in, so that a wrong password is known before the first mail."""
        try:
            self._session()
        except Refused as error:
            raise Lost(str(error)) from error

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Client.deliver`. All records go into one mail, or into none where the hour has had its share."""
        now_s = time.time()
        if self.quota.left(now_s) <= 0:
            records = [json.loads(one.body) for one in messages]
            self.quota.leave_out(map(telling.title, records))
            self._had.clear()
            self._count(OVER, len(messages))
            self._say(f"{self.where}: {self._limit} mails within an hour are enough; further events are counted, and "
                      "told in one mail when the hour is over")  # fmt: skip
            return
        waiting: dict[tuple[Message, ...], list[str]] = {}
        for one in self._form.to:
            rest = tuple(m for m in messages if m.id not in self._had.get(one, ()))
            if rest:
                waiting.setdefault(rest, []).append(one)
        later: dict[str, str] = {}
        for rest, recipients in waiting.items():
            try:
                later |= self._mail(rest, recipients)
            except Refused as error:
                if len(waiting) == 1:
                    raise
                self._refused({one: str(error) for one in recipients})
        if later:
            raise Lost(next(iter(later.values())))
        self._had.clear()

    def idle(self) -> None:
        """See `Client.idle`: tell what was left out when the hour allows it."""
        quota, now_s = self.quota, time.time()
        if quota.left_out and quota.left(now_s) > 0:
            try:
                later = self._post(f"{int(now_s)}-left-out", (), self._form.to)
            except Refused as error:
                self._say(f"{self.where} refuses the mail that tells what was left out: {self.hide(str(error))}")
                quota.forget()
            else:
                if quota.left_out:  # nobody has it
                    raise Lost(next(iter(later.values())))
                self._refused(later)
        if self._smtp is not None and time.monotonic() - self._used_s > _KEPT_S:
            self.close()

    def close(self) -> None:
        """See `Client.close`."""
        made, self._smtp = self._smtp, None
        if made is not None:
            with contextlib.suppress(self._lib.SMTPException, OSError):
                made.quit()
            made.close()

    # --------------------------------------------------------------------------------------------------- one mail

    def _mail(self, messages: tuple[Message, ...], recipients: list[str]) -> dict[str, str]:
        """Send records to those who have not had them; return for whom they were not taken yet, and why."""
        records = [told(json.loads(m.body), self._names, m.topic.split(SEPARATOR)) for m in messages]
        last = "" if len(messages) == 1 else f"-{messages[-1].id.rpartition('-')[2]}"
        later = self._post(f"{messages[0].id}{last}", records, recipients)
        for one in recipients:
            if one not in later:
                self._had.setdefault(one, set()).update(m.id for m in messages)
        return later

    def _post(self, id_: str, records: Sequence[Told], recipients: Sequence[str]) -> dict[str, str]:
        """Send one mail; return the recipients for whom it was not taken yet, and why.

        Raises:
            Lost: it was not taken, and may be later.
            Refused: it never will be.
        """
        smtp, now_s = self._session(), time.time()
        try:
            letter = self._letter(smtp, id_, records, now_s)
            later = self._transaction(smtp, recipients, bytes(letter))
        except Refused:
            with contextlib.suppress(self._lib.SMTPException, OSError):
                smtp.rset()
            raise
        except self._lib.SMTPDataError as error:
            self._drop()
            _look((error.smtp_code, error.smtp_error), "the mail")
            raise
        except (self._lib.SMTPException, OSError) as error:
            self._drop()
            raise Lost(_reason(error)) from error
        self._used_s = time.monotonic()
        if len(later) < len(recipients):
            self.quota.sent(now_s)
            self._count(SENT)
        return later

    def _letter(self, smtp: smtplib.SMTP, id_: str, records: Sequence[Told], now_s: float) -> EmailMessage:
        note = ""
        if self.quota.left(now_s) == 1 and self._limit > 1:
            note = (
                f"This is the last of {self._limit} mails within an hour. What happens from now on is counted, and "
                "told in one mail when the hour is over."
            )
        size = smtp.esmtp_features.get("size", "")
        most = min(MOST_BYTES, int(_RATIO * int(size))) if size.isdigit() and int(size) else MOST_BYTES
        return self._form.letter(id_, records, self.quota.left_out, note, most)

    def _transaction(self, smtp: smtplib.SMTP, recipients: Sequence[str], data: bytes) -> dict[str, str]:
        """MAIL, RCPT for each, and DATA if one of them may have it."""
        _look(smtp.mail(address_in(self._form.sender)), "the sender")
        later: dict[str, str] = {}
        never: dict[str, str] = {}
        for one in recipients:
            try:
                _look(smtp.rcpt(address_in(one)), address_in(one))
            except Refused as error:
                never[one] = str(error)
            except Lost as error:
                later[one] = str(error)
        if len(never) == len(recipients):
            raise Refused(next(iter(never.values())), whole=True)
        if len(never) + len(later) < len(recipients):
            _look(smtp.data(data), "the mail")
        else:
            smtp.rset()
        self._refused(never)
        return later

    def _refused(self, recipients: dict[str, str]) -> None:
        for why in recipients.values():
            self._count(REFUSED_TO)
            self._say(f"{self.where} refuses a recipient: {self.hide(why)}; others get their mail, and this is counted")

    def _session(self) -> smtplib.SMTP:
        """The connection, made, encrypted and logged in."""
        if self._smtp is not None:
            return self._smtp
        at, self._used_s = self._at, time.monotonic()
        try:
            if at.tls:
                self._smtp = self._lib.SMTP_SSL(
                    at.host, at.port, timeout=self.timeout_s, context=tls_context(self._tls)
                )
            else:
                self._smtp = self._lib.SMTP(at.host, at.port, timeout=self.timeout_s)
            self._smtp.ehlo_or_helo_if_needed()
            if not at.tls and not self._plain:
                if not self._smtp.has_extn("starttls"):
                    raise Lost(
                        "it offers no encryption (STARTTLS), and without it everybody on the way can read along; "
                        "write smtps:// in the url if it has a port for that"
                    )
                self._smtp.starttls(context=tls_context(self._tls))
                self._smtp.ehlo()
            if at.user is not None:
                self._smtp.login(at.user, at.password or "")
        except (self._lib.SMTPException, OSError) as error:
            self._drop()
            raise Lost(_reason(error)) from error
        except Lost:
            self._drop()
            raise
        return self._smtp

    def _drop(self) -> None:
        """End the connection without a word: nobody may be there."""
        made, self._smtp = self._smtp, None
        if made is not None:
            made.close()


def _look(answer: Any, what: str) -> None:
    """Look at a server's answer. Raises Lost for 4xx, Refused for 5xx."""
    code, text = answer
    if 200 <= code < 300:
        return
    said = f"{what} is not taken: {code} {_text(text)}"
    raise Refused(said, whole=True) if code >= 500 else Lost(said)


def _reason(error: Exception) -> str:
    """Why nothing was sent, without what was sent."""
    import smtplib

    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"the user or the password is refused ({error.smtp_code} {_text(error.smtp_error)})"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {_text(error.smtp_error)}"
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return f"the connection broke off: {error}"
    return str(error) if isinstance(error, smtplib.SMTPException) else f"no connection: {error}"


def _text(said: Any) -> str:
    return " ".join((said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)).split())
