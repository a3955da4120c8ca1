# SPDX-License-Identifier: Apache-2.0
"""Options of a tracker as numbers, for the compiled code."""

from __future__ import annotations

from typing import NamedTuple


class TrackerSettings(NamedTuple):
    """The steps of `update_frame` that are used, and their thresholds.

    Overlaps are those of `similarity.box_similarity`, 0 to 1; scores are 0 to 1; durations are in seconds.

    Attributes:
        motion: expect a track where its motion leads, not at its last position.
        two_rounds: after the objects of `high_score` and more, match weaker ones to the remaining tracks.
        heading: prefer pairs that keep a track's direction, by this weight; 0 disables it.
        recover: also match remaining objects with the last seen box, and replay the motion to where a lost track
            reappeared.
        class_aware: match objects with tracks of the same class only.
        appearance: use embeddings.
        new_score: minimum score of an object that begins a track.
        high_score: minimum score of the first round.
        low_score: minimum score of the second round.
        min_iou: minimum overlap of the first round.
        min_iou_weak: minimum overlap of the second round.
        min_iou_new: minimum overlap with an unconfirmed track.
        min_similarity: minimum cosine of two embeddings of one object.
        confirm_s: how long a track must be seen before it is confirmed.
        track_ttl_s: how long an unseen track is remembered.
        max_frame_gap_s: a longer gap between two frames of a source ends all its tracks.
        show_lost_s: how long a lost track is output as a predicted row.
        smooth: replace objects' boxes by those of the filter.
    """

    motion: bool
    two_rounds: bool
    heading: float
    recover: bool
    class_aware: bool
    appearance: bool
    new_score: float
    high_score: float
    low_score: float
    min_iou: float
    min_iou_weak: float
    min_iou_new: float
    min_similarity: float
    confirm_s: float
    track_ttl_s: float
    max_frame_gap_s: float
    show_lost_s: float
    smooth: bool
