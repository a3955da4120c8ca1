"""Points, lines, polygons and the ground plane, against plain geometry."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.walks import gap, inside, passes

from streamkit.analytics.geometry import Areas, Lines, Plane, check_four, right_of
from streamkit.analytics.geometry import passes as passing

GRID = st.tuples(
    st.integers(0, 6), st.integers(0, 6)
)  # few places, so that points lie on lines and corners all the time
PLACE = st.tuples(st.floats(-50, 50), st.floats(-50, 50))


def array(points):
    return np.array(points, np.float64).reshape(-1, 2)


@given(GRID, GRID, st.lists(GRID, min_size=2, max_size=8))
def test_passing_a_segment_equals_exact_arithmetic(a, b, way):
    if a == b:
        return
    for p, q in itertools.pairwise(way):
        turned = right_of(array(a), array(b), array(p))[0] != right_of(array(a), array(b), array(q))[0]
        is_passing = bool(turned and passing(array(p), array(q), array(a), array(b))[0])
        assert is_passing == bool(passes((a, b), p, q))


@given(st.lists(GRID, min_size=3, max_size=3, unique=True), st.lists(GRID, min_size=2, max_size=12))
def test_entering_through_an_edge_means_inside(corners, way):
    """Lines and areas agree about every place, also on edges and corners: a closed line counts what an area holds."""
    (ax, ay), (bx, by), (cx, cy) = corners
    turn = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    if not turn:
        return
    area = Areas([tuple(corners)])
    count = 0
    for p, q in itertools.pairwise(way):
        count += sum(passes([*corners, corners[0]], p, q))
    first, last = area.inside(array([way[0], way[-1]]))[:, 0].astype(int)
    assert count * (1 if turn > 0 else -1) == last - first  # with corners to the right, right of the edges is inside


@given(st.lists(GRID, min_size=1))
def test_inside_equals_exact_arithmetic(points):
    area = ((0, 0), (6, 0), (6, 6), (3, 2), (0, 6))
    other = ((1, 1), (5, 1), (3, 5))
    is_inside = Areas([area, other]).inside(array(points))
    assert is_inside.tolist() == [[inside(area, p), inside(other, p)] for p in points]


@given(st.lists(PLACE, min_size=1, max_size=20), st.floats(-40, 40))
def test_areas_with_a_common_edge_do_not_overlap(points, x):
    around = ((-60, -60), (60, -60), (60, 60), (-60, 60))
    top = (x, -60)
    low = (x / 3, 60)
    left = ((-60, -60), top, low, (-60, 60))
    right = (top, (60, -60), (60, 60), low)
    points += [top, low, (x * 2 / 3, 0)]
    is_inside = Areas([left, right, around]).inside(array(points))
    assert (is_inside[:, 0].astype(int) + is_inside[:, 1] == is_inside[:, 2]).all()


@given(st.lists(PLACE, min_size=1, max_size=10), st.lists(PLACE, min_size=2, max_size=5, unique=True))
def test_distances_are_computed(points, line):
    if any(max(abs(p[0] - q[0]), abs(p[1] - q[1])) < 1e-3 for p, q in itertools.pairwise(line)):
        return
    short = ((0.0, 0.0), (1.0, 0.0))
    lines = Lines([tuple(line), short])
    n = len(points)
    for which, shape in enumerate((line, short)):
        distances = lines.distance(array(points), np.full(n, which), np.ones(n))
        expected = [min(gap(p, a, b) for a, b in itertools.pairwise(shape)) for p in points]
        assert np.allclose(distances, expected, atol=1e-9)


def test_a_distance_in_shares_is_relative_to_the_image_height():
    lines = Lines([((0.5, 0.0), (0.5, 1.0))])
    assert np.allclose(lines.distance(array([[0.6, 0.5]]), np.array([0]), np.array([16 / 9])), 0.1 * 16 / 9)


FOUR = ((100.0, 100.0), (200.0, 100.0), (300.0, 300.0), (50.0, 300.0))
METERS = ((0.0, 0.0), (4.0, 0.0), (4.0, 20.0), (0.0, 20.0))


@given(st.tuples(*[st.floats(-15, 15)] * 8))
def test_a_homography_maps_its_four_points(moves):
    points = tuple((x + moves[2 * i], y + moves[2 * i + 1]) for i, (x, y) in enumerate(FOUR))
    plane = Plane(points, METERS)
    assert np.allclose(plane.meters(np.array(points)), METERS, atol=1e-6)


def test_the_homography_equals_that_of_opencv():
    import cv2

    matrix = cv2.getPerspectiveTransform(np.array(FOUR, np.float32), np.array(METERS, np.float32))
    points = np.random.default_rng(0).uniform([60, 110], [280, 290], (50, 2))
    expected = cv2.perspectiveTransform(points[None], matrix)[0]
    assert np.allclose(Plane(FOUR, METERS).meters(points), expected, atol=1e-3)


@pytest.mark.parametrize("side", [0.02, 2.0, 1000.0])
@pytest.mark.parametrize("place", [0.0, 1e4])
def test_a_plane_works_at_any_size_and_position(side, place):
    square = np.array([(0, 0), (side, 0), (side, side), (0, side)]) + place
    plane = Plane(FOUR, square)
    assert np.allclose(plane.meters(np.array(FOUR)), square, atol=1e-6 * side + 1e-8)
    middle = plane.meters(np.array([[150.0, 200.0]]))
    assert np.allclose((middle - place) / side, (Plane(FOUR, METERS).meters(np.array([[150.0, 200.0]])) / [4, 20]))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6, -3.0])
def test_a_matrix_measures_like_its_four_points_at_any_scale(scale):
    import cv2

    matrix = cv2.getPerspectiveTransform(np.array(FOUR, np.float32), np.array(METERS, np.float32))
    plane = Plane.of_matrix(scale * matrix)
    assert np.allclose(plane.meters(np.array(FOUR)), METERS, atol=1e-3)
    assert np.isnan(plane.meters(np.array([[150.0, -200.0]]))).all(), "beyond the horizon"


@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((3, 3)),
        np.ones((3, 3)),
        np.diag([1.0, 1.0, 0.0]),
        np.full((3, 3), np.nan),
        np.array([[1.0, 2, 3], [2, 4, 6], [0, 0, 1]]),
    ],
)
def test_a_matrix_without_an_inverse_is_refused(matrix):
    with pytest.raises(ValueError, match="three rows of three numbers, which do not depend on each other"):
        Plane.of_matrix(matrix)


def test_nothing_is_measured_beyond_the_horizon():
    plane = Plane(FOUR, METERS)
    assert not np.isnan(plane.meters(np.array([[150.0, 60.0]]))).any()
    assert np.isnan(plane.meters(np.array([[150.0, -200.0]]))).all()


@pytest.mark.parametrize(("y", "measured"), [(99.0, False), (100.9, False), (101.1, True)])
def test_nothing_is_measured_close_to_the_horizon(y, measured):
    """The horizon is at y = 100. A pixel at y = 101 is 100 m, and its neighbors would be at infinity."""
    plane = Plane.of_matrix(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, -100.0]]))
    assert np.isfinite(plane.meters(np.array([[5.0, y]]))).tolist() == [[measured, measured]]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (FOUR[:3], "four points"),
        ((*FOUR, (0.0, 0.0)), "four points"),
        (((0, 0), (10, 10), (20, 20), (0, 90)), "points 1, 2 and 3 are"),
        (((0, 0), (0, 90), (10, 10), (20, 20.0001)), "no three on a line"),
        (((0, 0), (0, 0), (10, 10), (20, 50)), "no three on a line"),
        ((FOUR[0], FOUR[2], FOUR[1], FOUR[3]), "in order around the area"),
    ],
)
def test_unusable_points_are_refused(points, message):
    with pytest.raises(ValueError, match=message):
        check_four(points)


def test_points_in_a_wrong_order_are_refused():
    dart = ((0.0, 0.0), (100.0, 40.0), (0.0, 80.0), (30.0, 40.0))
    with pytest.raises(ValueError, match="points and ground do not fit"):
        Plane(dart, METERS)
