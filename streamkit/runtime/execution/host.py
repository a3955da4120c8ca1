# SPDX-License-Identifier: Apache-2.0
"""Process-wide settings for a run, applied once before its first frame."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading

from streamkit.runtime.execution.cores import cores

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
        self._every_s = every_s
        self._trimmed_s = -every_s
        self._closed = 0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    def count_close(self) -> None:
        """A source has closed a connection or a file. Called on any thread."""
        self._closed += 1  # a lost increment does no harm

    def trim_if_due(self, now_s: float) -> bool:
        """Trim the heaps if something was closed since the last time; return whether that happened."""
        if self._trim is None or not self._closed or now_s - self._trimmed_s < self._every_s:
            return False
        self._closed = 0
        self._trimmed_s = now_s
        self._trim(0)
        return True


heap_trimmer = HeapTrimmer()
"""The process has one set of heaps."""


def lower_priority() -> None:
    """Lower the priority of the calling thread, and of threads that FFmpeg starts from it: for files next to cameras.

    A thread cannot undo this.
    """
    if sys.platform == "linux":  # elsewhere nice applies to the whole process
        thread = os.PRIO_PROCESS, threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(*thread, max(_FILE_NICENESS, os.getpriority(*thread)))
