# SPDX-License-Identifier: Apache-2.0
"""Small images of frames with their objects drawn, for web pages and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from streamkit.core.data import Color, Detections, Frame, Shown, Surface, array_module
from streamkit.core.detections import stored
from streamkit.ops.annotate import annotate
from streamkit.ops.color import from_rgb, surface_of, to_rgb
from streamkit.ops.glyphs import Atlas
from streamkit.ops.letterbox import InputSpec
from streamkit.ops.overlay import draw
from streamkit.ops.preprocess import preprocess
from streamkit.ops.style import Style
from streamkit.ops.tensors import device_of
from streamkit.ops.transfer import fetch

_COLOR = Color("bt601", full_range=True, chroma_x=0.5)


@lru_cache(maxsize=64)
def small_spec(width: int, height: int, limit: tuple[int, int]) -> InputSpec:
    """Return the scaling of a frame to a small image of RGB bytes, for `preprocess`.

    Args:
        width: the frame's true width.
        height: its true height.
        limit: maximum width and height of the image, whose size is even and never larger than the frame's.
    """
    ratio = min(1.0, limit[0] / width, limit[1] / height)
    size = max(2, 2 * round(width * ratio / 2)), max(2, 2 * round(height * ratio / 2))
    return InputSpec(size, "stretch", layout="nhwc", dtype="u8")


def small_image(frame: Frame, limit: tuple[int, int]) -> np.ndarray:
    """Return a frame as a small image on the host, (h, w, 3) uint8 RGB, scaled on the frame's device.

    From a GPU only the small image is copied, which the summary counts as `previews to host`.

    Args:
        frame: a frame with pixels.
        limit: maximum width and height of the image.
    """
    surface = surface_of(frame)
    size = (frame.width, frame.height)
    counters = frame._state.counters
    with device_of(surface.data):
        small, _ = preprocess([surface], [size], small_spec(*size, limit))
        if counters is not None and array_module(small) is not np:
            counters.add("previews to host")
        return np.asarray(fetch([small])()[0][0])


def draw_small(
    rgb: np.ndarray,
    tables: Sequence[Detections],
    size: tuple[int, int],
    atlas: Atlas,
    shown: Mapping[str, Shown] | None = None,
) -> np.ndarray:
    """Return a small image of a frame, (h, w, 3) uint8, with objects drawn; labels are no larger than their objects.

    Masks are not drawn.

    Args:
        rgb: the small image on the host.
        tables: the frame's objects on the host, in source pixels.
        size: the frame's true width and height.
        atlas: holds the letters; its earlier marks become invalid.
        shown: the frame's lines and zones.
    """
    height, width = rgb.shape[:2]
    scale = np.array([width / size[0], height / size[1]], np.float32)
    scaled_tables = [_scaled(table, scale) for table in tables]
    lines = {name: _scaled_shape(shape, scale) for name, shape in (shown or {}).items()}
    if not any(map(len, scaled_tables)) and not lines:
        return rgb
    surface = Surface(from_rgb(rgb, _COLOR), _COLOR)
    atlas.begin()
    marks, ends = annotate([surface], scaled_tables, Style(fit_labels=True), atlas, shown=[(lines, width, height)])
    return to_rgb(draw([surface], marks, ends, atlas, in_place=True)[0], width, height)


def _scaled(table: Detections, scale: np.ndarray) -> Detections:
    """A frame's objects in the small image's pixels."""
    columns: dict[str, Any] = {"xyxy": table.xyxy * np.tile(scale, 2), "batch_row": np.zeros(len(table), np.int32)}
    columns["extra"] = {
        name: column for name, column in stored(table.extra).items() if name != "mask"
    }  # masks have the resolution of the full frame
    if "keypoints" in table.extra:
        points = np.array(table.extra["keypoints"], np.float32)
        points[:, :, :2] *= scale
        columns["extra"]["keypoints"] = points
    if "corners" in table.extra:
        columns["extra"]["corners"] = np.asarray(table.extra["corners"] * scale, np.float32)
    return replace(table, **columns)


def _scaled_shape(shape: Shown, scale: np.ndarray) -> Shown:
    if shape.units == "share":
        return shape
    return replace(shape, points=tuple((x * float(scale[0]), y * float(scale[1])) for x, y in shape.points))
