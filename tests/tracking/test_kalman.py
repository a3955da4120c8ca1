"""The motion filter: that of a textbook, exact in time, follows what moves evenly, believes weak boxes less."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.tracking.kalman import as_box, begin, correct, moved, predict, reupdate, warp, warp_box


def started(box=(100.0, 100.0, 140.0, 180.0)):
    mean = np.zeros((4, 2))
    cov = np.zeros((4, 3))
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
        predict(mean, cov, step_s, True)
        correct(mean, cov, np.array([100, 100, 140, 180.0]) + np.array([1, 0, 1, 0]) * speed * step_s * i, score, 1.0)
    return mean, cov


def test_the_filter_starts_at_the_box():
    np.testing.assert_allclose(box_of(started()[0]), [100, 100, 140, 180])


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.floats(0.001, 2), min_size=1, max_size=5))
def test_a_long_step_equals_its_parts(parts):
    mean, cov = followed(50, 0.04, 10)
    other = mean.copy()
    other_cov = cov.copy()
    for part in parts:
        predict(mean, cov, part, False)
    predict(other, other_cov, sum(parts), False)
    np.testing.assert_allclose(mean, other, rtol=1e-9)
    np.testing.assert_allclose(cov, other_cov, rtol=1e-9)


@settings(deadline=None)  # the first call compiles
@given(st.floats(-300, 300), st.sampled_from([1 / 60, 1 / 25, 1 / 10]))
def test_constant_motion_is_learned_at_any_frame_rate(speed, step_s):
    mean, _ = followed(speed, step_s, round(2 / step_s))
    assert abs(mean[0, 1] - speed) <= 0.02 * abs(speed) + 1e-6
    np.testing.assert_allclose(mean[1:, 1], 0, atol=1e-6)


def test_weak_boxes_have_less_weight():
    for score in (0.9, 0.5):
        weak = followed(0, 0.04, 20)
        sure = followed(0, 0.04, 20)
        aside = np.array([110, 100, 150, 180.0])
        correct(*weak, aside, score, 1.0)
        correct(*sure, aside, 1.0, 1.0)
        assert 0 < weak[0][0, 0] - 120 < 0.5 * (sure[0][0, 0] - 120)


def test_without_resize_the_size_is_constant():
    mean, cov = followed(50, 0.04, 10)
    mean[2, 1] = 30
    predict(mean, cov, 1.0, False)
    assert box_of(mean)[2] - box_of(mean)[0] < 41


def test_a_bend_ends_at_the_recovered_position():
    mean, cov = followed(50, 0.04, 25)
    seen = box_of(mean)
    reappeared = seen + np.array([0, 60, 0, 60])
    reupdate(mean, cov, seen, reappeared, 1.0, 1.0)
    assert abs(mean[1, 1] - 60) < 20
    np.testing.assert_allclose(box_of(mean), reappeared, atol=15)


def test_prediction_does_not_change_the_size():
    mean, _ = followed(50, 0.04, 50)
    box = np.zeros(4)
    moved(mean, np.array([0, 0, 10, 20.0]), 2.0, box)
    np.testing.assert_allclose(box, [100, 0, 110, 20], atol=2)


# ---------------------------------------------------------------------------------- against the textbook's matrices

SIDE = 80.0  # the longer side of the box that `started` begins with, in pixels


def textbook_expect(x, p, dt_s, side, resize=True):
    """Predict four filters of (position, velocity), their velocities being random walks: x (4, 2), p (4, 2, 2)."""
    x = x.copy()
    if not resize:
        x[2:, 1] = 0
    step = np.array([[1, dt_s], [0, 1]])
    walk = (30 / 640) ** 2 * 30 * side**2 * np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])
    return x @ step.T, step @ p @ step.T + walk


def textbook_correct(x, p, box, score, side, weight=1.0):
    """Correct them by a box: its deviation is a 30th of its longer side, and its variance grows with doubt."""
    noise = (side / 30) ** 2 * (1 + 150 * (1 - score)) / weight
    measured = np.array([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2, box[2] - box[0], box[3] - box[1]])
    gain = p[:, :, 0] / (p[:, :1, 0] + noise)
    return x + gain * (measured - x[:, 0])[:, None], p - gain[:, :, None] * p[:, :1, :]


def as_matrices(cov):
    return np.stack([cov[:, [0, 1]], cov[:, [1, 2]]], axis=1)


def test_the_initial_covariance_is_that_of_the_textbook():
    mean, cov = started()
    np.testing.assert_allclose(mean, [[120, 0], [140, 0], [40, 0], [80, 0]])
    np.testing.assert_allclose(cov, np.tile([(SIDE / 10) ** 2, 0, (3 * SIDE) ** 2], (4, 1)))


@pytest.mark.parametrize("resize", [True, False])
@pytest.mark.parametrize("score", [1.0, 0.8, 0.1])
def test_the_filter_equals_that_of_the_textbook(score, resize):
    mean, cov = started()
    x = mean.copy()
    p = as_matrices(cov)
    rng = np.random.default_rng(1)
    for dt_s in (0.04, 0.1, 0.5):
        x, p = textbook_expect(x, p, dt_s, x[2:, 0].max(), resize)
        predict(mean, cov, dt_s, resize)
        np.testing.assert_allclose(mean, x)
        np.testing.assert_allclose(as_matrices(cov), p)
        box = np.array([100, 100, 140, 180.0]) + rng.normal(0, 5, 4)
        x, p = textbook_correct(x, p, box, score, x[2:, 0].max())
        correct(mean, cov, box, score, 1.0)
        np.testing.assert_allclose(mean, x)
        np.testing.assert_allclose(as_matrices(cov), p)


@pytest.mark.parametrize("score", [1.0, 0.4])
def test_a_bend_is_a_textbook_step_per_thirtieth_of_a_second(score):
    mean, cov = followed(50, 0.04, 25)
    x = mean.copy()
    p = as_matrices(cov)
    seen = np.array([150, 100, 190, 180.0])
    reappeared = np.array([160, 130, 210, 230.0])
    reupdate(mean, cov, seen, reappeared, score, 0.2)
    for i in range(1, 7):
        x, p = textbook_expect(x, p, 0.2 / 6, x[2:, 0].max())
        x, p = textbook_correct(x, p, seen + (reappeared - seen) * i / 6, score, x[2:, 0].max(), 1 / 6)
    np.testing.assert_allclose(mean, x)
    np.testing.assert_allclose(as_matrices(cov), p)


def test_a_bend_of_less_than_a_thirtieth_of_a_second_is_a_single_step():
    mean, cov = followed(50, 0.04, 25)
    other = mean.copy()
    other_cov = cov.copy()
    reappeared = np.array([152, 100, 192, 180.0])
    reupdate(mean, cov, reappeared - 1, reappeared, 0.9, 0.001)
    predict(other, other_cov, 0.001, True)
    correct(other, other_cov, reappeared, 0.9, 1.0)
    np.testing.assert_allclose(mean, other)
    np.testing.assert_allclose(cov, other_cov)


def test_a_box_smaller_than_a_pixel_counts_as_a_pixel():
    _, cov = started((5.0, 5.0, 5.1, 5.2))
    np.testing.assert_allclose(cov[:, 0], 0.01)


def test_prediction_is_exact():
    mean = np.array([[120, 10.0], [140, -20.0], [40, 5.0], [80, 7.0]])
    box = np.zeros(4)
    moved(mean, np.array([1, 2, 11, 22.0]), 0.5, box)
    np.testing.assert_allclose(box, [6, -8, 16, 12])
    as_box(mean, box)
    np.testing.assert_allclose(box, [100, 100, 140, 180])


# ------------------------------------------------------------------------------------------------------------ camera

ZOOM_AND_PAN = np.array([[1.25, 0, 30], [0, 1.25, -12]])
ROLL = np.array([[0.96, -0.28, 5], [0.28, 0.96, 8]])


@pytest.mark.parametrize("camera", [ZOOM_AND_PAN, ROLL], ids=["zoom and pan", "roll"])
def test_a_camera_moves_a_filter_as_the_formulas_of_botsort_do(camera):
    """x' = M x + T and P' = M P M^T, with M applied to each pair of coordinates; a size has no roll."""
    mean, cov = followed(50, 0.04, 10)
    zoom = np.hypot(camera[0, 0], camera[1, 0])
    size = np.eye(2) * zoom
    position = camera[:, :2] @ mean[:2]
    position[:, 0] += camera[:, 2]
    expected = np.concatenate([position, size @ mean[2:]])
    whole = np.array([camera[:, :2] @ np.diag(cov[:2, n]) @ camera[:, :2].T for n in range(3)])
    diagonal = np.diagonal(whole, axis1=1, axis2=2).T
    expected_cov = np.concatenate([diagonal, cov[2:] * zoom**2])
    warp(mean, cov, camera)
    np.testing.assert_allclose(mean, expected)
    np.testing.assert_allclose(cov, expected_cov)


@pytest.mark.parametrize("camera", [ZOOM_AND_PAN, ROLL], ids=["zoom and pan", "roll"])
def test_a_camera_moves_a_box_like_the_filter_that_starts_there(camera):
    box = np.array([100.0, 100, 140, 180])
    mean, cov = started(tuple(box))
    warp(mean, cov, camera)
    warp_box(box, camera)
    np.testing.assert_allclose(box, box_of(mean))
    np.testing.assert_allclose((box[:2] + box[2:]) / 2, camera @ (120, 140, 1))


def test_a_filter_follows_what_stands_in_the_scene_while_the_camera_pans():
    """Its velocity is that in the scene: 0, whatever the camera does."""
    mean, cov = started()
    rng = np.random.default_rng(0)
    shift = np.zeros(2)
    for _ in range(20):
        step = rng.normal(0, 30, 2)
        shift += step
        predict(mean, cov, 0.04, True)
        warp(mean, cov, np.array([[1, 0, step[0]], [0, 1, step[1]]]))
        np.testing.assert_allclose(box_of(mean), np.array([100, 100, 140, 180]) + np.tile(shift, 2), atol=1e-6)
        correct(mean, cov, np.array([100, 100, 140, 180]) + np.tile(shift, 2), 0.9, 1.0)
    np.testing.assert_allclose(mean[:, 1], 0, atol=1e-6)
