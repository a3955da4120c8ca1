"""YOLOv5 (and v7): (N, A, 5 + C) rows of cx, cy, w, h in network pixels, objectness, and a score per class."""

from __future__ import annotations

from streamkit.models.families.yolox import ObjectnessRows
from streamkit.ops.candidates import Coding

FAMILY = ObjectnessRows("yolov5", Coding.CXCYWH)
