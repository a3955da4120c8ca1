"""The motion filter: exact in time, follows what moves evenly, believes weak boxes less."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.tracking.kalman import as_box, begin, bend, correct, expect, moved


def started(box=(100.0, 100.0, 140.0, 180.0)):
    mean, cov = np.zeros((4, 2)), np.zeros((4, 3))
    begin(mean, cov, np.array(box))
    return mean, cov


def box_of(mean):
    box = np.zeros(4)
    as_box(mean, box)
    return box


def followed(speed, step_s, steps, score=1.0):
    """The filter of a box that moves to the right at `speed` pixels a second."""
    mean, cov = started()
    for i in range(1, steps + 1):
        expect(mean, cov, step_s, True)
        correct(mean, cov, np.array([100, 100, 140, 180.0]) + np.array([1, 0, 1, 0]) * speed * step_s * i, score)
    return mean, cov


def test_it_begins_at_the_box():
    np.testing.assert_allclose(box_of(started()[0]), [100, 100, 140, 180])


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.floats(0.001, 2), min_size=1, max_size=5))
def test_a_long_step_is_its_parts(parts):
    mean, cov = followed(50, 0.04, 10)
    other, other_cov = mean.copy(), cov.copy()
    for part in parts:
        expect(mean, cov, part, False)
    expect(other, other_cov, sum(parts), False)
    np.testing.assert_allclose(mean, other, rtol=1e-9)
    np.testing.assert_allclose(cov, other_cov, rtol=1e-9)


@settings(deadline=None)  # the first call compiles
@given(st.floats(-300, 300), st.sampled_from([1 / 60, 1 / 25, 1 / 10]))
def test_it_learns_an_even_motion_at_any_frame_rate(speed, step_s):
    mean, _ = followed(speed, step_s, round(2 / step_s))
    assert abs(mean[0, 1] - speed) <= 0.02 * abs(speed) + 1e-6
    np.testing.assert_allclose(mean[1:, 1], 0, atol=1e-6)


def test_weak_boxes_count_less():
    for score in (0.9, 0.5):
        weak, sure = followed(0, 0.04, 20), followed(0, 0.04, 20)
        aside = np.array([110, 100, 150, 180.0])
        correct(*weak, aside, score)
        correct(*sure, aside, 1.0)
        assert 0 < weak[0][0, 0] - 120 < 0.5 * (sure[0][0, 0] - 120)


def test_without_resize_the_size_stays():
    mean, cov = followed(50, 0.04, 10)
    mean[2, 1] = 30
    expect(mean, cov, 1.0, False)
    assert box_of(mean)[2] - box_of(mean)[0] < 41


def test_a_bend_leads_to_where_it_was_found_again():
    mean, cov = followed(50, 0.04, 25)
    seen = box_of(mean)
    found = seen + np.array([0, 60, 0, 60])
    bend(mean, cov, seen, found, 1.0)
    assert abs(mean[1, 1] - 60) < 20
    np.testing.assert_allclose(box_of(mean), found, atol=15)


def test_a_box_moves_on_without_changing_its_size():
    mean, _ = followed(50, 0.04, 50)
    box = np.zeros(4)
    moved(mean, np.array([0, 0, 10, 20.0]), 2.0, box)
    np.testing.assert_allclose(box, [100, 0, 110, 20], atol=2)
