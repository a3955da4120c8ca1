"""Rotated boxes, against OpenCV's points, numerical integration and rasters."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.ops.rotated import corners_of, covered, hull, overlaps, prob_iou


def boxes(n, seed=0):
    rng = np.random.default_rng(seed)
    sides = np.column_stack([rng.uniform(10, 60, (n, 2)), rng.uniform(4, 40, (n, 2))]).astype(np.float32)
    return sides, rng.uniform(-math.pi, math.pi, n).astype(np.float32)


def test_corners_are_those_of_opencv():
    import cv2

    sides, angle = boxes(50)
    quads = corners_of(sides, angle).reshape(-1, 4, 2)
    for box, turn, corners in zip(sides.tolist(), angle.tolist(), quads, strict=True):
        expected = cv2.boxPoints((box[:2], box[2:], math.degrees(turn)))  # the same rule, from another corner
        gaps = np.linalg.norm(corners[:, None] - expected[None], axis=2)
        assert gaps.min(axis=1).max() < 1e-3
        assert len(set(gaps.argmin(axis=1))) == 4


def test_the_first_corner_is_the_upper_left_one_and_the_order_is_clockwise():
    quads = corners_of(np.float32([[10, 20, 8, 4]] * 2), np.float32([0, math.pi / 2])).reshape(2, 4, 2)
    np.testing.assert_allclose(quads[0], [[6, 18], [14, 18], [14, 22], [6, 22]])
    np.testing.assert_allclose(quads[1], [[12, 16], [12, 24], [8, 24], [8, 16]], atol=1e-5)
    np.testing.assert_allclose(hull(quads.reshape(2, 8)), [[6, 18, 14, 22], [8, 16, 12, 24]], atol=1e-5)


def integrated(a, b):
    """1 minus the Hellinger distance of two Gaussians, by summing the root of their product over a fine grid."""
    x, y = np.meshgrid(np.arange(-60, 140, 0.5), np.arange(-60, 140, 0.5))
    densities = []
    for (cx, cy, w, h), turn in (a, b):
        along = (x - cx) * math.cos(turn) + (y - cy) * math.sin(turn)
        down = (y - cy) * math.cos(turn) - (x - cx) * math.sin(turn)
        density = np.exp(-6 * ((along / w) ** 2 + (down / h) ** 2))  # a variance of a twelfth of the side's square
        densities.append(density / density.sum())
    return 1 - math.sqrt(max(0.0, 1 - np.sqrt(densities[0] * densities[1]).sum()))


def test_overlap_is_that_of_the_integrated_gaussians():
    sides, angle = boxes(9, seed=4)
    corners = corners_of(sides, angle)
    overlaps_of_pairs = prob_iou(corners, corners)
    turned_boxes = list(zip(sides.tolist(), angle.tolist(), strict=True))
    expected = [[integrated(a, b) for b in turned_boxes] for a in turned_boxes]
    np.testing.assert_allclose(overlaps_of_pairs, expected, atol=2e-3)
    assert overlaps_of_pairs.min() < 0.1
    assert np.sum((overlaps_of_pairs > 0.2) & (overlaps_of_pairs < 0.9)) > 8


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.1, 0.45, 0.7, 0.99, 1.0]))
@settings(max_examples=30, deadline=None)
def test_the_limit_of_the_distance_is_that_of_the_overlap(seed, iou):
    first, second = (corners_of(*boxes(12, seed + i)) for i in (0, 1))
    value = prob_iou(first, second)
    sure = np.abs(value - iou) > 1e-6
    assert (overlaps(first, second, iou) == (value > iou))[sure].all()
    np.testing.assert_array_equal(overlaps(first, second, iou), overlaps(second, first, iou).T)


def test_a_resize_with_unequal_scales_changes_no_overlap():
    corners = corners_of(*boxes(20))
    other = corners * np.tile(np.float32([2.5, 0.75]), 4) + np.tile(np.float32([8, -3]), 4)
    np.testing.assert_allclose(prob_iou(other, other), prob_iou(corners, corners), atol=1e-5)


@pytest.mark.parametrize("size", [(0, 0), (0, 9), (9, 0)])
def test_a_box_without_area_overlaps_nothing_else(size):
    flat = corners_of(np.float32([[30, 30, *size]]), np.float32([0.4]))
    full = corners_of(np.float32([[30, 30, 20, 10]]), np.float32([0.4]))
    assert not overlaps(flat, full, 0.3).any()
    assert np.isfinite(prob_iou(flat, full)).all()


def test_a_box_without_area_is_covered_by_nothing():
    sides, angle = boxes(1)
    corners = corners_of(sides, angle)
    line = corners_of(np.array([[*sides[0, :2], 8, 0]], np.float32), angle)
    assert covered(line, corners).tolist() == [[0]]
    assert covered(corners, corners)[0, 0] == pytest.approx(1, abs=1e-4)


def test_covered_is_the_share_of_pixels():
    sides, angle = boxes(8, seed=2)
    corners = corners_of(sides, angle)
    y, x = (np.mgrid[0:1000, 0:1000] + 0.5) / 10 - 10
    inside = []
    for (cx, cy, w, h), turn in zip(sides.tolist(), angle.tolist(), strict=True):
        along = (x - cx) * math.cos(turn) + (y - cy) * math.sin(turn)
        down = (y - cy) * math.cos(turn) - (x - cx) * math.sin(turn)
        inside.append((np.abs(along) < w / 2) & (np.abs(down) < h / 2))
    expected = [[(a & b).sum() / a.sum() for b in inside] for a in inside]
    np.testing.assert_allclose(covered(corners, corners), expected, atol=0.01)
