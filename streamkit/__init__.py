"""streamkit: video analytics as a YAML and a few lines of Python, on the GPU or without one."""

import os
import signal

import __main__

# the installed command begins here; nothing has begun while Python imports, so Ctrl-C ends it at once, as in run.py
if os.path.basename(getattr(__main__, "__file__", None) or "") == "streamkit":
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

from streamkit.core.data import Batch, Color, Detections, Device, Event, Frame, Surface
from streamkit.core.stage import (
    BatchStage,
    Bytes,
    Count,
    FrameStage,
    Pixels,
    Point,
    Score,
    Seconds,
    Sink,
    Source,
    StreamStage,
    stage,
)

__version__ = "0.1.0"

__all__ = [
    "Batch", "BatchStage", "Bytes", "Color", "Count", "Detections", "Device", "Event", "Frame", "FrameStage", "Pixels",
    "Point", "Score", "Seconds", "Sink", "Source", "StreamStage", "Surface", "stage",
]  # fmt: skip
