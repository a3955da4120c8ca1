"""The class of each pixel, from scores and from classes at places of a map, against plain loops and on both devices."""

import numpy as np
import pytest

from streamkit.core.data import Device
from streamkit.ops import class_maps, rle

INPUT = (64, 48)
SIZES = np.array([(120, 90), (64, 48), (33, 70), (150, 90)])
GEOMETRY = np.float32([(64 / 120, 48 / 90, 0, 0), (1, 1, 0, 0), (48 / 70, 48 / 70, 20, 0), (0.8, 0.9, -11, -9)])
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def smooth_scores(rng, shape):
    """Scores in f32, equal ones among them, whose best classes are areas with borders between several classes."""
    n, classes, high, wide = shape
    rough = rng.integers(-8, 9, (n, classes, -(-high // 3), -(-wide // 3))).repeat(3, 2).repeat(3, 3)
    return (rough[:, :, :high, :wide] + rng.integers(0, 2, shape)).astype(np.float32)


def classes_of(scores, geometry=GEOMETRY, sizes=SIZES, device="cpu", room=0):
    room = room or int(sizes.prod(axis=1).max())
    xp = Device(device).xp
    classes = class_maps.pixel_classes(xp.asarray(scores), geometry, sizes, INPUT, room)
    return np.asarray(classes.get() if hasattr(classes, "get") else classes)


def plain_classes(scores, geometry, size):
    """The best class of each pixel, (height, width), by a loop in f64."""
    _, high, wide = scores.shape
    width, height = size
    classes = np.zeros((height, width), np.uint8)
    for y in range(height):
        for x in range(width):
            u = ((x + 0.5) * float(geometry[0]) + float(geometry[2])) * wide / INPUT[0] - 0.5
            v = ((y + 0.5) * float(geometry[1]) + float(geometry[3])) * high / INPUT[1] - 0.5
            u = min(max(u, 0), wide - 1)
            v = min(max(v, 0), high - 1)
            left = int(u)
            top = int(v)
            right = min(left + 1, wide - 1)
            bottom = min(top + 1, high - 1)
            above = scores[:, top, left] * (1 - (u - left)) + scores[:, top, right] * (u - left)
            below = scores[:, bottom, left] * (1 - (u - left)) + scores[:, bottom, right] * (u - left)
            classes[y, x] = (above * (1 - (v - top)) + below * (v - top)).argmax()
    return classes


@pytest.mark.parametrize("map_size", [(16, 12), (21, 9), (64, 48), (1, 5), (128, 96)])
@pytest.mark.parametrize("row", range(4))
def test_pixels_have_the_best_class_of_their_scores(row, map_size):
    scores = smooth_scores(np.random.default_rng(row), (4, 7, *map_size[::-1]))
    classes = classes_of(scores)
    width, height = SIZES[row].tolist()
    expected = plain_classes(scores[row].astype(np.float64), GEOMETRY[row], (width, height))
    pixels = classes[row, : width * height].reshape(width, height).T
    assert len(np.unique(expected)) >= 2
    assert (pixels == expected).mean() > 0.998  # f32 has ties where f64 has none
    assert not classes[row, width * height :].any()


def test_a_third_class_wins_between_two_others():
    scores = np.float32([[[[9, -9]], [[-9, 9]], [[8, 8]]]])
    classes = classes_of(scores, np.float32([(1, 1, 0, 0)]), np.array([INPUT]))
    assert classes[0].reshape(INPUT)[:, 0].tolist() == [0] * 18 + [2] * 28 + [1] * 18


def test_the_first_of_equal_classes_covers_the_frame():
    scores = np.zeros((1, 4, 3, 3), np.float32)
    scores[0, 0, 0] = -1
    classes = classes_of(scores, GEOMETRY[:1], SIZES[:1])[0].reshape(120, 90)
    assert classes[0, 0] == 1
    assert set(np.unique(classes).tolist()) == {0, 1}
    assert not classes[:, 46:].any()


@DEVICES
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("last", [False, True], ids=["classes first", "classes last"])
def test_layouts_types_and_devices_give_equal_classes(dtype, last, device):
    scores = smooth_scores(np.random.default_rng(5), (4, 150, 12, 16))
    expected = classes_of(scores)
    laid_out = np.ascontiguousarray(scores.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if last else scores
    np.testing.assert_array_equal(classes_of(laid_out.astype(dtype), device=device), expected)


@DEVICES
def test_scores_that_are_not_finite_win_nowhere_between_places(device):
    scores = smooth_scores(np.random.default_rng(6), (1, 5, 12, 16))
    scores[0, 3, 4:8, 4:8] = np.nan
    scores[0, 4, 2:5, 9:12] = -np.inf
    with np.errstate(invalid="ignore"):
        classes = classes_of(scores, GEOMETRY[:1], SIZES[:1], device)
    assert set(np.unique(classes).tolist()) <= set(range(5))


@DEVICES
def test_no_frame_has_no_classes(device):
    empty = np.zeros((0, 3, 4, 4), np.float32)
    assert classes_of(empty, GEOMETRY[:0], SIZES[:0], device, room=5).shape == (0, 5)


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("row", range(4))
def test_masks_of_placed_classes_equal_plain_loops(row, block):
    rng = np.random.default_rng(row)
    high = 12
    wide = 20
    rough = rng.integers(0, 4, (high // block, wide // block))
    classes = rough.repeat(block, 0).repeat(block, 1).astype(np.uint8)
    width, height = SIZES[row].tolist()
    geometry = GEOMETRY[row]
    pixels = class_maps.placed_classes(classes, geometry, (width, height), INPUT)
    by_class = class_maps.class_masks(pixels, (width, height))
    expected = np.zeros((height, width), np.uint8)
    for y in range(height):
        for x in range(width):
            u = ((x + 0.5) * float(geometry[0]) + float(geometry[2])) * wide / INPUT[0]
            v = ((y + 0.5) * float(geometry[1]) + float(geometry[3])) * high / INPUT[1]
            expected[y, x] = classes[min(max(int(v), 0), high - 1), min(max(int(u), 0), wide - 1)]
    assert sorted(by_class) == sorted(set(expected.ravel().tolist()))
    for number, mask in by_class.items():
        assert mask == rle.encode(expected == number, width, height)


@DEVICES
@pytest.mark.parametrize("axis", [1, 3])
def test_best_classes_take_the_first_of_equal_ones(axis, device):
    scores = np.zeros((1, 3, 4, 3) if axis == 3 else (1, 3, 3, 4), np.float32)
    scores[0, 1, 1, 1] = 2
    best = class_maps.best_classes(Device(device).xp.asarray(scores), axis)
    assert best.dtype == np.uint8
    assert int(best.sum()) == 1
