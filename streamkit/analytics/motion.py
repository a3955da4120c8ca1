# SPDX-License-Identifier: Apache-2.0
"""Velocity of tracks: a line fitted to each track's recent positions."""

from __future__ import annotations

import numpy as np

from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.track_store import TrackStore

_MIN_OBSERVATIONS = 3


class Motion:
    """Fits a line to the positions of each track by weighted least squares; the weight is exp(-age / `smoothing_s`).

    The sums are updated per frame (recursive least squares with forgetting; Ljung, System Identification, 11.2), with
    time relative to now and positions relative to the track's start. A uniform motion is therefore recovered exactly at
    any frame rate, even with missing frames, and the cost does not depend on the track's length.

    Args:
        smoothing_s: time constant of the weights, in seconds.
        track_ttl_s: state of tracks unseen for longer is dropped, as is all state when a source's time jumps back.
    """

    def __init__(self, smoothing_s: float, track_ttl_s: float) -> None:
        self._smoothing_s = smoothing_s
        self._track_ttl_s = track_ttl_s
        nothing = np.zeros(2)
        self.tracks = TrackStore(
            origin=nothing,
            first_s=np.float64(0),
            n=np.int64(0),
            w=np.float64(0),
            t=np.float64(0),
            tt=np.float64(0),
            x=nothing,
            tx=nothing,
            state=np.int64(-1),
            since_s=np.float64(np.nan),
        )

    def update(self, step: SourceStep, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add one step.

        Args:
            step: the step.
            places: (n, 2) float64, position of each object, in any units; rows with NaN count as not seen.

        Returns:
            (n,) int64 rows in `tracks`; (n, 2) float64 velocity in units per second, NaN while unknown: fewer than
            three observations, or less than half of `smoothing_s`.
        """
        tracks = self.tracks
        tracks.drop(step.unseen(tracks, self._track_ttl_s))
        rows, fresh = tracks.find(step.slot[step.frame], step.track)
        now_s = step.pts_s[step.frame]
        seen = ~np.isnan(places).any(axis=1)
        begins = seen & (tracks["n"][rows] == 0)
        tracks["seen_s"][rows[fresh]] = now_s[fresh]
        tracks["origin"][rows[begins]] = places[begins]
        tracks["first_s"][rows[begins]] = now_s[begins]
        dt = np.maximum(now_s - tracks["seen_s"][rows], 0.0)
        keep = np.exp(-dt / self._smoothing_s)
        w, t, tt = (tracks[name][rows] for name in ("w", "t", "tt"))
        x = tracks["x"][rows]
        tx = tracks["tx"][rows]
        ones = seen.astype(np.float64)
        here = np.where(seen[:, None], places - tracks["origin"][rows], 0.0)
        # Times are relative to now: each earlier time decreases by dt, and the new position is at time 0.
        tracks["tt"][rows] = tt = keep * (tt - 2 * dt * t + dt * dt * w)
        tracks["tx"][rows] = tx = keep[:, None] * (tx - dt[:, None] * x)
        tracks["t"][rows] = t = keep * (t - dt * w)
        tracks["w"][rows] = w = keep * w + ones
        tracks["x"][rows] = x = keep[:, None] * x + here
        tracks["n"][rows] += seen
        tracks["seen_s"][rows] = now_s
        spread = w * tt - t * t
        is_known = (
            (tracks["n"][rows] >= _MIN_OBSERVATIONS)
            & (now_s - tracks["first_s"][rows] >= self._smoothing_s / 2)
            & (spread > 1e-12)
        )
        spread = np.where(is_known, spread, np.nan)[:, None]
        velocity = (w[:, None] * tx - t[:, None] * x) / spread
        return rows, velocity

    def turned(self, rows: np.ndarray, state: np.ndarray, now_s: np.ndarray, debounce_s: float) -> np.ndarray:
        """Debounce a state per track, -1 at first: it changes once another state has lasted.

        Args:
            rows: (n,) rows in `tracks`.
            state: (n,) int64, the apparent state of each track now.
            now_s: (n,) float64.
            debounce_s: how long a state must last, in seconds.

        Returns:
            (n,) bool: which tracks changed to `state` now.
        """
        tracks = self.tracks
        differs = state != tracks["state"][rows]
        since = np.where(differs, tracks["since_s"][rows], np.nan)
        since = np.where(differs & np.isnan(since), now_s, since)
        done = differs & (now_s - since >= debounce_s)
        tracks["since_s"][rows] = np.where(done, np.nan, since)
        tracks["state"][rows[done]] = state[done]
        return np.asarray(done)
