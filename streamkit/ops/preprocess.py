# SPDX-License-Identifier: Apache-2.0
"""Conversion of surfaces to a network's input tensor, a whole batch at once, on the surfaces' device.

All three implementations (the reference and the host's here, preprocess_cuda.py) sample alike: the center of a network
pixel has the source position (i + 0.5 - offset) / scale - 0.5 per axis, clamped to the frame's true edge. Luma is
bilinear there, chroma bilinear on its own grid at the surface's siting; RGB is clipped to 0..255; then channel order,
scale, mean, std and dtype are applied. Without `InputSpec.antialias` there is no
anti-aliasing filter, as in OpenCV's bilinear resize; with it, a plane that becomes smaller is averaged as in
`ops.resample`, chroma on its own grid.

A row may show only a part of a frame, its rect: a tile, a region, an object. The part is then treated as a frame of its
own, and no pixel outside it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streamkit.core.data import Array, Color, Surface, array_module
from streamkit.ops.boxes import Rect, check_rects
from streamkit.ops.color import check_size, planes, yuv_to_rgb
from streamkit.ops.letterbox import InputSpec, Placement, geometry, placement, rect_geometry
from streamkit.ops.quads import fill_quads
from streamkit.ops.resample import bilinear, triangles
from streamkit.ops.scratch import Scratch, scratch, tensor

__all__ = ["InputSpec", "geometry", "preprocess", "preprocess_reference"]


def preprocess(
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    spec: InputSpec,
    *,
    batch: int | None = None,
    rects: Sequence[Rect] | None = None,
    corners: np.ndarray | None = None,
    views: np.ndarray | None = None,
) -> tuple[Array, np.ndarray]:
    """Make the network's input from surfaces of any sizes and colors.

    On a GPU this is one launch on the current CuPy stream, not waited for: surfaces and tensor must stay alive until it
    is done. The stream waits for each surface's `ready` event.

    Args:
        surfaces: the frames, all on the host or all on the current CUDA device.
        sizes: the true width and height of each.
        spec: the network's input.
        batch: rows of the tensor, at least the number of surfaces, which is the default. Further rows are padding.
        rects: the part of its frame that each row shows; all of it by default. A surface may occur in several rows.
        corners: (surfaces, 4, 2), rows that show the inside of four corners instead, straightened; see `ops.quads`.
        views: (surfaces, 4), for rects, what fills the input of each row: where it reaches beyond the rect, the row is
            padded.

    Returns:
        The tensor, `spec.shape(batch)` of `spec.numpy_dtype` on the surfaces' device; and the geometry, (surfaces, 4)
        float32 on the host: scale_x, scale_y, offset_x, offset_y, as from `geometry`; with rects too they map to the
        whole frame's pixels.

    Raises:
        ValueError: counts, sizes, rects or devices do not match.
    """
    rows = len(surfaces) if batch is None else batch
    if len(sizes) != len(surfaces) or rows < len(surfaces):
        raise ValueError(
            f"preprocess needs one size per surface and a batch at least as large, got {len(surfaces)} surfaces, "
            f"{len(sizes)} sizes and a batch of {rows}"
        )
    if rects is not None:
        check_rects(rects, sizes)
    xp = array_module(surfaces[0].data) if surfaces else np
    if any(array_module(surface.data) is not xp for surface in surfaces):
        raise ValueError("preprocess needs all surfaces on one device, got some on the host, some on a GPU")
    if xp is np:
        out = tensor(spec.shape(rows), spec.numpy_dtype)
        fill: Any = _fill_host
    else:
        from streamkit.ops.preprocess_cuda import fill

        out = xp.empty(spec.shape(rows), spec.numpy_dtype)
    scales = fill(out, surfaces, sizes, spec, rects, views)
    if corners is not None:
        fill_quads(out, surfaces, sizes, corners, spec)
    return out, scales


def preprocess_reference(
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    spec: InputSpec,
    *,
    batch: int | None = None,
    rects: Sequence[Rect] | None = None,
) -> np.ndarray:
    """Compute the result of `preprocess` plainly in float64, for tests and `models check`. Slow, host only."""
    rows = len(surfaces) if batch is None else batch
    factor, summand, pad = spec.affine()
    tensor = np.empty((rows, spec.size[1], spec.size[0], 3))
    tensor[:] = pad
    parts = rects or [(0, 0, *size) for size in sizes]
    for image, surface, rect in zip(tensor, surfaces, parts, strict=False):
        rgb, (left, top, right, bottom) = _sampled(surface, rect, spec)
        image[top:bottom, left:right] = (rgb if spec.color == "rgb" else rgb[..., ::-1]) * factor + summand
    if spec.dtype == "u8":
        tensor = np.clip(np.rint(tensor), 0, 255)
    if spec.layout == "nchw":
        tensor = tensor.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(tensor, spec.numpy_dtype)


def _sampled(surface: Surface, rect: Rect, spec: InputSpec) -> tuple[np.ndarray, tuple[int, int, int, int]]:
    """Return RGB, (h, w, 3) float64 in 0..255, of the part of the input that the frame covers, and its edges."""
    x0, y0, x1, y1 = rect
    check_size(surface.data.shape, x1, y1)
    width = x1 - x0
    height = y1 - y0
    place = placement(spec, width, height)
    color = surface.color
    left, top, right, bottom = place.visible(spec.size)
    x = np.clip((np.arange(left, right) + 0.5 - place.left) * width / place.width - 0.5, 0, width - 1)
    y = np.clip((np.arange(top, bottom) + 0.5 - place.top) * height / place.height - 0.5, 0, height - 1)
    data = surface.data.astype(np.float64)
    chroma = data[surface.height :].reshape(surface.height // 2, surface.width // 2, 2)
    chroma = chroma[y0 // 2 : (y1 + 1) // 2, x0 // 2 : (x1 + 1) // 2]
    luma = data[y0:y1, x0:x1]
    ones = np.ones((len(y), len(x)))
    if spec.antialias:
        step_x = width / place.width
        step_y = height / place.height
        across = triangles(x, step_x, width)
        down = triangles(y, step_y, height)
        at_x = triangles((x - color.chroma_x) / 2, step_x / 2, chroma.shape[1])
        at_y = triangles((y - color.chroma_y) / 2, step_y / 2, chroma.shape[0])
        yuv1 = [down @ luma @ across.T, *(at_y @ chroma[..., i] @ at_x.T for i in (0, 1)), ones]
    else:
        at_x = (x - color.chroma_x) / 2
        at_y = (y - color.chroma_y) / 2
        yuv1 = [bilinear(luma, x, y), *(bilinear(chroma[..., i], at_x, at_y) for i in (0, 1)), ones]
    return np.clip(np.stack(yuv1, axis=-1) @ yuv_to_rgb(color).T, 0, 255), (left, top, right, bottom)


def _fill_host(
    out: np.ndarray,
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    spec: InputSpec,
    rects: Sequence[Rect] | None,
    views: np.ndarray | None,
) -> np.ndarray:
    """Write the batch to `out` on the host and return its geometry; arguments as `preprocess` has checked them.

    OpenCV resizes the planes, and one weighted sum per channel does the rest: matrix, range, scale, mean and std are
    one affine map from (Y, Cb, Cr) to the tensor's value, so clipping to 0..255 becomes clipping to the images of 0 and
    255. Each frame is processed separately with the same calls, so a batch equals its frames bit for bit.
    """
    import cv2

    pad = spec.affine()[2].astype(out.dtype)[:, None, None]
    parts = rects or [(0, 0, *size) for size in sizes]
    places, scales = rect_geometry(spec, np.array(parts, np.int64).reshape(-1, 4), views)
    for image, surface, rect, place in zip(out, surfaces, parts, map(Placement._make, places.tolist()), strict=False):
        with scratch() as new:
            if spec.layout == "nchw":
                _fill_frame(image, surface, rect, place, spec, pad, new)
            else:
                bits = np.int16 if out.dtype == np.float16 else out.dtype  # OpenCV 4 has no f16
                channels = new((3, *image.shape[:2]), out.dtype.type)
                _fill_frame(channels, surface, rect, place, spec, pad, new)
                cv2.merge(tuple(channels.view(bits)), dst=image.view(bits))
    out[len(surfaces) :] = pad if spec.layout == "nchw" else pad.reshape(3)
    return scales


def _fill_frame(
    image: np.ndarray, surface: Surface, rect: Rect, place: Placement, spec: InputSpec, pad: np.ndarray, new: Scratch
) -> None:
    """Write one frame, or the part of it in `rect`, to `image`, (3, H, W)."""
    import cv2

    x, y, x_end, y_end = rect
    check_size(surface.data.shape, x_end, y_end)
    size = x_end - x, y_end - y
    left, top, right, bottom = place.visible(spec.size)
    for edge in (np.s_[:, :top], np.s_[:, bottom:], np.s_[:, top:bottom, :left], np.s_[:, top:bottom, right:]):
        image[edge] = pad

    part = np.s_[top - place.top : bottom - place.top, left - place.left : right - place.left]
    resized = planes(
        surface.data, surface.color, *size, (place.width, place.height), new, left=x, top=y, antialias=spec.antialias
    )
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
    low = summand
    high = 255 * factor + summand
    if spec.dtype == "u8":
        low = np.clip(low, 0, 255)
        high = np.clip(high, 0, 255)
    return [
        (*w, np.float32(a), np.float32(b))
        for w, a, b in zip(weights.tolist(), low.tolist(), high.tolist(), strict=True)
    ]
