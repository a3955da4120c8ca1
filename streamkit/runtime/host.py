"""Settings of the whole process that a run needs, made once before its first frame."""

from __future__ import annotations

import os

from streamkit.data import Device

_SOURCE_CORES = 4


def settle() -> None:
    """Load what sources need before any of them starts, and leave parallel work to the lanes.

    OpenCV splits each call over threads of its own, which then wait actively for the next one: beside lanes that use
    every core this took 2 to 3 % of the CPU and gave nothing back (YOLOX-nano, two cores). PyAV takes some 50 ms to
    import: done here, no source waits for it, nor do sources wait for each other.
    """
    import av  # noqa: F401
    import cv2

    cv2.setNumThreads(1)


def share_cores(device: Device) -> None:
    """Keep the calling thread on the few cores that all threads share that feed a GPU.

    Such a thread mostly waits, for NVDEC and for the interpreter's lock, and waking up on a core that is awake takes a
    fraction of the time that it takes on one asleep: 14 videos of 1080p HEVC went from 6,600 to 7,900 frames a second
    (H200, 16 cores). `STREAMKIT_SOURCE_CORES` says how many cores; 0 leaves the choice to the system.
    """
    cores = int(os.environ.get("STREAMKIT_SOURCE_CORES") or _SOURCE_CORES)
    if device.kind == "cpu" or not cores or not hasattr(os, "sched_setaffinity"):
        return
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 4 * cores:  # what decodes on the CPU, or encodes, needs them too
        return
    first = cores * device.index % len(allowed)
    os.sched_setaffinity(0, (allowed + allowed)[first : first + cores])
