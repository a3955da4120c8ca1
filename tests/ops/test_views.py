"""Tiles and their boxes: what must hold for any frame, and the cases that merging is for."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from streamkit.ops import views

sides = st.integers(1, 900)
tile_sides = st.integers(32, 700)


@given(sides, sides, tile_sides, tile_sides, st.floats(0, 0.9), st.integers(0, 40), st.integers(0, 40))
@example(1, 195, 32, 33, 0.0, 0, 0)  # an odd length and odd tiles that are to touch
def test_tiles_cover_the_part_and_overlap(width, height, wide, high, overlap, x, y):
    rect = (2 * x, 2 * y, 2 * x + width, 2 * y + height)
    assume(width * height < 100 * (wide * (1 - overlap) - 2) * (high * (1 - overlap) - 2))  # not too many
    laid = views.tiles(rect, (wide, high), overlap)
    assert len(set(laid)) == len(laid)
    seen = np.zeros((height, width), bool)
    for left, top, right, bottom in laid:
        assert left % 2 == top % 2 == 0
        assert rect[0] <= left < right <= rect[2]
        assert rect[1] <= top < bottom <= rect[3]
        assert right - left <= wide + 1, "only an odd remainder makes one larger"
        assert bottom - top <= high + 1
        seen[top - rect[1] : bottom - rect[1], left - rect[0] : right - rect[0]] = True
    assert seen.all()
    row = sorted({(left, right) for left, _, right, _ in laid})
    for (_, end), (begin, _) in itertools.pairwise(row):
        assert end - begin >= overlap * wide - 1e-3


@pytest.mark.parametrize(
    ("length", "tile", "overlap", "count"),
    [(1920, 640, 0.0, 3), (1920, 640, 0.2, 4), (640, 640, 0.5, 1), (641, 640, 0, 1), (642, 640, 0, 2)],
)
def test_the_number_of_tiles_is_computed(length, tile, overlap, count):
    assert len(views.tiles((0, 0, length, 10), (tile, 64), overlap)) == count


def test_too_many_tiles_are_refused():
    with pytest.raises(ValueError, match=r"tiles of 32x32 with an overlap of 0\.5 would be 32026 in 3840x2160 pixels"):
        views.tiles((0, 0, 3840, 2160), (32, 32), 0.5)


@pytest.mark.parametrize(
    ("corners", "rect"),
    [
        ([(10.5, 3), (50, 20.2), (21, 44)], (10, 2, 50, 44)),
        ([(-9, -9), (700, 20), (50, 900)], (0, 0, 640, 360)),
        ([(700, 20), (800, 20), (800, 50)], None),
        ([(-50, 20), (0, 20), (-1, 50)], None),
        ([(10, -50), (30, -20), (20, 0)], None),
        ([(10, 360), (30, 400), (20, 420)], None),
        ([(640, 10), (700, 20), (650, 50)], None),
        ([(10, -50), (30, -20), (20, 0.2)], (10, 0, 30, 1)),
        ([(638.5, 10), (700, 20), (650, 50)], (638, 10, 640, 50)),
        ([(11.5, 7.5), (20, 9), (12, 8)], (10, 6, 20, 9)),
    ],
)
def test_a_polygon_has_its_bounding_region(corners, rect):
    assert views.bounding_rect(np.array(corners, float), 640, 360) == rect


def merged(
    boxes, scores, view=None, classes=None, cut=None, frame=None, iou=0.5, agnostic=False, top_k=9, corners=None
):
    n = len(boxes)
    none = np.zeros(n, int)
    rows, taken, left_out = views.merge(
        np.array(boxes, np.float32).reshape(n, 4),
        np.array(scores),
        none if classes is None else np.array(classes),
        none if frame is None else np.array(frame),
        np.arange(n) if view is None else np.array(view),
        np.zeros(n, bool) if cut is None else np.array(cut, bool),
        iou=iou,
        agnostic=agnostic,
        top_k=top_k,
        corners=corners,
    )
    return rows.tolist(), taken, left_out


A = [0, 0, 10, 20]
B = [1, 0, 11, 20]
FAR = [50, 0, 60, 20]
PART = [0, 12, 10, 20]


def test_the_better_of_two_views_is_kept():
    assert merged([A, B, FAR], [0.5, 0.9, 0.3]) == ([1, 2], 1, 0)


def test_classes_and_frames_are_separate_by_default():
    assert merged([A, B], [0.5, 0.9], classes=[0, 1]) == ([1, 0], 0, 0)
    assert merged([A, B], [0.5, 0.9], classes=[0, 1], agnostic=True) == ([1], 1, 0)
    assert merged([A, B], [0.5, 0.9], frame=[0, 1]) == ([0, 1], 0, 0)


def test_a_part_is_dropped_for_the_whole_object_at_any_score():
    assert merged([A, PART], [0.5, 0.9], cut=[False, True]) == ([0], 1, 0)
    # Not where it was seen whole, or by the same view: then it is another object.
    assert merged([A, PART], [0.5, 0.9], cut=[False, False]) == ([1, 0], 0, 0)
    assert merged([A, PART], [0.5, 0.9], cut=[False, True], view=[3, 3]) == ([1, 0], 0, 0)


def test_two_views_match_boxes_more_loosely_than_a_single_view():
    close = [3, 0, 13, 20]  # an IoU of 0.54
    assert merged([A, close], [0.5, 0.9], iou=0.7) == ([1], 1, 0)
    assert merged([A, close], [0.5, 0.9], iou=0.7, view=[0, 0]) == ([1, 0], 0, 0)


def test_two_parts_with_little_overlap_are_both_kept():
    assert merged([[0, 0, 10, 12], [0, 10, 10, 20]], [0.5, 0.9], cut=[True, True]) == ([1, 0], 0, 0)


@pytest.mark.parametrize(
    ("other", "cut", "view", "remaining"),
    [
        (PART, [False, True], [0, 1], [0]),
        (PART, [False, False], [0, 1], [1, 0]),
        (PART, [False, True], [3, 3], [1, 0]),
        (FAR, [False, True], [0, 1], [1, 0]),
        (FAR, [False, True], [3, 3], [1, 0]),
        ([0, 16, 10, 36], [False, True], [0, 1], [1, 0]),
    ],
)
@pytest.mark.parametrize("degrees", [0.0, 30.0])
def test_rotated_parts_are_dropped_like_upright_ones(other, cut, view, remaining, degrees):
    boxes = np.array([A, other], np.float32)
    turned = np.deg2rad(degrees)
    upright = np.stack([boxes[:, [0, 1]], boxes[:, [2, 1]], boxes[:, [2, 3]], boxes[:, [0, 3]]], axis=1)
    matrix = np.array([[np.cos(turned), -np.sin(turned)], [np.sin(turned), np.cos(turned)]])
    corners = (upright @ matrix.T).astype(np.float32)
    assert merged(boxes, [0.5, 0.9], cut=cut, view=view, corners=corners)[0] == remaining
    assert merged(boxes, [0.5, 0.9], cut=cut, view=view)[0] == remaining


def test_the_best_objects_of_each_frame_are_kept():
    boxes = [[100 * i, 0, 100 * i + 10, 9] for i in range(4)]
    assert merged(boxes, [0.1, 0.4, 0.3, 0.2], frame=[0, 0, 0, 1], top_k=2) == ([1, 2, 3], 0, 1)
    many = [[100 * i, 0, 100 * i + 10, 9] for i in range(8)]
    assert merged(many, np.arange(8) / 10, frame=[0] * 5 + [1] * 3, top_k=1) == ([4, 7], 0, 6)
    assert merged([A, B, *many], [0.9] * 10, frame=[0] * 3 + [1] * 7, top_k=9) == ([0, 2, *range(3, 10)], 1, 0)
    assert merged([], []) == ([], 0, 0)


def test_cut_off_sides_of_a_box_are_recognized():
    rects = np.array([[0, 0, 320, 360], [0, 0, 320, 360], [300, 0, 640, 360], [300, 0, 640, 360]])
    within = np.tile([0, 0, 640, 360], (4, 1))
    boxes = np.array([[10, 0, 60, 360], [250, 50, 319, 90], [303, 50, 340, 90], [310, 50, 640, 90]], np.float32)
    assert views.is_cut_off(boxes, rects, within, np.ones((4, 2), np.float32)).tolist() == [False, True, True, False]
