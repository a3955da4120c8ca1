"""E-mail with smtplib: several records per mail, a limit of mails per hour, acknowledged by the server's 250."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.core.errors import describe
from streamkit.emit import summary_text
from streamkit.emit.client import WINDOW, Address, Client, Lost, Message, RecordRejected, Tls, tls_context
from streamkit.emit.mail_format import MOST_BYTES, MailFormat, MailRecord, address_in, told
from streamkit.emit.rate_limit import RateLimit
from streamkit.emit.smtp import log_in, look, reason

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

SCHEMES = {"smtp": (587, False), "smtps": (465, True)}

SENT = "mails sent"
OVER = "records not mailed: hourly limit"
REFUSED_TO = "recipients refused"
GIVEN_UP = "recipients given up: deferred too long"
SEPARATOR = "\x1f"
"""Between the values of a record's variables in its topic."""

_PATIENCE_S = 3600.0  # of answers of 4xx, as those of a full mailbox, while others get their mail
_SHORT_S = 300.0  # the same, where as many records wait as are looked at: others would get no further ones
_WORDLESS = (ValueError, KeyError, TypeError, AttributeError)  # of a record that is not as this stage makes them
_KEPT_S = 5.0  # an idle connection is closed: servers limit them
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
        self, at: Address, form: MailFormat, names: Sequence[str], limit: int, kept: Path, gather_s: float = 0.0,
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
        self._quota: RateLimit | None = None
        self._had: dict[str, set[str]] = {}  # records that are done with for a recipient, while others wait for them
        self._taken: set[str] = set()  # those of them that somebody has in a mail
        self._since_s: dict[str, float] = {}  # since when a recipient has been put off

    @property
    def quota(self) -> RateLimit:
        """The limit of mails per hour; read on first access, as the spool's folder is created later."""
        if self._quota is None:
            self._quota = RateLimit(self._limit, self._kept)
        return self._quota

    # ------------------------------------------------------------------------------------------------ as a client

    def connect(self) -> None:
        """See `Client.connect`: log in, so that a wrong password is detected before the first mail."""
        try:
            self._session()
        except RecordRejected as error:
            raise Lost(str(error)) from error

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str]:
        """See `Client.deliver`. All records go into one mail, or into none if the limit per hour is reached."""
        records: dict[str, MailRecord] = {}
        refused: dict[int, str] = {}
        for place, message in enumerate(messages):
            try:
                records[message.id] = told(json.loads(message.body), self._names, message.topic.split(SEPARATOR))
            except _WORDLESS as error:
                refused[place] = _wordless(error)
        if records and self.quota.left(time.time()) <= 0:
            self.quota.leave_out(summary_text.title(one.record) for one in records.values())
            self._count(OVER, len(records))
            self._say(f"{self.where}: {self._limit} mails within an hour are enough; further events are counted, and "
                      "told in one mail when the hour is over")  # fmt: skip
        else:
            self._send(records)
        for known in (self._taken, *self._had.values()):
            known.difference_update(message.id for message in messages)
        return refused

    def idle(self) -> None:
        """See `Client.idle`: report omitted records once the limit allows it."""
        quota, now_s = self.quota, time.time()
        if quota.left_out and quota.left(now_s) > 0:
            try:
                later, taken = self._post(f"{int(now_s)}-left-out", (), self._form.to)
            except RecordRejected as error:
                self._say(f"{self.where} refuses the mail that tells what was left out: {self.hide(str(error))}")
                quota.forget()
            else:
                if not taken:
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

    def _send(self, records: Mapping[str, MailRecord]) -> None:
        """Send records, by id, to all recipients who have not had them. Raises Lost, RecordRejected."""
        waiting: dict[tuple[str, ...], list[str]] = {}
        for one in self._form.to:
            rest = tuple(id_ for id_ in records if id_ not in self._had.get(one, ()))
            if rest:
                waiting.setdefault(rest, []).append(one)
        later: dict[str, str] = {}
        for ids, recipients in waiting.items():
            try:
                later |= self._mail({id_: records[id_] for id_ in ids}, recipients)
            except RecordRejected as error:
                if len(waiting) == 1 or not error.whole:
                    raise
                self._refused({one: str(error) for one in recipients})
                self._done_with(ids, recipients)
        patience_s = _PATIENCE_S if len(records) < WINDOW else _SHORT_S
        for one in [one for one in later if self._taken.issuperset(records)]:
            if time.monotonic() - self._since_s[one] >= patience_s:
                self._count(GIVEN_UP)
                self._say(f"{self.where} has put off a recipient for too long: {self.hide(later.pop(one))}; others have"
                          " their mail, and for this one it is given up, and counted")  # fmt: skip
                self._done_with(records, [one])
        if later:
            raise Lost(next(iter(later.values())))

    def _mail(self, records: Mapping[str, MailRecord], recipients: list[str]) -> dict[str, str]:
        """Send records to recipients who have not had them; return the deferred recipients with the reasons."""
        ids = list(records)
        last = "" if len(ids) == 1 else f"-{ids[-1].rpartition('-')[2]}"
        later, taken = self._post(f"{ids[0]}{last}", list(records.values()), recipients)
        self._done_with(ids, [one for one in recipients if one not in later])
        if taken:
            self._taken.update(ids)
        for one in recipients:
            if one in later:
                self._since_s.setdefault(one, time.monotonic())
            else:
                self._since_s.pop(one, None)
        return later

    def _done_with(self, ids: Iterable[str], recipients: Sequence[str]) -> None:
        for one in recipients:
            self._had.setdefault(one, set()).update(ids)

    def _post(self, id_: str, records: Sequence[MailRecord], recipients: Sequence[str]) -> tuple[dict[str, str], bool]:
        """Send one mail; return the deferred recipients with the reasons, and whether any recipient got it.

        Raises:
            Lost: it was not accepted, but may be later.
            RecordRejected: it is permanently rejected.
        """
        smtp, now_s = self._session(), time.time()
        try:
            letter = bytes(self._letter(smtp, id_, records, now_s))
        except _WORDLESS as error:
            raise RecordRejected(_wordless(error)) from error
        try:
            later, taken = self._transaction(smtp, recipients, letter)
        except RecordRejected:
            with contextlib.suppress(self._lib.SMTPException, OSError):
                smtp.rset()
            raise
        except self._lib.SMTPDataError as error:
            self._drop()
            look((error.smtp_code, error.smtp_error), "the mail")
            raise
        except (self._lib.SMTPException, OSError) as error:
            self._drop()
            raise Lost(reason(error), broke=isinstance(error, self._lib.SMTPServerDisconnected)) from error
        self._used_s = time.monotonic()
        if taken:
            self.quota.sent(now_s)
            self._count(SENT)
        return later, taken

    def _letter(self, smtp: smtplib.SMTP, id_: str, records: Sequence[MailRecord], now_s: float) -> EmailMessage:
        note = ""
        if self.quota.left(now_s) == 1 and self._limit > 1:
            note = (
                f"This is the last of {self._limit} mails within an hour. What happens from now on is counted, and "
                "told in one mail when the hour is over."
            )
        size = smtp.esmtp_features.get("size", "")
        most = min(MOST_BYTES, int(_RATIO * int(size))) if size.isdigit() and int(size) else MOST_BYTES
        return self._form.letter(id_, records, self.quota.left_out, note, most)

    def _transaction(self, smtp: smtplib.SMTP, recipients: Sequence[str], data: bytes) -> tuple[dict[str, str], bool]:
        """Send MAIL, RCPT for each recipient, and DATA if at least one is accepted. See `_post`."""
        look(smtp.mail(address_in(self._form.sender)), "the sender")
        later: dict[str, str] = {}
        never: dict[str, str] = {}
        for one in recipients:
            try:
                look(smtp.rcpt(address_in(one)), address_in(one))
            except RecordRejected as error:
                never[one] = str(error)
            except Lost as error:
                later[one] = str(error)
        if len(never) == len(recipients):
            raise RecordRejected(next(iter(never.values())), whole=True)
        if taken := len(never) + len(later) < len(recipients):
            look(smtp.data(data), "the mail")
        else:
            smtp.rset()
        self._refused(never)
        return later, taken

    def _refused(self, recipients: dict[str, str]) -> None:
        for why in recipients.values():
            self._count(REFUSED_TO)
            self._say(f"{self.where} refuses a recipient: {self.hide(why)}; others get their mail, and this is counted")

    def _session(self) -> smtplib.SMTP:
        """Return the connection; connect, encrypt and log in if needed."""
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
                log_in(self._smtp, at.user, at.password or "")
        except (self._lib.SMTPException, OSError) as error:
            self._drop()
            raise Lost(reason(error)) from error
        except Lost:
            self._drop()
            raise
        return self._smtp

    def _drop(self) -> None:
        """Close the connection without QUIT: the server may be gone."""
        made, self._smtp = self._smtp, None
        if made is not None:
            made.close()


def _wordless(error: Exception) -> str:
    why = "another stage, or another send:, may have put it into this spool"
    return f"it cannot be put into words ({describe(error)}); {why}"
