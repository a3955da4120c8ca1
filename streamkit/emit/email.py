# SPDX-License-Identifier: Apache-2.0
"""E-mail with smtplib: several records per mail, a limit of mails per hour, acknowledged by the server's 250."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.core.errors import describe
from streamkit.core.logs import LogOnce
from streamkit.emit.client import WINDOW, Address, Message, RecordRejected, SendError, ServerClient, Tls, tls_context
from streamkit.emit.mail_format import MAX_IMAGE_BYTES, MailFormat, MailRecord, address_in, mail_record, title
from streamkit.io.private_file import write_private

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

logger = logging.getLogger(__name__)

SCHEMES = {"smtp": (587, False), "smtps": (465, True)}

SENT = "mails sent"
OVER_LIMIT = "records not mailed: hourly limit"
REFUSED_TO = "recipients refused"
DEFERRED_TOO_LONG = "recipients given up: deferred too long"
SEPARATOR = "\x1f"
"""Separates the values of a record's variables in its topic."""

HOUR_S = 3600.0
OTHERS = "others"
_TITLES = 100  # that are counted separately
_PATIENCE_S = 3600.0  # with answers of 4xx, such as those of a full mailbox, while other recipients get their mail
_FULL_WINDOW_PATIENCE_S = 300.0  # the same if the window is full: other recipients would get no further records
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)  # of a record of another kind
_IDLE_S = 5.0  # an idle connection is closed, as servers limit their number
_MAX_IMAGE_SHARE = 0.7  # of the bytes of a mail: base64 adds a third


class RateLimit:
    """Counts mails of the last hour, and omitted records by title.

    Args:
        limit: maximum number of mails in any hour.
        path: file that keeps both; its folder may be created later, before the first write.

    Attributes:
        omitted: number of omitted records by title: at most a hundred titles, and `others`.
    """

    def __init__(self, limit: int, path: Path) -> None:
        self._limit = limit
        self._path = path
        self._sent: deque[float] = deque()
        self.omitted: Counter[str] = Counter()
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):  # missing or unreadable
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._sent.extend(sorted(map(float, stored["sent"]))[-limit:])
            self.omitted.update({str(name): int(n) for name, n in stored["left_out"].items()})

    def remaining(self, now_s: float) -> int:
        """Number of mails that may be sent now; `now_s` is in seconds since 1970."""
        # a time in the future, after the clock was set back, is dropped too
        while self._sent and not now_s - HOUR_S < self._sent[0] <= now_s:
            self._sent.popleft()
        return self._limit - len(self._sent)

    def sent(self, now_s: float) -> None:
        """Count a mail, which has reported the records omitted before."""
        self._sent.append(now_s)
        self.clear_omitted()

    def clear_omitted(self) -> None:
        """Clear the counts of omitted records."""
        self.omitted.clear()
        self._write()

    def omit(self, titles: Iterable[str]) -> None:
        """Count records that are omitted from mails."""
        for record_title in titles:
            is_listed = record_title in self.omitted or len(self.omitted) < _TITLES
            self.omitted[record_title if is_listed else OTHERS] += 1
        self._write()

    def _write(self) -> None:
        """Store both; if the disk cannot be written, they last as long as this process."""
        with contextlib.suppress(OSError):
            write_private(self._path, json.dumps({"sent": list(self._sent), "left_out": self.omitted}))


class EmailClient(ServerClient):
    """Sends mails. A connection is kept for a few seconds only.

    Args:
        server: the server's address, with credentials if it needs any.
        form: format and recipients of the mails.
        names: the variables whose values are in the records' topics.
        limit: maximum number of mails in any hour; further records are counted, and reported later.
        sent_path: file that keeps the number of mails of the last hour.
        gather_s: how long records wait for others that go into the same mail.
        tls: files for the encrypted connection.
        plain: send without encryption.
        count: adds to a counter.
    """

    def __init__(
        self,
        server: Address,
        form: MailFormat,
        names: Sequence[str],
        limit: int,
        sent_path: Path,
        gather_s: float = 0.0,
        tls: Tls | None = None,
        plain: bool = False,
        count: Callable[..., None] = lambda name, n=1: None,
    ) -> None:
        import smtplib

        super().__init__(server, tls)
        self._lib = smtplib
        self._form = form
        self._names = tuple(names)
        self._plain = plain
        self._limit = limit
        self._sent_path = sent_path
        self.gather_s = gather_s
        self._count = count
        self._warn = LogOnce(logger.warning)
        self._used_s = 0.0
        self._settled_ids: dict[str, set[str]] = {}  # by recipient, ids of records that are delivered or skipped
        self._accepted_ids: set[str] = set()  # ids of records that the server has accepted for any recipient
        self._deferred_since_s: dict[str, float] = {}  # by recipient, since the first deferral

    @cached_property
    def rate_limit(self) -> RateLimit:
        """The limit of mails per hour; read on first access, as the spool's folder is created later."""
        return RateLimit(self._limit, self._sent_path)

    # ------------------------------------------------------------------------------------------------ as a client

    def connect(self) -> None:
        """See `Client.connect`: log in, so that a wrong password is detected before the first mail."""
        try:
            self._session()
        except RecordRejected as error:
            raise SendError(str(error)) from error

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str]:
        """See `Client.deliver`. All records go into one mail, or into none if the limit per hour is reached."""
        records: dict[str, MailRecord] = {}
        refused: dict[int, str] = {}
        for index, message in enumerate(messages):
            try:
                records[message.id] = mail_record(json.loads(message.body), self._names, message.topic.split(SEPARATOR))
            except _UNREADABLE as error:
                refused[index] = _unreadable(error)
        if records and self.rate_limit.remaining(time.time()) <= 0:
            self.rate_limit.omit(title(unsent.record) for unsent in records.values())
            self._count(OVER_LIMIT, len(records))
            self._warn(
                f"{self.where}: the limit of {self._limit} mails within an hour is reached; further events are "
                "counted, and reported in one mail when the hour is over"
            )
        else:
            self._send(records)
        for ids in (self._accepted_ids, *self._settled_ids.values()):
            ids.difference_update(message.id for message in messages)
        return refused

    def idle(self) -> None:
        """See `Client.idle`: report omitted records once the limit allows it."""
        rate_limit = self.rate_limit
        now_s = time.time()
        if rate_limit.omitted and rate_limit.remaining(now_s) > 0:
            try:
                deferred, accepted = self._post(f"{int(now_s)}-left-out", (), self._form.to)
            except RecordRejected as error:
                self._warn(f"{self.where} refuses the mail that reports omitted events: {self.redact(str(error))}")
                rate_limit.clear_omitted()
            else:
                if not accepted:
                    raise SendError(next(iter(deferred.values())))
                self._refused(deferred)
        if self._connection is not None and time.monotonic() - self._used_s > _IDLE_S:
            self.close()

    def close(self) -> None:
        """See `Client.close`."""
        if self._connection is not None:
            with contextlib.suppress(self._lib.SMTPException, OSError):
                self._connection.quit()
        self._drop()

    # --------------------------------------------------------------------------------------------------- one mail

    def _send(self, records: Mapping[str, MailRecord]) -> None:
        """Send records, by id, to the recipients that still need them. Raises SendError, RecordRejected."""
        recipients_by_ids: dict[tuple[str, ...], list[str]] = {}
        for recipient in self._form.to:
            unsent_ids = tuple(id_ for id_ in records if id_ not in self._settled_ids.get(recipient, ()))
            if unsent_ids:
                recipients_by_ids.setdefault(unsent_ids, []).append(recipient)
        deferred: dict[str, str] = {}
        for ids, recipients in recipients_by_ids.items():
            try:
                deferred |= self._send_to({id_: records[id_] for id_ in ids}, recipients)
            except RecordRejected as error:
                if len(recipients_by_ids) == 1 or not error.whole:
                    raise
                self._refused({recipient: str(error) for recipient in recipients})
                self._settle(ids, recipients)
        patience_s = _PATIENCE_S if len(records) < WINDOW else _FULL_WINDOW_PATIENCE_S
        for recipient in [recipient for recipient in deferred if self._accepted_ids.issuperset(records)]:
            if time.monotonic() - self._deferred_since_s[recipient] >= patience_s:
                self._count(DEFERRED_TOO_LONG)
                reason = self.redact(deferred.pop(recipient))
                consequence = "the recipient is skipped and counted"
                self._warn(f"{self.where} has deferred a recipient for too long: {reason}; {consequence}")
                self._settle(records, [recipient])
        if deferred:
            raise SendError(next(iter(deferred.values())))

    def _send_to(self, records: Mapping[str, MailRecord], recipients: list[str]) -> dict[str, str]:
        """Send one mail with records to recipients; return the deferred recipients with the reasons."""
        ids = list(records)
        last_number = "" if len(ids) == 1 else f"-{ids[-1].rpartition('-')[2]}"
        deferred, accepted = self._post(f"{ids[0]}{last_number}", list(records.values()), recipients)
        self._settle(ids, [recipient for recipient in recipients if recipient not in deferred])
        if accepted:
            self._accepted_ids.update(ids)
        for recipient in recipients:
            if recipient in deferred:
                self._deferred_since_s.setdefault(recipient, time.monotonic())
            else:
                self._deferred_since_s.pop(recipient, None)
        return deferred

    def _settle(self, ids: Iterable[str], recipients: Sequence[str]) -> None:
        """Mark records as delivered to recipients, or skipped for them."""
        for recipient in recipients:
            self._settled_ids.setdefault(recipient, set()).update(ids)

    def _post(self, id_: str, records: Sequence[MailRecord], recipients: Sequence[str]) -> tuple[dict[str, str], bool]:
        """Send one mail; return the deferred recipients with the reasons, and whether any recipient was accepted.

        Raises:
            SendError: the server defers it; it may be accepted later.
            RecordRejected: it is permanently rejected.
        """
        smtp = self._session()
        now_s = time.time()
        try:
            mail = bytes(self._message(smtp, id_, records, now_s))
        except _UNREADABLE as error:
            raise RecordRejected(_unreadable(error)) from error
        try:
            deferred, accepted = self._transaction(smtp, recipients, mail)
        except RecordRejected:
            with contextlib.suppress(self._lib.SMTPException, OSError):
                smtp.rset()
            raise
        except self._lib.SMTPDataError as error:
            self._drop()
            _check_answer((error.smtp_code, error.smtp_error), "the mail")
            raise
        except (self._lib.SMTPException, OSError) as error:
            self._drop()
            disconnected = isinstance(error, self._lib.SMTPServerDisconnected)
            raise SendError(self._reason(error), disconnected=disconnected) from error
        self._used_s = time.monotonic()
        if accepted:
            self.rate_limit.sent(now_s)
            self._count(SENT)
        return deferred, accepted

    def _message(self, smtp: smtplib.SMTP, id_: str, records: Sequence[MailRecord], now_s: float) -> EmailMessage:
        note = ""
        if self.rate_limit.remaining(now_s) == 1 and self._limit > 1:
            note = (
                f"This is the last of {self._limit} mails within an hour. Further events are counted, and reported in "
                "one mail when the hour is over."
            )
        size = smtp.esmtp_features.get("size", "")
        max_image_bytes = (
            min(MAX_IMAGE_BYTES, int(_MAX_IMAGE_SHARE * int(size))) if size.isdigit() and int(size) else MAX_IMAGE_BYTES
        )
        return self._form.message(id_, records, self.rate_limit.omitted, note, max_image_bytes)

    def _transaction(self, smtp: smtplib.SMTP, recipients: Sequence[str], data: bytes) -> tuple[dict[str, str], bool]:
        """Send MAIL, RCPT for each recipient, and DATA if at least one is accepted. See `_post`."""
        _check_answer(smtp.mail(address_in(self._form.sender)), "the sender")
        deferred: dict[str, str] = {}
        rejected: dict[str, str] = {}
        for recipient in recipients:
            try:
                _check_answer(smtp.rcpt(address_in(recipient)), address_in(recipient))
            except RecordRejected as error:
                rejected[recipient] = str(error)
            except SendError as error:
                deferred[recipient] = str(error)
        if len(rejected) == len(recipients):
            raise RecordRejected(next(iter(rejected.values())), whole=True)
        if accepted := len(rejected) + len(deferred) < len(recipients):
            _check_answer(smtp.data(data), "the mail")
        else:
            smtp.rset()
        self._refused(rejected)
        return deferred, accepted

    def _refused(self, recipients: dict[str, str]) -> None:
        for reason in recipients.values():
            self._count(REFUSED_TO)
            self._warn(f"{self.where} refuses a recipient: {self.redact(reason)}; the recipient is skipped and counted")

    def _session(self) -> smtplib.SMTP:
        """Return the connection; connect, encrypt and log in if needed."""
        smtp: smtplib.SMTP | None = self._connection
        if smtp is not None:
            return smtp
        server = self._server
        self._used_s = time.monotonic()
        try:
            if server.tls:
                context = tls_context(self._tls)
                smtp = self._lib.SMTP_SSL(server.host, server.port, timeout=self.timeout_s, context=context)
            else:
                smtp = self._lib.SMTP(server.host, server.port, timeout=self.timeout_s)
            self._connection = smtp
            smtp.ehlo_or_helo_if_needed()
            if not server.tls and not self._plain:
                if not smtp.has_extn("starttls"):
                    raise SendError(
                        "it offers no encryption (STARTTLS), so that others on the network could read the mails; "
                        "write smtps:// in the url if the server has a port for it"
                    )
                smtp.starttls(context=tls_context(self._tls))
                smtp.ehlo()
            if server.user is not None:
                self._log_in(smtp, server.user, server.password or "")
        except (self._lib.SMTPException, OSError, SendError) as error:
            self._drop()
            if isinstance(error, SendError):
                raise
            raise SendError(self._reason(error)) from error
        return smtp

    def _log_in(self, smtp: smtplib.SMTP, user: str, password: str) -> None:
        """Log in. smtplib supports ASCII only; AUTH PLAIN is in UTF-8 (RFC 4616). Raises SMTPException, SendError."""
        if user.isascii() and password.isascii():
            smtp.login(user, password)
            return
        if "PLAIN" not in smtp.esmtp_features.get("auth", "").upper().split():
            raise SendError(
                "the user or the password has characters beyond ASCII, which need AUTH PLAIN, and the server does not "
                "offer it; set an ASCII password there"
            )
        credentials = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
        code, text = smtp.docmd("AUTH", f"PLAIN {credentials}")
        if code != 235:
            raise self._lib.SMTPAuthenticationError(code, text)

    def _reason(self, error: Exception) -> str:
        """The reason why nothing was sent, without the content of the mail."""
        lib = self._lib
        if isinstance(error, lib.SMTPResponseException):
            answer = f"{error.smtp_code} {_text(error.smtp_error)}"
            refused = isinstance(error, lib.SMTPAuthenticationError)
            return f"the user or the password is refused ({answer})" if refused else answer
        if isinstance(error, lib.SMTPServerDisconnected):
            return f"the connection broke off: {error}"
        return str(error) if isinstance(error, lib.SMTPException) else f"no connection: {error}"

    def _drop(self) -> None:
        """Close the connection without QUIT: the server may be gone."""
        super().close()


def _unreadable(error: Exception) -> str:
    reason = "another stage, or the same stage with another send:, may have put it into this spool"
    return f"it cannot be described in a mail ({describe(error)}); {reason}"


def _check_answer(answer: Any, what: str) -> None:
    """Raise SendError if a server's answer is 4xx, RecordRejected if it is 5xx."""
    code, text = answer
    if not 200 <= code < 300:
        reason = f"{what} is not accepted: {code} {_text(text)}"
        raise RecordRejected(reason, whole=True) if code >= 500 else SendError(reason)


def _text(answer: Any) -> str:
    return " ".join((answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)).split())
