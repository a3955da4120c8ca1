"""The end of a run: its threads are waited for, and once it is stopped only for so long.

SIGTERM is followed by SIGKILL some seconds later. What is decoded has `DRAIN_S` to go through; then what is left is
dropped, which lets every output be closed; and what still hangs in a call at `GRACE_S` is left behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

DRAIN_S, GRACE_S = 4.0, 5.0
_CLOSE_S = 10.0  # for a file that is being closed, which may take its time
_LOOK_S = 0.2  # awake often enough that signals are handled


def wait(
    threads: Sequence[threading.Thread],
    stopped_s: Callable[[], float | None],
    drop: Callable[[], None] = lambda: None,
    hangs: Callable[[threading.Thread], bool] = lambda thread: True,
) -> list[threading.Thread]:
    """Wait for threads; return those that were left behind.

    Args:
        threads: what to wait for.
        stopped_s: for how long the run has been stopped, in seconds; None while it is not.
        drop: called once when what is under way has had its time.
        hangs: whether a thread is in a call of which nobody knows when it ends; others are closing their outputs.
    """
    dropped = False
    while alive := [thread for thread in threads if thread.is_alive()]:
        alive[0].join(_LOOK_S)
        since_s = stopped_s()
        if since_s is None or not alive[0].is_alive():
            continue
        if since_s > DRAIN_S and not dropped:
            dropped = True
            drop()
        left = [thread for thread in alive if thread.is_alive()]
        if since_s > GRACE_S and (since_s > GRACE_S + _CLOSE_S or all(hangs(thread) for thread in left)):
            return left
    return []


class Stopwatch:
    """Says for how long something has been so."""

    def __init__(self) -> None:
        self._begun_s: float | None = None

    def start(self) -> None:
        """It is so from now on; a second call changes nothing."""
        if self._begun_s is None:
            self._begun_s = time.monotonic()

    def __call__(self) -> float | None:
        """Seconds since `start`, or None before it."""
        return None if self._begun_s is None else time.monotonic() - self._begun_s
