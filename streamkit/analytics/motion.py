"""How fast tracks move, and where to: a line fitted to each track's last places."""

from __future__ import annotations

import numpy as np

from streamkit.analytics.memory import Tracks
from streamkit.analytics.rounds import Round

_LEAST = 3  # sights


class Motion:
    """Fits a line to the places of each track by weighted least squares: a place counts exp(-age / `over_s`).

    The sums are carried from frame to frame (recursive least squares with forgetting; Ljung, System Identification,
    11.2), with time counted from now and places from where the track began. So a steady motion is found exactly at any
    frame rate, also where frames are missing, and it costs the same however long a track is.

    Args:
        over_s: the time that counts, in seconds.
        max_gap_s: a track that was not seen for longer begins anew, and all do where their source's time goes back.
    """

    def __init__(self, over_s: float, max_gap_s: float) -> None:
        self._over_s, self._max_gap_s = over_s, max_gap_s
        nothing = np.zeros(2)
        self.tracks = Tracks(
            origin=nothing, first_s=np.float64(0), n=np.int64(0), w=np.float64(0), t=np.float64(0), tt=np.float64(0),
            x=nothing, tx=nothing, state=np.int64(-1), since_s=np.float64(np.nan),
        )  # fmt: skip

    def end(self, slot: int) -> None:
        """A source has ended: forget its tracks."""
        self.tracks.forget(self.tracks.of(slot))

    def step(self, given: Round, places: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
        """Add one round.

        Args:
            given: the round.
            places: (n, 2) float64, where each object is, in any units; rows with NaN are taken as not seen.
            slots: how many sources there are.

        Returns:
            (n,) int64 rows in `tracks`; (n, 2) float64 velocity in units a second, NaN where too little is known: fewer
            than three sights, or less than half of `over_s`.
        """
        tracks = self.tracks
        tracks.forget(tracks.unseen(given.times(slots), self._max_gap_s))
        rows, fresh = tracks.find(given.slot[given.frame], given.track)
        now_s = given.pts_s[given.frame]
        seen = ~np.isnan(places).any(axis=1)
        begins = seen & (tracks["n"][rows] == 0)
        tracks["seen_s"][rows[fresh]] = now_s[fresh]
        tracks["origin"][rows[begins]] = places[begins]
        tracks["first_s"][rows[begins]] = now_s[begins]
        dt = np.maximum(now_s - tracks["seen_s"][rows], 0.0)
        keep = np.exp(-dt / self._over_s)
        w, t, tt = (tracks[name][rows] for name in ("w", "t", "tt"))
        x, tx = tracks["x"][rows], tracks["tx"][rows]
        one = seen.astype(np.float64)
        here = np.where(seen[:, None], places - tracks["origin"][rows], 0.0)
        # Time is counted from now on: each old time gets dt less, and the new place is at 0.
        tracks["tt"][rows] = tt = keep * (tt - 2 * dt * t + dt * dt * w)
        tracks["tx"][rows] = tx = keep[:, None] * (tx - dt[:, None] * x)
        tracks["t"][rows] = t = keep * (t - dt * w)
        tracks["w"][rows] = w = keep * w + one
        tracks["x"][rows] = x = keep[:, None] * x + here
        tracks["n"][rows] += seen
        tracks["seen_s"][rows] = now_s
        spread = w * tt - t * t
        known = (tracks["n"][rows] >= _LEAST) & (now_s - tracks["first_s"][rows] >= self._over_s / 2) & (spread > 1e-12)
        spread = np.where(known, spread, np.nan)[:, None]
        velocity = (w[:, None] * tx - t[:, None] * x) / spread
        return rows, velocity

    def turned(self, rows: np.ndarray, state: np.ndarray, now_s: np.ndarray, hold_s: float) -> np.ndarray:
        """Keep a state for each track, -1 at first, that changes when another has lasted.

        Args:
            rows: (n,) rows in `tracks`.
            state: (n,) int64, what each seems to be in now.
            now_s: (n,) float64.
            hold_s: how long it must last.

        Returns:
            (n,) bool: which of them changed to `state` just now.
        """
        tracks = self.tracks
        differs = state != tracks["state"][rows]
        since = np.where(differs, tracks["since_s"][rows], np.nan)
        since = np.where(differs & np.isnan(since), now_s, since)
        done = differs & (now_s - since >= hold_s)
        tracks["since_s"][rows] = np.where(done, np.nan, since)
        tracks["state"][rows[done]] = state[done]
        return np.asarray(done)
