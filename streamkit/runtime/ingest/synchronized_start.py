"""Holds paced sources at their first frame until all sources that start together have one.

The clock of a paced source starts with its first frame. Opening a hundred decoders takes seconds; without a barrier the
first sources would run late, catch up in bursts, and lose frames. The sources then start in turn: work that stages do
once for each source, such as opening its output file, would delay all frames if every source started at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_PATIENCE_S = 1.0
_OF_A_SOURCE_S = 0.1  # a decoder takes 60 to 70 ms to its first frame, and decoders are made one after the other
_APART_S = 0.01
_LOOK_S = 0.05


class SynchronizedStart:
    """Start barrier for sources that begin together.

    Args:
        sources: number of sources. Each calls `arrive` once: when it has its first frame, or will never have one.
        patience_s: how long the first source waits for the last, in seconds; by default, it grows with their number.
    """

    def __init__(self, sources: int, patience_s: float | None = None) -> None:
        self._left = sources
        self._patience_s = _PATIENCE_S + sources * _OF_A_SOURCE_S if patience_s is None else patience_s
        self._until_s = time.monotonic() + self._patience_s
        self._changed = threading.Condition()

    def arrive(self) -> None:
        """Count one source as ready."""
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def wait(self, number: int, over: Callable[[], bool]) -> float:
        """Wait for the other sources, then for this source's turn; return the seconds waited.

        Args:
            number: the source's index among those that start together.
            over: polled during the wait; True ends it.
        """
        begun_s = time.monotonic()
        with self._changed:
            while self._left > 0 and not over() and (left_s := self._until_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, _LOOK_S))
            turn_s = time.monotonic() + number * _APART_S
            while not over() and (left_s := turn_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, _LOOK_S))
        return time.monotonic() - begun_s
