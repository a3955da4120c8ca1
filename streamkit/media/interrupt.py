"""Interrupts FFmpeg's blocking calls, on request of another thread or at a deadline.

While FFmpeg waits, PyAV checks ten times a second whether a timeout has passed; there is no other way to end a call. So
the clock that PyAV reads is replaced by one that is far in the future for a thread whose wait must end.
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
    """Ends the waits of one thread within `with interrupt:`.

    Attributes:
        deadline_s: monotonic time in seconds at which the wait ends; set by the waiting thread.
        stopped: whether all waits end at once.
    """

    def __init__(self) -> None:
        self.deadline_s = math.inf
        self.stopped = False

    def stop(self) -> None:
        """End the current and every later wait, from any thread. FFmpeg notices within about 0.1 s."""
        self.stopped = True

    def __enter__(self) -> Interrupt:
        _install()
        _watched[get_ident()] = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _watched.pop(get_ident(), None)


class _Clock:
    """Replaces the module `time` for PyAV's containers."""

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
