"""Labels keep clear of each other where there is room."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.ops.labels import apart

SIZE = (640, 360)


def rects(corners, sizes):
    corners, sizes = np.array(corners, np.int64), np.array(sizes, np.int64)
    return np.concatenate([corners, corners + sizes], axis=1)


def covered(corner, sizes):
    """The area that labels have in common, pair by pair."""
    made = rects(corner, sizes)
    side = np.minimum(made[:, None, 2:], made[None, :, 2:]) - np.maximum(made[:, None, :2], made[None, :, :2])
    both = np.clip(side, 0, None).prod(-1)
    return np.triu(both, 1)


def test_labels_that_cover_none_stay():
    labels = rects([(10, 10), (100, 10), (10, 24)], [(90, 14)] * 3)
    boxes = rects([(10, 24), (100, 24), (10, 38)], [(50, 50)] * 3)
    assert apart(labels, boxes, SIZE).tolist() == labels[:, :2].tolist()
    assert apart(labels[:0], boxes[:0], SIZE).shape == (0, 2)


def test_the_first_stays_and_the_next_takes_the_next_free_place():
    """Two objects in one place: the second label goes to the box's right end, or else to the first free place."""
    wide, narrow = rects([(100, 100)], [(200, 80)]), rects([(100, 100)], [(60, 80)])
    two = rects([(100, 86)] * 2, [(80, 14)] * 2)
    assert apart(two, np.concatenate([wide, wide]), SIZE).tolist() == [[100, 86], [220, 86]]
    assert apart(two, np.concatenate([narrow, narrow]), SIZE).tolist() == [[100, 86], [100, 100]]


def test_one_that_covers_none_is_not_moved_by_others_that_do():
    labels = rects([(100, 86), (100, 86), (100, 100)], [(80, 14)] * 3)
    boxes = rects([(100, 100), (100, 100), (100, 114)], [(60, 80)] * 3)
    corner = apart(labels, boxes, SIZE)
    assert corner[2].tolist() == [100, 100]
    assert not covered(corner, [(80, 14)] * 3).any()


def test_where_there_is_no_room_the_least_is_covered():
    labels = rects([(0, 0)] * 2, [(20, 14)] * 2)
    assert apart(labels, labels, (20, 20))[1].tolist() == [0, 6]


places = st.tuples(st.integers(0, 250), st.integers(10, 120), st.integers(2, 100), st.integers(2, 100))


@settings(deadline=None)
@given(st.lists(places, min_size=1, max_size=12))
def test_labels_stay_even_and_in_the_frame_and_cover_no_more_than_before(found):
    boxes = 2 * rects([p[:2] for p in found], [p[2:] for p in found])
    sizes = np.array([(90, 14)] * len(found))
    wanted = np.clip(boxes[:, :2] - (0, 14), 0, np.array(SIZE) - sizes[0])
    corner = apart(rects(wanted, sizes), boxes, SIZE)
    assert (corner % 2 == 0).all()
    assert (corner >= 0).all()
    assert (corner + sizes <= SIZE).all()
    assert covered(corner, sizes).sum() <= covered(wanted, sizes).sum()
