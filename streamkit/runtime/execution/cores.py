# SPDX-License-Identifier: Apache-2.0
"""The CPU cores of this process, and which of its threads run on which of them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType

from streamkit.core.data import Device

_SOURCE_CORES = 4
_FEWEST = 2
_leaving = threading.RLock()
_cores_before: list[tuple[int, ...]] = []  # the cores of this process before each `ParentCores` in force
_before: dict[int, set[int]] = {}  # the cores of each thread before the first of these


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(process_cores()) or os.cpu_count() or 1


def process_cores() -> tuple[int, ...]:
    """The cores that this process may use, also while its own threads leave some to worker processes.

    Empty where the system cannot tell.
    """
    if not hasattr(os, "sched_getaffinity"):
        return ()
    with _leaving:  # those of the main thread: this thread may be pinned
        return _cores_before[0] if _cores_before else tuple(sorted(os.sched_getaffinity(os.getpid())))


def pin_process(device: Device, number: int, of: int, allowed: Sequence[int] = ()) -> None:
    """Pin this process, threads that run included, to its share of the cores if it is one of several that feed GPUs.

    A thread that gets the GIL wakes faster on a core that was busy just before: four processes with 230 cameras on 16
    cores dropped none with three cores each, and 26 % when each could use all; see docs/figures/gpu.md.

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
        _pin_all_threads(allowed[number * each : (number + 1) * each])


class ParentCores:
    """Keeps the threads of this process off the cores of its busy worker processes while the block runs.

    A worker whose thread holds the GIL stands still while a thread of its parent has that core. With `serve` and 230
    cameras the p95 was 408 ms without this, and 164 ms with it.

    Args:
        of: number of processes among which `pin_process` divides the cores; 0 if they are not pinned.
    """

    def __init__(self, of: int) -> None:
        self._of = of if hasattr(os, "sched_setaffinity") else 0
        self._parts: frozenset[int] = frozenset()

    def leave(self, parts: Set[int]) -> None:
        """Leave the cores of these processes, by their numbers, and only these; none if fewer than two remained."""
        if parts == self._parts or not self._of:
            return
        self._parts = frozenset(parts)
        with _leaving:
            all_cores = process_cores()
            each = len(all_cores) // self._of
            remaining = [core for place, core in enumerate(all_cores) if each and place // each not in parts]
            _pin_all_threads(remaining if len(remaining) >= _FEWEST else all_cores)

    def __enter__(self) -> ParentCores:
        if self._of:
            with _leaving:
                if not _cores_before:
                    _before.update(_threads())
                _cores_before.append(process_cores())
        return self

    def __exit__(self, *_: object) -> None:
        if not self._of:
            return
        with _leaving:
            cores = _cores_before[0]
            if len(_cores_before) == 1:
                _pin_all_threads(cores, _before)
                _before.clear()
            _cores_before.pop()


def _threads() -> dict[int, set[int]]:
    """The threads of this process, each with its cores."""
    threads = {}
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(OSError):  # it has ended
            threads[thread] = os.sched_getaffinity(thread)
    return threads


def _pin_all_threads(cores: Sequence[int], by_thread: Mapping[int, Set[int]] = MappingProxyType({})) -> None:
    """Pin the threads of this process, to cores of their own where these are given; later threads inherit it."""
    done: set[int] = set()
    while threads := _threads().keys() - done:  # some may have started meanwhile
        for thread in sorted(threads):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, by_thread.get(thread, cores))
        done |= threads


def pin_to_shared_cores(device: Device) -> None:
    """Pin the calling thread to the few cores shared by all threads that feed a GPU: four, at most a quarter of all.

    Such a thread mostly waits for NVDEC and for the GIL, and waking up is much faster on a core that is not idle: 14
    videos of 1080p HEVC went from 6,600 to 7,900 frames per second (H200, 16 cores). `STREAMKIT_SOURCE_CORES` sets the
    number of cores; 0 leaves the choice to the system.
    """
    if device.kind == "cpu" or not hasattr(os, "sched_setaffinity"):
        return
    allowed = process_cores()
    setting = os.environ.get("STREAMKIT_SOURCE_CORES")
    count = int(setting) if setting else min(_SOURCE_CORES, len(allowed) // 4)
    # decoding on the CPU and encoding need cores too
    if count < (1 if setting else _FEWEST) or len(allowed) < 4 * count:
        return
    first = count * device.index % len(allowed)
    os.sched_setaffinity(0, (allowed + allowed)[first : first + count])
