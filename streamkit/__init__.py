"""streamkit: video analytics as a YAML and a few lines of Python, on the GPU or without one."""

import os
import signal
from typing import TYPE_CHECKING, Any

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
from streamkit.core.version import __version__ as __version__

if TYPE_CHECKING:
    from streamkit.api.loop import run

__all__ = [
    "Batch", "BatchStage", "Bytes", "Color", "Count", "Detections", "Device", "Event", "Frame", "FrameStage", "Pixels",
    "Point", "Score", "Seconds", "Sink", "Source", "StreamStage", "Surface", "run", "stage",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import `run` on first access: it needs the whole runtime."""
    if name == "run":
        from streamkit.api.loop import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
