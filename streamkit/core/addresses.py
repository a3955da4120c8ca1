# SPDX-License-Identifier: Apache-2.0
"""Checks the characters of network addresses, which clients copy into requests as they are."""

from __future__ import annotations

import re

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, further line ends, and surrogates, which cannot be sent."""
_BLANK = re.compile(r"\s")
_ESCAPED_CONTROL = re.compile("%(?:[01][0-9a-f]|7f)", re.IGNORECASE)
ESCAPES = "%2F for /, %40 for @, %3A for :, %23 for #, %3F for ?, %25 for %"
"""How to write the signs that end a user name or password too early."""


def check_characters(address: str, *, blanks: bool = False) -> None:
    """Refuse an address whose characters could end a line of a request, and begin a command of the sender's.

    A client copies the path into its request, and the user name and password into a header, decoded.

    Args:
        address: the address; a path of this machine is not one.
        blanks: whether blanks may stand in it, as in the keys of object stores.

    Raises:
        ValueError: it has such characters. The text, `must have no ...`, contains no part of the address, which may
            hold a password.
    """
    unsafe = UNSAFE.search(address)
    if unsafe is not None:
        code = unsafe[0].encode("unicode_escape").decode()
        raise ValueError(
            f"must have no line ends and control characters, and character {unsafe.start() + 1} is {code}: remove it"
        )
    blank = None if blanks else _BLANK.search(address)
    if blank is not None:
        raise ValueError(
            f"must have no blanks, and character {blank.start() + 1} is a blank: remove it, or write %20 for it"
        )
    login, at, _ = re.split(r"[?#]", address.partition("://")[2], maxsplit=1)[0].rpartition("@")
    escaped = _ESCAPED_CONTROL.search(login) if at else None
    if escaped is not None:
        raise ValueError(
            f"must have no control characters in its user name and password, also not as {escaped[0]}: remove it"
        )
