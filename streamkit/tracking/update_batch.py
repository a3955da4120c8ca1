# SPDX-License-Identifier: Apache-2.0
"""Tracking of a batch of frames of any sources, each source's in order, in one compiled call."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.tracking.jit import cached, compiled, sources_stamp
from streamkit.tracking.kalman import as_box, moved
from streamkit.tracking.settings import TrackerSettings
from streamkit.tracking.track_state import LOST, SEEN
from streamkit.tracking.tracker import TrackerDetections
from streamkit.tracking.update_frame import move_tracks, predict_tracks, update_frame

FRAME = np.dtype(
    [
        ("lane", np.int64),
        ("counter", np.int64),  # its source's place in `last_id`
        ("time_s", np.float64),  # presentation time
        ("epoch", np.int64),  # restarts of its source so far
        ("detected", np.int64),  # whether the detector ran on it; if not, its objects are predicted
        ("width", np.float64),
        ("height", np.float64),
        ("moves", np.int64),  # whether the camera has moved: 1 since the source's last frame, 2 since an earlier one
        ("camera", np.float64, (2, 3)),  # if so, how it moves the picture: (x, y, 1) to (x, y) in source pixels
        ("end", np.int64),  # end of its objects in the batch's; they begin at the end of the previous frame's
    ],
    align=True,
)
"""One frame of one detector."""

SINCE_EARLIER = 2
"""`moves` of a camera that began to move before the source's last frame: its motion holds for lost tracks only."""


@compiled
def _write_predicted(
    lane: Any, tracks: np.ndarray, frame: Any, number: int, st: TrackerSettings, predicted: np.ndarray, at: int
) -> int:
    """Write rows for the lane's tracks not seen in this frame, from row `at` on; return the end of the rows."""
    for j in range(lane.count):
        track = tracks[j]
        unseen_s = frame.time_s - track.seen_s
        if not ((track.state == SEEN and not frame.detected) or (track.state == LOST and unseen_s <= st.show_lost_s)):
            continue
        row = predicted[at]
        if track.state == LOST and st.motion:
            as_box(track.mean, row.box)
        else:
            moved(track.mean, track.box, unseen_s if st.motion else 0.0, row.box)
        for k in range(4):
            row.box[k] = min(max(row.box[k], 0.0), frame.width if k % 2 == 0 else frame.height)
        if row.box[2] - row.box[0] < 1 or row.box[3] - row.box[1] < 1:  # it has left the frame
            continue
        row.frame = number
        row.id = track.id
        row.class_id = track.class_id
        row.score = track.score
        at += 1
    return at


def _advance(stamp: int) -> Any:
    def advance(
        lanes: np.ndarray,
        tracks: np.ndarray,
        embeddings: np.ndarray,
        last_id: np.ndarray,
        frames: np.ndarray,
        objects: TrackerDetections,
        st: TrackerSettings,
        ids: np.ndarray,
        predicted: np.ndarray,
    ) -> int:
        if stamp < 0:  # never true; Numba's cache key includes the variables that a function closes over
            return 0
        first: Any = np.int64(0)  # Numba gives a plain 0 another type and would compile everything twice
        rows: Any = first
        for f in range(len(frames)):
            frame = frames[f]
            lane = lanes[frame.lane]
            lane_tracks = tracks[frame.lane]
            elapsed_s = frame.time_s - lane.time_s
            if elapsed_s > st.max_frame_gap_s or elapsed_s < 0 or lane.epoch != frame.epoch:
                lane.count = lane.detected = 0
            lane.epoch = frame.epoch
            predict_tracks(lane, lane_tracks, frame.time_s, st)
            if frame.moves:
                move_tracks(lane, lane_tracks, frame.camera, frame.moves == SINCE_EARLIER, st)
            if frame.detected:
                before = last_id[frame.counter]
                last_id[frame.counter] = update_frame(
                    lane, lane_tracks, embeddings[frame.lane], objects, first, frame.end, st, before, ids
                )
            if st.show_lost_s > 0 or not frame.detected:
                rows = _write_predicted(lane, lane_tracks, frame, f, st, predicted, rows)
            first = frame.end
        return rows  # type: ignore[no-any-return]

    return advance


advance = cached(_advance(sources_stamp()))
"""Track a batch.

Args:
    lanes: (lanes,) LANE, changed in place.
    tracks: (lanes, most) TRACK, changed in place; a lane has room for its tracks and all objects of its frames.
    embeddings: (lanes, most, d) float32, changed in place.
    last_id: (sources,) int64, the last track id of each source; changed in place.
    frames: (f,) FRAME.
    objects: their objects.
    st: the settings.
    ids: (n,) int64, all -1; receives the track of each object.
    predicted: PREDICTED, with room for all tracks; receives the tracks that were not detected, frame by frame.

Returns:
    The number of predicted rows.
"""
