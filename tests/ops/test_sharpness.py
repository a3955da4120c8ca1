"""Sharpness: against a plain sum, on what it is for, and the device's numbers."""

import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.ops.planes import nv12_shape
from streamkit.ops.sharpness import sharpness

RECTS = [(0, 0, 64, 48), (10, 20, 61, 47), (28, 0, 30, 47), (2, 4, 5, 7), (60, 0, 64, 2)]


def noise(width=64, height=48, seed=0):
    rng = np.random.default_rng(seed)
    return Surface(rng.integers(0, 256, nv12_shape(width, height), dtype=np.uint8), Color())


def plain(surface, rect):
    left, top, right, bottom = rect
    part = surface.data[top:bottom, left:right].astype(int)
    if min(part.shape) < 3:
        return 0.0
    edges = part[:-2, 1:-1] + part[2:, 1:-1] + part[1:-1, :-2] + part[1:-1, 2:] - 4 * part[1:-1, 1:-1]
    return float(edges.var())


def test_it_is_the_variance_of_the_laplacian():
    surface = noise()
    found = sharpness([surface] * 5, [(64, 48)] * 5, RECTS)
    assert found.tolist() == pytest.approx([plain(surface, rect) for rect in RECTS], rel=1e-9)
    assert found[2] == found[4] == 0
    assert found[3] > 0 or plain(surface, RECTS[3]) == 0


def test_blur_makes_it_less():
    import cv2

    sharp = noise(128, 96)
    found = [sharpness([sharp], [(128, 96)], [(0, 0, 128, 96)])[0]]
    for size in (3, 5, 9):
        data = sharp.data.copy()
        data[:96] = cv2.GaussianBlur(sharp.data[:96], (size, size), 0)
        found.append(sharpness([Surface(data, Color())], [(128, 96)], [(0, 0, 128, 96)])[0])
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0] / 50


def test_what_lies_beside_the_part_does_not_matter():
    surface, rect = noise(), (10, 10, 40, 40)
    other = Surface(surface.data.copy(), surface.color)
    other.data[:10] = other.data[40:] = 0
    other.data[:, :10] = other.data[:, 40:] = 255
    assert sharpness([surface], [(64, 48)], [rect]) == sharpness([other], [(64, 48)], [rect])


def test_none_and_nonsense():
    assert sharpness([], [], []).shape == (0,)
    with pytest.raises(ValueError, match="within the frame"):
        sharpness([noise()], [(64, 48)], [(0, 0, 65, 48)])


@pytest.mark.gpu
def test_device_equals_host():
    import cupy

    from streamkit.ops import traffic

    surfaces = [noise(seed=seed) for seed in range(5)] + [noise(1920, 1080, 9)]
    rects, sizes = [*RECTS, (2, 0, 1919, 1080)], [(64, 48)] * 5 + [(1920, 1080)]
    there = [Surface(cupy.asarray(one.data), one.color) for one in surfaces]
    before = traffic.so_far()
    found = sharpness(there, sizes, rects)
    assert traffic.so_far().to_host - before.to_host == 16 * len(rects), "the sums come to the host, no pixels"
    assert found.tolist() == sharpness(surfaces, sizes, rects).tolist()
