"""Cutting parts out of frames: against a plain loop, its color against a large frame's, and the device's bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.core.data import Color, Surface
from streamkit.ops.color import from_rgb, to_rgb
from streamkit.ops.cut import cut, cut_bytes, cut_size, sharpness, step_for, to_host
from streamkit.ops.planes import nv12_shape

SIZES = [(64, 48), (63, 47), (30, 80)]
RECTS = [(0, 0, 64, 48), (10, 20, 61, 47), (28, 0, 30, 79), (2, 4, 3, 5), (60, 0, 64, 48)]
OF = [0, 1, 2, 1, 0]
STEPS = [1, 3, 2, 1, 7]


def noise(width=64, height=48, seed=0):
    rng = np.random.default_rng(seed)
    return Surface(rng.integers(0, 256, nv12_shape(width, height), dtype=np.uint8), Color())


def plain(data, rect, step):
    """The oracle: sample by sample."""
    rows = data.shape[0] * 2 // 3
    luma = data[:rows].astype(int)
    chroma = data[rows:].reshape(rows // 2, -1, 2).astype(int)
    left, top, right, bottom = rect
    width, height = (-(-n // step) for n in (right - left, bottom - top))
    out = np.zeros(nv12_shape(width, height), np.uint8)
    high = out.shape[0] * 2 // 3

    def mean(plane, x, y, last):
        places = [
            (min(y * step + j + last[1], last[3]), min(x * step + i + last[0], last[2]))
            for j in range(step)
            for i in range(step)
        ]
        total = sum(plane[place] for place in places)
        return (total + step * step // 2) // (step * step)

    for y in range(high):
        for x in range(out.shape[1]):
            out[y, x] = mean(luma, x, y, (left, top, right - 1, bottom - 1))
    for y in range(high // 2):
        for x in range(out.shape[1] // 2):
            last = left // 2, top // 2, (right - 1) // 2, (bottom - 1) // 2
            out[high + y, 2 * x : 2 * x + 2] = mean(chroma, x, y, last)
    return out


def test_a_region_equals_that_of_a_plain_loop():
    surfaces = [noise(*size, seed) for seed, size in enumerate(SIZES)]
    parts = cut([surfaces[i] for i in OF], [SIZES[i] for i in OF], RECTS, STEPS)
    for part, i, rect, step in zip(parts, OF, RECTS, STEPS, strict=True):
        assert np.array_equal(part.data, plain(surfaces[i].data, rect, step))
        assert part.data.nbytes == cut_bytes(rect, step)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 5), st.integers(0, 5), st.integers(1, 9))
def test_any_region_and_step_is_cut(width, height, left, top, step):
    surface = noise(52, 54, width)
    rect = 2 * left, 2 * top, 2 * left + width, 2 * top + height
    (part,) = cut([surface], [(52, 54)], [rect], [step])
    assert np.array_equal(part.data, plain(surface.data, rect, step))


def test_a_region_does_not_share_memory_with_its_image():
    surface = noise(64, 48)
    (part,) = cut([surface], [(64, 48)], [(0, 0, 64, 48)], [1])
    assert not np.shares_memory(part.data, surface.data)


@pytest.mark.parametrize("color", [Color(), Color("bt601", True, 0.5, 0.5), Color(chroma_y=0.0)])
@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_colors_stay_at_their_position(color, step):
    """The mean of the frame in RGB is what the small one shows: its chroma is read where it sits."""
    y, x = np.mgrid[:240, :300]
    rgb = np.stack([128 + 90 * np.sin(x / 40), 128 + 90 * np.cos(y / 35), 128 + 60 * np.sin((x + y) / 50)], -1)
    surface = Surface(from_rgb(rgb.round().astype(np.uint8), color), color)
    (small,) = cut([surface], [(300, 240)], [(0, 0, 300, 240)], [step])
    width, height = cut_size((0, 0, 300, 240), step)
    cut_rgb = to_rgb(small, width, height).astype(float)
    expected = rgb.reshape(height, step, width, step, 3).mean(axis=(1, 3))
    assert np.abs(cut_rgb - expected)[2:-2, 2:-2].max() < 3.5


def test_the_step_leaves_at_least_the_requested_size():
    assert [step_for((w, 100), 640) for w in (10, 640, 1279, 1280, 3840)] == [1, 1, 1, 2, 6]
    assert cut_size((0, 0, 3840, 2160), 6) == (640, 360)


def test_invalid_regions_are_refused():
    surface = noise(64, 48)
    with pytest.raises(ValueError, match="within the frame"):
        cut([surface], [(63, 48)], [(0, 0, 64, 48)], [1])
    with pytest.raises(ValueError, match="1 or more, got 0"):
        cut([surface], [(64, 48)], [(0, 0, 64, 48)], [0])
    assert cut([], [], [], []) == []


@pytest.mark.gpu
def test_device_equals_host():
    import cupy

    from streamkit.ops import traffic

    surfaces = [noise(*size, seed) for seed, size in enumerate(SIZES)]
    there = [Surface(cupy.asarray(surface.data), surface.color) for surface in surfaces]
    sizes = [SIZES[i] for i in OF]
    expected = cut([surfaces[i] for i in OF], sizes, RECTS, STEPS)
    before = traffic.so_far()
    parts = cut([there[i] for i in OF], sizes, RECTS, STEPS)
    assert traffic.so_far().to_host == before.to_host, "what is cut stays on the device"
    brought = to_host(parts)
    assert traffic.so_far().to_host - before.to_host == sum(part.data.nbytes for part in expected)
    for on_host, copied in zip(expected, brought, strict=True):
        assert np.array_equal(on_host.data, copied.data)
        assert on_host.color == copied.color


@pytest.mark.gpu
def test_the_device_waits_for_an_unfinished_image():
    import cupy

    frame = noise(1280, 720)
    there = Surface(cupy.zeros(frame.data.shape, np.uint8), Color())
    cupy.cuda.Device().synchronize()  # or the zeros may be written after the picture, on another stream
    with cupy.cuda.Stream(non_blocking=True) as stream:
        there.data.set(frame.data, stream=stream)
        there.ready = stream.record()
    (part,) = to_host(cut([there], [(1280, 720)], [(0, 0, 1280, 720)], [1]))
    assert np.array_equal(part.data, frame.data)


SHARP_RECTS = [(0, 0, 64, 48), (10, 20, 61, 47), (28, 0, 30, 47), (2, 4, 5, 7), (60, 0, 64, 2)]


def plain_sharpness(surface, rect):
    left, top, right, bottom = rect
    part = surface.data[top:bottom, left:right].astype(int)
    if min(part.shape) < 3:
        return 0.0
    edges = part[:-2, 1:-1] + part[2:, 1:-1] + part[1:-1, :-2] + part[1:-1, 2:] - 4 * part[1:-1, 1:-1]
    return float(edges.var())


def test_sharpness_is_the_variance_of_the_laplacian():
    surface = noise()
    values = sharpness([surface] * 5, [(64, 48)] * 5, SHARP_RECTS)
    assert values.tolist() == pytest.approx([plain_sharpness(surface, rect) for rect in SHARP_RECTS], rel=1e-9)
    assert values[2] == values[4] == 0
    assert values[3] > 0 or plain_sharpness(surface, SHARP_RECTS[3]) == 0


def test_blurring_reduces_sharpness():
    import cv2

    sharp = noise(128, 96)
    values = [sharpness([sharp], [(128, 96)], [(0, 0, 128, 96)])[0]]
    for size in (3, 5, 9):
        data = sharp.data.copy()
        data[:96] = cv2.GaussianBlur(sharp.data[:96], (size, size), 0)
        values.append(sharpness([Surface(data, Color())], [(128, 96)], [(0, 0, 128, 96)])[0])
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0] / 50


def test_sharpness_ignores_pixels_outside_the_region():
    surface = noise()
    rect = (10, 10, 40, 40)
    other = Surface(surface.data.copy(), surface.color)
    other.data[:10] = other.data[40:] = 0
    other.data[:, :10] = other.data[:, 40:] = 255
    assert sharpness([surface], [(64, 48)], [rect]) == sharpness([other], [(64, 48)], [rect])


def test_sharpness_of_no_region_is_empty_and_invalid_regions_are_refused():
    assert sharpness([], [], []).shape == (0,)
    with pytest.raises(ValueError, match="within the frame"):
        sharpness([noise()], [(64, 48)], [(0, 0, 65, 48)])


@pytest.mark.gpu
def test_sharpness_on_the_device_equals_that_on_the_host():
    import cupy

    from streamkit.ops import traffic

    surfaces = [noise(seed=seed) for seed in range(5)] + [noise(1920, 1080, 9)]
    rects = [*SHARP_RECTS, (2, 0, 1919, 1080)]
    sizes = [(64, 48)] * 5 + [(1920, 1080)]
    there = [Surface(cupy.asarray(surface.data), surface.color) for surface in surfaces]
    before = traffic.so_far()
    values = sharpness(there, sizes, rects)
    assert traffic.so_far().to_host - before.to_host == 16 * len(rects), "the sums come to the host, no pixels"
    assert values.tolist() == sharpness(surfaces, sizes, rects).tolist()
