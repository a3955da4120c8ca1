# SPDX-License-Identifier: Apache-2.0
"""Addresses with hidden parts: a form shows `rtsp://ann:***@host/path`, and the user changes the path."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from streamkit.core.masking import mask
from streamkit.serve.api_models import RequestRejected

HIDDEN = "***"

_NAMED = re.compile(r"(^|[/?&;#])([^/?&;#=]*)=([^/?&;#]*)")


def with_kept_secrets(given: str, stored: str) -> str:
    """An address with each `***` replaced by what it hides in the stored one.

    The scheme, the host and the port must be the same: otherwise a password could be sent to any host.

    Args:
        given: the new address.
        stored: the present one, with its secrets; empty for a new source.

    Raises:
        RequestRejected: a hidden part is not known.
    """
    if HIDDEN not in given:
        return given
    if given == mask(stored):
        return stored
    try:
        made = _filled(given, stored)
    except ValueError:  # one of them is no address
        made = given
    if HIDDEN in made:
        raise RequestRejected(
            422,
            f"{HIDDEN} stands for a hidden part of the address, which is kept for the same scheme, host, port and user "
            "only: write the password",
        )
    return made


def _filled(given: str, stored: str) -> str:
    new, old = urlsplit(given), urlsplit(stored)
    known, _, host = new.netloc.rpartition("@")
    known_before, _, host_before = old.netloc.rpartition("@")
    if (new.scheme, host) != (old.scheme, host_before):
        return given
    user, _, password = known.partition(":")
    user_before, _, password_before = known_before.partition(":")
    if password == HIDDEN and user == user_before and password_before:
        known = known_before
    rest = given.partition("://")[2][len(new.netloc) :]
    rest_before = stored.partition("://")[2][len(old.netloc) :]
    values = {(sign, name): value for sign, name, value in _NAMED.findall(rest_before)}

    def filled(found: re.Match[str]) -> str:
        value = values.get((found[1], found[2]), HIDDEN) if found[3] == HIDDEN else found[3]
        return f"{found[1]}{found[2]}={value}"

    return f"{new.scheme}://{known}{'@' if known else ''}{host}{_NAMED.sub(filled, rest)}"
