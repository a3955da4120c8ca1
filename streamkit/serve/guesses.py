# SPDX-License-Identifier: Apache-2.0
"""Rate limit for wrong tokens: an address that has sent some must wait before it may try another."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

FREE = 10
"""Number of different wrong tokens that an address may send before it must wait."""

EVERY_S = 6.0
"""Seconds to wait for each further wrong token."""

_ADDRESSES = 4096
_OTHERS = "others"


@dataclass(slots=True)
class _Address:
    allowance: float
    at_s: float
    wrong: deque[bytes] = field(default_factory=lambda: deque(maxlen=FREE))


class Guesses:
    """Counts wrong tokens by address. Not thread-safe.

    A wrong token that an address repeats, such as an old cookie, does not count: it gives no information.

    Args:
        clock: returns the monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Address] = {}

    def judge(self, address: str, given: str, right: Callable[[], bool]) -> bool:
        """Whether the token of an address is right; it is not compared while the address has to wait.

        Args:
            address: the client's address.
            given: the token it sent.
            right: compares the token.

        Raises:
            TooManyGuesses: the address has to wait.
        """
        digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
        key, now_s = _network(address), self._clock()
        known = self._known.get(key)
        if known is None and len(self._known) >= _ADDRESSES:
            self._discard_expired(now_s)
            if len(self._known) >= _ADDRESSES:
                key, known = _OTHERS, self._known.get(_OTHERS)
        if known is not None:
            if digest in known.wrong:
                return False
            if (allowance := _allowance(known, now_s)) < 1:
                raise TooManyGuesses(math.ceil((1 - allowance) * EVERY_S))
        if right():
            return True
        if known is None:
            known = self._known[key] = _Address(FREE, now_s)
        known.allowance, known.at_s = _allowance(known, now_s) - 1, now_s
        known.wrong.append(digest)
        return False

    def _discard_expired(self, now_s: float) -> None:
        self._known = {key: one for key, one in self._known.items() if _allowance(one, now_s) < FREE}


class TooManyGuesses(Exception):
    """An address has sent too many wrong tokens.

    Args:
        wait_s: seconds until it may send another one.
    """

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"too many wrong tokens from this address; wait {wait_s} s")
        self.wait_s = wait_s


def _allowance(one: _Address, now_s: float) -> float:
    return min(FREE, one.allowance + (now_s - one.at_s) / EVERY_S)


def _network(address: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address, which one client can use as a whole."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return address
