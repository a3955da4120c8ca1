# SPDX-License-Identifier: Apache-2.0
"""The built-in methods: all sources of a batch in one call of compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkit.tracking.jit import is_cached
from streamkit.tracking.settings import TrackerSettings
from streamkit.tracking.track_state import TrackPool
from streamkit.tracking.tracker import PREDICTED, BatchFrame, CameraMotion, TrackerDetections
from streamkit.tracking.update_batch import FRAME, SINCE_EARLIER, advance

_NO_MOTION = (0, ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))


class CompiledTracker:
    """Tracks as the settings say; see `tracker.BatchTracker`.

    Attributes:
        pool: the tracks of all sources.
    """

    def __init__(self, settings: TrackerSettings) -> None:
        self.pool = TrackPool()
        self._settings = settings

    def update(self, frames: Sequence[BatchFrame], objects: TrackerDetections, ids: np.ndarray) -> np.ndarray:
        """See `BatchTracker.update`."""
        pool = self.pool
        rows = [
            (
                pool.lane(frame.source, frame.detector),
                pool.counter(frame.source),
                frame.time_s,
                frame.epoch,
                frame.detected,
                frame.width,
                frame.height,
                *_motion(frame.camera),
                frame.end,
            )
            for frame in frames
        ]
        compiled_frames = np.array(rows, FRAME)
        counts = np.diff(compiled_frames["end"], prepend=0)
        capacity = _track_bound(pool.lanes["count"], compiled_frames["lane"], counts)
        pool.reserve(capacity, objects.embedding.shape[1])
        predicts = self._settings.show_lost_s > 0 or not compiled_frames["detected"].all()
        predicted = np.zeros(len(rows) * pool.tracks.shape[1] if predicts else 0, PREDICTED)
        count = advance(
            pool.lanes,
            pool.tracks,
            pool.embeddings,
            pool.last_id,
            compiled_frames,
            objects,
            self._settings,
            ids,
            predicted,
        )
        return predicted[:count]

    def end(self, source: str) -> None:
        """See `BatchTracker.end`."""
        self.pool.end(source)

    def continue_after(self, source: str, last_id: int) -> None:
        """See `BatchTracker.continue_after`."""
        self.pool.continue_after(source, last_id)

    def last_ids(self) -> dict[str, int]:
        """See `BatchTracker.last_ids`."""
        return self.pool.last_ids()


def _motion(camera: CameraMotion | None) -> tuple[int, Any]:
    """Return the fields `moves` and `camera` of a compiled frame."""
    if camera is None:
        return _NO_MOTION
    return SINCE_EARLIER if camera.since_earlier else 1, camera.matrix.tolist()


def is_compiled() -> bool:
    """Whether the methods were compiled on this machine before, so that the first call is fast."""
    return is_cached(advance)


def _track_bound(track_counts: np.ndarray, lanes: np.ndarray, object_counts: np.ndarray) -> int:
    """Upper bound of the tracks in a lane after a batch: the present ones, and one per object."""
    added = np.bincount(lanes, object_counts, len(track_counts)).astype(np.int64)
    return int((track_counts + added).max(initial=1))
