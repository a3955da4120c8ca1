"""`preprocess` on the host: OpenCV resizes the planes, and one weighted sum per channel does the rest.

Matrix, range, scale, mean and std are one affine map from (Y, Cb, Cr) to the tensor's value, so clipping to 0..255
becomes clipping to the images of 0 and 255. Each frame is processed separately with the same calls, so a batch equals
its frames bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from streamkit.core.data import Color, Surface
from streamkit.ops.boxes import Rect
from streamkit.ops.color import check_size, planes, yuv_to_rgb
from streamkit.ops.letterbox import InputSpec, geometry, placement
from streamkit.ops.scratch import Scratch, scratch


def fill(
    out: np.ndarray,
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    spec: InputSpec,
    rects: Sequence[Rect] | None,
) -> np.ndarray:
    """Write the batch to `out` and return its geometry; arguments as `preprocess` has checked them."""
    import cv2

    pad = spec.affine()[2].astype(out.dtype)[:, None, None]
    parts = rects or [(0, 0, *size) for size in sizes]
    for image, surface, rect in zip(out, surfaces, parts, strict=False):
        with scratch() as new:
            if spec.layout == "nchw":
                _fill_one(image, surface, rect, spec, pad, new)
            else:
                bits = np.int16 if out.dtype == np.float16 else out.dtype  # OpenCV 4 has no f16
                channels = new((3, *image.shape[:2]), out.dtype.type)
                _fill_one(channels, surface, rect, spec, pad, new)
                cv2.merge(tuple(channels.view(bits)), dst=image.view(bits))
    out[len(surfaces) :] = pad if spec.layout == "nchw" else pad.reshape(3)
    scales = [geometry(spec, right - left, bottom - top, left, top) for left, top, right, bottom in parts]
    return np.array(scales, np.float32).reshape(-1, 4)


def _fill_one(image: np.ndarray, surface: Surface, rect: Rect, spec: InputSpec, pad: np.ndarray, new: Scratch) -> None:
    """Write one frame, or the part of it in `rect`, to `image`, (3, H, W)."""
    import cv2

    x, y, x_end, y_end = rect
    check_size(surface.data.shape, x_end, y_end)
    size = x_end - x, y_end - y
    place = placement(spec, *size)
    left, right = max(0, place.left), min(spec.size[0], place.left + place.width)
    top, bottom = max(0, place.top), min(spec.size[1], place.top + place.height)
    for edge in (np.s_[:, :top], np.s_[:, bottom:], np.s_[:, top:bottom, :left], np.s_[:, top:bottom, right:]):
        image[edge] = pad

    part = np.s_[top - place.top : bottom - place.top, left - place.left : right - place.left]
    resized = planes(surface.data, surface.color, *size, (place.width, place.height), new, left=x, top=y)
    luma, cb, cr = (plane[part] for plane in resized)
    value = new(luma.shape)
    for channel, (ky, ku, kv, k, low, high) in enumerate(_channels(surface.color, spec)):
        if ku and kv:
            cv2.addWeighted(luma, ky, cb, ku, k, dst=value)
            cv2.addWeighted(value, 1, cr, kv, 0, dst=value)
        else:
            cv2.addWeighted(luma, ky, cb if ku else cr, ku or kv, k, dst=value)
        to = image[channel, top:bottom, left:right]
        if image.dtype == np.float32:
            np.clip(value, low, high, out=to)
        else:
            np.clip(value, low, high, out=value)
            np.copyto(to, np.rint(value, out=value) if image.dtype == np.uint8 else value, casting="unsafe")


@lru_cache(maxsize=256)
def _channels(color: Color, spec: InputSpec) -> list[tuple[float, float, float, float, np.float32, np.float32]]:
    """Return for each channel, in the network's order: the weights of Y, Cb, Cr and 1, and the minimum and maximum."""
    factor, summand, _ = spec.affine()
    rgb = yuv_to_rgb(color) if spec.color == "rgb" else yuv_to_rgb(color)[::-1]
    weights = rgb * factor[:, None]
    weights[:, 3] += summand
    low, high = summand, 255 * factor + summand
    if spec.dtype == "u8":
        low, high = np.clip(low, 0, 255), np.clip(high, 0, 255)
    return [
        (*w, np.float32(a), np.float32(b))
        for w, a, b in zip(weights.tolist(), low.tolist(), high.tolist(), strict=True)
    ]
