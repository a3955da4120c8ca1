"""The hosts that the server answers for. A page elsewhere could point its own name at this machine (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_HEADER = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::[0-9]*)?")


def host_of(header: str) -> str:
    """The host of a `Host` header: lower case, without port, brackets and the root's dot."""
    text = header.strip().lower()
    found = _HEADER.fullmatch(text)
    return text if found is None else (found[1] or found[2]).removesuffix(".")


def may_ask(header: str, allowed: Collection[str] = ()) -> bool:
    """Whether a request with this `Host` header is answered: an IP address, localhost or a name that is allowed.

    Args:
        header: the header; empty where there is none.
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
