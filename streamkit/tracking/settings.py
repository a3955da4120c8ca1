"""What a tracker is asked for, as the numbers that the compiled code reads."""

from __future__ import annotations

from typing import NamedTuple


class Settings(NamedTuple):
    """Which of the steps of `step` are taken, and their thresholds.

    Overlaps are those of `likeness.fit`, 0 to 1; scores are a detector's, 0 to 1; patience is in seconds.

    Attributes:
        motion: expect a track where its motion leads, not where it was last.
        two_rounds: after the objects of `high_score` and more, match weaker ones to the tracks that are left.
        heading: prefer pairs that keep a track's direction, by this weight; 0 turns it off.
        recover: give what is left a chance by the last box that was seen, and bend the motion to where a lost track
            came back.
        class_aware: an object takes on tracks of its own class only.
        appearance: use embeddings.
        new_score: the least score of an object that begins a track.
        high_score: the least score of the first round.
        low_score: the least score of the second.
        min_iou: the least overlap of the first round.
        min_iou_weak: of the second.
        min_iou_new: with a track that is not confirmed yet.
        min_similarity: the least cosine of two embeddings of one object.
        confirm_s: how long a track is seen before it counts.
        max_lost_s: how long a track that is not seen is remembered.
        max_gap_s: a longer gap between two frames of a source ends all its tracks.
        show_lost_s: for how long a lost track is given as a predicted row.
        smooth: give objects the boxes of the filter.
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
    max_lost_s: float
    max_gap_s: float
    show_lost_s: float
    smooth: bool
