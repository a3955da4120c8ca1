# SPDX-License-Identifier: Apache-2.0
"""The boxes that `smooth` outputs: a second filter of a track, which stays close to what the detector sees.

The filter of `kalman` finds an object again: it hardly believes a weak box, and is behind where an object turns. Its
boxes overlap less with the objects than the detections do. This one expects the noise of a detector, in shares of the
box's own width and height, and believes a box at once that is far from where it is expected. Arrays as in `kalman`.
"""

from __future__ import annotations

import numpy as np

from streamkit.tracking.jit import compiled
from streamkit.tracking.kalman import advance, fuse, measured

# Tuned on drawn scenes with still and with moving cameras and on TUD-Campus (docs/tracking-accuracy.md).
_CENTER_NOISE = 0.054**2  # variance of a box's center, of score 1, in units of its width or height
_SIZE_NOISE = 0.031**2  # the same of its width and height
_DOUBT = 5.0  # factor by which they grow toward score 0
_TURN = 0.27**2  # increase of the variance of the center's velocity per second, in units of the longer side
_GROWTH = 0.17**2  # the same of width and height
_FIRST_TURN = 1.0  # variance of a new track's velocity
_FIRST_GROWTH = 0.3**2
_SURPRISE = 4.0  # a box is farther off than this many variances: the prediction was wrong


@compiled
def begin_steady(mean: np.ndarray, cov: np.ndarray, box: np.ndarray, score: float) -> None:
    """Begin at a box x1, y1, x2, y2."""
    for k in range(4):
        mean[k, 0] = measured(box, k)
        mean[k, 1] = 0.0
    for k in range(4):
        cov[k, 0] = _noise(box, k, score)
        cov[k, 1] = 0.0
        cov[k, 2] = (_FIRST_TURN if k < 2 else _FIRST_GROWTH) * _longer_side(mean) ** 2


@compiled
def predict_steady(mean: np.ndarray, cov: np.ndarray, dt_s: float) -> None:
    """Predict ahead by `dt_s` seconds."""
    side = _longer_side(mean)
    for k in range(4):
        advance(mean, cov, k, dt_s, (_TURN if k < 2 else _GROWTH) * side * side * dt_s)


@compiled
def correct_steady(mean: np.ndarray, cov: np.ndarray, box: np.ndarray, score: float) -> None:
    """Update with a measured box x1, y1, x2, y2 and its score."""
    for k in range(4):
        off = measured(box, k) - mean[k, 0]
        noise = _noise(box, k, score)
        surprise = off * off / (cov[k, 0] + noise)
        if surprise > _SURPRISE:
            for n in range(3):
                cov[k, n] *= surprise / _SURPRISE
        fuse(mean, cov, k, off, noise)


@compiled
def _noise(box: np.ndarray, k: int, score: float) -> float:
    side = max(measured(box, 2 + k % 2), 1.0)
    return float((_CENTER_NOISE if k < 2 else _SIZE_NOISE) * side * side * (1 + _DOUBT * (1 - score)))


@compiled
def _longer_side(mean: np.ndarray) -> float:
    return float(max(mean[2, 0], mean[3, 0], 1.0))
