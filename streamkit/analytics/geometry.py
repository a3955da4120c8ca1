# SPDX-License-Identifier: Apache-2.0
"""Points, lines, polygons and the ground plane, in arrays. Coordinates are float64; y points down, as in an image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from streamkit.analytics.shapes import Checked, Shape, check_polygon
from streamkit.core.units import Point


def right_of(a: np.ndarray, b: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Whether each point lies to the right of each line, seen from `a` toward `b`; a point is never on a line.

    Points on a line are resolved as if all points were moved by (e, e * e) for an infinitesimal e (simulation of
    simplicity, Edelsbrunner and Muecke 1990). Each point is thus on one side, regardless of how a track reaches it.

    Args:
        a: (s, 2) float64.
        b: (s, 2) float64.
        p: (n, 2) float64.

    Returns:
        (n, s) bool.
    """
    dx, dy = (b - a).T
    place = p[:, 1:] * dx - p[:, :1] * dy
    line = a[:, 1] * dx - a[:, 0] * dy
    right = place > line
    on = place == line
    if on.any():
        right |= on & ((dy < 0) | ((dy == 0) & (dx > 0)))
    return np.asarray(right)


def pairs(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the set elements of an (n, m) bool, like `nonzero` but faster for sparse masks."""
    row, column = np.divmod(np.flatnonzero(mask), max(mask.shape[1], 1))
    return row, column


def passes(p: np.ndarray, q: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether the step from p to q, with its ends on both sides of the line through a and b, passes between a and b.

    Points on the step's line are resolved as in `right_of`, with the step moved and a and b fixed.

    Args:
        p: (k, 2) float64.
        q: (k, 2) float64.
        a: (k, 2) float64.
        b: (k, 2) float64.
    """
    return np.asarray(_beside(p, q, a) != _beside(p, q, b))


def _beside(p: np.ndarray, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    dx = q[:, 0] - p[:, 0]
    dy = q[:, 1] - p[:, 1]
    turn = dx * (v[:, 1] - p[:, 1]) - dy * (v[:, 0] - p[:, 0])
    return np.asarray((turn > 0) | ((turn == 0) & ((dy > 0) | ((dy == 0) & (dx < 0)))))


class Lines:
    """Several lines of one or more segments each.

    Attributes:
        a: (s, 2) float64, start of each segment.
        b: (s, 2) float64, end of each segment.
        owner: (s,) the line of each segment, ascending.
    """

    def __init__(self, shapes: Sequence[Shape], *, closed: bool = False) -> None:
        ends = [list(zip(s, (*s[1:], s[0]) if closed else s[1:], strict=False)) for s in shapes]
        self.a = np.array([a for line in ends for a, _ in line], np.float64)
        self.b = np.array([b for line in ends for _, b in line], np.float64)
        lengths = [len(line) for line in ends]
        self.owner = np.repeat(np.arange(len(ends)), lengths)
        longest = max(lengths)
        # (lines, most, 2, 2): each line's segments, the last again where another line has more
        padded = [line + line[-1:] * (longest - len(line)) for line in ends]
        self._segments = np.array(padded, np.float64).reshape(len(ends), longest, 2, 2)

    def __len__(self) -> int:
        return len(self._segments)

    def distance(self, xy: np.ndarray, line: np.ndarray, aspect: np.ndarray) -> np.ndarray:
        """Return the distance of points from lines.

        Args:
            xy: (k, 2) float64.
            line: (k,) the line that each point is measured from.
            aspect: (k,) float64, length of a unit of x in units of y.

        Returns:
            (k,) float64, in units of y.
        """
        stretch = np.stack([aspect, np.ones_like(aspect)], axis=1)[:, None]  # (k, 1, 2)
        a, b = (self._segments[line, :, end] * stretch for end in (0, 1))
        way = b - a
        from_a = xy[:, None] * stretch - a
        share = (from_a * way).sum(axis=2) / (way * way).sum(axis=2)
        gap = from_a - np.clip(share, 0, 1)[..., None] * way
        return np.asarray(np.sqrt((gap * gap).sum(axis=2)).min(axis=1))


class Areas(Lines):
    """Several polygons. Each point of an edge that two polygons share is in exactly one of them."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        super().__init__(shapes, closed=True)
        a = self._segments[:, :, 0]
        b = self._segments[:, :, 1]
        down = a[..., 1:] <= b[..., 1:]
        # so an edge is the same, whichever way one goes round
        top = np.where(down, a, b)
        bottom = np.where(down, b, a)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (bottom[..., 0] - top[..., 0]) / (bottom[..., 1] - top[..., 1])
        end = bottom[..., 1].copy()
        lengths = np.bincount(self.owner)
        end[np.arange(end.shape[1]) >= lengths[:, None]] = -np.inf  # padding is at no height
        slope = np.nan_to_num(slope, posinf=0, neginf=0)
        # (most, areas): what is reduced over a polygon's edges comes first
        self._x, self._y, self._slope, self._end = (a.T.copy() for a in (top[..., 0], top[..., 1], slope, end))
        self._low = self._segments.min(axis=(1, 2))
        self._high = self._segments.max(axis=(1, 2))

    def inside(self, xy: np.ndarray) -> np.ndarray:
        """Return (n, areas) bool: whether each point is in each polygon, by the even-odd rule (Franklin's PNPOLY).

        Args:
            xy: (n, 2) float64.
        """
        x = xy[:, :1]
        y = xy[:, 1:]
        is_inside = (x >= self._low[:, 0]) & (x <= self._high[:, 0])
        is_inside &= (y >= self._low[:, 1]) & (y <= self._high[:, 1])
        i, area = pairs(is_inside)
        x = xy[i, 0]
        y = xy[i, 1]
        from_y = self._y.take(area, axis=1)  # (most, k): the edges of each point's polygon
        left = (y >= from_y) & (y < self._end.take(area, axis=1))  # those at the point's height
        left &= x >= (y - from_y) * self._slope.take(area, axis=1) + self._x.take(area, axis=1)
        is_inside[i, area] = np.bitwise_xor.reduce(left, axis=0)
        return np.asarray(is_inside)


_SINGULAR = 1e-18  # determinant of a matrix whose largest element is 1
_FLAT = 1e-3  # a triangle is flat if its area is less than this share of its longest side squared
_FAR = 1e-2  # minimum depth of a measured point, in the scale of the four points; less is near the horizon


class Plane:
    """A homography from the frame to the ground (Hartley and Zisserman, Multiple View Geometry, 4.1).

    Args:
        points: four points of the frame, no three of them on a line, in order around the area.
        ground: the same four points on the ground, in meters.

    Raises:
        ValueError: there are not four points, three lie on a line, or the orders differ.
    """

    def __init__(self, points: Sequence[Point], ground: Sequence[Point]) -> None:
        check_four(points)
        check_four(ground)
        (a, scale_a), (b, scale_b) = (_normal(np.array(four, np.float64)) for four in (points, ground))
        rows = []
        for (x, y), (u, v) in zip(a, b, strict=True):
            rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y, -u])
            rows.append([0, 0, 0, x, y, 1, -v * x, -v * y, -v])
        h = np.linalg.svd(np.array(rows))[2][-1].reshape(3, 3)
        depth = np.column_stack([a, np.ones(4)]) @ h[2]
        if not (depth > 0).all() and not (depth < 0).all():  # the horizon would pass between them
            raise ValueError("points and ground do not fit: give the corners of both in the same order around the area")
        h = h / depth.mean()
        self._matrix = np.linalg.inv(scale_b) @ h @ scale_a
        self._depth = h[2] @ scale_a

    @classmethod
    def of_matrix(cls, matrix: np.ndarray) -> Plane:
        """Return the plane of a homography from the frame to the ground, (3, 3), of a camera that is not upside down.

        Raises:
            ValueError: the matrix has no inverse.
        """
        largest = np.abs(matrix).max()
        if not 0 < largest < np.inf or not abs(np.linalg.det(matrix / largest)) > _SINGULAR:
            raise ValueError("must be a homography: three rows of three numbers, which do not depend on each other")
        below = matrix[2, 1] or matrix[2, 2]  # the ground is where the third row is positive, below the horizon
        plane = cls.__new__(cls)
        plane._matrix = matrix * np.sign(below)
        plane._depth = plane._matrix[2] / np.abs(plane._matrix[2]).max()
        return plane

    def meters(self, xy: np.ndarray) -> np.ndarray:
        """Return the ground position of points of the frame.

        Args:
            xy: (n, 2) float64.

        Returns:
            (n, 2) float64 meters; NaN at and beyond the horizon.
        """
        flat = np.column_stack([xy, np.ones(len(xy))])
        depth = flat @ self._depth
        projected = flat @ self._matrix.T
        with np.errstate(divide="ignore", invalid="ignore"):
            meters = projected[:, :2] / projected[:, 2:]
        return np.where(depth[:, None] > _FAR, meters, np.nan)


def read_homography(path: str | Path) -> Plane:
    """Read the file of a homography from the frame to the ground in meters: nine numbers, row by row, in text or JSON.

    Raises:
        ValueError: the file cannot be read, or holds no homography.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read the file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"cannot read the file {path}: it is not text") from None
    wanted = f"the file {path} must hold three rows of three numbers"
    try:
        numbers = [float(word) for word in re.split(r"[\s,;\[\]]+", text) if word]
    except ValueError as error:
        raise ValueError(f"{wanted}: {error}") from None
    if len(numbers) != 9:
        raise ValueError(f"{wanted}, got {len(numbers)} numbers")
    try:
        return Plane.of_matrix(np.array(numbers).reshape(3, 3))
    except ValueError as error:
        raise ValueError(f"the file {path} {error}") from None


def check_four(points: Sequence[Point]) -> Shape:
    """Check that there are four points, no three of them on a line, in order; raise ValueError."""
    if len(points) != 4:
        raise ValueError("must be four points")
    for skipped in range(4):
        a, b, c = (np.array(p, np.float64) for i, p in enumerate(points) if i != skipped)
        sides = [b - a, c - a, c - b]
        area = abs(sides[0][0] * sides[1][1] - sides[0][1] * sides[1][0])
        if not area > _FLAT * max(float(side @ side) for side in sides):
            first, second, third = (i + 1 for i in range(4) if i != skipped)
            raise ValueError(f"must be four points, no three on a line: points {first}, {second} and {third} are")
    try:
        return check_polygon(points)
    except ValueError:
        raise ValueError("must be four points in order around the area: its edges cross") from None


FourPoints = Annotated[Shape, Checked(check_four)]
"""Four points, no three of them on a line, in order around their area."""


def _normal(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the points centerd and scaled to about 1, and the matrix that does it."""
    middle = points.mean(axis=0)
    scale = np.sqrt(2) / np.linalg.norm(points - middle, axis=1).mean()
    matrix = np.array([[scale, 0, -scale * middle[0]], [0, scale, -scale * middle[1]], [0, 0, 1]])
    return (points - middle) * scale, matrix
