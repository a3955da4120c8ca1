# SPDX-License-Identifier: Apache-2.0
"""Detects stages that hang: a call that takes too long is logged with its Python stack, and counted."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Sequence

from streamkit.runtime.execution.stage_runner import Runner

logger = logging.getLogger(__name__)

HUNG = "stage calls hung"
_DEEP = 12  # innermost calls of a stack that are shown


class Watchdog:
    """Checks the running calls of stages; called periodically from its own thread.

    Args:
        limit_s: maximum duration of one call, in seconds.
        runners: the runners; more may be added.
    """

    def __init__(self, limit_s: float, runners: Sequence[Runner]) -> None:
        self._limit_s = limit_s
        self._runners = runners
        self._hung: dict[int, float] = {}  # by runner, when the call that hangs began

    def check(self) -> None:
        """Log each call once when it exceeds the limit, and once when it returns."""
        now_s = time.monotonic()
        for runner in self._runners:
            call = runner.call
            call_start_s = self._hung.get(id(runner))
            if call_start_s is not None and (call is None or call[0] != call_start_s):
                del self._hung[id(runner)]
                text = f"{runner.node.id}: the call that hung has returned after {now_s - call_start_s:.0f} s"
                logger.warning(text, extra={"stage": runner.node.id})
            if call is not None and now_s - call[0] > self._limit_s and id(runner) not in self._hung:
                self._hung[id(runner)] = call[0]
                runner.counters.add(HUNG)
                logger.warning(
                    f"{runner.node.id} hangs: one call has taken {now_s - call[0]:.0f} s (watchdog: "
                    f"{self._limit_s:g}s)\n{stack(call[1])}",
                    extra={"stage": runner.node.id},
                )


def stack(thread: int | None) -> str:
    """Python stack of a thread, innermost call last, indented; `thread` is its `ident`."""
    frame = None if thread is None else sys._current_frames().get(thread)
    if frame is None:
        return "    (its thread has ended)"
    return "".join(traceback.format_stack(frame)[-_DEEP:]).rstrip()


def stacks(threads: Sequence[threading.Thread]) -> str:
    """Stacks of several threads, each under the thread's name."""
    return "\n".join(f"  {thread.name}:\n{stack(thread.ident)}" for thread in threads)
