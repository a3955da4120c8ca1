# SPDX-License-Identifier: Apache-2.0
"""The class of each pixel of a frame, from a semantic network's map, and the mask of each class.

A network with a score for each class has them sampled bilinearly at the frame's pixels, as its authors do; the best
class wins, of equal ones the first. A network that gives the class itself has each pixel take the class of its place.

Between four places of one best class every pixel has that class: no sum of their scores with positive weights can be
higher. Only the other pixels are computed, class by class with a running maximum, so no scores of the frame's size are
kept. The host and the kernel (cuda/class_maps.cu) give equal classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.ops import rle
from streamkit.ops.cuda.load import kernel
from streamkit.ops.frame_maps import to_maps
from streamkit.ops.rle import Rle
from streamkit.ops.transfer import to_device

_THREADS = 256
_PIXELS = 1 << 18  # sampled at once on the host
_SCORES = (np.float16, np.float32)  # other types are converted


def best_classes(scores: Array, axis: int) -> Array:
    """Return the best class of each place of (n, ...) scores, uint8, without `axis`; the first of equal classes."""
    xp = array_module(scores)
    return xp.argmax(scores, axis=axis).astype(np.uint8)


def pixel_classes(
    scores: Array, geometry: np.ndarray, sizes_wh: np.ndarray, input_size: tuple[int, int], room: int
) -> Array:
    """Return the best class of each pixel of each frame, on the scores' device.

    On a device this is one launch on the current stream, after `best_classes`, and nothing waits.

    Args:
        scores: (n, classes, h, w) of any strides.
        geometry: (n, 4) float32 on the host: network pixel = source pixel x scale + offset.
        sizes_wh: (n, 2) width and height of each frame.
        input_size: the network's width and height in pixels.
        room: pixels of the largest frame, at least.

    Returns:
        (n, room) uint8: the pixels of each frame down its columns, then zeros.
    """
    if scores.dtype not in _SCORES:
        scores = scores.astype(np.float32)
    best = best_classes(scores, 1)
    places = to_maps(geometry, (scores.shape[3], scores.shape[2]), input_size)
    sizes_wh = np.asarray(sizes_wh, np.int32)
    if array_module(scores) is not np:
        return _classes_on_device(scores, best, places, sizes_wh, room)
    classes = np.zeros((len(scores), room), np.uint8)
    for row, ((width, height), to_map) in enumerate(zip(sizes_wh.tolist(), places, strict=True)):
        pixels = classes[row, : width * height].reshape(width, height)
        _fill(pixels, scores[row], best[row], to_map)
    return classes


def _classes_on_device(scores: Array, best: Array, places: np.ndarray, sizes_wh: np.ndarray, room: int) -> Array:
    """Launch `pixel_classes` of `class_maps.cu` once, with a thread for each pixel."""
    xp = array_module(scores)
    frames, count, high, wide = scores.shape
    classes = xp.zeros((frames, room), np.uint8)
    if not classes.size:
        return classes
    to_map, sizes = to_device(places, sizes_wh)  # the wider type first: its values are aligned then
    strides = [np.int64(stride // scores.itemsize) for stride in scores.strides]
    defines = ("HALF=1",) if scores.dtype == np.float16 else ()
    arguments = (
        scores,
        *strides,
        xp.ascontiguousarray(best),
        np.int32(count),
        np.int32(wide),
        np.int32(high),
        to_map.view(np.float64),
        sizes.view(np.int32),
        np.int64(room),
        classes,
    )
    launch = kernel("class_maps.cu", "pixel_classes", defines)
    launch((-(-room // _THREADS), frames), (_THREADS,), arguments)
    return classes


class _Axis(NamedTuple):
    """The pixels of a frame along an axis.

    Attributes:
        lower, upper: the places of the map that each pixel lies between.
        weight: of the upper one, float32.
    """

    lower: np.ndarray
    upper: np.ndarray
    weight: np.ndarray


def _axis(pixels: int, scale: float, offset: float, places: int) -> _Axis:
    at = np.clip((np.arange(pixels) + 0.5) * scale + offset - 0.5, 0, places - 1)
    lower = np.floor(at).astype(np.intp)
    return _Axis(lower, np.minimum(lower + 1, places - 1), (at - lower).astype(np.float32))


def _fill(pixels: np.ndarray, scores: np.ndarray, best: np.ndarray, to_map: np.ndarray) -> None:
    """Set the class of each pixel of a frame.

    Args:
        pixels: (width, height) uint8, written.
        scores: (classes, h, w).
        best: (h, w), the best class of each place.
        to_map: (4,) place = pixel x scale + offset.
    """
    high, wide = best.shape
    across = _axis(pixels.shape[0], to_map[0], to_map[2], wide)
    down = _axis(pixels.shape[1], to_map[1], to_map[3], high)
    pixels[:] = best.T[across.lower][:, down.lower]
    right = np.minimum(np.arange(wide) + 1, wide - 1)
    below = np.minimum(np.arange(high) + 1, high - 1)
    mixed = (best != best[:, right]) | (best != best[below]) | (best != best[below][:, right])
    x, y = np.nonzero(mixed.T[across.lower][:, down.lower])
    for start in range(0, len(x), _PIXELS):
        part = slice(start, start + _PIXELS)
        pixels[x[part], y[part]] = _sampled(scores, across, down, x[part], y[part])


def _sampled(scores: np.ndarray, across: _Axis, down: _Axis, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the best class of pixels at (x, y), by their scores.

    A class whose highest score at the four places is below another's lowest cannot win: it is not sampled there.
    """
    wide = scores.shape[2]
    corners = np.stack([rows[y] * wide + columns[x] for rows in (down.lower, down.upper) for columns in across[:2]])
    cell, pixel_cell = np.unique(corners[0], return_inverse=True)
    first = np.zeros(len(cell), np.intp)
    first[pixel_cell] = np.arange(len(x))
    cell_corners = corners[:, first]
    floor = np.full(len(cell), -np.inf, np.float32)
    for plane in scores:
        floor = np.fmax(floor, plane.ravel()[cell_corners].astype(np.float32).min(axis=0))
    classes = np.zeros(len(x), np.uint8)
    highest = np.full(len(x), -np.inf, np.float32)
    order = np.argsort(pixel_cell, kind="stable")
    count = np.bincount(pixel_cell, minlength=len(cell))
    begin = np.cumsum(count) - count
    weight_x = across.weight[x]
    weight_y = down.weight[y]
    for number, plane in enumerate(scores):
        values = plane.ravel()
        possible = np.flatnonzero(values[cell_corners].max(axis=0) >= floor)
        length = count[possible]
        end = np.cumsum(length)
        pixels = order[np.arange(length.sum()) + np.repeat(begin[possible] - end + length, length)]
        low_left, low_right, up_left, up_right = values[corners[:, pixels]].astype(np.float32)
        share = weight_x[pixels]
        low = low_left * (1 - share) + low_right * share
        up = up_left * (1 - share) + up_right * share
        share = weight_y[pixels]
        score = low * (1 - share) + up * share
        better = score > highest[pixels]
        winners = pixels[better]
        classes[winners] = number
        highest[winners] = score[better]
    return classes


def placed_classes(
    classes: np.ndarray, geometry: np.ndarray, size_wh: tuple[int, int], input_size: tuple[int, int]
) -> np.ndarray:
    """Return the class of the place of each pixel of a frame, (width * height,) uint8 down its columns.

    Args:
        classes: (h, w) uint8, the class of each place of the map.
        geometry: (4,) of the frame.
        size_wh: its width and height.
        input_size: the network's width and height in pixels.
    """
    high, wide = classes.shape
    to_map = to_maps(geometry[None], (wide, high), input_size)[0]
    across, down = (
        np.clip(np.floor((np.arange(size_wh[i]) + 0.5) * to_map[i] + to_map[2 + i]), 0, (wide, high)[i] - 1).astype(int)
        for i in (0, 1)
    )
    return np.asarray(classes.T[across][:, down].ravel())


def class_masks(pixels: np.ndarray, size_wh: tuple[int, int]) -> dict[int, Rle]:
    """Return the mask of each class of a frame.

    Args:
        pixels: (width * height,) uint8, the class of each pixel, down the columns.
        size_wh: width and height of the frame.
    """
    start = np.concatenate([[0], np.flatnonzero(pixels[1:] != pixels[:-1]) + 1])
    end = np.append(start[1:], len(pixels))
    class_of_run = pixels[start]
    runs_of_class = {number: class_of_run == number for number in np.unique(class_of_run).tolist()}
    return {number: rle.from_runs(start[rows], end[rows], *size_wh) for number, rows in runs_of_class.items()}
