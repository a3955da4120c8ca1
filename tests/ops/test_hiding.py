import numpy as np
import pytest

from streamkit.data import Color, Surface
from streamkit.ops.hide import hide
from streamkit.ops.hiding import Hidden, regions
from streamkit.testing import detections

TRIANGLE = ((100.0, 50.0), (500.0, 80.0), (200.0, 300.0))


def gray(width, height):
    return Surface(np.full((height * 3 // 2, width), 128, np.uint8), Color())


def laid(table, *hidden, width=640, height=360):
    return regions([gray(width, height)], [(width, height)], [table], hidden)


@pytest.mark.parametrize(
    "box",
    [(100, 100, 140, 180), (0, 0, 8, 8), (-30, -40, 30, 20), (600, 300, 900, 700), (10, 10, 10, 60), (5, 5, 9, 6)],
)
@pytest.mark.parametrize("grow", [0.0, 0.2, 1.0])
def test_every_pixel_of_a_box_is_in_its_region(box, grow):
    (one,) = laid(detections([box]), Hidden(True, grow=grow)).table
    x1, y1, x2, y2 = np.clip(box, 0, [640, 360, 640, 360])
    assert one["x1"] <= x1
    assert one["y1"] <= y1
    assert one["x2"] >= x2
    assert one["y2"] >= y2
    longest = max(box[2] - box[0], box[3] - box[1]) * (1 + grow)
    assert one["cell"] >= max(8, longest / 8)
    assert max(one["columns"], one["rows"]) <= 10


def test_who_is_hidden():
    table = detections([[0, 0, 40, 80], [100, 0, 140, 80], [200, 0, 240, 80]], label=["person", "car", "dog"])
    assert len(laid(table, Hidden(True)).table) == 3
    assert len(laid(table, Hidden(True, frozenset(["person", "dog"]))).table) == 2
    assert len(laid(table, Hidden(True, frozenset(["cat"]))).table) == 0
    left = ((0.0, 0.0), (0.2, 0.0), (0.2, 0.5), (0.0, 0.5))
    assert len(laid(table, Hidden(True, zones=(left,), share=True)).table) == 2  # those whose middle is in it
    kinds = laid(table, Hidden(False, frozenset(["person"])), Hidden(True, frozenset(["car"]))).table
    assert kinds["smooth"].tolist() == [0, 1]


def test_boxes_that_are_none_and_those_out_of_sight():
    table = detections([[np.nan, 0, 5, 5], [50, 50, 20, 60], [700, 10, 800, 50], [10, 10, 20, 20]])
    assert len(laid(table, Hidden(True, grow=0.1)).table) == 1


def test_regions_come_by_picture_with_their_cells_one_behind_the_other():
    table = detections([[0, 0, 40, 80]] * 4)
    table.batch_row = np.array([0, 0, 1, 3], np.int32)
    found = regions([gray(640, 360)] * 4, [(640, 360)] * 4, [table, table], [Hidden(True), Hidden(False)]).table
    assert found["frame"].tolist() == sorted(found["frame"].tolist())
    ends = np.cumsum(found["columns"] * found["rows"])
    assert found["first"].tolist() == [0, *ends[:-1].tolist()]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize(("width", "height"), [(640, 360), (1920, 1080), (160, 90)])
def test_no_pixel_of_a_zone_stays_clear(width, height, share):
    import cv2

    rng = np.random.default_rng(0)
    surface = Surface(rng.integers(0, 256, (height * 3 // 2, width), dtype=np.uint8), Color())
    corners = np.array(TRIANGLE) * (width / 640)
    zone = tuple(map(tuple, (corners / (width, height) if share else corners).tolist()))
    found = regions([surface], [(width, height)], [], [Hidden(False, objects=False, zones=(zone,), share=share)])
    drawn = np.zeros((height, width), np.uint8)
    cv2.fillPoly(drawn, [np.rint(corners).astype(np.int32)], 1)
    hidden = hide([surface], found.table, found.masks)[0]
    (one,) = found.table
    mask = found.masks.reshape(one["rows"], one["columns"])
    shown = np.kron(mask, np.ones((one["cell"], one["cell"]), np.uint8))
    covered = np.zeros((height + 999, width + 999), np.uint8)
    covered[one["y1"] : one["y1"] + shown.shape[0], one["x1"] : one["x1"] + shown.shape[1]] = shown
    covered = covered[:height, :width]
    assert not (drawn & ~covered & 1).any()
    assert covered.sum() < 1.8 * drawn.sum(), "and not much more is hidden"
    same = hidden.data[:height] == surface.data[:height]
    assert same[covered == 0].all()
    assert same[drawn == 1].mean() < 0.02


def test_a_zone_out_of_the_picture_hides_nothing():
    zone = ((700.0, 10.0), (800.0, 10.0), (750.0, 90.0))
    assert len(laid(detections(), Hidden(True, objects=False, zones=(zone,))).table) == 0
