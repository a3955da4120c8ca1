"""How networks encode boxes and faces: the constants that the NumPy and the CUDA readers share."""

from __future__ import annotations

from enum import IntEnum

STRIDES = (8, 16, 32)
FACE_OUTPUTS = tuple(f"{kind}_{stride}" for kind in ("cls", "obj", "bbox", "kps") for stride in STRIDES)
FACE_POINTS = 15
"""Values of a face's five landmarks: x, y and score in turn."""


class Coding(IntEnum):
    """How four values tell a box. The numbers are those of `cuda/candidates.cu`."""

    XYXY = 0
    """Edges, times `unit`."""
    YXYX = 1
    """Edges with y first, times `unit`."""
    CXCYWH = 2
    """Centre and size, times `unit`."""
    GRID = 3
    """YOLOX: centre = (value + cell) x stride, size = exp(value) x stride; strides 8, 16, 32, rows of cells."""
