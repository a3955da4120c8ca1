# SPDX-License-Identifier: Apache-2.0
"""Still images of objects and frames: cut out on the device of the pixels, encoded as JPEG on the host.

From a GPU only the cut-out, downscaled images are copied to the host, in one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from streamkit.core.data import Frame, Surface, array_module
from streamkit.core.units import Unit
from streamkit.ops.boxes import Rect, crop_rects
from streamkit.ops.cut import cut, cut_bytes, cut_size, step_for, to_host

JpegQuality = Annotated[int, Unit("1..100", minimum=1, maximum=100)]
"""Quality of a JPEG; higher values give better and larger files."""


class CropRequest(NamedTuple):
    """A part of a frame to cut out.

    Attributes:
        surface: the frame's surface.
        size: true width and height of the frame.
        rect: the region, in source pixels.
    """

    surface: Surface
    size: tuple[int, int]
    rect: Rect


class StillImage(NamedTuple):
    """A part that was cut out of a frame, on the frame's device.

    Attributes:
        surface: its pixels.
        size: its true width and height.
    """

    surface: Surface
    size: tuple[int, int]


def parts_of(frame: Frame, boxes: np.ndarray, pad: float = 0.0) -> list[CropRequest | None]:
    """Return boxes of a frame with `pad` around them as parts; None for boxes outside, or without pixels.

    Args:
        frame: the frame.
        boxes: (n, 4) x1, y1, x2, y2 in source pixels.
        pad: margin on each side, as a share of the box's width and height.
    """
    surface = frame.surface
    size = (frame.width, frame.height)
    if surface is None:
        return [None] * len(boxes)
    rects = crop_rects(boxes, np.array([size] * len(boxes)), pad).tolist()
    return [CropRequest(surface, size, (x, y, right, bottom)) if right > x else None for x, y, right, bottom in rects]


def whole(frame: Frame) -> CropRequest | None:
    """Return the whole frame as a part; None if it has no pixels."""
    size = frame.width, frame.height
    return None if frame.surface is None else CropRequest(frame.surface, size, (0, 0, *size))


def still_bytes(part: CropRequest, max_size: int) -> int:
    """Return the size in bytes of a part once it is cut out."""
    return cut_bytes(part.rect, _step(part, max_size))


def cut_out(parts: Sequence[CropRequest], max_size: int) -> list[StillImage]:
    """Cut parts out of their frames, which may be released afterwards; on a GPU in one launch, staying there.

    Args:
        parts: the parts, all on the host or all on one device.
        max_size: target size of the longer side in pixels; a still has less than twice as many.
    """
    steps = [_step(part, max_size) for part in parts]
    surfaces, sizes, rects = ([part[i] for part in parts] for i in range(3))
    cut_surfaces = cut(surfaces, sizes, rects, steps)  # type: ignore[arg-type]
    return [
        StillImage(surface, cut_size(part.rect, step))
        for surface, part, step in zip(cut_surfaces, parts, steps, strict=True)
    ]


def jpegs(stills: Sequence[StillImage], max_size: int, quality: int) -> list[bytes]:
    """Encode stills as JPEG, at most `max_size` pixels on the longer side; from a GPU in one copy.

    Raises:
        ValueError: an image cannot be a JPEG, for example because it is too long.
    """
    surfaces = to_host([still.surface for still in stills])
    return [_jpeg(surface, still.size, max_size, quality) for surface, still in zip(surfaces, stills, strict=True)]


def on_device(still: StillImage) -> bool:
    """Whether its pixels are on a GPU, so that encoding needs a copy to the host."""
    return array_module(still.surface.data) is not np


def _step(part: CropRequest, max_size: int) -> int:
    left, top, right, bottom = part.rect
    return step_for((right - left, bottom - top), max_size)


def _jpeg(surface: Surface, size: tuple[int, int], max_size: int, quality: int) -> bytes:
    import cv2

    from streamkit.ops.color import to_rgb

    image = to_rgb(surface, *size)
    if max(size) > max_size:
        share = max_size / max(size)
        smaller = max(1, round(size[0] * share)), max(1, round(size[1] * share))
        image = cv2.resize(image, smaller, interpolation=cv2.INTER_AREA)
    return jpeg(image, quality)


def jpeg(rgb: np.ndarray, quality: int) -> bytes:
    """Encode an image, (height, width, 3) uint8. Raises ValueError."""
    import cv2

    height, width = rgb.shape[:2]
    try:
        done, data = cv2.imencode(".jpg", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    except cv2.error as error:
        raise ValueError(f"an image of {width}x{height} cannot be encoded as JPEG: {error}") from error
    if not done:
        raise ValueError(f"an image of {width}x{height} cannot be encoded as JPEG")
    return bytes(data)
