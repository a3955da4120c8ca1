"""How well a box fits a track: overlap, direction, looks, in exact figures."""

import numpy as np
import pytest

from streamkit.tracking.jit import compiled
from streamkit.tracking.similarity import box_similarity, cosine_similarity, overlap, straightness
from streamkit.tracking.track_state import HISTORY, TRACK


def both(function, a, b):
    """What a function gives of two boxes that stand among others, either way round."""
    first_boxes = np.array([[0, 0, 1, 1], a], float)
    second_boxes = np.array([b, [5, 5, 6, 6]], float)
    forth = function(first_boxes, 1, second_boxes, 0)
    back = function(second_boxes, 0, first_boxes, 1)
    assert forth == back
    return forth


@pytest.mark.parametrize(
    ("box", "iou"),
    [
        ([0, 0, 40, 80], 1),
        ([20, 0, 60, 80], 1 / 3),
        ([0, 20, 40, 100], 60 / 100),
        ([10, 20, 30, 60], 800 / 3200),
        ([39, 79, 60, 90], 1 / (3200 + 231 - 1)),
        ([40, 0, 80, 80], 0),
        ([0, 80, 40, 90], 0),
        ([100, 100, 140, 180], 0),
    ],
)
def test_overlap_is_intersection_over_union(box, iou):
    assert both(overlap, [0, 0, 40, 80], box) == pytest.approx(iou)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ([0, 0, 40, 80], 1),
        ([20, 0, 60, 80], 1 / 3),  # beside: all of the height is shared
        ([0, 20, 40, 100], 0.6 * 0.6**3),  # 60 of the 100 pixels that both take up
        ([10, 20, 30, 60], 0.25 * 0.5**3),
        ([40, 0, 80, 80], 0),
    ],
)
def test_a_fit_is_the_overlap_times_the_third_power_of_the_shared_height(box, expected):
    assert both(box_similarity, [0, 0, 40, 80], box) == pytest.approx(expected)


def track_along(*path):
    """A track that was seen at these (seconds, x, y)."""
    track = np.zeros(1, TRACK)
    for step, place in enumerate(path):
        track[0]["path"][step % HISTORY] = place
    track["steps"] = len(path)
    return track


def straightness_to(track, x, y):
    return straightness_of_first(track, np.array([x - 20, y - 40, x + 20, y + 40], float))


@compiled
def straightness_of_first(tracks, box):
    """The record of a track is only known to compiled code."""
    return straightness(tracks[0], box)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [(40, 0, 1), (20, 0, 1), (0, 30, 0.5), (0, -30, 0.5), (-20, 0, 0), (20, 20, 0.75), (-20, 20, 0.25)],
)
def test_direction_similarity_is_1_ahead_0_5_across_and_0_back(x, y, expected):
    """The track comes to (10, 0) in a tenth of a second; angles are at the place where it was before."""
    assert straightness_to(track_along((0, 0, 0), (0.1, 10, 0)), x, y) == pytest.approx(expected)


def test_a_track_without_a_direction_gets_the_middle_for_every_box():
    for track in (track_along((0, 0, 0)), track_along((0, 5, 5), (0.04, 5, 5))):
        for x, y in ((40, 0), (-40, 0), (0, 40)):
            assert straightness_to(track, x, y) == 0.5
    assert straightness_to(track_along((0, 0, 0), (0.1, 10, 0)), 0, 0) == 0.5, "the box stands where it began"


def test_the_direction_is_that_of_the_last_tenth_of_a_second():
    """25 frames a second: up before, right over the last three steps."""
    path = [(i * 0.04, 0, -10 * i) for i in range(4)] + [(0.12 + i * 0.04, 10 * i, -30) for i in range(1, 4)]
    assert straightness_to(track_along(*path), 100, -30) == pytest.approx(1)
    assert straightness_to(track_along(*path), 0, -130) == pytest.approx(0.5)
    exact = [(i * 0.05, 10 * i, 0) for i in range(3)]
    assert straightness_to(track_along((-0.05, 10, 50), *exact), 100, 0) == pytest.approx(1), "0.1 s is long enough"


def test_the_path_of_a_long_track_is_read_from_the_ring_buffer():
    path = [(i * 0.04, -10 * i, 0) for i in range(HISTORY)] + [
        (0.28 + i * 0.04, -70, 10 * i) for i in range(1, HISTORY - 2)
    ]
    assert straightness_to(track_along(*path), -70, 200) == pytest.approx(1)
    quick = [(i * 0.001, 10 * i, 0) for i in range(2 * HISTORY + 1)]  # the ring is shorter than a tenth of a second
    assert straightness_to(track_along(*quick), 500, 0) == pytest.approx(1)


@pytest.mark.parametrize(
    ("a", "b", "cosine"),
    [
        ([1, 0, 0], [1, 0, 0], 1),
        ([2, 0, 0], [5, 0, 0], 1),
        ([1, 0, 0], [0, 1, 0], 0),
        ([1, 0, 0], [-3, 0, 0], -1),
        ([3, 4, 0], [4, 3, 0], 24 / 25),
        ([0, 0, 0], [1, 0, 0], -1),
        ([1, 0, 0], [0, 0, 0], -1),
        ([np.nan, 0, 0], [1, 0, 0], -1),
    ],
)
def test_embeddings_are_compared_by_cosine(a, b, cosine):
    assert cosine_similarity(np.array(a, np.float32), np.array(b, np.float32)) == pytest.approx(cosine)
