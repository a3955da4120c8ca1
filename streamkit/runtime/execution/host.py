# SPDX-License-Identifier: Apache-2.0
"""Process-wide settings for a run, applied once before its first frame."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading

from streamkit.core.data import Device
from streamkit.runtime.execution.sizes import cores

_SOURCE_CORES, _FEWEST = 4, 2
_M_ARENA_MAX = -8  # of glibc's malloc.h
_FILE_NICENESS = 10  # nice: a tenth of the CPU time of a thread at 0 on the same core


def configure_process() -> None:
    """Load what sources need before any of them starts, and leave parallel work to the lanes.

    OpenCV splits each call over its own threads, which then wait actively for the next one. Next to lanes that use
    every core, this took 2 to 3 % of the CPU without any benefit (YOLOX-nano, two cores). PyAV takes some 50 ms to
    import: done here, no source waits for it, nor do sources wait for each other.
    """
    import av  # noqa: F401
    import cv2

    cv2.setNumThreads(1)
    share_heaps()


def share_heaps() -> None:
    """Limit glibc to one heap per core; does nothing with other C libraries. Each heap keeps its own free memory.

    glibc makes up to eight heaps per core, and threads that come and go with their sources spread over all of them.
    After 2,000 sources had come and gone, 22 to 25 MiB remained with eight heaps per core, 7 MiB with one (two cores).
    `MALLOC_ARENA_MAX` in the environment overrides the number; see malloc_info(3) and mallopt(3).
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library has other heaps
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, max(2, cores()))


class HeapTrimmer:
    """Returns free memory of glibc's heaps to the system after sources have closed; does nothing elsewhere.

    FFmpeg allocates and frees blocks of many sizes for each connection, on threads that come and go. Free memory in the
    heaps grows by 5 to 8 KiB for each, although none is in use. `malloc_trim` returns it: after 2,000 sources had come
    and gone, 16 MiB remained in place of 20 to 25 (two cores).

    Args:
        every_s: the shortest time between two trims. A trim took 10 ms with 146 MiB resident.
    """

    def __init__(self, every_s: float = 5.0) -> None:
        self._every_s, self._trimmed_s, self._closed = every_s, -every_s, 0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    def count_close(self) -> None:
        """A source has closed a connection or a file. Called on any thread."""
        self._closed += 1  # a lost increment does no harm

    def trim_if_due(self, now_s: float) -> bool:
        """Trim the heaps if something was closed since the last time; return whether that happened."""
        if self._trim is None or not self._closed or now_s - self._trimmed_s < self._every_s:
            return False
        self._closed, self._trimmed_s = 0, now_s
        self._trim(0)
        return True


heap_trimmer = HeapTrimmer()
"""The process has one set of heaps."""


def pin_process(device: Device, number: int, of: int) -> None:
    """Pin this process to its share of the cores if it is one of several that feed GPUs.

    Args:
        device: its device; processes on the CPU are not pinned, as the scheduler does better.
        number: index of the process, from 0.
        of: number of processes.
    """
    if device.kind == "cpu" or not hasattr(os, "sched_setaffinity"):
        return
    allowed = sorted(os.sched_getaffinity(0))
    each = len(allowed) // of
    if each:
        os.sched_setaffinity(0, allowed[number * each : (number + 1) * each])


def lower_priority() -> None:
    """Lower the priority of the calling thread, and of threads that FFmpeg starts from it: for files next to cameras.

    A thread cannot undo this.
    """
    if sys.platform == "linux":  # elsewhere nice applies to the whole process
        thread = os.PRIO_PROCESS, threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(*thread, max(_FILE_NICENESS, os.getpriority(*thread)))


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
