"""Load of the machine's cores, by all processes."""

from __future__ import annotations

import os
from pathlib import Path


def core_times() -> tuple[float, float] | None:
    """Busy seconds and total seconds of this process's cores, since the machine started.

    Work of other processes and of other guests on the host is included. None if the system does not report it.
    """
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        mine, tick = os.sched_getaffinity(0), os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return None
    busy = whole = 0
    for line in lines:
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in mine:
            times = [int(one) for one in fields[:8]]  # user nice system idle iowait irq softirq steal
            whole += sum(times)
            busy += sum(times) - times[3] - times[4]
    return (busy / tick, whole / tick) if whole else None
