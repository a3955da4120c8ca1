# SPDX-License-Identifier: Apache-2.0
"""Placement of a frame in a network's input, and the inverse mapping for its boxes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A network's image input, as described by its card.

    Values per channel are in the order of `color`: with `bgr` the first belongs to blue.

    Attributes:
        size: width, height of the input in pixels.
        resize: `letterbox` keeps the aspect ratio and pads, `stretch` fills the input, `crop` keeps the aspect ratio
            and crops.
        resize_to: for `crop`: size of the frame's short side after resizing, in network pixels; the short side of
            `size` by default.
        anchor: `center` centers the frame, `top_left` puts all padding at the right and bottom.
        pad: the padding value, in pixel units 0..255, before scale, mean and std; one, or one per channel.
        antialias: where the frame becomes smaller, average all its pixels, as Pillow and torchvision do; without it,
            four of them are sampled, as OpenCV does.
        color: the order of the channels.
        scale, mean, std: value = (pixel * scale - mean) / std; scale and std are above 0.
        layout: `nchw` or `nhwc`.
        dtype: `f32`, `f16` or `u8`; u8 rounds to nearest and clips to 0..255.
    """

    size: tuple[int, int]
    resize: Literal["letterbox", "stretch", "crop"] = "letterbox"
    resize_to: int | None = None
    anchor: Literal["center", "top_left"] = "center"
    pad: float | tuple[float, float, float] = 114
    antialias: bool = False
    color: Literal["rgb", "bgr"] = "rgb"
    scale: float = 1.0
    mean: tuple[float, float, float] = (0, 0, 0)
    std: tuple[float, float, float] = (1, 1, 1)
    layout: Literal["nchw", "nhwc"] = "nchw"
    dtype: Literal["f32", "f16", "u8"] = "f32"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"InputSpec.{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name in ("mean", "std") if isinstance(self.pad, (int, float)) else ("mean", "std", "pad"):
            if len(getattr(self, name)) != 3:
                raise ValueError(f"InputSpec.{name} must have 3 values, one per channel, got {getattr(self, name)}")
        if min(self.size) < 1 or (self.resize_to is not None and self.resize_to < 1):
            raise ValueError(f"InputSpec sizes must be at least 1, got size {self.size}, resize_to {self.resize_to}")
        if self.scale <= 0 or min(self.std) <= 0:
            raise ValueError(f"InputSpec.scale and std must be above 0, got {self.scale} and {self.std}")

    @property
    def numpy_dtype(self) -> np.dtype[np.generic]:
        """The tensor's dtype."""
        return np.dtype(_DTYPES[self.dtype])

    def shape(self, batch: int) -> tuple[int, int, int, int]:
        """The tensor's shape for `batch` frames."""
        width, height = self.size
        return (batch, 3, height, width) if self.layout == "nchw" else (batch, height, width, 3)

    def affine(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return factor, summand and normalized padding per channel, (3,) float64: value = pixel * factor + summand."""
        std = np.array(self.std, np.float64)
        mean = np.array(self.mean, np.float64)
        factor = self.scale / std
        summand = -mean / std
        pad = np.broadcast_to(np.asarray(self.pad, np.float64), 3) * factor + summand
        return factor, summand, np.clip(np.rint(pad), 0, 255) if self.dtype == "u8" else pad


_DTYPES = {"f32": np.float32, "f16": np.float16, "u8": np.uint8}
_CHOICES = {name: get_args(type_) for name, type_ in get_type_hints(InputSpec).items() if get_origin(type_) is Literal}


class Placement(NamedTuple):
    """The resized frame's rectangle in network pixels; it may extend beyond the input's edges (`crop`)."""

    left: int
    top: int
    width: int
    height: int

    def visible(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """The part of it in an input of this width and height: left, top, right, bottom."""
        return (
            max(0, self.left),
            max(0, self.top),
            min(size[0], self.left + self.width),
            min(size[1], self.top + self.height),
        )


@lru_cache(maxsize=4096)
def placement(spec: InputSpec, width: int, height: int) -> Placement:
    """Return the placement of a frame of `width` x `height` pixels; see `placements`."""
    return Placement(*placements(spec, np.array([width]), np.array([height]))[0].tolist())


def placements(spec: InputSpec, width: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Return the placements of frames of (m,) widths and heights: (m, 4) int64, left, top, width, height.

    - `letterbox` as in Ultralytics: the ratio is the smaller of the two, the resized size is rounded to the nearest
      pixel, and of an odd number of padding rows or columns the extra one is at the bottom or right. `top_left` puts
      the frame in the corner as in YOLOX (which truncates the size instead of rounding it: less than one pixel of
      difference).
    - `stretch` fills the input, as in the DETR line.
    - `crop` as in torchvision's Resize(resize_to) and CenterCrop(size): the long side is truncated to a pixel; what
      the frame does not cover is padded.
    """
    if min(width.min(initial=1), height.min(initial=1)) < 1:
        raise ValueError(f"a frame is at least 1x1 pixels, got {width.min()}x{height.min()}")
    across, down = spec.size
    if spec.resize == "stretch":
        return np.tile(np.array([0, 0, across, down], np.int64), (len(width), 1))
    if spec.resize == "letterbox":
        ratio = np.minimum(across / width, down / height)
        new = [np.maximum(1, np.rint(side * ratio)) for side in (width, height)]
    else:
        short = spec.resize_to or min(spec.size)
        new = [np.where(a <= b, short, np.floor(short * a / b)) for a, b in ((width, height), (height, width))]
    room = [
        np.where(size <= side, (side - size) // 2, -np.rint((size - side) / 2)) * (spec.anchor == "center")
        for side, size in zip(spec.size, new, strict=True)
    ]
    return np.stack([*room, *new], axis=1).astype(np.int64)


def geometry(spec: InputSpec, width: int, height: int) -> tuple[float, float, float, float]:
    """Return scale_x, scale_y, offset_x, offset_y for a frame of `width` x `height` pixels.

    Network = source * scale + offset, per axis, where coordinates count from the pixels' edges: the box
    (0, 0, width, height) maps to the frame's rectangle in the input. The scales are those of the resized frame with
    its size in whole pixels, so the two may differ slightly even for `letterbox`.
    """
    place = placement(spec, width, height)
    return place.width / width, place.height / height, place.left, place.top


def rect_geometry(spec: InputSpec, rects: np.ndarray, views: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return placement and geometry of parts of frames, whose source pixels are those of the whole frame.

    Args:
        spec: the network's input.
        rects: (m, 4) int64, the parts; see `boxes.Rect`.
        views: (m, 4), what fills the input of each part, see `core.crops.Crops`; None to place parts by `spec.resize`.

    Returns:
        As from `placements`, (m, 4) int64; and as from `geometry`, (m, 4) float32.
    """
    size = rects[:, 2:] - rects[:, :2]
    place = placements(spec, *size.T) if views is None else _placed_in(spec, rects, views)
    scale = place[:, 2:] / size
    return place, np.concatenate([scale, place[:, :2] - rects[:, :2] * scale], axis=1).astype(np.float32)


def _placed_in(spec: InputSpec, rects: np.ndarray, views: np.ndarray) -> np.ndarray:
    """Return the placements of parts in inputs that their views fill, in whole network pixels."""
    scale = np.array(spec.size) / (views[:, 2:] - views[:, :2])
    first, last = (np.rint((edges - views[:, :2]) * scale) for edges in (rects[:, :2], rects[:, 2:]))
    return np.concatenate([first, np.maximum(last - first, 1)], axis=1).astype(np.int64)
