"""Pictures of objects and frames: cut out where the pixels are, and on the host made JPEG files.

On a GPU nothing but what is to be written crosses to the host, small already, in one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from streamkit.data import Frame, Surface, array_module
from streamkit.ops.boxes import Rect
from streamkit.ops.crops import crop_rects
from streamkit.units import Unit

JpegQuality = Annotated[int, Unit("1..100", minimum=1, maximum=100)]
"""A JPEG's quality; more is better, and larger."""


class Part(NamedTuple):
    """A part of a frame's picture that is to be cut out.

    Attributes:
        surface: the picture.
        size: its true width and height.
        rect: the part, in source pixels.
    """

    surface: Surface
    size: tuple[int, int]
    rect: Rect


@dataclass(frozen=True, slots=True)
class Still:
    """A part that was cut out: a small picture, where the large one is.

    Attributes:
        surface: its pixels.
        size: its true width and height.
    """

    surface: Surface
    size: tuple[int, int]


def parts_of(frame: Frame, boxes: np.ndarray, pad: float = 0.0) -> list[Part | None]:
    """Boxes of a frame with `pad` around them; None for one that lies outside, and where the frame has no pixels.

    Args:
        frame: the frame.
        boxes: (n, 4) x1, y1, x2, y2 in source pixels.
        pad: how much is added on each side, as a share of the box's width and height.
    """
    surface, size = frame.surface, (frame.width, frame.height)
    if surface is None:
        return [None] * len(boxes)
    rects = crop_rects(boxes, np.array([size] * len(boxes)), pad).tolist()
    return [Part(surface, size, (x, y, right, bottom)) if right > x else None for x, y, right, bottom in rects]


def whole(frame: Frame) -> Part | None:
    """All of a frame; None where it has no pixels."""
    size = frame.width, frame.height
    return None if frame.surface is None else Part(frame.surface, size, (0, 0, *size))


def still_bytes(part: Part, max_size: int) -> int:
    """How many bytes a part takes when it is cut out."""
    from streamkit.ops.cut import cut_bytes

    return cut_bytes(part.rect, _step(part, max_size))


def cut_out(parts: Sequence[Part], max_size: int) -> list[Still]:
    """Cut parts out of their pictures, which may be let go of afterwards; on a GPU in one launch, and there they stay.

    Args:
        parts: the parts, all on the host or all on one device.
        max_size: pixels on the longer side that are wanted; a still has less than twice as many.
    """
    from streamkit.ops.cut import cut, cut_size

    steps = [_step(part, max_size) for part in parts]
    surfaces, sizes, rects = ([part[i] for part in parts] for i in range(3))
    made = cut(surfaces, sizes, rects, steps)  # type: ignore[arg-type]
    return [Still(surface, cut_size(part.rect, step)) for surface, part, step in zip(made, parts, steps, strict=True)]


def jpegs(stills: Sequence[Still], max_size: int, quality: int) -> list[bytes]:
    """JPEG files of stills, at most `max_size` pixels on the longer side; from a GPU they are one copy.

    Raises:
        ValueError: a picture cannot be a JPEG, as one that is too long.
    """
    from streamkit.ops.cut import to_host

    surfaces = to_host([still.surface for still in stills])
    return [_jpeg(surface, still.size, max_size, quality) for surface, still in zip(surfaces, stills, strict=True)]


def on_device(still: Still) -> bool:
    """Whether its pixels are on a GPU, so that making a file of it is a copy."""
    return array_module(still.surface.data) is not np


def _step(part: Part, max_size: int) -> int:
    from streamkit.ops.cut import step_for

    left, top, right, bottom = part.rect
    return step_for((right - left, bottom - top), max_size)


def _jpeg(surface: Surface, size: tuple[int, int], max_size: int, quality: int) -> bytes:
    import cv2

    from streamkit.ops.color import to_rgb

    picture = cv2.cvtColor(to_rgb(surface, *size), cv2.COLOR_RGB2BGR)
    if max(size) > max_size:
        share = max_size / max(size)
        smaller = max(1, round(size[0] * share)), max(1, round(size[1] * share))
        picture = cv2.resize(picture, smaller, interpolation=cv2.INTER_AREA)
    try:
        done, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    except cv2.error as error:
        raise ValueError(f"a picture of {size[0]}x{size[1]} cannot be a JPEG file: {error}") from error
    if not done:
        raise ValueError(f"a picture of {size[0]}x{size[1]} cannot be a JPEG file")
    return bytes(data)
