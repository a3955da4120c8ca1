# SPDX-License-Identifier: Apache-2.0
"""Paths of tracks over the ground, sampled at common moments, so that those of several cameras can be compared."""

from __future__ import annotations

import numpy as np

from streamkit.analytics.track_store import TrackStore

SAMPLE_S = 0.2
"""Seconds between two samples of a path."""
SAMPLES = 32
_MAX_AGE_DIFFERENCE_S = 0.3  # between the last positions of two tracks that are compared
_MIN_COMMON_SAMPLES = 2

GROUND_COLUMNS = {
    "xy": np.full(2, np.nan),  # last position, meters; NaN without a plane
    "xy_s": np.float64(-np.inf),  # time of that position
    "path": np.full((SAMPLES, 2), np.nan),  # ring buffer
    "sample": np.full(SAMPLES, -1, np.int64),  # number n of each sample in the ring buffer: its time is n x SAMPLE_S
}
"""Columns of a `TrackStore` whose tracks have paths."""


def extend_paths(tracks: TrackStore, rows: np.ndarray, xy: np.ndarray, now_s: np.ndarray) -> None:
    """Add positions to paths; interpolate the sample at the last multiple of `SAMPLE_S` before now.

    Args:
        tracks: with `GROUND_COLUMNS`.
        rows: (n,) rows of the store, each once.
        xy: (n, 2) float64 meters; rows with NaN are skipped.
        now_s: (n,) float64, the common time in seconds.
    """
    on_ground = ~np.isnan(xy).any(axis=1)
    rows = rows[on_ground]
    xy = xy[on_ground]
    now_s = now_s[on_ground]
    before = tracks["xy"][rows]
    before_s = np.maximum(tracks["xy_s"][rows], -1e12)
    sample = np.floor(now_s / SAMPLE_S).astype(np.int64)
    sample_s = sample * SAMPLE_S
    step_s = now_s - before_s
    due = (before_s < sample_s) & (step_s <= 2 * SAMPLE_S) | (now_s == sample_s)
    time_passed = np.isfinite(step_s) & (step_s > 0)
    weight = np.where(time_passed, (sample_s - before_s) / np.maximum(step_s, 1e-9), 1.0)[:, None]
    sample_xy = np.where(weight == 1.0, xy, before + weight * (xy - before))
    slot = sample % SAMPLES
    tracks["path"][rows[due], slot[due]] = sample_xy[due]
    tracks["sample"][rows[due], slot[due]] = sample[due]
    tracks["xy"][rows] = xy
    tracks["xy_s"][rows] = now_s


def path_distance(tracks: TrackStore, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how far the objects of pairs of tracks are apart on the ground.

    Args:
        tracks: with `GROUND_COLUMNS`.
        first: (p,) rows of the store.
        second: (p,) rows of the store.

    Returns:
        (p,) float64 meters: the mean over common samples of the paths; with fewer than two, the distance of the last
        positions if their times are close, else NaN. (p,) int64, the number of common samples.
    """
    common = (tracks["sample"][first] == tracks["sample"][second]) & (tracks["sample"][first] >= 0)
    sample_distance = np.hypot(*np.moveaxis(tracks["path"][first] - tracks["path"][second], 2, 0))
    count = common.sum(axis=1)
    mean = np.where(common, sample_distance, 0.0).sum(axis=1) / np.maximum(count, 1)
    last = np.hypot(*(tracks["xy"][first] - tracks["xy"][second]).T)
    with np.errstate(invalid="ignore"):
        recent = np.abs(tracks["xy_s"][first] - tracks["xy_s"][second]) <= _MAX_AGE_DIFFERENCE_S
    return np.where(count >= _MIN_COMMON_SAMPLES, mean, np.where(recent, last, np.nan)), count
