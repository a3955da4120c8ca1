# SPDX-License-Identifier: Apache-2.0
"""The state of all sources' tracks, in flat arrays that the compiled code works on."""

from __future__ import annotations

import numpy as np

NEW = 0
SEEN = 1
LOST = 2
"""States of a track: not confirmed yet; matched in the last frame with detections; not matched there."""

HISTORY = 8

TRACK = np.dtype(
    [
        ("id", np.int64),  # 0 while it is `NEW`
        ("class_id", np.int64),  # of its last detection
        ("first_seen_s", np.float64),  # time of its first detection
        ("seen_s", np.float64),  # time of its last detection
        ("score", np.float64),  # of its last detection
        ("box", np.float64, (4,)),  # of its last detection: x1, y1, x2, y2 in source pixels
        ("mean", np.float64, (4, 2)),  # its filter at the lane's time; see `kalman`
        ("cov", np.float64, (4, 3)),
        ("steady_mean", np.float64, (4, 2)),  # its filter for output; see `steady`
        ("steady_cov", np.float64, (4, 3)),
        ("seen_mean", np.float64, (4, 2)),  # its filter at its last detection
        ("seen_cov", np.float64, (4, 3)),
        ("path", np.float64, (HISTORY, 3)),  # ring buffer: time in seconds and center of its last boxes
        ("steps", np.int64),  # number of boxes written to the ring buffer
        ("state", np.int64),
    ],
    align=True,
)
"""One track."""

LANE = np.dtype(
    [
        ("count", np.int64),  # number of tracks
        ("time_s", np.float64),  # time of its last frame; NaN before the first
        ("epoch", np.int64),  # restarts of its source until then
        ("detected", np.int64),  # whether the detector has run on a frame since the lane began
    ],
    align=True,
)
"""One detector's objects of one source."""

_FIRST_TRACKS = 16


class TrackPool:
    """Allocates lanes for the detectors of sources, and storage for their tracks.

    Attributes:
        lanes: (lanes,) LANE.
        tracks: (lanes, capacity) TRACK; a lane's `count` tracks come first, oldest first.
        embeddings: (lanes, capacity, d) float32, appearance of each track, of length 1; all 0 if unknown.
        last_id: (sources,) int64, the last track id of each source.
    """

    def __init__(self) -> None:
        self.lanes = _empty_lanes(1)
        self.tracks = np.zeros((1, _FIRST_TRACKS), TRACK)
        self.embeddings = np.zeros((1, _FIRST_TRACKS, 0), np.float32)
        self.last_id = np.zeros(1, np.int64)
        self._lanes: dict[tuple[str, str], int] = {}
        self._free: list[int] = [0]
        self._counters: dict[str, int] = {}

    def lane(self, source: str, table: str) -> int:
        """Return the lane of a detector's objects of a source; allocate one if there is none."""
        key = source, table
        lane = self._lanes.get(key)
        if lane is None:
            if not self._free:
                have, capacity = self.tracks.shape
                self._free = list(range(2 * have - 1, have - 1, -1))
                self.lanes = np.concatenate([self.lanes, _empty_lanes(have)])
                self._grow(2 * have, capacity)
            lane = self._lanes[key] = self._free.pop()
        return lane

    def counter(self, source: str) -> int:
        """Return the source's index in `last_id`. It is never freed: a source that comes back continues its ids."""
        index = self._counters.get(source)
        if index is None:
            index = self._counters[source] = len(self._counters)
            if index == len(self.last_id):
                self.last_id = np.concatenate([self.last_id, np.zeros_like(self.last_id)])
        return index

    def continue_after(self, source: str, last_id: int) -> None:
        """Let the track ids of a source go on after this one."""
        counter = self.counter(source)  # may make room for it
        self.last_id[counter] = last_id

    def last_ids(self) -> dict[str, int]:
        """Return the last track id of each source."""
        return {source: int(self.last_id[at]) for source, at in self._counters.items()}

    def reserve(self, capacity: int, features: int) -> None:
        """Make room for `capacity` tracks in each lane, and for embeddings of length `features`.

        The appearance of tracks is dropped if that length changes.
        """
        lanes, have = self.tracks.shape
        if capacity > have:
            self._grow(lanes, 1 << (capacity - 1).bit_length())
        if features != self.embeddings.shape[2]:
            self.embeddings = np.zeros((*self.tracks.shape, features), np.float32)

    def _grow(self, lanes: int, capacity: int) -> None:
        have = self.tracks.shape
        tracks = np.zeros((lanes, capacity), TRACK)
        embeddings = np.zeros((lanes, capacity, self.embeddings.shape[2]), np.float32)
        tracks[: have[0], : have[1]] = self.tracks
        embeddings[: have[0], : have[1]] = self.embeddings
        self.tracks = tracks
        self.embeddings = embeddings

    def end(self, source: str) -> None:
        """End a source: drop its tracks."""
        for key in [key for key in self._lanes if key[0] == source]:
            lane = self._lanes.pop(key)
            self.lanes[lane] = _empty_lanes(1)[0]
            self._free.append(lane)


def _empty_lanes(n: int) -> np.ndarray:
    lanes = np.zeros(n, LANE)
    lanes["time_s"] = np.nan
    return lanes
