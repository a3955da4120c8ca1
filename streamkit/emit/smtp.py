"""SMTP login and interpretation of server answers, where smtplib does not handle them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from streamkit.emit.client import Lost, RecordRejected

if TYPE_CHECKING:
    import smtplib


def log_in(smtp: smtplib.SMTP, user: str, password: str) -> None:
    """Log in. smtplib supports ASCII only; AUTH PLAIN is in UTF-8 (RFC 4616).

    Raises:
        SMTPException: the server rejects the login.
        Lost: the server offers no way to send a user or password with non-ASCII characters.
    """
    if user.isascii() and password.isascii():
        smtp.login(user, password)
        return
    if "PLAIN" not in smtp.esmtp_features.get("auth", "").upper().split():
        raise Lost(
            "the user or the password has letters beyond ASCII, which only AUTH PLAIN can tell, and the server does "
            "not offer that; set a password of ASCII letters there"
        )
    import smtplib

    given = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
    code, text = smtp.docmd("AUTH", f"PLAIN {given}")
    if code != 235:
        raise smtplib.SMTPAuthenticationError(code, text)


def look(answer: Any, what: str) -> None:
    """Check a server's answer.

    Raises:
        Lost: the answer is 4xx.
        RecordRejected: the answer is 5xx.
    """
    code, text = answer
    if 200 <= code < 300:
        return
    said = f"{what} is not taken: {code} {_text(text)}"
    raise RecordRejected(said, whole=True) if code >= 500 else Lost(said)


def reason(error: Exception) -> str:
    """The reason why nothing was sent, without the content of the mail."""
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
