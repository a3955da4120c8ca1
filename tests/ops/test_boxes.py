import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.core.data import Color, Surface
from streamkit.ops import boxes
from streamkit.ops.boxes import crop_rects
from streamkit.ops.color import from_rgb, to_rgb
from streamkit.ops.letterbox import InputSpec, placement, placements
from streamkit.ops.preprocess import geometry, preprocess, preprocess_reference


def f32(*rows):
    return np.array(rows, np.float32)


@pytest.mark.parametrize(
    ("a", "b", "iou"),
    [
        ((0, 0, 10, 10), (0, 0, 10, 10), 1.0),
        ((0, 0, 10, 10), (10, 0, 20, 10), 0.0),  # they share an edge only
        ((0, 0, 10, 10), (5, 0, 15, 10), 1 / 3),
        ((0, 0, 10, 10), (2, 2, 4, 4), 0.04),
        ((-5, -5, 5, 5), (0, 0, 5, 5), 0.25),
        ((1, 2, 11, 6), (4, 3, 30, 5), 14 / 78),  # no two numbers alike
        ((2, 1, 6, 11), (3, 4, 5, 30), 14 / 78),
        ((3, 3, 3, 3), (3, 3, 3, 3), 0.0),  # no area
        ((9, 9, 1, 1), (0, 0, 10, 10), 0.0),  # edges in the wrong order
    ],
)
def test_the_iou_of_boxes_is_exact(a, b, iou):
    assert boxes.iou_matrix(f32(a), f32(b))[0, 0] == pytest.approx(iou, abs=1e-6)
    assert boxes.iou_matrix(f32(b), f32(a))[0, 0] == pytest.approx(iou, abs=1e-6)


def test_the_iou_matrix_has_a_row_for_each_first_box():
    ious = boxes.iou_matrix(np.zeros((3, 4), np.float32), np.zeros((5, 4), np.float32))
    assert ious.shape == (3, 5)
    assert ious.dtype == np.float32
    assert boxes.iou_matrix(np.zeros((0, 4), np.float32), np.zeros((5, 4), np.float32)).shape == (0, 5)


@given(
    st.floats(0.1, 8),
    st.floats(0.1, 8),
    st.floats(-300, 300),
    st.floats(-300, 300),
    st.lists(st.tuples(*[st.floats(-2000, 4000)] * 4), max_size=5),
)
@settings(max_examples=50, deadline=None)
def test_to_source_inverts_the_geometry(scale_x, scale_y, offset_x, offset_y, rows):
    source = np.array(rows, np.float32).reshape(-1, 4)
    geometry = f32(scale_x, scale_y, offset_x, offset_y)
    network = source * np.tile(geometry[:2], 2) + np.tile(geometry[2:], 2)
    back = boxes.to_source(network, geometry)
    np.testing.assert_allclose(back, source, atol=0.05)


def test_to_source_equals_manual_results():
    # 640x360 letterboxed into 416x416, centerd: scale 0.65, 91 rows above.
    assert boxes.to_source(f32((65, 91, 416, 325)), f32(0.65, 0.65, 0, 91)).tolist() == [
        pytest.approx([100, 0, 640, 360], abs=1e-3)
    ]
    # One geometry a row; ten values are five points.
    points = np.tile(f32(10, 20), (2, 5))
    converted = boxes.to_source(points, f32((1, 2, 0, 0), (2, 1, 4, 10)))
    assert converted.tolist() == [[10, 10] * 5, [3, 10] * 5]


def test_clip_cuts_at_the_border():
    clipped = boxes.clip(f32((-5, 10, 50, 500), (700, -9, 900, -1)), f32(640, 360))
    assert clipped.tolist() == [[0, 10, 50, 360], [640, 0, 640, 0]]
    each = boxes.clip(f32((0, 0, 99, 99), (0, 0, 99, 99)), f32((50, 60), (70, 80)))
    assert each.tolist() == [[0, 0, 50, 60], [0, 0, 70, 80]]


@pytest.mark.parametrize("rect", [(0, 0, 40, 30), (2, 4, 3, 5), (38, 28, 40, 30)])
def test_a_rect_may_be_any_region_of_its_frame(rect):
    boxes.check_rects([rect], [(40, 30)])


@pytest.mark.parametrize(
    "rect",
    [
        (1, 0, 40, 30), (0, 1, 40, 30), (-2, 0, 40, 30), (0, -2, 40, 30), (0, 0, 41, 30), (0, 0, 40, 31),
        (4, 0, 4, 30), (0, 4, 40, 4),
    ],
)  # fmt: skip
def test_a_rect_outside_its_frame_is_refused(rect):
    with pytest.raises(ValueError, match="a rect is left, top, right, bottom within the frame"):
        boxes.check_rects([rect], [(40, 30)])


def test_each_surface_has_a_rect():
    with pytest.raises(ValueError, match="got 1 rects and 2 surfaces"):
        boxes.check_rects([(0, 0, 2, 2)], [(40, 30)] * 2)


BT601 = Color("bt601")
NUMBERS = st.floats(-300, 900, allow_nan=False)
SPECS = {
    "stretch": InputSpec((48, 32), resize="stretch"),
    "letterbox": InputSpec((48, 32), color="bgr"),
    "top left": InputSpec((33, 64), anchor="top_left"),
    "crop": InputSpec((32, 32), resize="crop", resize_to=40),
    "crop padded": InputSpec((33, 64), resize="crop", resize_to=20),
    "nhwc": InputSpec((32, 48), resize="stretch", layout="nhwc", dtype="u8"),
}


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), st.integers(1, 700), st.integers(1, 500), st.floats(0, 1))
def test_a_rect_is_the_box_in_whole_pixels_within_the_image(box, width, height, pad):
    x1 = min(box[0], box[2])
    y1 = min(box[1], box[3])
    x2 = max(box[0], box[2])
    y2 = max(box[1], box[3])
    ((left, top, right, bottom),) = crop_rects([[x1, y1, x2, y2]], [[width, height]], pad).tolist()
    assert left % 2 == top % 2 == 0
    if right == 0:
        px = pad * (x2 - x1)
        py = pad * (y2 - y1)
        beside = x2 + px <= 0 or y2 + py <= 0 or x1 - px >= width or y1 - py >= height
        flat = x1 == x2 or y1 == y2 or np.ceil(x2) <= np.floor(x1) or np.ceil(y2) <= np.floor(y1)
        assert beside or flat
        return
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    # Nothing of the box in the frame is lost, and no more than its surroundings are seen.
    px = pad * (x2 - x1)
    py = pad * (y2 - y1)
    assert left <= max(x1 - px, 0) + 1e-6
    assert right >= min(x2 + px, width) - 1e-6
    assert left > x1 - px - 2 or left == 0
    assert bottom <= y2 + py + 1 + 1e-6


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_an_invalid_box_gives_no_rect(wrong):
    rects = crop_rects([[10, 10, wrong, 30], [10, 10, 20, 30], [30, 10, 20, 30]], [[64, 48]] * 3)
    assert rects.tolist() == [[0, 0, 0, 0], [10, 10, 20, 30], [0, 0, 0, 0]]
    assert rects.dtype == np.int32
    assert crop_rects(np.zeros((0, 4)), np.zeros((0, 2))).shape == (0, 4)


@given(st.integers(1, 4000), st.integers(1, 4000), st.sampled_from(list(SPECS)))
def test_many_placements_equal_single_ones(width, height, name):
    spec = SPECS[name]
    sizes = np.array([[width, height], [height, width], [width, width]])
    placed = placements(spec, sizes[:, 0], sizes[:, 1])
    assert placed.tolist() == [list(placement(spec, *size)) for size in sizes.tolist()]


def scene(seed=0, width=200, height=150, color=BT601):
    """A smooth frame: noise would show how samples are weighted, not where they lie."""
    y, x = np.mgrid[:height, :width] + 31 * seed
    rgb = np.stack([120 + 60 * np.sin(x / 9), 110 + 60 * np.cos(y / 8), 130 + 40 * np.sin((x + y) / 11)], -1)
    return Surface(from_rgb(rgb.round().astype(np.uint8), color), color)


RECTS = [(0, 0, 200, 150), (10, 20, 61, 99), (120, 0, 200, 31), (198, 148, 200, 150), (2, 4, 3, 5)]


@pytest.mark.parametrize("name", SPECS)
def test_crops_equal_opencv_on_slices(name):
    import cv2

    spec = SPECS[name]
    if spec.resize != "stretch":
        pytest.skip("the others differ by where the frame lies, which test_preprocess looks at")
    frame = scene()
    tensor, _ = preprocess([frame] * 5, [(200, 150)] * 5, spec, rects=RECTS)
    rgb = to_rgb(frame, 200, 150)
    for image, (left, top, right, bottom) in zip(tensor, RECTS, strict=True):
        theirs = cv2.resize(rgb[top:bottom, left:right], spec.size, interpolation=cv2.INTER_LINEAR).astype(float)
        ours = image if spec.layout == "nhwc" else image.transpose(1, 2, 0)
        # Chroma of the outermost pixels is not mixed with what lies beside the crop: some levels there.
        assert np.abs(ours - theirs).mean() <= 2.0
        if right - left > 40:
            assert np.abs(ours - theirs)[2:-2, 2:-2].max() <= 6


def test_kernel_arguments_of_parts_equal_those_of_each():
    from streamkit.ops.preprocess_cuda import FRAME, SPEC, Plan

    surfaces = [scene(), scene(1, 64, 48, Color()), scene(2)]
    sizes = [(200, 150), (64, 48), (200, 150)]
    rects = [(10, 20, 61, 99), (0, 0, 64, 48), (198, 148, 200, 150)]
    for spec in SPECS.values():
        packed, scales = Plan(spec).pack(surfaces, sizes, [1000, 2000, 3000], 4, rects)
        frames = np.frombuffer(packed, FRAME, offset=SPEC.itemsize)
        for row, (left, top, right, bottom) in zip(scales, rects, strict=True):
            scale_x, scale_y, x, y = geometry(spec, right - left, bottom - top)
            np.testing.assert_array_equal(row, np.float32([scale_x, scale_y, x - left * scale_x, y - top * scale_y]))
        assert len(frames) == 4
        assert frames["image"]["data"].tolist() == [1000 + 20 * 200 + 10, 2000, 3000 + 148 * 200 + 198, 0]
        assert frames["image"]["rows"].tolist() == [150 - 10, 48, 150 - 74, 0]
        assert frames["image"]["width"].tolist() == [51, 64, 2, 0]
        assert frames["new_width"].tolist()[3] == 0
        whole, _ = Plan(spec).pack(surfaces[1:2], sizes[1:2], [2000], 1)
        assert np.frombuffer(whole, FRAME, offset=SPEC.itemsize)[0] == frames[1]


@pytest.mark.gpu
@pytest.mark.parametrize("name", SPECS)
def test_gpu_and_reference_crop_equally(name):
    import cupy

    spec = SPECS[name]
    rng = np.random.default_rng(4)
    surfaces = [Surface(rng.integers(0, 256, (225, 200), dtype=np.uint8), Color()) for _ in RECTS]
    sizes = [(200, 150)] * len(RECTS)
    there = [Surface(cupy.asarray(surface.data), surface.color) for surface in surfaces]
    tensor, scales = preprocess(there, sizes, spec, rects=RECTS, batch=8)
    reference = preprocess_reference(surfaces, sizes, spec, rects=RECTS, batch=8)
    assert np.abs(tensor.get().astype(float) - reference).max() <= (1 if spec.dtype == "u8" else 0.05)
    host, same = preprocess(surfaces, sizes, spec, rects=RECTS, batch=8)
    np.testing.assert_array_equal(scales, same)
    assert np.abs(host.astype(float) - reference).max() <= (1 if spec.dtype == "u8" else 0.05)
