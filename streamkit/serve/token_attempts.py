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
        self._addresses: dict[str, _Address] = {}

    def judge(self, address: str, token: str, right: Callable[[], bool]) -> bool:
        """Whether the token of an address is right; it is not compared while the address has to wait.

        Args:
            address: the client's address.
            token: the token it sent.
            right: compares the token.

        Raises:
            TooManyGuesses: the address has to wait.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        key = _network(address)
        now_s = self._clock()
        record = self._addresses.get(key)
        if record is None and len(self._addresses) >= _ADDRESSES:
            self._discard_expired(now_s)
            if len(self._addresses) >= _ADDRESSES:
                key = _OTHERS
                record = self._addresses.get(_OTHERS)
        if record is not None:
            if digest in record.wrong:
                return False
            if (allowance := _allowance(record, now_s)) < 1:
                raise TooManyGuesses(math.ceil((1 - allowance) * EVERY_S))
        if right():
            return True
        if record is None:
            record = self._addresses[key] = _Address(FREE, now_s)
        record.allowance = _allowance(record, now_s) - 1
        record.at_s = now_s
        record.wrong.append(digest)
        return False

    def _discard_expired(self, now_s: float) -> None:
        self._addresses = {key: record for key, record in self._addresses.items() if _allowance(record, now_s) < FREE}


class TooManyGuesses(Exception):
    """An address has sent too many wrong tokens.

    Args:
        wait_s: seconds until it may send another one.
    """

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"too many wrong tokens from this address; wait {wait_s} s")
        self.wait_s = wait_s


def _allowance(record: _Address, now_s: float) -> float:
    return min(FREE, record.allowance + (now_s - record.at_s) / EVERY_S)


def _network(address: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address, which one client can use as a whole."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return address
