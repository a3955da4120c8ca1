# SPDX-License-Identifier: Apache-2.0
"""Paths of tracks over the ground, sampled at common moments, so that those of several cameras can be compared."""

from __future__ import annotations

import numpy as np

from streamkit.analytics.track_store import TrackStore

SAMPLE_S = 0.2
"""Seconds between two samples of a path."""
SAMPLES = 32
_NOW_S = 0.3  # two last positions are compared if they are not further apart in time
_ENOUGH = 2  # common samples

GROUND_COLUMNS = {
    "xy": np.full(2, np.nan),  # last position, meters; NaN without a plane
    "xy_s": np.float64(-np.inf),  # time of that position
    "path": np.full((SAMPLES, 2), np.nan),  # ring buffer
    "sample": np.full(SAMPLES, -1, np.int64),  # the number of each sample in the ring buffer: its time is n x SAMPLE_S
}
"""Columns of a `TrackStore` whose tracks have paths."""


def extend_paths(tracks: TrackStore, rows: np.ndarray, xy: np.ndarray, now_s: np.ndarray) -> None:
    """Add positions to paths; the sample at the last common moment before now is interpolated.

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
    number = np.floor(now_s / SAMPLE_S).astype(np.int64)
    at_s = number * SAMPLE_S
    step_s = now_s - before_s
    passed = (before_s < at_s) & (step_s <= 2 * SAMPLE_S) | (now_s == at_s)
    share = np.where(np.isfinite(step_s) & (step_s > 0), (at_s - before_s) / np.maximum(step_s, 1e-9), 1.0)[:, None]
    sampled = np.where(share == 1.0, xy, before + share * (xy - before))
    place = number % SAMPLES
    tracks["path"][rows[passed], place[passed]] = sampled[passed]
    tracks["sample"][rows[passed], place[passed]] = number[passed]
    tracks["xy"][rows] = xy
    tracks["xy_s"][rows] = now_s


def path_distance(tracks: TrackStore, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how far the objects of pairs of tracks are apart on the ground.

    Args:
        tracks: with `GROUND_COLUMNS`.
        first: (p,) rows of the store.
        second: (p,) rows of the store.

    Returns:
        (p,) float64 meters: the mean over the moments at which both paths are known, or of the last positions, if they
        are of the same time; NaN if the tracks were not seen at the same time. (p,) int64, the number of moments.
    """
    same = (tracks["sample"][first] == tracks["sample"][second]) & (tracks["sample"][first] >= 0)
    apart = np.hypot(*np.moveaxis(tracks["path"][first] - tracks["path"][second], 2, 0))
    count = same.sum(axis=1)
    mean = np.where(same, apart, 0.0).sum(axis=1) / np.maximum(count, 1)
    last = np.hypot(*(tracks["xy"][first] - tracks["xy"][second]).T)
    with np.errstate(invalid="ignore"):
        now = np.where(np.abs(tracks["xy_s"][first] - tracks["xy_s"][second]) <= _NOW_S, last, np.nan)
    return np.where(count >= _ENOUGH, mean, now), count
