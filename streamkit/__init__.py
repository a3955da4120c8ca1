# SPDX-License-Identifier: Apache-2.0
"""streamkit: video analytics as a YAML and a few lines of Python, on the GPU or without one."""

import os
import signal
from typing import TYPE_CHECKING, Any

import __main__

# the installed command begins here; nothing has started while Python imports, so Ctrl-C ends it at once, as in run.py
if os.path.basename(getattr(__main__, "__file__", None) or "") == "streamkit":
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

from streamkit.core import delegation
from streamkit.core.data import Batch, Color, Detections, Device, Event, Frame, Surface
from streamkit.core.dlpack import DLPackArray, Nv12Planes
from streamkit.core.errors import ConfigError, DeviceError, PipelineEnded, SourceError, StreamkitError
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
    add_built_in,
    stage,
)
from streamkit.core.version import __version__ as __version__

if TYPE_CHECKING:
    from streamkit.api.loop import run
    from streamkit.api.pipeline import Pipeline
    from streamkit.runtime.frame_stream import FrameStream
    from streamkit.runtime.ingest.push_source import PushSource

__all__ = [
    "Batch",
    "BatchStage",
    "Bytes",
    "Color",
    "ConfigError",
    "Count",
    "DLPackArray",
    "Detections",
    "Device",
    "DeviceError",
    "Event",
    "Frame",
    "FrameStage",
    "FrameStream",
    "Nv12Planes",
    "Pipeline",
    "PipelineEnded",
    "Pixels",
    "Point",
    "PushSource",
    "Score",
    "Seconds",
    "Sink",
    "Source",
    "SourceError",
    "StreamStage",
    "StreamkitError",
    "Surface",
    "run",
    "stage",
]

_LAZY = {  # they need the whole runtime
    "FrameStream": "streamkit.runtime.frame_stream",
    "Pipeline": "streamkit.api.pipeline",
    "PushSource": "streamkit.runtime.ingest.push_source",
    "run": "streamkit.api.loop",
}


def _frame_functions() -> delegation.FrameFunctions:
    from streamkit.api import frame_functions

    return frame_functions


delegation.set_functions(_frame_functions)
add_built_in("streamkit.stages")


def __getattr__(name: str) -> Any:
    """Import what runs pipelines on first access."""
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
