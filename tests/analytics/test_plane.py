import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.analytics.plane import Plane, check_four

FOUR = ((100.0, 100.0), (200.0, 100.0), (300.0, 300.0), (50.0, 300.0))
METRES = ((0.0, 0.0), (4.0, 0.0), (4.0, 20.0), (0.0, 20.0))


@given(st.tuples(*[st.floats(-15, 15)] * 8))
def test_the_four_points_are_where_they_are_said_to_be(moves):
    points = tuple((x + moves[2 * i], y + moves[2 * i + 1]) for i, (x, y) in enumerate(FOUR))
    plane = Plane(points, METRES)
    assert np.allclose(plane.metres(np.array(points)), METRES, atol=1e-6)


def test_it_is_opencv_s_homography():
    import cv2

    matrix = cv2.getPerspectiveTransform(np.array(FOUR, np.float32), np.array(METRES, np.float32))
    points = np.random.default_rng(0).uniform([60, 110], [280, 290], (50, 2))
    expected = cv2.perspectiveTransform(points[None], matrix)[0]
    assert np.allclose(Plane(FOUR, METRES).metres(points), expected, atol=1e-3)


def test_nothing_is_measured_beyond_the_horizon():
    plane = Plane(FOUR, METRES)
    assert not np.isnan(plane.metres(np.array([[150.0, 60.0]]))).any()
    assert np.isnan(plane.metres(np.array([[150.0, -200.0]]))).all()


@pytest.mark.parametrize(
    ("points", "told"),
    [
        (FOUR[:3], "four points"),
        ((*FOUR, (0.0, 0.0)), "four points"),
        (((0, 0), (10, 10), (20, 20), (0, 90)), "points 1, 2 and 3 are"),
        (((0, 0), (0, 90), (10, 10), (20, 20.0001)), "no three on a line"),
        (((0, 0), (0, 0), (10, 10), (20, 50)), "no three on a line"),
        ((FOUR[0], FOUR[2], FOUR[1], FOUR[3]), "in order around the area"),
    ],
)
def test_points_that_cannot_be_used(points, told):
    with pytest.raises(ValueError, match=told):
        check_four(points)


def test_orders_that_do_not_fit():
    dart = ((0.0, 0.0), (100.0, 40.0), (0.0, 80.0), (30.0, 40.0))
    with pytest.raises(ValueError, match="points and ground do not fit"):
        Plane(dart, METRES)
