# SPDX-License-Identifier: Apache-2.0
"""Addresses with hidden parts: a form shows `rtsp://ann:***@host/path`, and the user changes the path."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from streamkit.core.masking import mask
from streamkit.serve.api_models import RequestRejected

HIDDEN = "***"

_PART = re.compile(r"[/?&;#][^/?&;#]*")


def with_hidden_parts(address: str, stored: str) -> str:
    """An address with each `***` replaced by what it hides in the stored one.

    The scheme, the host and the port must be the same: otherwise a password could be sent to any host.

    Args:
        address: the new address.
        stored: the present one, with its secrets; empty for a new source.

    Raises:
        RequestRejected: a hidden part is not known.
    """
    if HIDDEN not in address:
        return address
    if address == mask(stored):
        return stored
    try:
        filled = _filled(address, stored)
    except ValueError:  # one of them is no address
        filled = address
    if HIDDEN in filled:
        raise RequestRejected(
            422,
            f"{HIDDEN} stands for a hidden part of the address, which is kept for the same scheme, host, port and user "
            "only: write the password",
        )
    return filled


def _filled(address: str, stored: str) -> str:
    new = urlsplit(address)
    old = urlsplit(stored)
    login, at, host = new.netloc.rpartition("@")
    stored_login, _, stored_host = old.netloc.rpartition("@")
    if (new.scheme, host) != (old.scheme, stored_host):
        return address
    if mask(f"{old.scheme}://{old.netloc}") == f"{new.scheme}://{new.netloc}":
        login = stored_login
    rest = address.partition("://")[2][len(new.netloc) :]
    stored_parts = _PART.findall(stored.partition("://")[2][len(old.netloc) :])
    masked_parts = _PART.findall(mask(stored).partition("://")[2].partition(host)[2])
    hidden: dict[tuple[bool, str], list[str]] = {}
    for masked, part in zip(masked_parts, stored_parts, strict=False):
        hidden.setdefault((masked[0] == "/", masked[1:]), []).append(part[1:])

    def fill(part: re.Match[str]) -> str:
        sign = part[0][0]
        text = part[0][1:]
        secrets = hidden.get((sign == "/", text)) if HIDDEN in text else None
        return sign + (secrets.pop(0) if secrets else text)

    return f"{new.scheme}://{login}{at}{host}{_PART.sub(fill, rest)}"
