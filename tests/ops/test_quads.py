"""Straightened quadrilaterals: against OpenCV on RGB, corners in any order, mixed rows, and the device's values."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.ops.color import from_rgb, to_rgb
from streamkit.ops.letterbox import InputSpec
from streamkit.ops.preprocess import preprocess
from streamkit.ops.quads import projection, reading_order, sides_of

SPEC = InputSpec((64, 24), "stretch", layout="nhwc")
QUAD = np.array([[30.5, 20.25], [96.0, 31.0], [92.5, 58.0], [26.0, 44.5]])


def smooth_picture(width=128, height=80, seed=1):
    rng = np.random.default_rng(seed)
    small = rng.integers(30, 220, (height // 8, width // 8, 3), np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)


def surface(rgb, **color):
    color_of = Color(**color)
    return Surface(from_rgb(rgb, color_of), color_of)


def plain(rgb, corners, size):
    """The oracle: OpenCV's warp of the RGB image, whose coordinates count from pixel centers."""
    width, height = size
    to = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32) - 0.5
    matrix = cv2.getPerspectiveTransform((corners - 0.5).astype(np.float32), to)
    return cv2.warpPerspective(rgb.astype(np.float32), matrix, size, borderMode=cv2.BORDER_REPLICATE)


@pytest.mark.parametrize("color", [{}, {"matrix": "bt709", "full_range": True, "chroma_x": 0.5}])
def test_a_quadrilateral_is_rectified_as_by_opencv(color):
    frame = surface(smooth_picture(), **color)
    tensor, _ = preprocess([frame], [(128, 80)], SPEC, rects=[(26, 20, 96, 58)], corners=QUAD[None])
    expected = plain(to_rgb(frame, 128, 80), QUAD, (64, 24))
    assert np.abs(tensor[0] - expected).mean() < 1.0
    assert np.abs(tensor[0] - expected).max() < 12  # chroma is interpolated on its own grid


@pytest.mark.parametrize("move", [(60, 0), (-50, 0), (0, 45), (0, -40), (70, 40)])
@pytest.mark.parametrize("size", [(128, 80), (127, 79)])
def test_beyond_the_frame_the_edge_is_repeated_without_padding(move, size):
    width, height = size
    rgb = smooth_picture()[:height, :width]
    picture = surface(rgb)
    picture.data[:80, width:] = 255  # padding
    picture.data[height:80] = 255
    corners = QUAD + move
    straightened, _ = preprocess([picture], [size], SPEC, rects=[(26, 20, 96, 58)], corners=corners[None])
    difference = np.abs(straightened[0] - plain(to_rgb(picture, *size), corners, (64, 24)))
    assert difference.mean() < 1.5
    assert difference.max() < 25


def test_the_whole_frame_as_corners_is_the_plain_preprocess():
    frame = surface(smooth_picture())
    corners = np.array([[[0, 0], [128, 0], [128, 80], [0, 80]]], np.float64)
    for spec in (SPEC, InputSpec((64, 48), color="bgr", scale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3)):
        plainly, _ = preprocess([frame], [(128, 80)], spec)
        tensor, _ = preprocess([frame], [(128, 80)], spec, rects=[(0, 0, 128, 80)], corners=corners)
        np.testing.assert_allclose(tensor, plainly, atol=0.02 if spec is SPEC else 2e-4)


def test_rows_without_corners_are_cut_by_their_rect():
    frame = surface(smooth_picture())
    rects = [(26, 20, 96, 58), (4, 6, 60, 40)]
    corners = np.stack([QUAD, np.full((4, 2), np.nan)])
    tensor, geometry = preprocess([frame, frame], [(128, 80)] * 2, SPEC, rects=rects, corners=corners)
    cut, boxes = preprocess([frame, frame], [(128, 80)] * 2, SPEC, rects=rects)
    assert np.array_equal(tensor[1], cut[1])
    assert np.abs(tensor[0] - cut[0]).max() > 10
    assert np.array_equal(geometry, boxes)


def test_with_antialias_a_pixel_is_the_mean_of_its_area():
    rgb = np.zeros((80, 128, 3), np.uint8)
    rgb[:, ::3] = 255
    corners = np.array([[[0, 0], [128, 0], [128, 80], [0, 80]]], np.float64)
    spec = InputSpec((16, 10), "stretch", layout="nhwc", antialias=True)
    tensor, _ = preprocess([surface(rgb)], [(128, 80)], spec, rects=[(0, 0, 128, 80)], corners=corners)
    assert np.abs(tensor - 85).max() < 25
    single, _ = preprocess(
        [surface(rgb)], [(128, 80)], replace(spec, antialias=False), rects=[(0, 0, 128, 80)], corners=corners
    )
    assert np.abs(single - 85).max() > 40


def test_antialias_has_no_effect_without_downscaling():
    frame = surface(smooth_picture())
    spec = InputSpec((128, 80), "stretch", layout="nhwc")
    rects = [(26, 20, 96, 58)]
    plainly, _ = preprocess([frame], [(128, 80)], spec, rects=rects, corners=QUAD[None])
    smoothed, _ = preprocess([frame], [(128, 80)], replace(spec, antialias=True), rects=rects, corners=QUAD[None])
    assert np.array_equal(smoothed, plainly)


def test_a_letterbox_keeps_the_shape_of_the_quadrilateral():
    frame = surface(smooth_picture())
    spec = InputSpec((100, 20), pad=0, anchor="top_left", layout="nhwc")
    tensor, _ = preprocess([frame], [(128, 80)], spec, rects=[(26, 20, 96, 58)], corners=QUAD[None])
    width, height = (float(side[0]) for side in sides_of(QUAD[None]))
    filled = np.flatnonzero(tensor[0].any(axis=(0, 2)))
    assert filled[-1] + 1 == round(width * 20 / height)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 3, 0, 1], [1, 2, 3, 0], [3, 2, 1, 0], [0, 2, 1, 3]])
def test_corners_may_be_in_any_order(order):
    assert reading_order(QUAD[order][None])[0].tolist() == QUAD.tolist()


def test_an_upright_text_is_read_downwards():
    upright = np.array([[[10, 10], [20, 10], [20, 60], [10, 60]]], np.float64)
    assert reading_order(upright)[0].tolist() == [[20, 10], [20, 60], [10, 60], [10, 10]]
    assert [side.tolist() for side in sides_of(reading_order(upright))] == [[50.0], [10.0]]


def test_the_map_takes_the_unit_square_to_the_corners():
    matrix = projection(QUAD)
    for (u, v), expected in zip([(0, 0), (1, 0), (1, 1), (0, 1)], QUAD, strict=True):
        x, y, w = matrix @ (u, v, 1)
        assert (x / w, y / w) == pytest.approx(tuple(expected))


def test_corners_on_one_line_leave_the_row_as_its_rect():
    frame = surface(smooth_picture())
    line = np.array([[[10, 10], [20, 20], [30, 30], [40, 40]]], np.float64)
    tensor, _ = preprocess([frame], [(128, 80)], SPEC, rects=[(10, 10, 40, 40)], corners=line)
    cut, _ = preprocess([frame], [(128, 80)], SPEC, rects=[(10, 10, 40, 40)])
    assert np.array_equal(tensor, cut)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        InputSpec((100, 20), antialias=True, color="bgr", scale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3),
        InputSpec((64, 24), "stretch", layout="nhwc", dtype="u8"),
        InputSpec((16, 8), "stretch", antialias=True, dtype="f16", scale=1 / 255),
    ],
)
def test_device_and_host_rectify_equally(spec):
    import cupy

    frame = surface(smooth_picture())
    on_device = Surface(cupy.asarray(frame.data), frame.color)
    rects = [(26, 20, 96, 58), (4, 6, 60, 40)]
    corners = np.stack([QUAD, np.full((4, 2), np.nan)])
    expected, _ = preprocess([frame] * 2, [(128, 80)] * 2, spec, rects=rects, corners=corners, batch=3)
    tensor, _ = preprocess([on_device] * 2, [(128, 80)] * 2, spec, rects=rects, corners=corners, batch=3)
    limit = {"f32": 0.02, "u8": 1, "f16": 2e-3}[spec.dtype] * (1 if spec.scale == 1 or spec.dtype == "f16" else 0.01)
    assert np.abs(tensor.get().astype(np.float64) - expected.astype(np.float64)).max() <= limit
