# SPDX-License-Identifier: Apache-2.0
"""Rotated boxes by their corners: x and y of the four in turn, in pixels.

The corners of a box that is not rotated are its upper left, upper right, lower right and lower left one. A resize with
unequal scales makes a parallelogram of a rotated box, which corners hold exactly. `cuda/candidates.cu` and
`cuda/nms.cu` use the same order of operations.

Overlap is the probabilistic IoU: each box is the Gaussian with its center and covariance, and the overlap is 1 minus
the Hellinger distance of two Gaussians (Llerena et al., Gaussian Bounding Boxes and Probabilistic
Intersection-over-Union for Object Detection, https://arxiv.org/abs/2106.06072). Its small constant is that of
`batch_probiou` in https://github.com/ultralytics/ultralytics, whose networks are trained with it. It does not change if
both boxes are scaled, in either axis, so network pixels and source pixels have one result.
"""

from __future__ import annotations

import math

import numpy as np

CORNERS = 8
"""Values of a box: x and y of four corners."""
_EPSILON = 1e-7


def corners_of(boxes: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Return the corners of boxes, (n, 8) float32.

    Args:
        boxes: (n, 4) float32 center x, center y, width and height.
        angle: (n,) float32, radians from the x axis to the width, clockwise in the image.
    """
    half = boxes[:, 2:] * np.float32(0.5)
    wide = angle.astype(np.float64)  # through double, so that any exact enough sine rounds to the same float32
    cos = np.cos(wide).astype(np.float32)
    sin = np.sin(wide).astype(np.float32)
    across = np.stack([half[:, 0] * cos, half[:, 0] * sin], axis=1)
    down = np.stack([-half[:, 1] * sin, half[:, 1] * cos], axis=1)
    left = boxes[:, :2] - across
    right = boxes[:, :2] + across
    return np.concatenate([left - down, right - down, right + down, left + down], axis=1)


def hull(corners: np.ndarray) -> np.ndarray:
    """Return the smallest upright boxes around (n, 8) corners: (n, 4) x1, y1, x2, y2."""
    points = corners.reshape(len(corners), 4, 2)
    return np.concatenate([points.min(axis=1), points.max(axis=1)], axis=1)


def overlaps(a: np.ndarray, b: np.ndarray, iou: float) -> np.ndarray:
    """Return whether the probabilistic IoU of each of `a` (n, 8) and each of `b` (m, 8) is above `iou`: (n, m) bool."""
    return np.asarray(_distance(a, b) < distance_limit(iou))


def prob_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the probabilistic IoU of each of `a` (n, 8) and each of `b` (m, 8): (n, m) float64, 0..1."""
    return np.asarray(1 - np.sqrt(1 - np.exp(-_distance(a, b)) + _EPSILON)).clip(0, 1)


def covered(inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """Return the share of each of `inner` (n, 8) that each of `outer` (m, 8) covers: (n, m) float64.

    The area of the intersection is that of the convex polygons; pairs whose hulls are apart are not looked at.
    """
    import cv2

    shares = np.zeros((len(inner), len(outer)))
    inner_hulls = hull(inner)[:, None]
    outer_hulls = hull(outer)[None]
    near = (inner_hulls[..., :2] < outer_hulls[..., 2:]).all(axis=2) & (
        outer_hulls[..., :2] < inner_hulls[..., 2:]
    ).all(axis=2)
    polygons = [corners.reshape(-1, 4, 2).astype(np.float32) for corners in (inner, outer)]
    for i, j in np.argwhere(near).tolist():
        area = cv2.contourArea(polygons[0][i])
        shares[i, j] = cv2.intersectConvexConvex(polygons[0][i], polygons[1][j])[0] / area if area > 0 else 0.0
    return shares


def distance_limit(iou: float) -> float:
    """Return the Bhattacharyya distance below which the probabilistic IoU is above `iou`."""
    return -math.log(1 + _EPSILON - (1 - iou) ** 2)


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the Bhattacharyya distance of the Gaussians of each of `a` and each of `b`: (n, m) float64."""
    x1, y1, xx1, yy1, xy1 = (value[:, None] for value in _gaussian(a))
    x2, y2, xx2, yy2, xy2 = _gaussian(b)
    xx = xx1 + xx2
    yy = yy1 + yy2
    xy = xy1 + xy2
    x = x1 - x2
    y = y1 - y2
    both = xx * yy - xy * xy
    apart = (xx * (y * y) + yy * (x * x) - 2 * xy * (x * y)) / (both + _EPSILON)
    each = np.maximum(xx1 * yy1 - xy1 * xy1, 0) * np.maximum(xx2 * yy2 - xy2 * xy2, 0)
    unlike = np.log(both / (4 * np.sqrt(each) + _EPSILON) + _EPSILON)
    return np.asarray(np.maximum(0.25 * apart + 0.5 * unlike, _EPSILON))


def _gaussian(corners: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return center x and y, and the covariances xx, yy and xy of uniform boxes, each (n,) float64."""
    points = corners.astype(np.float64).reshape(len(corners), 4, 2)
    x, y = ((points[:, 0] + points[:, 2]) * 0.5).T
    wx, wy = (points[:, 1] - points[:, 0]).T
    hx, hy = (points[:, 3] - points[:, 0]).T
    return x, y, (wx * wx + hx * hx) / 12, (wy * wy + hy * hy) / 12, (wx * wy + hx * hy) / 12
