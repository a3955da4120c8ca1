import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.ops.hide import hide
from streamkit.ops.hiding import HideSpec, regions
from streamkit.testing.kit import detections

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
    (one,) = laid(detections([box]), HideSpec(True, grow=grow)).table
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
    assert len(laid(table, HideSpec(True)).table) == 3
    assert len(laid(table, HideSpec(True, frozenset(["person", "dog"]))).table) == 2
    assert len(laid(table, HideSpec(True, frozenset(["cat"]))).table) == 0
    left = ((0.0, 0.0), (0.2, 0.0), (0.2, 0.5), (0.0, 0.5))
    assert len(laid(table, HideSpec(True, zones=(left,), share=True)).table) == 2  # those whose middle is in it
    kinds = laid(table, HideSpec(False, frozenset(["person"])), HideSpec(True, frozenset(["car"]))).table
    assert kinds["smooth"].tolist() == [0, 1]


def test_boxes_that_are_none_and_those_out_of_sight():
    none = [[np.nan, 0, 5, 5], [0, np.nan, 5, 5], [50, 50, 20, 60], [50, 60, 60, 50]]
    table = detections([*none, [700, 10, 800, 50], [10, 10, 20, 20]])
    for grow in (0.0, 0.1):
        assert laid(table, HideSpec(True, grow=grow)).table["x1"].tolist() == [10 if not grow else 8]


def test_regions_come_by_picture_with_their_cells_one_behind_the_other():
    table = detections([[0, 0, 40, 80]] * 4)
    table = table.with_columns(batch_row=np.array([0, 0, 1, 3], np.int32))
    found = regions([gray(640, 360)] * 4, [(640, 360)] * 4, [table, table], [HideSpec(True), HideSpec(False)]).table
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
    found = regions([surface], [(width, height)], [], [HideSpec(False, objects=False, zones=(zone,), share=share)])
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
    assert len(laid(detections(), HideSpec(True, objects=False, zones=(zone,))).table) == 0


def region(box, *, width=640, height=360, **options):
    (one,) = laid(detections([box]), HideSpec(False, **options), width=width, height=height).table
    return tuple(int(one[name]) for name in ("x1", "y1", "x2", "y2", "cell", "columns", "rows"))


@pytest.mark.parametrize(
    ("box", "options", "expected"),
    [
        ((100, 100, 200, 300), {}, (90, 80, 210, 320, 30, 4, 8)),  # a tenth of its size on each side, 8 cells
        ((100, 100, 200, 300), {"grow": 0.2}, (90, 80, 210, 320, 30, 4, 8)),
        ((100, 100, 200, 300), {"grow": 0.0}, (100, 100, 200, 300, 26, 4, 8)),
        ((100, 100, 140, 180), {"grow": 0.5}, (90, 80, 150, 200, 16, 4, 8)),
        ((100, 100, 140, 180), {"grow": 1.0}, (80, 60, 160, 220, 20, 4, 8)),
        ((100, 100, 180, 140), {"grow": 0.5}, (80, 90, 200, 150, 16, 8, 4)),
        ((100, 100, 140, 180), {"grow": 0.5, "cells": 4}, (90, 80, 150, 200, 30, 2, 4)),
        ((100, 100, 140, 180), {"grow": 0.5, "cells": 1}, (90, 80, 150, 200, 120, 1, 1)),
        ((101, 101, 139, 179), {"grow": 0.0}, (100, 100, 140, 180, 10, 4, 8)),  # out to the even pixels
        ((100, 100, 104, 104), {"grow": 0.0}, (100, 100, 104, 104, 8, 1, 1)),  # no cell is smaller than 8
        ((10, 10, 10, 60), {"grow": 0.0}, (10, 10, 12, 60, 8, 1, 7)),  # a line has a width
        ((-100, 0, 100, 200), {"grow": 0.0}, (0, 0, 100, 200, 26, 4, 8)),  # half in sight, and as coarse
        ((540, 260, 740, 460), {"grow": 0.2}, (520, 240, 640, 360, 30, 4, 4)),
        ((-50, 10, 0, 50), {"grow": 0.0}, (0, 10, 2, 50, 8, 1, 5)),  # it touches the edge
        ((-50, 10, 0, 50), {"grow": 0.4}, (0, 2, 10, 58, 10, 1, 6)),  # grown into sight
    ],
)
def test_where_a_region_lies_exactly(box, options, expected):
    assert region(box, **options) == expected


def test_a_cell_has_at_most_4096_pixels():
    assert region((0, 0, 70_000, 20), grow=0.0)[4] == 4096


def test_the_margin_is_hidden_in_the_pixels_and_nothing_beyond_it():
    rng = np.random.default_rng(0)
    surface = Surface(rng.integers(0, 256, (540, 640), dtype=np.uint8), Color())
    found = regions([surface], [(640, 360)], [detections([[100, 100, 200, 300]])], [HideSpec(False)])
    changed = np.argwhere(hide([surface], found.table, found.masks)[0].data[:360] != surface.data[:360])
    assert changed.min(0).tolist() == [80, 90]
    assert changed.max(0).tolist() == [319, 209]
    assert len(changed) > 0.97 * 120 * 240


def test_the_middle_is_of_what_can_be_seen():
    seen = ((40.0, 0.0), (60.0, 0.0), (60.0, 80.0), (40.0, 80.0))
    table = detections([[-100, 0, 100, 80]])
    assert len(laid(table, HideSpec(True, zones=(seen,))).table) == 1
    whole = ((-10.0, 0.0), (10.0, 0.0), (10.0, 80.0), (-10.0, 80.0))
    assert len(laid(table, HideSpec(True, zones=(whole,))).table) == 0
    right = ((580.0, 0.0), (600.0, 0.0), (600.0, 80.0), (580.0, 80.0))
    assert len(laid(detections([[540, 0, 740, 80]]), HideSpec(True, zones=(right,))).table) == 1


def test_the_middle_of_what_lies_outside_is_on_the_edge():
    """Its margin is in sight."""
    left, top = ((0.0, 0.0), (60.0, 0.0), (60.0, 80.0), (0.0, 80.0)), detections([[20, -20, 40, -1]])
    for table in (detections([[-20, 20, -1, 40]]), top):
        assert len(laid(table, HideSpec(True, zones=(left,), grow=0.5)).table) == 1
    right = ((600.0, 300.0), (640.0, 300.0), (640.0, 360.0), (600.0, 360.0))
    for table in (detections([[641, 310, 661, 330]]), detections([[610, 361, 630, 381]])):
        assert len(laid(table, HideSpec(True, zones=(right,), grow=0.5)).table) == 1


def test_the_edge_of_a_zone_belongs_to_it():
    table = detections([[90, 90, 110, 110]])
    zone = ((100.0, 0.0), (200.0, 0.0), (200.0, 200.0), (100.0, 200.0))
    assert len(laid(table, HideSpec(True, zones=(zone,))).table) == 1
    off = ((100.5, 0.0), *zone[1:3], (100.5, 200.0))
    assert len(laid(table, HideSpec(True, zones=(off,))).table) == 0


def test_an_object_in_one_of_several_zones_is_hidden():
    table = detections([[90, 90, 110, 110], [290, 90, 310, 110], [490, 90, 510, 110]])
    zones = tuple(((x, 0.0), (x + 100.0, 0.0), (x + 100.0, 200.0), (x, 200.0)) for x in (50.0, 450.0))
    found = laid(table, HideSpec(True, zones=zones, grow=0.0)).table
    assert found["x1"].tolist() == [90, 490]
    shares = tuple(tuple((x / 640, y / 360) for x, y in zone) for zone in zones)
    assert laid(table, HideSpec(True, zones=shares, share=True, grow=0.0)).table["x1"].tolist() == [90, 490]


def test_a_zone_lies_where_it_is_said():
    zone = ((101.0, 51.0), (300.0, 51.0), (300.0, 200.0), (101.0, 200.0))
    found = laid(detections(), HideSpec(False, objects=False, zones=(zone,)))
    (one,) = found.table
    assert [int(one[name]) for name in ("x1", "y1", "x2", "y2")] == [100, 50, 302, 202]
    assert (int(one["cell"]), int(one["columns"]), int(one["rows"])) == (16, 13, 10)
    assert found.masks.tolist() == [1] * 130
    (large,) = laid(detections(), HideSpec(False, objects=False, zones=(zone,)), width=1920, height=1080).table
    assert int(large["cell"]) == 44  # a 24th of the height


def test_masks_of_zones_come_one_behind_the_other():
    zones = tuple(((x, 0.0), (x + 15.0, 0.0), (x + 15.0, 15.0), (x, 15.0)) for x in (0.0, 100.0))
    given = [gray(640, 360)] * 2
    found = regions(given, [(640, 360)] * 2, [], [HideSpec(True, objects=False, zones=zones)])
    assert found.table["frame"].tolist() == [0, 0, 1, 1]
    each = int(found.table["columns"][0] * found.table["rows"][0])
    assert found.table["mask"].tolist() == [0, each, 2 * each, 3 * each]
    assert len(found.masks) == 4 * each
    assert found.table["smooth"].tolist() == [1] * 4


def test_nothing_to_hide():
    found = laid(detections(), HideSpec(True))
    assert (len(found.table), len(found.masks)) == (0, 0)
    objects = laid(detections([[10, 10, 50, 50]]), HideSpec(True))
    assert (objects.table["mask"].tolist(), len(objects.masks)) == ([-1], 0)
