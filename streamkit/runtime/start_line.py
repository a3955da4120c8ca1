"""Holds paced sources at their first frame until all that begin together have one.

A paced source's clock starts with its first frame. Opening a hundred decoders takes seconds, in which the first sources
would run late, catch up in bursts, and lose frames. Then they start one after the other: what stages do once for
each source, such as opening its output file, would hold up the frames of all if they came at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_PATIENCE_S = 1.0
_OF_A_SOURCE_S = 0.1  # a decoder takes 60 to 70 ms to its first frame, and decoders are made one after the other
_APART_S = 0.01
_LOOK_S = 0.05


class StartLine:
    """Sources that begin together.

    Args:
        sources: how many. Each calls `arrive` once, when it has its first frame or will never have one.
        patience_s: how long the first may have to wait for the last; by default by their number.
    """

    def __init__(self, sources: int, patience_s: float | None = None) -> None:
        self._left = sources
        self._patience_s = _PATIENCE_S + sources * _OF_A_SOURCE_S if patience_s is None else patience_s
        self._until_s = time.monotonic() + self._patience_s
        self._changed = threading.Condition()

    def arrive(self) -> None:
        """Count one source."""
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def wait(self, number: int, over: Callable[[], bool]) -> float:
        """Wait for the others, then for this source's turn; return the seconds waited.

        Args:
            number: the source's place among those that begin together, from 0.
            over: asked now and then; ends the wait where it returns True.
        """
        begun_s = time.monotonic()
        with self._changed:
            while self._left > 0 and not over() and (left_s := self._until_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, _LOOK_S))
            turn_s = time.monotonic() + number * _APART_S
            while not over() and (left_s := turn_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, _LOOK_S))
        return time.monotonic() - begun_s
