"""Allowed values of the `Host` header, against DNS rebinding: another site may point its name at this machine."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_HEADER = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::[0-9]*)?")


def host_of(header: str) -> str:
    """The host of a `Host` header: lower case, without port, brackets and the trailing dot."""
    text = header.strip().lower()
    found = _HEADER.fullmatch(text)
    return text if found is None else (found[1] or found[2]).removesuffix(".")


def may_ask(header: str, allowed: Collection[str] = ()) -> bool:
    """Whether the server answers a request with this `Host` header: an IP address, localhost or an allowed name.

    Args:
        header: the header's value; empty if it is missing.
        allowed: names in lower case.
    """
    host = host_of(header)
    if host == "localhost" or host in allowed:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
