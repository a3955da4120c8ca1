"""Every way of resampling an axis gives the same values as interpolating sample by sample."""

import numpy as np
import pytest

from streamkit.ops.resample import (
    Axis,
    bilinear,
    bilinear_at,
    chroma_axis,
    resample,
    smooth,
    smooth_axis,
    triangles,
)
from streamkit.ops.scratch import scratch


def at(plane: np.ndarray, positions: np.ndarray, axis: int) -> np.ndarray:
    return np.apply_along_axis(lambda line: np.interp(positions, np.arange(len(line)), line), axis, plane)


@pytest.mark.parametrize("siting", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize(("size", "new_size"), [(1, 1), (1, 7), (2, 3), (9, 4), (10, 10), (11, 30), (64, 20), (65, 64)])
def test_chroma_is_resampled(size: int, new_size: int, siting: float) -> None:
    samples = (size + 1) // 2
    other = 6
    luma = np.clip((np.arange(new_size) + 0.5) * size / new_size - 0.5, 0, size - 1)
    for axis in (0, 1):
        shape = (samples, other) if axis == 0 else (other, samples)
        plane = np.random.default_rng(size).integers(0, 256, shape, dtype=np.uint8)
        axes = [chroma_axis(size, new_size, siting), Axis(other, other)]
        across, down = axes[::-1] if axis == 0 else axes
        with scratch() as new:
            ours = resample(plane, across, down, new).copy()
        np.testing.assert_allclose(ours, at(plane, (luma - siting) / 2, axis), atol=2e-4)


@pytest.mark.parametrize("way", ["double", "gather"])
def test_all_methods_agree(way: str) -> None:
    assert chroma_axis(100, 80, 0.0).method == "double"
    assert chroma_axis(100, 30, 0.0).method == "gather"
    assert chroma_axis(100, 30, 0.5).method == "direct"
    assert chroma_axis(101, 30, 0.5).method == "gather"
    plane = np.random.default_rng(0).integers(0, 256, (40, 50), dtype=np.uint8)
    luma = np.clip((np.arange(30) + 0.5) * 100 / 30 - 0.5, 0, 99)
    across = Axis(100, 30, "double") if way == "double" else chroma_axis(100, 30, 0.0)
    with scratch() as new:
        ours = resample(plane, across, Axis(40, 40), new).copy()
    np.testing.assert_allclose(ours, at(plane, luma / 2, 1), atol=2e-4)


@pytest.mark.parametrize("siting", [None, 0.0, 0.5, 1.0])
@pytest.mark.parametrize(("size", "new_size"), [(1, 1), (7, 7), (9, 4), (64, 20), (65, 3), (100, 1)])
def test_antialiased_samples_are_means_under_a_triangle(size, new_size, siting) -> None:
    """Of luma, and of chroma, whose samples are two luma samples apart."""
    step = size / new_size
    positions = np.clip((np.arange(new_size) + 0.5) * step - 0.5, 0, size - 1)
    count = size
    if siting is not None:
        step = step / 2
        count = (size + 1) // 2
        positions = (positions - siting) / 2
    weights = np.array([[max(0.0, 1 - abs(i - at) / max(step, 1)) for i in range(count)] for at in positions])
    weights /= weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(triangles(positions, step, count), weights, atol=1e-12)
    axis = smooth_axis(size, new_size, siting)
    assert len(axis.taps) == int(2 * max(step, 1)) + 1
    np.testing.assert_allclose(axis.weights.sum(axis=0), 1, rtol=1e-6)
    plane = np.random.default_rng(size).integers(0, 256, (count, 5), dtype=np.uint8)
    with scratch() as new:
        ours = smooth(plane, smooth_axis(5, 5), axis, new).copy()
    np.testing.assert_allclose(ours, weights @ plane, atol=2e-4)


PLANE = np.array([[0, 10, 40], [100, 130, 250]], np.uint8)


@pytest.mark.parametrize(
    ("x", "y", "value"),
    [
        (0, 0, 0),
        (2, 1, 250),
        (0.25, 0, 2.5),
        (1.5, 0, 25),
        (0, 0.75, 75),
        (1.5, 0.5, (10 + 40 + 130 + 250) / 4),
        (0.2, 0.6, 0.4 * 2 + 0.6 * 106),
        (-3, -3, 0),
        (9, 0, 40),
        (-1, 9, 100),
        (9, 9, 250),
    ],
)
def test_interpolation_is_linear_between_samples(x, y, value) -> None:
    plane = PLANE.astype(np.float64)
    assert bilinear(plane, np.array([x]), np.array([y]))[0, 0] == pytest.approx(value)
    assert bilinear_at(PLANE, np.array([x]), np.array([y]))[0] == pytest.approx(value)


def test_grid_and_single_positions_agree() -> None:
    x = np.array([0.5, 1.25, 2.0])
    y = np.array([0.0, 0.5])
    grid = bilinear(PLANE.astype(np.float64), x, y)
    assert grid.shape == (2, 3)
    np.testing.assert_allclose(bilinear_at(PLANE, *np.meshgrid(x, y)), grid)
