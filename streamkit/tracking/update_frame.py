# SPDX-License-Identifier: Apache-2.0
"""Tracking of one frame of one lane: assigns objects to tracks, marks tracks as lost, and begins new ones.

The rounds are those of Zhang et al., "ByteTrack", 2022: objects of high score with all tracks; those of low score with
the remaining tracks that were just seen; remaining high ones with unconfirmed tracks. The settings turn this into SORT
(Bewley et al. 2016), OC-SORT (Cao et al. 2023) and BoT-SORT (Aharon et al. 2022).

`lane` is a record of `track_state.LANE`, `tracks` (most,) of `track_state.TRACK`, `embeddings` (most, d) float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.tracking.association import NONE, AssociationPass, exclude_boxes, match
from streamkit.tracking.jit import compiled
from streamkit.tracking.kalman import as_box, begin, copy, correct, predict, reupdate, warp, warp_box, warped
from streamkit.tracking.settings import TrackerSettings
from streamkit.tracking.similarity import box_similarity
from streamkit.tracking.steady import begin_steady, correct_steady, predict_steady
from streamkit.tracking.track_state import HISTORY, LOST, NEW, SEEN
from streamkit.tracking.tracker import TrackerDetections

_SLACK_S = 1e-6
_AGAIN_IOU = 0.3  # minimum overlap with its last box by which a track is found again
_AGAIN_S = 0.5  # for how long it is: afterwards another object may be in its place
_WRONG_IOU = 0.1  # maximum overlap of a box with the expected one where the prediction was wrong
_STEADY_S = 1.0  # for how long the boxes of a track that is not seen stay steady
_KEEP_LOOK = 0.9  # weight of a track's appearance so far when it is seen again


@compiled
def predict_tracks(lane: Any, tracks: np.ndarray, time_s: float, st: TrackerSettings) -> None:
    """Advance a lane's tracks to a later time by prediction."""
    elapsed_s = time_s - lane.time_s
    if st.motion and elapsed_s > 0:
        for j in range(lane.count):
            predict(tracks[j].mean, tracks[j].cov, elapsed_s, tracks[j].state != LOST)
            if st.smooth:
                predict_steady(tracks[j].steady_mean, tracks[j].steady_cov, elapsed_s)
    lane.time_s = time_s


@compiled
def move_tracks(lane: Any, tracks: np.ndarray, camera: np.ndarray, lost_only: bool, st: TrackerSettings) -> None:
    """Move a lane's tracks, and what is remembered of them, as the camera moves the picture; see `kalman.warp`."""
    for j in range(lane.count):
        track = tracks[j]
        if lost_only and track.state != LOST:
            continue
        warp(track.mean, track.cov, camera)
        warp_box(track.box, camera)
        if st.smooth:
            warp(track.steady_mean, track.steady_cov, camera)
        if st.recover:
            warp(track.seen_mean, track.seen_cov, camera)
        for i in range(min(track.steps, HISTORY)):
            track.path[i, 1], track.path[i, 2] = warped(camera, track.path[i, 1], track.path[i, 2], 1.0)


@compiled
def update_frame(
    lane: Any,
    tracks: np.ndarray,
    embeddings: np.ndarray,
    objects: TrackerDetections,
    first: int,
    end: int,
    st: TrackerSettings,
    last_id: int,
    ids: np.ndarray,
) -> int:
    """Match a frame's objects, `first` to `end`, to the lane's tracks, which have been advanced to its time.

    Writes the objects' `ids` and, with `smooth`, their boxes; returns the last track id.
    """
    confirm_s = 0.0 if lane.detected == 0 else st.confirm_s
    lane.detected = 1
    _drop_unseen(lane, tracks, embeddings, st.track_ttl_s, np.inf)
    count = lane.count
    expected = np.empty((count, 4))
    for j in range(count):
        as_box(tracks[j].mean, expected[j])
    track_of = np.full(end - first, NONE, np.int64)
    free = np.ones(count, np.bool_)
    exclude_boxes(objects, first, st, track_of)
    high = st.high_score
    low = st.low_score if st.two_rounds else np.inf
    top = np.inf
    again = high if st.recover else np.inf
    alike = high if st.appearance else np.inf
    for part in (
        AssociationPass(SEEN, LOST, high, top, st.min_iou, not st.motion, np.inf, False, st.heading),
        AssociationPass(SEEN, SEEN, low, high, st.min_iou_weak, not st.motion, np.inf, False, 0.0),
        AssociationPass(LOST, LOST, alike, top, st.min_similarity, False, np.inf, True, 0.0),
        AssociationPass(NEW, NEW, high, top, st.min_iou_new, not st.motion, np.inf, False, 0.0),
        AssociationPass(SEEN, LOST, again, top, _AGAIN_IOU, True, _AGAIN_S + _SLACK_S, False, 0.0),
    ):
        match(tracks, embeddings, expected, objects, first, part, st, lane.time_s, track_of, free)
    for j in range(count):
        if free[j] and tracks[j].state == SEEN:
            tracks[j].state = LOST
    for i in range(end - first):
        j = track_of[i]
        score = objects.score[first + i]
        if j >= 0:
            _correct(tracks[j], objects.box[first + i], score, lane.time_s, st)
            if st.smooth:
                _steady(tracks[j], objects.box[first + i], score, lane.time_s)
        elif j == NONE and score >= max(st.new_score, high):
            j = lane.count
            lane.count += 1
            _begin(tracks[j], objects.box[first + i], lane.time_s)
            if st.smooth:
                begin_steady(tracks[j].steady_mean, tracks[j].steady_cov, objects.box[first + i], score)
            embeddings[j].fill(0)
        else:
            continue
        _store_observation(tracks[j], objects, first + i, lane.time_s, st)
        _update_embedding(embeddings[j], objects.embedding[first + i])
        if tracks[j].state == NEW and lane.time_s - tracks[j].first_seen_s >= confirm_s - _SLACK_S:
            last_id += 1
            tracks[j].id = last_id
            tracks[j].state = SEEN
        if tracks[j].state == SEEN:
            ids[first + i] = tracks[j].id
            if st.smooth:
                as_box(tracks[j].steady_mean, objects.box[first + i])
    _drop_unseen(lane, tracks, embeddings, st.track_ttl_s, st.confirm_s)
    return last_id


@compiled
def _correct(track: Any, box: np.ndarray, score: float, now_s: float, st: TrackerSettings) -> None:
    """Update a track with the box seen.

    With `recover`, the observation counts more than a prediction that was wrong: of a lost track, the motion from its
    last box is replayed; of one that was just seen, and is where it was, the motion restarts.
    """
    if track.state != LOST and not st.recover:
        correct(track.mean, track.cov, box, score, 1.0)
        return
    where = np.empty((3, 4))
    as_box(track.mean, where[0])
    for k in range(4):
        where[1, k] = track.box[k]
        where[2, k] = box[k]
    to_expected = box_similarity(where, 0, where, 2)
    to_last = box_similarity(where, 1, where, 2)
    wrong = st.recover and to_expected < _WRONG_IOU
    if track.state == LOST and to_expected <= 0 and to_last <= 0:  # found by appearance, elsewhere
        begin(track.mean, track.cov, box)
    elif wrong and track.state == LOST:
        copy(track.mean, track.seen_mean)
        copy(track.cov, track.seen_cov)
        reupdate(track.mean, track.cov, track.box, box, score, now_s - track.seen_s)
    elif wrong and to_last >= _AGAIN_IOU:
        begin(track.mean, track.cov, box)
    else:
        correct(track.mean, track.cov, box, score, 1.0)
    if track.state == LOST:
        track.state = SEEN


@compiled
def _steady(track: Any, box: np.ndarray, score: float, now_s: float) -> None:
    """Update the filter for output with the box seen; it begins again if the track was lost for long."""
    if now_s - track.seen_s > _STEADY_S + _SLACK_S:
        begin_steady(track.steady_mean, track.steady_cov, box, score)
    else:
        correct_steady(track.steady_mean, track.steady_cov, box, score)


@compiled
def _begin(track: Any, box: np.ndarray, now_s: float) -> None:
    """Begin an unconfirmed track."""
    track.id = 0
    track.state = NEW
    track.first_seen_s = now_s
    track.steps = 0
    begin(track.mean, track.cov, box)


@compiled
def _store_observation(track: Any, objects: TrackerDetections, i: int, now_s: float, st: TrackerSettings) -> None:
    """Store the last observation."""
    box = objects.box[i]
    for k in range(4):
        track.box[k] = box[k]
    track.seen_s = now_s
    track.class_id = objects.class_id[i]
    track.score = objects.score[i]
    if st.recover:
        copy(track.seen_mean, track.mean)
        copy(track.seen_cov, track.cov)
    ring = track.path[track.steps % HISTORY]
    ring[0] = now_s
    ring[1] = (box[0] + box[2]) / 2
    ring[2] = (box[1] + box[3]) / 2
    track.steps += 1


@compiled
def _update_embedding(track_embedding: np.ndarray, embedding: np.ndarray) -> None:
    """Blend an object's embedding into its track's; both have length 1, or are unknown."""
    length = before = 0.0
    for k in range(len(embedding)):
        length += embedding[k] * embedding[k]
        before += track_embedding[k] * track_embedding[k]
    if length > 0:  # a NaN is not
        keep = _KEEP_LOOK if before > 0 else 0.0
        for k in range(len(embedding)):
            track_embedding[k] = keep * track_embedding[k] + (1 - keep) * embedding[k] / np.sqrt(length)


@compiled
def _drop_unseen(lane: Any, tracks: np.ndarray, embeddings: np.ndarray, lost_s: float, new_s: float) -> None:
    """Drop tracks not seen for too long, confirmed or new ones; the others keep their order."""
    n_remaining = 0
    for j in range(lane.count):
        if lane.time_s - tracks[j].seen_s > (new_s if tracks[j].state == NEW else lost_s) + _SLACK_S:
            continue
        if n_remaining < j:
            tracks[n_remaining] = tracks[j]
            for k in range(embeddings.shape[1]):
                embeddings[n_remaining, k] = embeddings[j, k]
        n_remaining += 1
    lane.count = n_remaining
