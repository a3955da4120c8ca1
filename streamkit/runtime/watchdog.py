"""Finds a stage that hangs: one that has been in one call for too long is told with its Python stack, and counted."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence

from streamkit.runtime.nodes import Runner

HUNG = "stage calls that hung"
_DEEP = 12  # calls of a stack that are shown, the innermost


class Watchdog:
    """Looks at the stages now and then, from a thread of its own.

    Args:
        limit_s: how long one call may take.
        runners: gives the runners there are.
        say: takes messages for the user.
    """

    def __init__(self, limit_s: float, runners: Callable[[], Sequence[Runner]], say: Callable[[str], None]) -> None:
        self._limit_s, self._runners, self._say = limit_s, runners, say
        self._told: dict[int, float] = {}

    def look(self) -> None:
        """Tell of each call once when it is over the limit, and once more when it has come back."""
        now_s = time.monotonic()
        for runner in self._runners():
            call, begun_s = runner.call, self._told.get(id(runner))
            if begun_s is not None and (call is None or call[0] != begun_s):
                del self._told[id(runner)]
                self._say(f"{runner.node.id}: the call that hung has come back, {now_s - begun_s:.0f} s after it began")
            if call is not None and now_s - call[0] > self._limit_s and id(runner) not in self._told:
                self._told[id(runner)] = call[0]
                runner.counters.add(HUNG)
                self._say(
                    f"{runner.node.id} hangs: it has been in one call for {now_s - call[0]:.0f} s (watchdog: "
                    f"{self._limit_s:g}s)\n{stack(call[1])}"
                )


def stack(thread: int | None) -> str:
    """Where a thread is in Python now, the innermost call last, indented; `thread` is its `ident`."""
    frame = None if thread is None else sys._current_frames().get(thread)
    if frame is None:
        return "    (its thread has ended)"
    return "".join(traceback.format_stack(frame)[-_DEEP:]).rstrip()


def stacks(threads: Sequence[threading.Thread]) -> str:
    """The stacks of several threads, each under its name."""
    return "\n".join(f"  {thread.name}:\n{stack(thread.ident)}" for thread in threads)
