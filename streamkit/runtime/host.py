"""Settings of the whole process that a run needs, made once before its first frame."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading

from streamkit.data import Device
from streamkit.runtime.sizes import cores

_SOURCE_CORES = 4
_M_ARENA_MAX = -8  # of glibc's malloc.h
_BEHIND_CAMERAS = 10  # nice: a tenth of the time of a thread at 0, where both want the same core


def settle() -> None:
    """Load what sources need before any of them starts, and leave parallel work to the lanes.

    OpenCV splits each call over threads of its own, which then wait actively for the next one: beside lanes that use
    every core this took 2 to 3 % of the CPU and gave nothing back (YOLOX-nano, two cores). PyAV takes some 50 ms to
    import: done here, no source waits for it, nor do sources wait for each other.
    """
    import av  # noqa: F401
    import cv2

    cv2.setNumThreads(1)
    share_heaps()


def share_heaps() -> None:
    """Have threads share heaps, one a core, where the C library is glibc: each keeps free memory of its own.

    glibc makes up to eight heaps a core, and threads that come and go with their sources spread over all of them. 2,000
    sources that came and went left 22 to 25 MiB behind with eight a core, 7 with one (two cores). `MALLOC_ARENA_MAX`
    in the environment says how many; malloc_info(3) and mallopt(3) tell more.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library has heaps of its own kind
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, max(2, cores()))


def confine(device: Device, number: int, of: int) -> None:
    """Keep this process on its own share of the cores, where it is one of several that feed GPUs.

    Args:
        device: its device; on the CPU the system does better.
        number: which of the processes it is, from 0.
        of: how many there are.
    """
    if device.kind == "cpu" or not hasattr(os, "sched_setaffinity"):
        return
    allowed = sorted(os.sched_getaffinity(0))
    each = len(allowed) // of
    if each:
        os.sched_setaffinity(0, allowed[number * each : (number + 1) * each])


def give_way() -> None:
    """Let the calling thread, and those that FFmpeg starts from it, use the cores that others leave: for files beside
    cameras. A thread cannot take this back.
    """
    if sys.platform == "linux":  # elsewhere nice is of the whole process
        thread = os.PRIO_PROCESS, threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(*thread, max(_BEHIND_CAMERAS, os.getpriority(*thread)))


def share_cores(device: Device) -> None:
    """Keep the calling thread on the few cores that all threads share that feed a GPU: four, a quarter of all at most.

    Such a thread mostly waits, for NVDEC and for the interpreter's lock, and waking up on a core that is awake takes a
    fraction of the time that it takes on one asleep: 14 videos of 1080p HEVC went from 6,600 to 7,900 frames a second
    (H200, 16 cores). `STREAMKIT_SOURCE_CORES` says how many cores; 0 leaves the choice to the system.
    """
    if device.kind == "cpu" or not hasattr(os, "sched_setaffinity"):
        return
    allowed = sorted(os.sched_getaffinity(os.getpid()))  # the main thread's: this one may be kept on a few already
    asked = os.environ.get("STREAMKIT_SOURCE_CORES")
    count = int(asked) if asked else min(_SOURCE_CORES, len(allowed) // 4)
    if not count or len(allowed) < 4 * count:  # what decodes on the CPU, or encodes, needs them too
        return
    first = count * device.index % len(allowed)
    os.sched_setaffinity(0, (allowed + allowed)[first : first + count])
