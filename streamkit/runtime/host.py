"""Settings of the whole process that a run needs, made once before its first frame."""

from __future__ import annotations


def settle() -> None:
    """Load what sources need before any of them starts, and leave parallel work to the lanes.

    OpenCV splits each call over threads of its own, which then wait actively for the next one: beside lanes that use
    every core this took 2 to 3 % of the CPU and gave nothing back (YOLOX-nano, two cores). PyAV takes some 50 ms to
    import: done here, no source waits for it, nor do sources wait for each other.
    """
    import av  # noqa: F401
    import cv2

    cv2.setNumThreads(1)
