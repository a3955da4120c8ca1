"""What a tracker does with the motion of a camera: which tracks move, and by how much."""

import numpy as np
import pytest

from streamkit.core.stage import Context
from streamkit.stages.analytics.track import Track
from streamkit.tracking.tracker import BatchFrame, CameraMotion, TrackerDetections

SHIFT = np.array([[1.0, 0, 90], [0, 1, 0]])
STEADY = 10  # frames after which a track is settled
SEEN = (100, 100, 140, 180)
LOST = (300, 100, 340, 180)


@pytest.fixture
def tracker():
    stage = Track(method="auto")
    stage.context = Context("track")
    stage.open()
    return stage.tracker


def update(tracker, number, boxes, camera=None):
    """The ids of a frame's objects."""
    objects = TrackerDetections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.full(len(boxes), 0.9, np.float32),
        np.zeros(len(boxes), np.int32),
        np.zeros((len(boxes), 0), np.float32),
    )
    ids = np.full(len(boxes), -1, np.int64)
    tracker.update([BatchFrame("a", "detect", number * 0.04, 0, True, 640, 360, len(boxes), camera)], objects, ids)
    return ids.tolist()


def moved(box):
    return box[0] + 90, box[1], box[2] + 90, box[3]


def settle(tracker):
    """Two tracks, of which the second is lost."""
    for number in range(STEADY):
        assert update(tracker, number, [SEEN, LOST]) == [1, 2]
    assert update(tracker, STEADY, [SEEN]) == [1]


def test_all_tracks_move_with_the_camera_since_the_previous_frame(tracker):
    settle(tracker)
    motion = CameraMotion(SHIFT, since_earlier=False)
    assert update(tracker, STEADY + 1, [moved(SEEN), moved(LOST)], motion) == [1, 2]


def test_lost_tracks_move_with_the_camera_since_an_earlier_frame_and_others_have_followed_it(tracker):
    settle(tracker)
    motion = CameraMotion(SHIFT, since_earlier=True)
    assert update(tracker, STEADY + 1, [SEEN, moved(LOST)], motion) == [1, 2]


def test_tracks_stay_where_they_are_without_a_motion(tracker):
    settle(tracker)
    assert update(tracker, STEADY + 1, [moved(SEEN), moved(LOST)]) == [-1, -1]
