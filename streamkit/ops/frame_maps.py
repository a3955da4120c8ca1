# SPDX-License-Identifier: Apache-2.0
"""Maps of values over frames, such as depth: their range, their median in an object, and drawing them as colors.

Arrays stay on their device; an object's median is one number. The host and the kernels (cuda/frame_maps.cu) give equal
numbers and bytes: values are chosen, not averaged, and colors are computed in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from streamkit.core.data import Array, Color, FrameMap, Surface, array_module
from streamkit.ops import rle
from streamkit.ops.color import rgb_to_yuv
from streamkit.ops.cuda.load import kernel
from streamkit.ops.overlay import set_ready
from streamkit.ops.transfer import to_device

_MOST = 64  # places of an object that count, in a row and in a column
_THREADS = 256  # as in cuda/frame_maps.cu
_BLOCK = (32, 8)
_ONE = 256  # the weight of a place
_NOTHING = -(1 << 20)  # below any level
_BAND = 32  # rows of blocks drawn at a time: their numbers stay in the processor's cache

SAMPLE = np.dtype([(name, "<i4") for name in ("frame", "x", "y", "step_x", "step_y", "columns", "rows", "mask")])
"""The places of an object, `struct Sample` of cuda/frame_maps.cu: `columns` x `rows` of them, from x, y on, every
`step_x` and `step_y`. `mask` is where its flags begin, one for each place; -1 for none."""

LAYER = np.dtype(
    [
        *((name, "<u8") for name in ("from", "to", "levels")),
        *((name, "<i4") for name in ("width", "height", "pitch", "across", "down", "colors")),
    ]
)
"""A map to draw on a frame, `struct Layer` of cuda/frame_maps.cu; the last three are places in the table."""


# -------------------------------------------------------------------------------------------------------------- places


def to_maps(geometry: np.ndarray, map_size: tuple[int, int], input_size: tuple[int, int]) -> np.ndarray:
    """Return (n, 4) float64, `FrameMap.to_map` of each frame.

    Args:
        geometry: (n, 4), as `Batch.geometry`.
        map_size: width and height of the maps.
        input_size: width and height of the network's input.
    """
    share = np.array(map_size, np.float64) / np.array(input_size)
    return np.asarray(geometry.astype(np.float64) * np.tile(share, 2))


def frame_rects(to_map: np.ndarray, sizes_wh: np.ndarray, map_size: tuple[int, int]) -> np.ndarray:
    """Return (n, 4) int32, `FrameMap.rect` of each frame: the places whose middle is in the frame, at least one."""
    whole = np.concatenate([np.zeros_like(sizes_wh), sizes_wh], axis=1).astype(np.float64)
    every = np.tile((0, 0, *map_size), (len(to_map), 1))
    return _rects(whole, to_map, every)


def _rects(boxes: np.ndarray, to_map: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return (n, 4) int32, the places whose middle is in each box, within limits; at least the one at its middle."""
    low = limits[:, :2]
    high = limits[:, 2:]
    edges = boxes.reshape(-1, 2, 2) * to_map[:, None, :2] + to_map[:, None, 2:]
    middle = np.clip(np.floor(edges.mean(axis=1)), low, high - 1)
    start = np.clip(np.ceil(edges[:, 0] - 0.5), low, high)
    end = np.clip(np.floor(edges[:, 1] - 0.5) + 1, low, high)
    empty = end <= start
    start = np.where(empty, middle, start)
    end = np.where(empty, middle + 1, end)
    return np.asarray(np.concatenate([start, end], axis=1), np.int32)


# --------------------------------------------------------------------------------------------------------------- range


def ranged(
    maps: Array, rects: np.ndarray, form: Literal["metric", "relative", "inverse", "score"]
) -> tuple[Array, Array, Array]:
    """Bring maps into the form in which they are used, and compute their colors.

    Args:
        maps: (n, h, w) float32.
        rects: (n, 4) int32, the places that show each frame.
        form: what the values are: meters; depth without a unit, by which larger is farther or nearer; or scores.

    Returns:
        `FrameMap.values`, which is depth from 0 to 1 where it has no unit, and `FrameMap.levels` of each frame, on the
        device of the maps; and (n,) bool, whether a value of the frame is not finite.
    """
    xp = array_module(maps)
    finite = xp.isfinite(maps)
    within = _within(maps, rects)
    used = finite if within is None else finite & within
    broken = (~finite if within is None else ~finite & within).any(axis=(1, 2))
    with np.errstate(all="ignore"):
        if form == "score":
            values = maps
            near = xp.clip(maps, np.float32(0), np.float32(1))
        else:
            infinity = np.float32(np.inf)
            low = xp.where(used, maps, infinity).min(axis=(1, 2))[:, None, None]
            high = xp.where(used, maps, -infinity).max(axis=(1, 2))[:, None, None]
            far = ((high - maps) if form == "inverse" else (maps - low)) / (high - low)
            values = maps if form == "metric" else far
            near = 1 - (far if form == "inverse" else xp.sqrt(far))  # more colors for what is near
        shown = used & xp.isfinite(near)
        levels = (1 + xp.where(shown, near, np.float32(0)) * 254) * shown
    return values, levels.astype(np.uint8), broken


def _within(maps: Array, rects: np.ndarray) -> Array | None:
    """Return (n, h, w) bool, which places show the frame; None if all do."""
    height, width = maps.shape[1:]
    if (rects == (0, 0, width, height)).all():
        return None
    x = np.arange(width)
    y = np.arange(height)
    columns = (x >= rects[:, :1]) & (x < rects[:, 2:3])
    rows = (y >= rects[:, 1:2]) & (y < rects[:, 3:])
    if array_module(maps) is not np:
        sent = to_device(columns, rows)
        columns, rows = (
            part.view(bool).reshape(flags.shape) for part, flags in zip(sent, (columns, rows), strict=True)
        )
    return columns[:, None, :] & rows[:, :, None]


# ------------------------------------------------------------------------------------------------------------- objects


def object_samples(
    boxes: np.ndarray,
    frame: np.ndarray,
    to_map: np.ndarray,
    rects: np.ndarray,
    masks: Sequence[rle.Rle | None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the places of objects that count: those in the box, evenly at most 64 x 64; of those, the mask's.

    An object whose mask contains none of them has those of its box.

    Args:
        boxes: (m, 4) float32 source pixels.
        frame: (m,) the frame of each.
        to_map: (n, 4) of each frame.
        rects: (n, 4) of each frame.
        masks: of the objects, None for none.

    Returns:
        (m,) SAMPLE, and the flags of the masks, uint8. A box with a NaN has no places.
    """
    complete = np.isfinite(boxes).all(axis=1)
    places = _rects(np.where(complete[:, None], boxes, 0).astype(np.float64), to_map[frame], rects[frame])
    sides = places[:, 2:] - places[:, :2]
    steps = -(-sides // _MOST)
    counts = -(-sides // steps) * complete[:, None]
    start = places[:, :2] + (sides - 1 - (counts - 1) * steps) // 2
    samples = np.zeros(len(boxes), SAMPLE)
    for name, column in zip(SAMPLE.names or (), (frame, *start.T, *steps.T, *counts.T, -1), strict=True):
        samples[name] = column
    flags: list[np.ndarray] = []
    begin = 0
    for i, mask in enumerate(() if masks is None else masks):
        inside = None if mask is None else _inside(mask, samples[i], to_map[frame[i]])
        if inside is not None and inside.any():
            samples["mask"][i] = begin
            flags.append(inside)
            begin += inside.size
    return samples, np.concatenate(flags) if flags else np.zeros(0, np.uint8)


def _inside(mask: rle.Rle, sample: np.void, to_map: np.ndarray) -> np.ndarray:
    """Return (columns x rows,) uint8: whether the pixel at the middle of each place is in the mask."""
    part, left, top = rle.crop(mask)
    x = sample["x"] + np.arange(sample["columns"]) * sample["step_x"] + 0.5
    y = sample["y"] + np.arange(sample["rows"]) * sample["step_y"] + 0.5
    column = np.floor((x - to_map[2]) / to_map[0]).astype(np.int64) - left
    row = np.floor((y - to_map[3]) / to_map[1]).astype(np.int64) - top
    within = ((row >= 0) & (row < part.shape[0]))[:, None] & ((column >= 0) & (column < part.shape[1]))
    inside = np.zeros(within.shape, np.uint8)
    rows, columns = np.nonzero(within)
    inside[rows, columns] = part[row[rows], column[columns]]
    return inside.ravel()


def medians(maps: Array, samples: np.ndarray, flags: np.ndarray) -> Array:
    """Return the lower median of the finite values of each object, (m,) float32, on the maps' device; NaN for none.

    Args:
        maps: (n, h, w) float32.
        samples: (m,) SAMPLE on the host.
        flags: of the masks, from `object_samples`.
    """
    if array_module(maps) is np:
        return np.array([_median(maps, sample, flags) for sample in samples], np.float32)
    import cupy

    out = cupy.empty(len(samples), np.float32)
    if len(samples):
        sent = to_device(samples, np.append(flags, np.uint8(0)))
        height, width = map(np.int32, maps.shape[1:])
        arguments = (cupy.ascontiguousarray(maps), height, width, *sent, out)
        kernel("frame_maps.cu", "medians")((len(samples),), (_THREADS,), arguments)
    return out


def _median(maps: np.ndarray, sample: np.void, flags: np.ndarray) -> float:
    frame, x, y, step_x, step_y, columns, rows, mask = sample.tolist()
    part = maps[frame, y : y + rows * step_y : step_y, x : x + columns * step_x : step_x].ravel()
    counts = np.isfinite(part)
    if mask >= 0:
        counts &= flags[mask : mask + columns * rows] > 0
    part = part[counts]
    return float(np.partition(part, (len(part) - 1) // 2)[(len(part) - 1) // 2]) if len(part) else np.nan


# ------------------------------------------------------------------------------------------------------------- drawing

_DEPTH = ((24, 12, 66), (92, 28, 130), (180, 54, 116), (236, 104, 62), (252, 178, 64), (252, 246, 170))
"""RGB from far to near; each is lighter than the one before, so that a print in gray shows the same."""
_ANOMALY = ((250, 226, 60), (248, 140, 28), (226, 28, 28))
"""RGB from the network's threshold to the most unusual."""
_FAINT = 77  # the level of a score of .3, below which nothing is drawn
_FULL = 128  # the level from which the opacity is whole


@lru_cache(maxsize=64)
def palette(kind: str, color: Color, opacity: float) -> np.ndarray:
    """Return (256,) uint32 Y | Cb << 8 | Cr << 16 | opacity << 24 of each level, for surfaces of this color format."""
    level = np.arange(256)
    share = np.full(256, 1.0)
    if kind == "anomaly":
        share = np.clip((level - _FAINT) / (_FULL - _FAINT), 0, 1)
        level = np.maximum(level - _FULL, 0) * 2
    share[0] = 0
    stops = np.array(_ANOMALY if kind == "anomaly" else _DEPTH, np.float64)
    at = np.linspace(0, 255, len(stops))
    rgb = np.stack([np.interp(level, at, channel) for channel in stops.T] + [np.ones(256)])
    y, cb, cr = np.clip(np.rint(rgb_to_yuv(color) @ rgb), 0, 255).astype(np.uint32)
    table = y | cb << 8 | cr << 16 | np.rint(share * opacity * 255).astype(np.uint32) << 24
    table.setflags(write=False)
    return np.asarray(table)


@lru_cache(maxsize=256)
def _axis(count: int, scale: float, offset: float, low: int, high: int) -> np.ndarray:
    """Return (count, 3) int32 for blocks of two pixels: the places before and after their middle, the second's weight.

    The weight is in 1/256. Places are those from `low` to before `high`.
    """
    at = np.clip((2 * np.arange(count) + 1) * scale + offset - 0.5, low, high - 1)
    lower = np.floor(at).astype(np.int64)
    upper = np.minimum(lower + 1, high - 1)
    axis = np.stack([lower, upper, np.rint((at - lower) * _ONE).astype(np.int64)], axis=1).astype(np.int32)
    axis.setflags(write=False)
    return axis


def _axes(shown: FrameMap, surface: Surface) -> tuple[np.ndarray, np.ndarray]:
    scale_x, scale_y, offset_x, offset_y = shown.to_map
    left, top, right, bottom = shown.rect
    return (
        _axis(surface.width // 2, scale_x, offset_x, left, right),
        _axis(surface.height // 2, scale_y, offset_y, top, bottom),
    )


def paint(
    surfaces: Sequence[Surface], maps: Sequence[FrameMap | None], opacity: float, *, in_place: bool = False
) -> list[Surface]:
    """Draw the map of each frame over it; a block of 2x2 pixels has the level between the four places around it.

    On a device everything runs on the current stream, in one launch.

    Args:
        surfaces: the frames, all on the host or all on the current device.
        maps: of each frame; None for none.
        opacity: of the colors, 0 to 1.
        in_place: draw into the surfaces themselves; only if nothing else reads them.

    Returns:
        A surface for each: a new one if it has a map (unless `in_place`), else the one given.
    """
    painted = list(surfaces)
    chosen = [i for i, shown in enumerate(maps) if shown is not None]
    if not chosen:
        return painted
    if array_module(surfaces[0].data) is not np:
        return _paint_on_device(painted, [(i, shown) for i, shown in enumerate(maps) if shown], opacity, in_place)
    for i in chosen:
        old = surfaces[i]
        if not (in_place and old.data.flags.writeable):
            painted[i] = Surface(old.data.copy(), old.color)
        shown = maps[i]
        assert shown is not None
        _paint_on_host(painted[i], shown, palette(shown.kind, old.color, opacity))
    return painted


def _paint_on_host(surface: Surface, shown: FrameMap, colors: np.ndarray) -> None:
    across, down = _axes(shown, surface)
    left, right, weight = across.T
    levels = shown.levels.astype(np.int32)
    rows = levels[:, left] * (_ONE - weight) + levels[:, right] * weight
    empty = levels == 0
    if empty.any():
        rows[empty[:, left] | empty[:, right]] = _NOTHING
    share = colors >> 24
    inks = [((colors >> shift & 255) * share + 127).astype(np.uint16) for shift in (0, 8, 16)]
    rest = (255 - share).astype(np.uint16)
    luma = surface.data[: surface.height]
    chroma = surface.data[surface.height :]
    for first in range(0, len(down), _BAND):
        above, below, weights = down[first : first + _BAND].T
        mixed = (rows[above] * (_ONE - weights)[:, None] + rows[below] * weights[:, None] + (1 << 15)) >> 16
        blocks = np.where((rows[above] < 0) | (rows[below] < 0), 0, mixed).astype(np.uint8)
        band = slice(first, first + len(blocks))
        _mix(luma[2 * first : 2 * band.stop], blocks.repeat(2, axis=1).repeat(2, axis=0), rest, inks[0])
        for channel in (0, 1):
            _mix(chroma[band, channel::2], blocks, rest, inks[1 + channel])


def _mix(plane: np.ndarray, levels: np.ndarray, rest: np.ndarray, ink: np.ndarray) -> None:
    """Blend a plane, in place, with the ink of each level: (plane x rest + ink) / 255, rounded down."""
    import cv2

    total = plane * cv2.LUT(levels, rest)
    total += cv2.LUT(levels, ink)
    total += (total >> 8) + 1  # then the high byte is the quotient
    plane[...] = total >> 8


class _KernelTable:
    """The parts of the kernel's table, equal ones once."""

    def __init__(self) -> None:
        self._begins: dict[int, int] = {}
        self._size = 0
        self.parts: list[np.ndarray] = []

    def begin(self, part: np.ndarray) -> int:
        """Return where an array of 4 bytes a number begins; the same array, which is cached, begins once."""
        if id(part) not in self._begins:
            self._begins[id(part)] = self._size
            self._size += part.size
            self.parts.append(part.ravel().view(np.int32))
        return self._begins[id(part)]


def _paint_on_device(
    painted: list[Surface], shown: Sequence[tuple[int, FrameMap]], opacity: float, in_place: bool
) -> list[Surface]:
    import cupy

    layers = []
    table = _KernelTable()
    for i, frame_map in shown:
        old = painted[i]
        painted[i] = old if in_place else Surface(cupy.empty(old.data.shape, np.uint8), old.color)
        levels = frame_map.levels
        pointers = old.data.data.ptr, painted[i].data.data.ptr, levels.data.ptr
        parts = (*_axes(frame_map, old), palette(frame_map.kind, old.color, opacity))
        layers.append((*pointers, old.width, old.height, levels.strides[0], *map(table.begin, parts)))
    records = np.array(layers, LAYER)
    on_device = to_device(records, np.concatenate(table.parts))
    width, height = (int(records[name].max()) // 2 for name in ("width", "height"))
    grid = (-(-width // _BLOCK[0]), -(-height // _BLOCK[1]), len(layers))
    kernel("frame_maps.cu", "paint")(grid, _BLOCK, tuple(on_device))
    drawn = {i for i, _ in shown}
    set_ready(painted, [(0, int(i in drawn)) for i in range(len(painted))])
    return painted
