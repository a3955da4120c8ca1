"""Homography from the frame to the ground plane, from four points with known positions in metres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from streamkit.analytics.shapes import Checked, Shape, check_polygon
from streamkit.core.units import Point

_FLAT = 1e-3  # a triangle of less than this share of its longest side squared is taken for a line
_FAR = 1e-2  # nearer to the horizon than this, in the scale of the four points, nothing is measured


class Plane:
    """A homography from the frame to the ground (Hartley and Zisserman, Multiple View Geometry, 4.1).

    Args:
        points: four points of the frame, no three of them on a line, in order around the area.
        ground: the same four points on the ground, in metres.

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

    def metres(self, xy: np.ndarray) -> np.ndarray:
        """Return the ground position of points of the frame.

        Args:
            xy: (n, 2) float64.

        Returns:
            (n, 2) float64 metres; NaN at and beyond the horizon.
        """
        flat = np.column_stack([xy, np.ones(len(xy))])
        depth = flat @ self._depth
        found = flat @ self._matrix.T
        with np.errstate(divide="ignore", invalid="ignore"):
            metres = found[:, :2] / found[:, 2:]
        return np.where(depth[:, None] > _FAR, metres, np.nan)


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
    """Return the points centred and scaled to about 1, and the matrix that does it."""
    middle = points.mean(axis=0)
    scale = np.sqrt(2) / np.linalg.norm(points - middle, axis=1).mean()
    matrix = np.array([[scale, 0, -scale * middle[0]], [0, scale, -scale * middle[1]], [0, 0, 1]])
    return (points - middle) * scale, matrix
