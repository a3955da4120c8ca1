# SPDX-License-Identifier: Apache-2.0
"""Rate limit for wrong tokens: an address that has sent some must wait before it may try another."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
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
        digest = _digest(token)
        key = self._key(address)
        now_s = self._clock()
        record = self._addresses.get(key)
        if record is not None and digest in record.wrong:
            return False
        self._check_allowance(key, now_s)
        if right():
            return True
        self._charge(key, now_s)
        self._addresses[key].wrong.append(digest)
        return False

    async def judge_slowly(self, address: str, right: Callable[[], Awaitable[bool]]) -> bool:
        """Whether the password of an address is right; raises TooManyGuesses as `judge` does.

        An attempt counts as wrong while it is compared: otherwise an address could try many at once before the first
        of them counts. A wrong password that is repeated counts again: people choose passwords, so it may be right now.
        """
        key = self._key(address)
        now_s = self._clock()
        self._check_allowance(key, now_s)
        self._charge(key, now_s)
        if not await right():
            return False
        record = self._addresses.get(key)
        if record is not None:
            record.allowance = min(FREE, record.allowance + 1)
        return True

    def _key(self, address: str) -> str:
        key = _network(address)
        if key not in self._addresses and len(self._addresses) >= _ADDRESSES:
            self._discard_expired(self._clock())
            if len(self._addresses) >= _ADDRESSES:
                return _OTHERS
        return key

    def _check_allowance(self, key: str, now_s: float) -> None:
        record = self._addresses.get(key)
        if record is not None and (allowance := _allowance(record, now_s)) < 1:
            raise TooManyGuesses(math.ceil((1 - allowance) * EVERY_S))

    def _charge(self, key: str, now_s: float) -> None:
        record = self._addresses.setdefault(key, _Address(FREE, now_s))
        record.allowance = _allowance(record, now_s) - 1
        record.at_s = now_s

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


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


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
