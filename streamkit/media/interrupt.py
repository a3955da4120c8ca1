"""Ends FFmpeg's blocking calls: when another thread asks for it, and when nothing of use has come for too long.

PyAV has FFmpeg ask, ten times a second while it waits, whether a timeout is over, and has no other way to end a call.
So the clock that PyAV looks at is replaced by one that is far in the future for a thread whose wait is to end.
"""

from __future__ import annotations

import itertools
import math
import time
from _thread import get_ident
from types import TracebackType

_future = itertools.count(10**12, 10**9)  # every call of a wait that is over finds the next timeout over as well
_watched: dict[int, Interrupt] = {}


class Interrupt:
    """The waits of one thread: those within `with interrupt:`.

    Attributes:
        deadline_s: when they are over, on the monotonic clock in seconds; for the waiting thread to set.
        stopped: whether they are over for good.
    """

    def __init__(self) -> None:
        self.deadline_s = math.inf
        self.stopped = False

    def stop(self) -> None:
        """End the wait, and every later one; any thread may call it. FFmpeg notices within about 0.1 s."""
        self.stopped = True

    def __enter__(self) -> Interrupt:
        _install()
        _watched[get_ident()] = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _watched.pop(get_ident(), None)


class _Clock:
    """The module `time`, as far as PyAV's containers use it."""

    @staticmethod
    def monotonic() -> float:
        now = time.monotonic()
        watched = _watched.get(get_ident())
        if watched is not None and (watched.stopped or now > watched.deadline_s):
            return float(next(_future))
        return now


def _install() -> None:
    from av.container import core

    if getattr(core, "time", None) is time:  # otherwise waits end by PyAV's own timeouts alone
        setattr(core, "time", _Clock)  # noqa: B010
