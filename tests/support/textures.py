"""Pictures of a textured plane as a camera sees it that moves, and surfaces of them."""

import cv2
import numpy as np

from streamkit.core.data import Color, Surface
from streamkit.ops.planes import nv12_shape

WIDTH = 640
HEIGHT = 360


def texture(seed=0, width=WIDTH, height=HEIGHT):
    """A luma with structures of all sizes."""
    rng = np.random.default_rng(seed)
    luma = np.full((height, width), 128.0, np.float32)
    for cell in (4, 10, 30):
        coarse = rng.normal(0, 28, (height // cell + 2, width // cell + 2)).astype(np.float32)
        luma += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(luma, 0, 255).astype(np.uint8)


def similarity(dx=0.0, dy=0.0, zoom=1.0, roll_degrees=0.0, width=WIDTH, height=HEIGHT):
    """The (2, 3) transform of a picture that is moved, zoomed and rolled around its middle."""
    camera = cv2.getRotationMatrix2D((width / 2, height / 2), roll_degrees, zoom)
    camera[:, 2] += dx, dy
    return camera


def seen_through(luma, camera):
    """The luma as the transform moves it; what comes in from outside is mirrored."""
    pixels = camera.copy()  # OpenCV's pixels have their centers at whole numbers, boxes their borders
    pixels[:, 2] += camera[:, :2] @ (0.5, 0.5) - 0.5
    return cv2.warpAffine(luma, pixels, luma.shape[::-1], flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


def as_surface(luma):
    """A gray surface; an odd last row or column is repeated."""
    height, width = luma.shape
    data = np.full(nv12_shape(width, height), 128, np.uint8)
    rows = data.shape[0] * 2 // 3
    data[:rows] = np.pad(luma, ((0, rows - height), (0, data.shape[1] - width)), "edge")
    return Surface(data, Color())


def corner_error(estimated, camera, width=WIDTH, height=HEIGHT):
    """How far two transforms take a corner of the picture apart, in pixels."""
    ends = np.array([(0, 0, 1), (width, 0, 1), (0, height, 1), (width, height, 1)], float)
    return float(np.linalg.norm(ends @ (estimated - camera).T, axis=1).max())
