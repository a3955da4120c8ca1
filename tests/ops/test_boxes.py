import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.ops import boxes


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
def test_iou_of_known_boxes(a, b, iou):
    assert boxes.iou_matrix(f32(a), f32(b))[0, 0] == pytest.approx(iou, abs=1e-6)
    assert boxes.iou_matrix(f32(b), f32(a))[0, 0] == pytest.approx(iou, abs=1e-6)


def test_iou_matrix_has_a_row_for_each_of_the_first():
    found = boxes.iou_matrix(np.zeros((3, 4), np.float32), np.zeros((5, 4), np.float32))
    assert found.shape == (3, 5)
    assert found.dtype == np.float32
    assert boxes.iou_matrix(np.zeros((0, 4), np.float32), np.zeros((5, 4), np.float32)).shape == (0, 5)


@given(
    st.floats(0.1, 8), st.floats(0.1, 8), st.floats(-300, 300), st.floats(-300, 300),
    st.lists(st.tuples(*[st.floats(-2000, 4000)] * 4), max_size=5),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_to_source_undoes_to_network(scale_x, scale_y, offset_x, offset_y, rows):
    source = np.array(rows, np.float32).reshape(-1, 4)
    geometry = f32(scale_x, scale_y, offset_x, offset_y)
    back = boxes.to_source(boxes.to_network(source, geometry), geometry)
    np.testing.assert_allclose(back, source, atol=0.05)


def test_to_source_by_hand():
    # 640x360 letterboxed into 416x416, centred: scale 0.65, 91 rows above.
    assert boxes.to_source(f32((65, 91, 416, 325)), f32(0.65, 0.65, 0, 91)).tolist() == [
        pytest.approx([100, 0, 640, 360], abs=1e-3)
    ]
    # One geometry a row; ten values are five points.
    points = np.tile(f32(10, 20), (2, 5))
    found = boxes.to_source(points, f32((1, 2, 0, 0), (2, 1, 4, 10)))
    assert found.tolist() == [[10, 10] * 5, [3, 10] * 5]


def test_clip_cuts_at_the_border():
    found = boxes.clip(f32((-5, 10, 50, 500), (700, -9, 900, -1)), f32(640, 360))
    assert found.tolist() == [[0, 10, 50, 360], [640, 0, 640, 0]]
    each = boxes.clip(f32((0, 0, 99, 99), (0, 0, 99, 99)), f32((50, 60), (70, 80)))
    assert each.tolist() == [[0, 0, 50, 60], [0, 0, 70, 80]]


@pytest.mark.parametrize("rect", [(0, 0, 40, 30), (2, 4, 3, 5), (38, 28, 40, 30)])
def test_a_rect_may_be_any_part_of_its_frame(rect):
    boxes.check_rects([rect], [(40, 30)])


@pytest.mark.parametrize(
    "rect",
    [
        (1, 0, 40, 30), (0, 1, 40, 30), (-2, 0, 40, 30), (0, -2, 40, 30), (0, 0, 41, 30), (0, 0, 40, 31),
        (4, 0, 4, 30), (0, 4, 40, 4),
    ],
)  # fmt: skip
def test_a_rect_that_is_no_part_of_its_frame_is_refused(rect):
    with pytest.raises(ValueError, match="a rect is left, top, right, bottom within the frame"):
        boxes.check_rects([rect], [(40, 30)])


def test_each_surface_has_a_rect():
    with pytest.raises(ValueError, match="got 1 rects and 2 surfaces"):
        boxes.check_rects([(0, 0, 2, 2)], [(40, 30)] * 2)
