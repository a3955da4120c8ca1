"""What mail servers are told and what they answer, as far as smtplib leaves it open."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from streamkit.emit.client import Lost, Refused

if TYPE_CHECKING:
    import smtplib


def log_in(smtp: smtplib.SMTP, user: str, password: str) -> None:
    """Log in. smtplib's own way knows ASCII only; AUTH PLAIN is in UTF-8 (RFC 4616).

    Raises:
        SMTPException: the server does not let us in.
        Lost: it cannot be told this user or password.
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
    """Look at a server's answer.

    Raises:
        Lost: it is 4xx.
        Refused: it is 5xx.
    """
    code, text = answer
    if 200 <= code < 300:
        return
    said = f"{what} is not taken: {code} {_text(text)}"
    raise Refused(said, whole=True) if code >= 500 else Lost(said)


def reason(error: Exception) -> str:
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
