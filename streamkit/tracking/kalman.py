# SPDX-License-Identifier: Apache-2.0
"""Expected position of a track: constant-velocity Kalman filters for a box's center x, y, width and height.

The four are independent in the filters of SORT's successors (Wojke et al., "Simple Online and Realtime Tracking with a
Deep Association Metric", 2017; Aharon et al., "BoT-SORT", 2022, whose coordinates these are), so each is a filter of
two numbers, position and velocity. The process noise is a random walk of the velocity in time, not in frames: a step
over any time is exact, and one of 80 ms equals two of 40 ms. A box of low score is mostly partly hidden, so it gets
less weight (Du et al., "GIAOTracker", 2021); while an object is hardly seen, its earlier motion dominates.

Arrays: `mean` (4, 2) float64, position in pixels and velocity in pixels per second; `cov` (4, 3) float64, variance of
the position, covariance, variance of the velocity.
"""

from __future__ import annotations

import numpy as np

from streamkit.tracking.jit import compiled

# In units of the box's longer side; tuned on synthetic scenes and checked on real videos (docs/tracking-accuracy.md).
_RATE = 30.0  # frame rate of the per-frame constants below
_MEASURED = (1 / 30) ** 2  # variance of a box's position and size, of score 1
_DOUBT = 150.0  # factor by which it grows toward score 0
_WANDER = (_RATE / 640) ** 2 * _RATE  # increase of the velocity's variance per second
_FIRST_POSITION = (1 / 10) ** 2
_FIRST_VELOCITY = (_RATE / 10) ** 2


@compiled
def begin(mean: np.ndarray, cov: np.ndarray, box: np.ndarray) -> None:
    """Initialize the filter of a track from a box x1, y1, x2, y2."""
    for k in range(4):
        mean[k, 0] = measured(box, k)
        mean[k, 1] = 0.0
    for k in range(4):
        cov[k, 0] = _FIRST_POSITION * _unit(mean)
        cov[k, 1] = 0.0
        cov[k, 2] = _FIRST_VELOCITY * _unit(mean)


@compiled
def predict(mean: np.ndarray, cov: np.ndarray, dt_s: float, resize: bool) -> None:
    """Predict ahead by `dt_s` seconds; without `resize`, width and height stay constant."""
    wander = _WANDER * _unit(mean) * dt_s
    for k in range(4):
        if k >= 2 and not resize:
            mean[k, 1] = 0.0
        advance(mean, cov, k, dt_s, wander)


@compiled
def correct(mean: np.ndarray, cov: np.ndarray, box: np.ndarray, score: float, weight: float) -> None:
    """Update with a measured box x1, y1, x2, y2 and its score; `weight` is 1 for a box that was seen."""
    noise = _MEASURED * _unit(mean) * (1 + _DOUBT * (1 - score)) / weight
    for k in range(4):
        fuse(mean, cov, k, measured(box, k) - mean[k, 0], noise)


@compiled
def advance(mean: np.ndarray, cov: np.ndarray, k: int, dt_s: float, wander: float) -> None:
    """Predict the k-th of the four numbers; `wander` is the increase of its velocity's variance meanwhile."""
    mean[k, 0] += mean[k, 1] * dt_s
    pp = cov[k, 0]
    pv = cov[k, 1]
    vv = cov[k, 2]
    cov[k, 0] = pp + dt_s * (2 * pv + dt_s * vv) + wander * dt_s * dt_s / 3
    cov[k, 1] = pv + dt_s * vv + wander * dt_s / 2
    cov[k, 2] = vv + wander


@compiled
def fuse(mean: np.ndarray, cov: np.ndarray, k: int, off: float, noise: float) -> None:
    """Update the k-th of the four numbers with a measurement that is `off` from the mean and has this variance."""
    pp = cov[k, 0]
    pv = cov[k, 1]
    vv = cov[k, 2]
    inverse = 1 / (pp + noise)
    mean[k, 0] += pp * inverse * off
    mean[k, 1] += pv * inverse * off
    cov[k, 0] = pp - pp * inverse * pp
    cov[k, 1] = pv - pp * inverse * pv
    cov[k, 2] = vv - pv * inverse * pv


@compiled
def reupdate(mean: np.ndarray, cov: np.ndarray, seen: np.ndarray, box: np.ndarray, score: float, gap_s: float) -> None:
    """Replay a straight line from the box `seen`, with the filter of that time, to `box`, `gap_s` seconds later.

    The re-update of Cao et al., "Observation-Centric SORT", 2023: the predictions made while the track was lost are
    discarded. The points of the line share the weight of the box at its end. They are no measurements: with a weight
    of their own each, the noise of two boxes would pass for a velocity that was measured many times.
    """
    steps = max(1, round(gap_s * _RATE))
    between = np.empty(4)
    for i in range(1, steps + 1):
        predict(mean, cov, gap_s / steps, True)
        for k in range(4):
            between[k] = seen[k] + (box[k] - seen[k]) * i / steps
        correct(mean, cov, between, score, 1 / steps)


@compiled
def warp(mean: np.ndarray, cov: np.ndarray, camera: np.ndarray) -> None:
    """Move a filter as the picture moves: `camera` is (2, 3), from (x, y, 1) to (x, y) in pixels.

    The camera motion compensation of Aharon et al., "BoT-SORT", 2022. Under roll, the covariance of x and y is dropped.
    """
    mean[0, 0], mean[1, 0] = warped(camera, mean[0, 0], mean[1, 0], 1.0)
    mean[0, 1], mean[1, 1] = warped(camera, mean[0, 1], mean[1, 1], 0.0)
    for k in range(2):
        zoom = np.hypot(camera[0, k], camera[1, k])
        for n in range(2):
            mean[2 + k, n] *= zoom
        for n in range(3):
            cov[2 + k, n] *= zoom * zoom
    for n in range(3):
        across = cov[0, n]
        down = cov[1, n]
        cov[0, n] = camera[0, 0] ** 2 * across + camera[0, 1] ** 2 * down
        cov[1, n] = camera[1, 0] ** 2 * across + camera[1, 1] ** 2 * down


@compiled
def warp_box(box: np.ndarray, camera: np.ndarray) -> None:
    """Move a box x1, y1, x2, y2 as the picture moves, see `warp`: its center, and its size by the zoom."""
    half_w = (box[2] - box[0]) / 2 * np.hypot(camera[0, 0], camera[1, 0])
    half_h = (box[3] - box[1]) / 2 * np.hypot(camera[0, 1], camera[1, 1])
    x, y = warped(camera, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, 1.0)
    box[0] = x - half_w
    box[1] = y - half_h
    box[2] = x + half_w
    box[3] = y + half_h


@compiled
def warped(camera: np.ndarray, x: float, y: float, shift: float) -> tuple[float, float]:
    """Return a point after `camera`, with `shift` 1; a vector with 0."""
    return (
        camera[0, 0] * x + camera[0, 1] * y + camera[0, 2] * shift,
        camera[1, 0] * x + camera[1, 1] * y + camera[1, 2] * shift,
    )


@compiled
def copy(to: np.ndarray, source: np.ndarray) -> None:
    """Copy a mean or a covariance, in loops: Numba takes seconds to compile a slice assignment."""
    for k in range(source.shape[0]):
        for n in range(source.shape[1]):
            to[k, n] = source[k, n]


@compiled
def as_box(mean: np.ndarray, box: np.ndarray) -> None:
    """Write the expected box x1, y1, x2, y2 to `box`."""
    half_w = max(mean[2, 0], 1.0) / 2
    half_h = max(mean[3, 0], 1.0) / 2
    box[0] = mean[0, 0] - half_w
    box[1] = mean[1, 0] - half_h
    box[2] = mean[0, 0] + half_w
    box[3] = mean[1, 0] + half_h


@compiled
def moved(mean: np.ndarray, seen: np.ndarray, gap_s: float, box: np.ndarray) -> None:
    """Write to `box` where the box `seen` is expected `gap_s` seconds later, at the same size."""
    for k in range(4):
        box[k] = seen[k] + mean[k % 2, 1] * gap_s


@compiled
def measured(box: np.ndarray, k: int) -> float:
    """Return the k-th of the four numbers of a box x1, y1, x2, y2."""
    if k < 2:
        return float((box[k] + box[k + 2]) / 2)
    return float(box[k] - box[k - 2])


@compiled
def _unit(mean: np.ndarray) -> float:
    side = max(mean[2, 0], mean[3, 0], 1.0)
    return float(side * side)
