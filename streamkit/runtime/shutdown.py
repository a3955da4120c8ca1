# SPDX-License-Identifier: Apache-2.0
"""Shutdown: wait for threads, with a deadline once the run has been stopped.

SIGTERM is followed by SIGKILL some seconds later. Decoded frames have `DRAIN_S` to drain; the rest is dropped, so that
every output can be closed. A thread that still hangs in a call after `GRACE_S` is abandoned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

DRAIN_S = 4.0
GRACE_S = 5.0
_CLOSE_S = 10.0  # for a file that is being closed, which may take its time
_POLL_S = 0.2  # awake often enough that signals are handled


def wait(
    threads: Sequence[threading.Thread],
    stopped_at_s: Callable[[], float | None],
    drop: Callable[[], None] = lambda: None,
    hangs: Callable[[threading.Thread], bool] = lambda thread: True,
) -> list[threading.Thread]:
    """Wait for threads; return those that were abandoned.

    Args:
        threads: the threads to wait for.
        stopped_at_s: returns the monotonic time in seconds at which the run was stopped; None while it has not been.
        drop: called once when the drain time is over.
        hangs: whether a thread is in a call that may never return; other threads are closing their outputs.
    """
    dropped = False
    while alive := [thread for thread in threads if thread.is_alive()]:
        alive[0].join(_POLL_S)
        stop_s = stopped_at_s()
        if stop_s is None or not alive[0].is_alive():
            continue
        since_s = time.monotonic() - stop_s
        if since_s > DRAIN_S and not dropped:
            dropped = True
            drop()
        left = [thread for thread in alive if thread.is_alive()]
        if since_s > GRACE_S and (since_s > GRACE_S + _CLOSE_S or all(hangs(thread) for thread in left)):
            return left
    return []
