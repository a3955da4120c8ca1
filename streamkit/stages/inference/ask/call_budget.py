# SPDX-License-Identifier: Apache-2.0
"""The budget of calls, which the processes of a run share through a file."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from streamkit.core.logs import LogOnce
from streamkit.core.units import Rate

logger = logging.getLogger(__name__)


class CallBudget:
    """At most so many calls in any period, over all processes and threads that use the same file.

    The file keeps the times of the calls, so that a restart does not renew the budget. While it cannot be written, each
    process counts on by itself, and a warning is logged.

    Args:
        rate: the budget; None for no limit, without a file.
        path: the file; its folder is created if needed.
    """

    def __init__(self, rate: Rate | None, path: Path) -> None:
        self._rate = rate
        self._path = path
        self._warn = LogOnce(logger.warning)
        self._times: list[float] = []  # the last known ones, for when the file cannot be used

    def take(self) -> bool:
        """Count a call, if the budget has room for one."""
        if self._rate is None:
            return True
        try:
            allowed, self._times = self._take_from_file(self._rate)
        except OSError as error:
            self._warn(f"{self._path}: {error.strerror or error}; the budget of calls holds for this process only")
            allowed, self._times = _counted(self._times, self._rate)
        return allowed

    def _take_from_file(self, rate: Rate) -> tuple[bool, list[float]]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "r+", encoding="utf-8", opener=_create) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # of this handle: other threads wait as well
            times: list[float] = []
            with suppress(ValueError, TypeError):  # an empty file, or a torn one
                times = sorted(map(float, json.JSONDecoder().raw_decode(file.read())[0]))
            allowed, times = _counted(times, rate)
            # overwritten before it is cut off: a killed process leaves the times, and maybe text after them
            if allowed:
                file.seek(0)
                file.write(json.dumps(times))
                file.truncate()
        return allowed, times


def _create(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o666)


def _counted(times: list[float], rate: Rate) -> tuple[bool, list[float]]:
    """Whether there is room for a call now, and the times of the calls with it, in seconds since 1970."""
    now_s = time.time()
    # none in the future: the clock was set back
    times = [time_s for time_s in times if now_s - rate.period_s < time_s <= now_s]
    if len(times) >= rate.count:
        return False, times
    return True, [*times, now_s]
