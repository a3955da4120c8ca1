# SPDX-License-Identifier: Apache-2.0
"""The CPU cores of this process, and which of its threads run on which of them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence

from streamkit.core.data import Device

_SOURCE_CORES, _FEWEST = 4, 2


_given: list[tuple[int, ...]] = []  # the cores before each `leave_cores` that is in force
_leaving = threading.Lock()


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(process_cores()) or os.cpu_count() or 1


def process_cores() -> tuple[int, ...]:
    """The cores that this process may use, also while its own threads leave some to worker processes.

    Empty where the system cannot tell.
    """
    if _given:
        return _given[0]
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def pin_process(device: Device, number: int, of: int, allowed: Sequence[int] = ()) -> None:
    """Pin this process to its share of the cores if it is one of several that feed GPUs.

    A thread that gets the GIL wakes faster on a core that was busy just before: four processes with 230 cameras on 16
    cores dropped none with three cores each, 9 % when each could use all, and 0.05 % with two each.

    Args:
        device: its device; processes on the CPU are not pinned, as the scheduler does better.
        number: index of the process, from 0.
        of: number of processes.
        allowed: the cores that they share; by default, those that this process may use.
    """
    if device.kind == "cpu" or not hasattr(os, "sched_setaffinity"):
        return
    allowed = allowed or process_cores()
    each = len(allowed) // of
    if each:
        os.sched_setaffinity(0, allowed[number * each : (number + 1) * each])


@contextlib.contextmanager
def leave_cores(busy: int, of: int) -> Iterator[None]:
    """Keep the threads of this process off the cores of its busy worker processes; see `pin_process`.

    A worker whose thread holds the GIL stands still while a thread of its parent has that core. With `serve` and 230
    cameras the p95 was 408 ms without this, and 164 ms with it. Does nothing if it would leave fewer than two cores.

    Args:
        busy: number of worker processes, from the first, that have sources.
        of: number of processes among which the cores are divided.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    with _leaving:
        given = process_cores()
        own = given[len(given) // of * busy :]
        leaves = len(given) >= of and len(own) >= _FEWEST
        if leaves:
            _given.append(given)
            _pin_all_threads(own)
    try:
        yield
    finally:
        if leaves:
            with _leaving:
                _given.pop()
                if not _given:
                    _pin_all_threads(given)


def _pin_all_threads(cores: Sequence[int]) -> None:
    """Pin the threads that this process has; those that they start later inherit it."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has just ended
            os.sched_setaffinity(int(thread), cores)


def pin_to_shared_cores(device: Device) -> None:
    """Pin the calling thread to the few cores shared by all threads that feed a GPU: four, at most a quarter of all.

    Such a thread mostly waits for NVDEC and for the GIL, and waking up is much faster on a core that is not idle: 14
    videos of 1080p HEVC went from 6,600 to 7,900 frames per second (H200, 16 cores). `STREAMKIT_SOURCE_CORES` sets the
    number of cores; 0 leaves the choice to the system.
    """
    if device.kind == "cpu" or not hasattr(os, "sched_setaffinity"):
        return
    allowed = sorted(os.sched_getaffinity(os.getpid()))  # those of the main thread: this thread may be pinned already
    asked = os.environ.get("STREAMKIT_SOURCE_CORES")
    count = int(asked) if asked else min(_SOURCE_CORES, len(allowed) // 4)
    if count < (1 if asked else _FEWEST) or len(allowed) < 4 * count:  # decoding on the CPU and encoding need them too
        return
    first = count * device.index % len(allowed)
    os.sched_setaffinity(0, (allowed + allowed)[first : first + count])
