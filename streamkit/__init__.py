"""streamkit: video analytics as a YAML and a few lines of Python, on the GPU or without one."""

from streamkit.data import Batch, Color, Detections, Device, Event, Frame, Surface
from streamkit.stage import (
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
