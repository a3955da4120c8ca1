# SPDX-License-Identifier: Apache-2.0
"""Bilinear resampling of one plane on the host, exact for every chroma siting; with antialiasing where asked for.

OpenCV's resize is fast, but supports one mapping only: output i reads (i + 0.5) * size / new_size - 0.5. Luma and
centerd chroma use this mapping. Chroma sited on a luma sample is first doubled linearly: the new samples are at the
luma's positions, and since every old sample is kept, interpolating between the new ones equals interpolating between
the old ones. The rest (centerd chroma of an odd size, and downscaling so far that doubling does not pay) is gathered
sample by sample.

With antialiasing, a sample is the mean of the plane's samples under a triangle, whose half width is the distance from
one output sample to the next, but at least one sample. Weights beyond the plane's edge are left out. This is the
bilinear filter of Pillow and of torchvision's `antialias=True`; where a plane grows it is the plain one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from streamkit.ops.scratch import Scratch


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """How one axis of a plane is resampled.

    Attributes:
        size: luma samples before.
        new_size: samples after.
        method: `direct`, OpenCV's own mapping; `double`, the chroma sample i sits on luma sample 2i; `gather`.
        lower, upper, weight: for `gather`: output i is sample lower[i] * (1 - weight[i]) + upper[i] * weight[i].
    """

    size: int
    new_size: int
    method: Literal["direct", "double", "gather"] = "direct"
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None
    weight: np.ndarray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SmoothAxis:
    """How one axis of a plane is resampled with antialiasing.

    Attributes:
        taps: (t, n) intp; output i is the sum over k of sample taps[k, i] times weights[k, i].
        weights: (t, n) float32; each output's sum is 1.
    """

    taps: np.ndarray
    weights: np.ndarray


def triangles(centers: np.ndarray, half_width: float, count: int) -> np.ndarray:
    """Return the weights of `count` samples for outputs at positions (n,): (n, count) float64, each row's sum is 1."""
    weights = np.maximum(0.0, 1.0 - np.abs(np.arange(count) - centers[:, None]) / max(half_width, 1.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@lru_cache(maxsize=512)
def smooth_axis(size: int, new_size: int, siting: float | None = None) -> SmoothAxis:
    """The axis of a plane with antialiasing; `siting` is chroma_x or chroma_y of `Color`, None for luma."""
    step = size / new_size
    count = size
    centers = ((np.arange(new_size) + 0.5) * step - 0.5).clip(0, size - 1)
    if siting is not None:
        step = step / 2
        count = (size + 1) // 2
        centers = (centers - siting) / 2
    reach = max(step, 1.0)
    first = np.ceil(centers - reach).astype(np.intp)
    taps = first + np.arange(int(2 * reach) + 1)[:, None]
    weights = np.maximum(0.0, 1.0 - np.abs(taps - centers) / reach) * ((taps >= 0) & (taps < count))
    return SmoothAxis(taps.clip(0, count - 1), (weights / weights.sum(axis=0)).astype(np.float32))


@lru_cache(maxsize=1024)
def chroma_axis(size: int, new_size: int, siting: float) -> Axis:
    """The axis of a chroma plane; `siting` is chroma_x or chroma_y of `Color`, in luma samples."""
    if siting == 0 and 2 * new_size > size:
        return Axis(size, new_size, "double")
    if siting == 0.5 and size % 2 == 0:
        return Axis(size, new_size)
    at = np.clip((np.arange(new_size) + 0.5) * size / new_size - 0.5, 0, size - 1)
    last = (size + 1) // 2 - 1
    at = np.clip((at - siting) / 2, 0, last)
    lower = np.floor(at).astype(np.intp)
    return Axis(size, new_size, "gather", lower, np.minimum(lower + 1, last), (at - lower).astype(np.float32))


def resample(plane: np.ndarray, across: Axis, down: Axis, new: Scratch) -> np.ndarray:
    """Resample a (h, w) plane of uint8 to (down.new_size, across.new_size) float32, in memory of `new`."""
    import cv2

    out = new((down.new_size, across.new_size))
    mark = new.used
    if plane.shape == out.shape and across.method == down.method == "direct":
        np.copyto(out, plane)
        return out
    values = new(plane.shape)
    np.copyto(values, plane)
    values = _rows(values, down, new)
    if across.method != "direct" and down.new_size < len(values):  # fewer rows first: less for `_columns` to do
        size = (values.shape[1], down.new_size)
        values = cv2.resize(values, size, dst=new(size[::-1]), interpolation=cv2.INTER_LINEAR)
    values = _columns(values, across, new)
    cv2.resize(values, (across.new_size, down.new_size), dst=out, interpolation=cv2.INTER_LINEAR)
    new.used = mark
    return out


def smooth(plane: np.ndarray, across: SmoothAxis, down: SmoothAxis, new: Scratch) -> np.ndarray:
    """Resample a (h, w) plane of uint8 with antialiasing to float32, in memory of `new`."""
    import cv2

    out = new((down.taps.shape[1], across.taps.shape[1]))
    mark = new.used
    fewer = _sum_rows(plane, down, new)
    sideways = cv2.transpose(fewer, dst=new(fewer.shape[::-1]))
    cv2.transpose(_sum_rows(sideways, across, new), dst=out)
    new.used = mark
    return out


def _sum_rows(plane: np.ndarray, axis: SmoothAxis, new: Scratch) -> np.ndarray:
    """Return the weighted sums of a plane's rows, (n, w) float32."""
    shape = axis.taps.shape[1], plane.shape[1]
    total = new(shape)
    rows = new(shape, plane.dtype.type)
    part = new(shape)
    total[:] = 0
    for taps, weights in zip(axis.taps, axis.weights, strict=True):
        np.take(plane, taps, 0, out=rows, mode="clip")  # `raise` would copy `out`
        np.multiply(rows, weights[:, None], out=part)
        total += part
    return total


def bilinear(plane: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sample a plane of floats at the columns `x` and rows `y`, clamped to its edges: (len(y), len(x))."""
    for axis, at in ((1, x), (0, y)):
        last = plane.shape[axis] - 1
        at = np.clip(at, 0, last)
        lower = np.floor(at).astype(np.intp)
        weight = np.expand_dims((at - lower).astype(plane.dtype), 1 - axis)
        plane = plane.take(lower, axis) * (1 - weight) + plane.take(np.minimum(lower + 1, last), axis) * weight
    return plane


def bilinear_at(plane: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sample a plane of uint8 at places, columns `x` and rows `y` of any shape, clamped to its edges: float64."""
    lower = []
    weight = []
    for at, size in ((x, plane.shape[1]), (y, plane.shape[0])):
        at = np.clip(at, 0, size - 1)
        lower.append(np.floor(at).astype(np.intp))
        weight.append(at - lower[-1])
    left, top = lower
    across, down = weight
    right = np.minimum(left + 1, plane.shape[1] - 1)
    bottom = np.minimum(top + 1, plane.shape[0] - 1)
    upper = plane[top, left] * (1 - across) + plane[top, right] * across
    return np.asarray(upper * (1 - down) + (plane[bottom, left] * (1 - across) + plane[bottom, right] * across) * down)


def _rows(plane: np.ndarray, axis: Axis, new: Scratch) -> np.ndarray:
    if axis.method == "double":
        wide = new((2 * len(plane), plane.shape[1]))
        wide[0::2] = plane
        between = wide[1::2]
        np.add(plane[:-1], plane[1:], out=between[:-1])
        between[:-1] *= np.float32(0.5)
        between[-1] = plane[-1]
        return wide[: axis.size]
    if axis.method == "gather":
        return _gather(plane, axis, 0, new)
    return plane


def _columns(plane: np.ndarray, axis: Axis, new: Scratch) -> np.ndarray:
    if axis.method == "double":
        import cv2

        between = new(plane.shape)
        np.add(plane[:, :-1], plane[:, 1:], out=between[:, :-1])
        between[:, :-1] *= np.float32(0.5)
        between[:, -1] = plane[:, -1]
        wide = new((*plane.shape, 2))
        cv2.merge((plane, between), dst=wide)
        return wide.reshape(len(plane), -1)[:, : axis.size]
    if axis.method == "gather":
        return _gather(plane, axis, 1, new)
    return plane


def _gather(plane: np.ndarray, axis: Axis, dimension: int, new: Scratch) -> np.ndarray:
    assert axis.lower is not None
    assert axis.upper is not None
    assert axis.weight is not None
    shape = (axis.new_size, plane.shape[1]) if dimension == 0 else (plane.shape[0], axis.new_size)
    low = np.take(plane, axis.lower, dimension, out=new(shape), mode="clip")  # `raise` would copy `out`
    high = np.take(plane, axis.upper, dimension, out=new(shape), mode="clip")
    high -= low
    high *= axis.weight[:, None] if dimension == 0 else axis.weight
    high += low
    return high
