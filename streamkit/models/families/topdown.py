# SPDX-License-Identifier: Apache-2.0
"""Poses of one object in a crop that fills the input: for each keypoint, where it is likely to be.

| family | outputs | place of a keypoint |
| --- | --- | --- |
| `simcc` | `simcc_x` (N, P, r W), `simcc_y` (N, P, r H) | the maximum of each, in pixels / r |
| `heatmaps` | (N, P, H / s, W / s) | the maximum, and a quarter of a cell towards its larger neighbor |
| `heatmaps_udp` | the same | the top of a Gaussian at the maximum (DARK); outer cells are outer pixels (UDP) |

The score of a keypoint is the value at the maximum, of `simcc` the smaller of the two, cut at 0 and 1. That of the
object is the mean, and its box is the whole input: an object that another stage found keeps its own. Authors count
pixels from the center of the first one, streamkit from the frame's edge, so half a pixel is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.models.families.base import (
    Columns,
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    Size,
    Values,
    authors_input,
    listed,
    network_family,
    shape_of,
)
from streamkit.models.network_file import ModelInfo
from streamkit.ops.candidates import labeled_class

_SKELETONS = {17: "coco", 26: "halpe", 133: "wholebody"}
"""The set of keypoints of a person by their number."""
_MEAN = (123.675, 116.28, 103.53)
_STD = (58.395, 57.12, 57.375)
_TOP = 2.0
"""Values at a maximum that are further from 0 to 1 are logits: networks learn maps with tops of 1."""
_STRIDES = (2, 4, 8)
_USUAL_STRIDE = 4
_SIGMA = 0.8
_RADIUS = 5
"""Standard deviation and radius in cells of the blur before DARK, as in Hugging Face's ViTPose."""
_MAX_CELLS = 2
_LOWEST = np.float32(0.001)
_HIGHEST = np.float32(50)
_HALF = np.float32(0.5)


def _line(name: str) -> Any:
    return authors_input(name, 0, anchor="center", pad=0, scale=1, mean=_MEAN, std=_STD)


class TopDown(Family):
    """One object per image; the column `keypoints`."""

    task = "pose"
    columns: Columns = {"keypoints": (-1, 3)}  # noqa: RUF012  # never changed
    label = "person"
    top_down = True

    def keypoints(self, outputs: Shapes, classes: int) -> str:
        """See `Family.keypoints`: the number tells."""
        return _SKELETONS.get(self.points(outputs, classes) or 0, "")

    def places(self, outputs: Outputs, n: int, input_size: Size) -> tuple[Array, Array, Array]:
        """Return x, y in network pixels, counted from the center of the first one, and value of each keypoint.

        Returns:
            Three arrays (n, points) float32, on the outputs' device.
        """
        raise NotImplementedError

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`; a value that is not finite makes the object's score so."""
        x, y, value = self.places(outputs, n, input_size)
        xp = array_module(value)
        score = xp.where(xp.isfinite(value), xp.clip(value, 0, 1), np.float32(np.nan))
        points = xp.stack([x + _HALF, y + _HALF, score], axis=2)
        box = xp.zeros((n, 1, 4), np.float32)
        box[:, :, 2] = input_size[0]
        box[:, :, 3] = input_size[1]
        return labeled_class(
            box,
            score.mean(axis=1, keepdims=True),
            xp.zeros((n, 1), np.int32),
            min_score=min_score,
            points=points.reshape(n, 1, -1),
            step=3,
        )


def _plain_object(image: PlainImage, points: list[tuple[float, float, float]]) -> np.ndarray:
    """Return the row of one object for `FamilyTraits.reference`, of x, y from the first pixel's center and value."""
    placed = [(x + 0.5, y + 0.5, min(max(value, 0.0), 1.0)) for x, y, value in points]
    mean = sum(score for *_, score in placed) / len(placed)
    return np.array([[0, 0, *image.input_size, mean, 0, *(number for point in placed for number in point)]])


# ---------------------------------------------------------------------------------------------------------- SimCC


def _axes(outputs: Mapping[str, Any], size: Size | None = None) -> tuple[str, str] | None:
    """Return the names of the outputs of x and of y: by their names, else by their lengths; None if neither tells."""
    rows = {name: shape_of(value) for name, value in outputs.items() if len(shape_of(value)) == 3}
    ends = {name[-1:].lower(): name for name in rows}
    if len(rows) >= 2 and {"x", "y"} <= ends.keys():
        return ends["x"], ends["y"]
    if size is None or len(rows) != 2:
        return None
    first, second = rows
    orders = ((first, second), (second, first))
    fitting = [(x, y) for x, y in orders if _split_ratio(rows[x], rows[y], size)]
    return fitting[0] if len(fitting) == 1 else None


def _split_ratio(x: Any, y: Any, size: Size) -> float:
    """Return the number of places of each pixel, by the shapes of x and y; 0 if these are not for this input."""
    lengths = (x[2], y[2])
    if not all(isinstance(length, int) and length > 0 for length in lengths):
        return 0.0
    ratios = [length / side for length, side in zip(lengths, size, strict=True)]
    return ratios[0] if ratios[0] == ratios[1] >= 1 else 0.0


def _is_simcc(info: ModelInfo, size: Size) -> bool:
    """Whether the two outputs have the same number of places for each pixel of the input."""
    names = _axes(info.output_dims, size)
    if names is None:
        return False
    x, y = (info.output_dims[name] for name in names)
    lengths_are_open = not all(isinstance(dims[2], int) for dims in (x, y))
    return lengths_are_open or _split_ratio(x, y, size) > 0


def _reference_simcc(image: PlainImage) -> np.ndarray:
    names = _axes({name: output[None] for name, output in image.outputs.items()}, image.input_size)
    assert names is not None
    x, y = (image.outputs[name] for name in names)
    ratio = x.shape[1] / image.input_size[0]
    points = [
        (across.argmax() / ratio, down.argmax() / ratio, min(across.max(), down.max()))
        for across, down in zip(x, y, strict=True)
    ]
    return _plain_object(image, points)


def _not_simcc(values: Values, size: Size, classes: int | None) -> str:
    names = _axes(values, size)
    if names is None:
        return ""
    x, y = (values[name][0] for name in names)
    return "" if len(x) == len(y) else f"it has {len(x)} keypoints across and {len(y)} down"


@network_family(
    "simcc",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`simcc_x` (N, P, w), `simcc_y` (N, P, h)",
                "how likely each keypoint is at each place across and down, as many for each pixel. RTMPose, RTMW, "
                "DWPose: read as rtmlib 0.0.16 does; exports unverified",
            ),
        ),
        line=_line("RTMPose"),
        plausible=_is_simcc,
        doubt=_not_simcc,
        reference=_reference_simcc,
    ),
)
class SimCC(TopDown):
    """Two outputs: the places across and those down."""

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        names = self._pair(outputs)
        points = [outputs[name][1] for name in names]
        if all(isinstance(count, int) and count > 0 for count in points) and points[0] != points[1]:
            raise ValueError(
                f"family {self.name}: the outputs {listed({name: outputs[name] for name in names})} must have the same "
                "number of keypoints"
            )
        self._check_single_class(classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(self._pair(outputs))

    def points(self, outputs: Shapes, classes: int) -> int | None:
        """See `Family.points`."""
        counts = [outputs[name][1] for name in self._pair(outputs)]
        return next((count for count in counts if isinstance(count, int) and count > 0), None)

    def places(self, outputs: Outputs, n: int, input_size: Size) -> tuple[Array, Array, Array]:
        """See `TopDown.places`."""
        names = _axes(outputs, input_size)
        shapes = listed({name: outputs[name] for name in self._pair(outputs)})
        if names is None:
            raise ValueError(
                f"family {self.name}: neither names nor lengths of the outputs {shapes} say which is of x and which of "
                "y; export the network with the names simcc_x and simcc_y"
            )
        x, y = (outputs[name][:n] for name in names)
        ratio = _split_ratio(x.shape, y.shape, input_size)
        if not ratio:
            raise ValueError(
                f"family {self.name}: the outputs {shapes} must have the same number of places for each pixel of the "
                f"input, which is {input_size[0]}x{input_size[1]}; the card's input size or family does not match the "
                "network"
            )
        xp = array_module(x)
        value = xp.minimum(x.max(axis=2), y.max(axis=2)).astype(np.float32)
        across, down = (axis.argmax(axis=2).astype(np.float32) / np.float32(ratio) for axis in (x, y))
        return across, down, value

    def _pair(self, outputs: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the two outputs, x first if their names tell."""
        names = _axes(outputs)
        if names is not None:
            return names
        rows = tuple(name for name, value in outputs.items() if len(shape_of(value)) == 3)
        if len(rows) != 2:
            raise ValueError(
                f"family {self.name} reads two outputs (N, points, places), of x and of y; the network has "
                f"{listed(outputs)}"
            )
        return rows


# ------------------------------------------------------------------------------------------------------ heat maps


def _is_heat_map(info: ModelInfo, size: Size) -> bool:
    """Whether the map has cells of whole pixels; without a name, also a number of points and an upright input."""
    maps = [(name, dims) for name, dims in info.output_dims.items() if len(dims) == 4]
    if len(maps) != 1:
        return False
    ((name, (_, points, high, wide)),) = maps
    if not (isinstance(high, int) and isinstance(wide, int)):
        return "heatmap" in name
    stride = size[0] // wide if wide else 0
    if (wide * stride, high * stride) != size or stride not in _STRIDES:
        return False
    return "heatmap" in name or (points in _SKELETONS and stride == _USUAL_STRIDE and size[1] > size[0])


def _is_hugging_face(info: ModelInfo) -> bool:
    """Whether input and output have the names of Hugging Face's ViTPose."""
    return info.image_input == "pixel_values" and "heatmaps" in info.outputs


def _not_heat_maps(values: Values, size: Size, classes: int | None) -> str:
    top = next(array for array in values.values() if array.ndim == 4)[0].max(axis=(1, 2))
    outside = top.size and np.isfinite(top).all() and (top.max() > _TOP or top.min() < -1)
    return f"the tops of its maps are from {top.min():.1f} to {top.max():.1f}, which are no scores" if outside else ""


def _plain_map(image: PlainImage) -> np.ndarray:
    (maps,) = [output for output in image.outputs.values() if output.ndim == 3]
    return maps


def _reference_heatmaps(image: PlainImage) -> np.ndarray:
    maps = _plain_map(image)
    high, wide = maps.shape[1:]
    stride = image.input_size[0] / wide
    points = []
    for heat in maps:
        y, x = np.unravel_index(heat.argmax(), heat.shape)
        dx = np.sign(heat[y, x + 1] - heat[y, x - 1]) / 4 if 1 < x < wide - 1 and y > 0 else 0.0
        dy = np.sign(heat[y + 1, x] - heat[y - 1, x]) / 4 if 1 < y < high - 1 and x > 0 else 0.0
        points.append(((x + dx) * stride, (y + dy) * stride, heat[y, x]))
    return _plain_object(image, points)


class _HeatMaps(TopDown):
    """One map for each keypoint."""

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        self._maps(outputs)
        self._check_single_class(classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset([self._maps(outputs)[0]])

    def points(self, outputs: Shapes, classes: int) -> int | None:
        """See `Family.points`."""
        count = self._maps(outputs)[1][1]
        return count if isinstance(count, int) and count > 0 else None

    def places(self, outputs: Outputs, n: int, input_size: Size) -> tuple[Array, Array, Array]:
        """See `TopDown.places`."""
        maps = self._maps(outputs)[1][:n]
        xp = array_module(maps)
        high, wide = maps.shape[2:]
        flat = maps.reshape(n, maps.shape[1], high * wide)
        top = flat.argmax(axis=2)
        value = xp.take_along_axis(flat, top[:, :, None], axis=2)[:, :, 0].astype(np.float32)
        row = top // wide
        column = top % wide
        dx, dy = self.shift(maps, row, column)
        across, down = self.unit((wide, high), input_size)
        x = (column.astype(np.float32) + dx) * np.float32(across)
        return x, (row.astype(np.float32) + dy) * np.float32(down), value

    def shift(self, maps: Array, row: Array, column: Array) -> tuple[Array, Array]:
        """Return how far each keypoint is right of and below its cell, in cells: two arrays (n, points) float32.

        Args:
            maps: (n, points, h, w).
            row: (n, points), of the cell.
            column: (n, points), of the cell.
        """
        raise NotImplementedError

    def unit(self, cells: Size, input_size: Size) -> tuple[float, float]:
        """Return width and height in pixels from the center of a cell to that of the next."""
        raise NotImplementedError

    def _maps(self, outputs: Mapping[str, Any]) -> tuple[str, Any]:
        return self._only(outputs, 4, "(N, points, h, w)")


def _neighbors(maps: Array, row: Array, column: Array) -> Array:
    """Return (n, points, ...) float32 the values at rows and columns (n, points, ...)."""
    xp = array_module(maps)
    n, points = maps.shape[:2]
    lead = (slice(None), slice(None), *(None,) * (row.ndim - 2))
    image = xp.arange(n)[:, None][lead]
    point = xp.arange(points)[None][lead]
    return maps[image, point, row, column].astype(np.float32)


@network_family(
    "heatmaps",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, P, h, w)",
                "how likely each keypoint is in each cell; refined by a quarter of a cell. HRNet, "
                "SimpleBaseline: read as MMPose 1.3.2 does; exports unverified",
            ),
        ),
        line=_line("HRNet"),
        plausible=lambda info, size: _is_heat_map(info, size) and not _is_hugging_face(info),
        doubt=_not_heat_maps,
        reference=_reference_heatmaps,
    ),
)
class HeatMaps(_HeatMaps):
    """Maps that are refined by the neighbors of the maximum."""

    def shift(self, maps: Array, row: Array, column: Array) -> tuple[Array, Array]:
        """See `_HeatMaps.shift`; as in MMPose, a maximum in the outer cells is not refined."""
        xp = array_module(maps)
        high, wide = maps.shape[2:]
        left, right = (xp.clip(column + step, 0, wide - 1) for step in (-1, 1))
        above, below = (xp.clip(row + step, 0, high - 1) for step in (-1, 1))
        dx = xp.sign(_neighbors(maps, row, right) - _neighbors(maps, row, left))
        dy = xp.sign(_neighbors(maps, below, column) - _neighbors(maps, above, column))
        across = (column > 1) & (column < wide - 1) & (row > 0)
        down = (row > 1) & (row < high - 1) & (column > 0)
        quarter = np.float32(0.25)
        return xp.where(across, dx, np.float32(0)) * quarter, xp.where(down, dy, np.float32(0)) * quarter

    def unit(self, cells: Size, input_size: Size) -> tuple[float, float]:
        """See `_HeatMaps.unit`."""
        return input_size[0] / cells[0], input_size[1] / cells[1]


@cache
def _blur_weights() -> list[np.float32]:
    """Return the share of each cell in the blurred one at the middle, along one axis."""
    weights = np.exp(-0.5 * (np.arange(-_RADIUS, _RADIUS + 1) / _SIGMA) ** 2)
    return list((weights / weights.sum()).astype(np.float32))


def _blurred(cells: Array) -> Array:
    """Return (..., 3, 3) the blurred cells at the middle of (..., 13, 13), added in one order on all devices."""
    weights = _blur_weights()
    down = sum(cells[..., i : i + 3, :] * weight for i, weight in enumerate(weights))
    return sum(down[..., i : i + 3] * weight for i, weight in enumerate(weights))


def _mirrored(cells: Any, count: int) -> Any:
    """Return the indices of cells, of which those beyond the edges are mirrored there, the edge cell twice."""
    period = 2 * count
    around = cells % period
    return array_module(cells).minimum(around, period - 1 - around)


def _plain_mirrored(cell: int, count: int) -> int:
    while not 0 <= cell < count:
        cell = -1 - cell if cell < 0 else 2 * count - 1 - cell
    return cell


def _reference_udp(image: PlainImage) -> np.ndarray:
    maps = _plain_map(image)
    high, wide = maps.shape[1:]
    units = [(side - 1) / (cells - 1) for side, cells in zip(image.input_size, (wide, high), strict=True)]
    points = []
    for heat in maps:
        y, x = (int(index) for index in np.unravel_index(heat.argmax(), heat.shape))
        logs = np.log(np.clip(_plain_blurred(heat, x, y), _LOWEST, _HIGHEST))
        gradient = np.array([logs[1, 2] - logs[1, 0], logs[2, 1] - logs[0, 1]]) / 2
        mixed = (logs[2, 2] + 2 * logs[1, 1] + logs[0, 0] - logs[1, 2] - logs[2, 1] - logs[1, 0] - logs[0, 1]) / 2
        bend_x, bend_y = (line[2] - 2 * line[1] + line[0] for line in (logs[1], logs[:, 1]))
        bend = np.array([[bend_x, mixed], [mixed, bend_y]]) + np.finfo(np.float32).eps * np.eye(2)
        dx, dy = (-np.linalg.solve(bend, gradient)).clip(-2, 2)
        points.append(((x + dx) * units[0], (y + dy) * units[1], heat[y, x]))
    return _plain_object(image, points)


def _plain_blurred(heat: np.ndarray, x: int, y: int) -> np.ndarray:
    """Return (3, 3) the blurred map at and around a cell."""
    reach = range(-_RADIUS, _RADIUS + 1)
    weights = [math.exp(-((step / _SIGMA) ** 2) / 2) for step in reach]
    total = sum(weights) ** 2
    high, wide = heat.shape
    blurred = np.zeros((3, 3))
    for row in range(3):
        for column in range(3):
            blurred[row, column] = sum(
                weights[down + _RADIUS]
                * weights[across + _RADIUS]
                * heat[_plain_mirrored(y + row - 1 + down, high), _plain_mirrored(x + column - 1 + across, wide)]
                for down in reach
                for across in reach
            )
    return blurred / total


@network_family(
    "heatmaps_udp",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, P, h, w)",
                "as heatmaps, trained with UDP: the outer cells are the outer pixels, refined by DARK. ViTPose of "
                "transformers 5.24",
            ),
        ),
        line=_line("ViTPose"),
        plausible=_is_heat_map,
        doubt=_not_heat_maps,
        reference=_reference_udp,
        hugging_face="PoseEstimation",
    ),
)
class UdpHeatMaps(_HeatMaps):
    """Maps that are refined by a Gaussian through the blurred maximum and its neighbors."""

    def shift(self, maps: Array, row: Array, column: Array) -> tuple[Array, Array]:
        """See `_HeatMaps.shift`; at most two cells, where the map is too flat to tell."""
        xp = array_module(maps)
        high, wide = maps.shape[2:]
        reach = xp.arange(-_RADIUS - 1, _RADIUS + 2)
        rows = _mirrored(row[:, :, None, None] + reach[:, None], high)
        columns = _mirrored(column[:, :, None, None] + reach, wide)
        logs = xp.log(xp.clip(_blurred(_neighbors(maps, rows, columns)), _LOWEST, _HIGHEST))
        center = logs[..., 1, 1]
        sides = logs[..., 1, 0] + logs[..., 1, 2]
        ends = logs[..., 0, 1] + logs[..., 2, 1]
        dx = (logs[..., 1, 2] - logs[..., 1, 0]) * _HALF
        dy = (logs[..., 2, 1] - logs[..., 0, 1]) * _HALF
        eps = np.finfo(np.float32).eps
        bend_x = sides - 2 * center + eps
        bend_y = ends - 2 * center + eps
        mixed = (logs[..., 2, 2] + logs[..., 0, 0] + 2 * center - sides - ends) * _HALF
        area = bend_x * bend_y - mixed * mixed
        area = xp.where(area == 0, eps, area)
        right = (mixed * dy - bend_y * dx) / area
        below = (mixed * dx - bend_x * dy) / area
        return xp.clip(right, -_MAX_CELLS, _MAX_CELLS), xp.clip(below, -_MAX_CELLS, _MAX_CELLS)

    def unit(self, cells: Size, input_size: Size) -> tuple[float, float]:
        """See `_HeatMaps.unit`."""
        return (input_size[0] - 1) / max(cells[0] - 1, 1), (input_size[1] - 1) / max(cells[1] - 1, 1)
