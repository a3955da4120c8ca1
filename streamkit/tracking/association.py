# SPDX-License-Identifier: Apache-2.0
"""One round of matching of a frame's objects to a lane's tracks, by similarity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamkit.tracking.assign import assign
from streamkit.tracking.jit import compiled
from streamkit.tracking.settings import TrackerSettings
from streamkit.tracking.similarity import box_similarity, cosine_similarity, overlap, straightness
from streamkit.tracking.tracker import TrackerDetections

_NEAR = 0.5  # minimum overlap from which appearance may replace overlap, as in BoT-SORT
_SAME = 0.6  # two boxes of a frame with a larger IoU are of the same object
_TINY = 1e-6  # gain of a pair with exactly the minimum similarity


NONE = -1
OUT = -2
"""An object without a track so far; an object that cannot have a track."""


class AssociationPass(NamedTuple):
    """What a round matches, and by what.

    Attributes:
        state: tracks in this state take part,
        or_state: and in this one.
        lowest: minimum score of an object that takes part.
        below: its score must be below this.
        threshold: minimum similarity of a pair.
        last_box: compare with the last seen box, not with the expected one.
        unseen_s: a track not seen for longer does not take part.
        by_appearance: compare appearance only.
        heading: weight of keeping a track's direction.
    """

    state: int
    or_state: int
    lowest: float
    below: float
    threshold: float
    last_box: bool
    unseen_s: float
    by_appearance: bool
    heading: float


@compiled
def _gains(
    tracks: np.ndarray,
    embeddings: np.ndarray,
    expected: np.ndarray,
    objects: TrackerDetections,
    first: int,
    part: AssociationPass,
    st: TrackerSettings,
    rows: np.ndarray,
    columns: np.ndarray,
) -> np.ndarray:
    """Return the gain of each pair of an object in `rows` and a track in `columns`; 0 for pairs that do not fit.

    All pairs in one call: passing the tuples of arrays costs more than the similarity of a pair.
    """
    n = len(rows)
    m = len(columns)
    where = np.empty((m, 4))
    kinds = np.empty(m, np.int64)
    for b in range(m):
        j = columns[b]
        kinds[b] = tracks[j].class_id
        for k in range(4):
            where[b, k] = tracks[j].box[k] if part.last_box else expected[j, k]
    gain = np.zeros((n, m))
    for a in range(n):
        i = first + rows[a]
        for b in range(m):
            if st.class_aware and objects.class_id[i] != kinds[b]:
                continue
            j = columns[b]
            if part.by_appearance:
                like = cosine_similarity(objects.embedding[i], embeddings[j])
            else:
                like = box_similarity(objects.box, i, where, b)
                if like == 0:
                    continue
                if st.appearance and like >= _NEAR:
                    alike = cosine_similarity(objects.embedding[i], embeddings[j])
                    if alike >= st.min_similarity:
                        like = max(like, (1 + alike) / 2)
            if like >= part.threshold and like > 0:
                gain[a, b] = like - part.threshold + _TINY
                if part.heading > 0:
                    gain[a, b] += part.heading * objects.score[i] * straightness(tracks[j], objects.box[i])
    return gain


@compiled
def match(
    tracks: np.ndarray,
    embeddings: np.ndarray,
    expected: np.ndarray,
    objects: TrackerDetections,
    first: int,
    part: AssociationPass,
    st: TrackerSettings,
    now_s: float,
    track_of: np.ndarray,
    free: np.ndarray,
) -> None:
    """Assign free tracks to objects that have no track.

    Args:
        tracks: (most,) TRACK.
        embeddings: (most, d) float32.
        expected: (m, 4) float64, expected boxes of the first m tracks, which are the lane's.
        objects: the frame's objects are those from `first` on.
        first: index of the frame's first object.
        part: the round.
        st: the settings.
        now_s: the frame's time.
        track_of: (n,) int64, the track of each of the frame's objects, or `NONE` or `OUT`; changed in place.
        free: (m,) bool, tracks without an object; changed in place.
    """
    rows = np.empty(len(track_of), np.int64)
    columns = np.empty(len(free), np.int64)
    n = m = 0
    for i in range(len(track_of)):
        if track_of[i] == NONE and part.lowest <= objects.score[first + i] < part.below:
            rows[n] = i
            n += 1
    for j in range(len(free)):
        fits = tracks[j].state == part.state or tracks[j].state == part.or_state
        if free[j] and fits and now_s - tracks[j].seen_s <= part.unseen_s:
            columns[m] = j
            m += 1
    if n == 0 or m == 0:
        return
    gain = _gains(tracks, embeddings, expected, objects, first, part, st, rows[:n], columns[:m])
    column_of = assign(gain)
    for a in range(n):
        if column_of[a] >= 0:
            track_of[rows[a]] = columns[column_of[a]]
            free[columns[column_of[a]]] = False


@compiled
def exclude_boxes(objects: TrackerDetections, first: int, st: TrackerSettings, track_of: np.ndarray) -> None:
    """Exclude boxes that can have no track: empty boxes, and a detector's duplicate boxes of one object.

    A duplicate would hide that a neighboring object is not seen, and mislead that object's track.
    """
    box = objects.box
    score = objects.score
    kind = objects.class_id
    end = first + len(track_of)
    for a in range(first, end):
        width = box[a, 2] - box[a, 0]
        height = box[a, 3] - box[a, 1]
        if not (width > 0 and height > 0 and np.isfinite(width) and np.isfinite(height)):
            track_of[a - first] = OUT
    for a in range(first, end):
        for b in range(a + 1, end):
            if overlap(box, a, box, b) > _SAME and (kind[a] == kind[b] or not st.class_aware):
                track_of[(b if score[b] <= score[a] else a) - first] = OUT
