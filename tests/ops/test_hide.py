"""Hiding regions: against a plain loop, on its own properties, and the same bytes on the device."""

import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.ops.hide import REGION, HideSpec, hide, regions
from streamkit.testing.kit import detections


def noise(height, width, seed=0):
    rng = np.random.default_rng(seed)
    return Surface(rng.integers(0, 256, (height * 3 // 2, width), dtype=np.uint8), Color())


def region(x1, y1, x2, y2, cell, frame=0, smooth=0, first=0, mask=-1):
    columns = -(-(x2 - x1) // cell)
    rows = -(-(y2 - y1) // cell)
    return np.array([(frame, x1, y1, x2, y2, cell, columns, rows, first, mask, smooth)], REGION)


def together(*regions):
    table = np.concatenate(regions)
    count = table["columns"] * table["rows"]
    table["first"] = np.cumsum(count) - count
    return table


NONE = np.zeros(0, np.uint8)


def planes(surface):
    """Luma (h, w), and chroma (h / 2, w / 2, 2), int."""
    data = surface.data.astype(int)
    height = surface.height
    width = surface.width
    return data[:height], data[height:].reshape(height // 2, width // 2, 2)


def plain(surface, regions, masks):
    """The oracle: sample by sample, as the table says."""
    luma, chroma = planes(surface)
    out = luma.copy(), chroma.copy()
    for region_row in regions.tolist():
        _, x1, y1, x2, y2, cell, columns, rows, _, mask, smooth = region_row
        for source, target, step in ((luma, out[0], 1), (chroma, out[1], 2)):
            side = cell // step
            part = source[y1 // step : y2 // step, x1 // step : x2 // step]
            means = np.zeros((rows, columns, *part.shape[2:]), int)
            for j in range(rows):
                for i in range(columns):
                    block = part[j * side : (j + 1) * side, i * side : (i + 1) * side]
                    n = block.shape[0] * block.shape[1]
                    means[j, i] = (block.sum(axis=(0, 1)) + n // 2) // n
            for y in range(part.shape[0]):
                for x in range(part.shape[1]):
                    if mask >= 0 and not masks[mask + y // side * columns + x // side]:
                        continue
                    value = means[y // side, x // side]
                    if smooth:
                        u = max(0, (2 * x + 1) * 128 // side - 128)
                        v = max(0, (2 * y + 1) * 128 // side - 128)
                        i = min(u // 256, columns - 1)
                        j = min(v // 256, rows - 1)
                        i2 = min(i + 1, columns - 1)
                        j2 = min(j + 1, rows - 1)
                        across = u % 256
                        down = v % 256
                        left = means[j, i] * (256 - down) + means[j2, i] * down
                        right = means[j, i2] * (256 - down) + means[j2, i2] * down
                        value = (left * (256 - across) + right * across + (1 << 15)) >> 16
                    target[y1 // step + y, x1 // step + x] = value
    return out


@pytest.mark.parametrize("smooth", [0, 1])
@pytest.mark.parametrize(
    "box", [(4, 6, 40, 38, 8), (0, 0, 64, 48, 16), (10, 2, 12, 4, 8), (2, 2, 62, 8, 20), (0, 40, 30, 48, 2)]
)
def test_a_hidden_region_equals_a_plain_loop(box, smooth):
    surface = noise(48, 64)
    regions = region(*box, smooth=smooth)
    for plane, expected in zip(planes(hide([surface], regions, NONE)[0]), plain(surface, regions, NONE), strict=True):
        assert np.array_equal(plane, expected)


def test_overlapping_regions_and_masks_are_hidden():
    surface = noise(48, 64)
    masks = np.array([1, 0, 1, 1, 0, 1, 0, 0, 1], np.uint8)
    regions = together(
        region(0, 0, 40, 40, 8), region(20, 20, 64, 48, 12, smooth=1), region(8, 8, 32, 32, 8, mask=0, smooth=1)
    )
    for plane, expected in zip(planes(hide([surface], regions, masks)[0]), plain(surface, regions, masks), strict=True):
        assert np.array_equal(plane, expected)


@pytest.mark.parametrize("smooth", [0, 1])
def test_no_detail_below_the_cell_size_is_left(smooth):
    """Two frames whose cells have the same means cannot be told apart afterwards."""
    first = noise(64, 64, 1)
    second = noise(64, 64, 1)
    y = second.data[:64]
    uv = second.data[64:]
    rng = np.random.default_rng(2)
    for top in range(0, 64, 16):
        for left in range(0, 64, 16):
            y[top : top + 16, left : left + 16] = rng.permuted(y[top : top + 16, left : left + 16].ravel()).reshape(
                16, 16
            )
            part = uv[top // 2 : top // 2 + 8, left : left + 16]
            pairs = part.reshape(-1, 2)
            part[...] = pairs[rng.permutation(len(pairs))].reshape(8, 16)
    assert (first.data != second.data).mean() > 0.9
    regions = region(0, 0, 64, 64, 16, smooth=smooth)
    assert np.array_equal(hide([first], regions, NONE)[0].data, hide([second], regions, NONE)[0].data)


def test_pixels_outside_regions_and_the_input_are_unchanged():
    surface = noise(48, 64)
    before = surface.data.copy()
    hidden = hide([surface], region(8, 8, 24, 24, 8), NONE)[0]
    assert hidden is not surface
    assert np.array_equal(surface.data, before)
    changed = hidden.data != before
    assert changed[8:24, 8:24].any()
    changed[8:24, 8:24] = changed[52:60, 8:24] = False
    assert not changed.any()


def test_hiding_in_place_changes_the_surface():
    surface = noise(48, 64)
    copy = noise(48, 64)
    regions = together(region(0, 0, 40, 40, 8), region(20, 20, 64, 48, 12, smooth=1))
    expected = hide([copy], regions, NONE)[0]
    assert hide([surface], regions, NONE, in_place=True)[0] is surface
    assert np.array_equal(surface.data, expected.data)
    surface.data.setflags(write=False)
    assert hide([surface], regions, NONE, in_place=True)[0] is not surface


def test_only_images_with_regions_are_copied():
    surfaces = [noise(48, 64, i) for i in range(3)]
    hidden = hide(surfaces, region(0, 0, 8, 8, 8, frame=1), NONE)
    assert [a is b for a, b in zip(hidden, surfaces, strict=True)] == [True, False, True]
    assert hide(surfaces, np.zeros(0, REGION), NONE) == surfaces


@pytest.mark.parametrize(
    "box", [(1, 0, 8, 8, 8), (0, 0, 8, 8, 7), (0, 0, 66, 8, 8), (8, 8, 8, 16, 8), (-2, 0, 8, 8, 8)]
)
def test_invalid_regions_are_refused(box):
    with pytest.raises(ValueError, match="a region"):
        hide([noise(48, 64)], region(*box), NONE)


SIZES = [(360, 480), (1080, 1920), (2, 2), (64, 66), (130, 66), (432, 768)]


def crowd(frames, max_regions, seed=3):
    """Frames, regions upon each other all over them, and their masks."""
    rng = np.random.default_rng(seed)
    surfaces = []
    parts = []
    masks = []
    for row in range(frames):
        height, width = SIZES[row % len(SIZES)]
        surfaces.append(noise(height, width, row))
        for _ in range(0 if row == 4 else int(rng.integers(1, max_regions))):
            x1, y1 = (2 * int(rng.integers(0, size // 2)) for size in (width, height))
            x2 = 2 * int(rng.integers(x1 // 2, width // 2) + 1)
            y2 = 2 * int(rng.integers(y1 // 2, height // 2) + 1)
            record = region(x1, y1, x2, y2, 2 * int(rng.integers(1, 40)), row, int(rng.integers(2)))
            if rng.random() < 0.3:
                record["mask"] = sum(map(len, masks))
                masks.append(rng.integers(0, 2, int(record["columns"][0] * record["rows"][0]), dtype=np.uint8))
            parts.append(record)
    return surfaces, together(*parts), np.concatenate(masks)


@pytest.mark.gpu
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("frames", "max_regions"), [(1, 3), (32, 12)])
def test_device_equals_host(frames, max_regions, in_place):
    import cupy

    surfaces, regions, masks = crowd(frames, max_regions)
    on_device = [Surface(cupy.asarray(s.data), s.color) for s in surfaces]
    before = [s.data.copy() for s in on_device]
    expected = hide(surfaces, regions, masks)
    hidden = hide(on_device, regions, masks, in_place=in_place)
    for host, device_surface, was, device in zip(expected, hidden, before, on_device, strict=True):
        assert np.array_equal(device_surface.data.get(), host.data)
        assert (device_surface is device) == (in_place or host is surfaces[hidden.index(device_surface)])
        if not in_place:
            assert (device.data == was).all(), "what was given is not changed"


def test_many_regions_equal_a_plain_loop_on_the_host():
    """What the device is tested with is well on the host, too: every region lies in its frame."""
    surfaces, regions, masks = crowd(6, 4)
    hidden = hide(surfaces, regions, masks)
    for row, surface in enumerate(surfaces[:1]):
        regions_of_frame = regions[regions["frame"] == row]
        for plane, expected in zip(planes(hidden[row]), plain(surface, regions_of_frame, masks), strict=True):
            assert np.array_equal(plane, expected)


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
    (record,) = laid(detections([box]), HideSpec(True, grow=grow)).table
    x1, y1, x2, y2 = np.clip(box, 0, [640, 360, 640, 360])
    assert record["x1"] <= x1
    assert record["y1"] <= y1
    assert record["x2"] >= x2
    assert record["y2"] >= y2
    longest = max(box[2] - box[0], box[3] - box[1]) * (1 + grow)
    assert record["cell"] >= max(8, longest / 8)
    assert max(record["columns"], record["rows"]) <= 10


def test_hidden_objects_are_selected_by_options():
    table = detections([[0, 0, 40, 80], [100, 0, 140, 80], [200, 0, 240, 80]], label=["person", "car", "dog"])
    assert len(laid(table, HideSpec(True)).table) == 3
    assert len(laid(table, HideSpec(True, frozenset(["person", "dog"]))).table) == 2
    assert len(laid(table, HideSpec(True, frozenset(["cat"]))).table) == 0
    left = ((0.0, 0.0), (0.2, 0.0), (0.2, 0.5), (0.0, 0.5))
    assert len(laid(table, HideSpec(True, zones=(left,), share=True)).table) == 2  # those whose middle is in it
    kinds = laid(table, HideSpec(False, frozenset(["person"])), HideSpec(True, frozenset(["car"]))).table
    assert kinds["smooth"].tolist() == [0, 1]


def test_invalid_boxes_and_those_outside_the_image_are_skipped():
    none = [[np.nan, 0, 5, 5], [0, np.nan, 5, 5], [50, 50, 20, 60], [50, 60, 60, 50]]
    table = detections([*none, [700, 10, 800, 50], [10, 10, 20, 20]])
    for grow in (0.0, 0.1):
        assert laid(table, HideSpec(True, grow=grow)).table["x1"].tolist() == [10 if not grow else 8]


def test_regions_are_ordered_by_image_with_consecutive_cells():
    table = detections([[0, 0, 40, 80]] * 4)
    table = table.with_columns(batch_row=np.array([0, 0, 1, 3], np.int32))
    records = regions([gray(640, 360)] * 4, [(640, 360)] * 4, [table, table], [HideSpec(True), HideSpec(False)]).table
    assert records["frame"].tolist() == sorted(records["frame"].tolist())
    ends = np.cumsum(records["columns"] * records["rows"])
    assert records["first"].tolist() == [0, *ends[:-1].tolist()]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize(("width", "height"), [(640, 360), (1920, 1080), (160, 90)])
def test_no_pixel_of_a_zone_is_clear(width, height, share):
    import cv2

    rng = np.random.default_rng(0)
    surface = Surface(rng.integers(0, 256, (height * 3 // 2, width), dtype=np.uint8), Color())
    corners = np.array(TRIANGLE) * (width / 640)
    zone = tuple(map(tuple, (corners / (width, height) if share else corners).tolist()))
    laid_regions = regions(
        [surface], [(width, height)], [], [HideSpec(False, objects=False, zones=(zone,), share=share)]
    )
    drawn = np.zeros((height, width), np.uint8)
    cv2.fillPoly(drawn, [np.rint(corners).astype(np.int32)], 1)
    hidden = hide([surface], laid_regions.table, laid_regions.masks)[0]
    (record,) = laid_regions.table
    mask = laid_regions.masks.reshape(record["rows"], record["columns"])
    shown = np.kron(mask, np.ones((record["cell"], record["cell"]), np.uint8))
    covered = np.zeros((height + 999, width + 999), np.uint8)
    covered[record["y1"] : record["y1"] + shown.shape[0], record["x1"] : record["x1"] + shown.shape[1]] = shown
    covered = covered[:height, :width]
    assert not (drawn & ~covered & 1).any()
    assert covered.sum() < 1.8 * drawn.sum(), "and not much more is hidden"
    same = hidden.data[:height] == surface.data[:height]
    assert same[covered == 0].all()
    assert same[drawn == 1].mean() < 0.02


def test_every_cell_that_a_zone_touches_is_hidden():
    """By exact geometry: also a cell into which a corner or an edge reaches by a part of a pixel."""
    import cv2

    rng = np.random.default_rng(1)
    for _ in range(30):
        corners = rng.uniform((0, 0), (640, 360), (3, 2))
        laid_out = laid(detections(), HideSpec(False, objects=False, zones=(tuple(map(tuple, corners.tolist())),)))
        (region_row,) = laid_out.table
        mask = laid_out.masks.reshape(region_row["rows"], region_row["columns"])
        for row, column in np.argwhere(mask == 0).tolist():
            x1 = region_row["x1"] + column * region_row["cell"]
            y1 = region_row["y1"] + row * region_row["cell"]
            x2 = min(x1 + region_row["cell"], 640)
            y2 = min(y1 + region_row["cell"], 360)
            cell = np.array([(x1, y1), (x2, y1), (x2, y2), (x1, y2)], np.float32)
            area, _ = cv2.intersectConvexConvex(corners.astype(np.float32), cell)
            assert area < 1e-3, (corners, row, column)


@pytest.mark.parametrize("labels", [frozenset(), frozenset({"person"})], ids=["the zone", "people in it"])
def test_a_zone_in_pixels_is_scaled_with_the_frame(labels):
    table = detections([[300, 200, 400, 300], [1000, 600, 1100, 700]], label=["person", "person"])
    large = tuple((2 * x, 2 * y) for x, y in TRIANGLE)
    surfaces = [gray(1280, 720)]
    size = [(1280, 720)]
    scaled, expected = (
        regions(surfaces, size, [table], [HideSpec(True, labels, bool(labels), (zone,))], [scale])
        for zone, scale in ((TRIANGLE, (2.0, 2.0)), (large, (1.0, 1.0)))
    )
    assert len(expected.table) == 1
    assert scaled.table.tolist() == expected.table.tolist()
    assert scaled.masks.tolist() == expected.masks.tolist()


def test_a_zone_outside_the_image_hides_nothing():
    zone = ((700.0, 10.0), (800.0, 10.0), (750.0, 90.0))
    assert len(laid(detections(), HideSpec(True, objects=False, zones=(zone,))).table) == 0


def laid_region(box, *, width=640, height=360, **options):
    (record,) = laid(detections([box]), HideSpec(False, **options), width=width, height=height).table
    return tuple(int(record[name]) for name in ("x1", "y1", "x2", "y2", "cell", "columns", "rows"))


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
def test_the_position_of_a_region_is_exact(box, options, expected):
    assert laid_region(box, **options) == expected


def test_a_cell_has_at_most_4096_pixels():
    assert laid_region((0, 0, 70_000, 20), grow=0.0)[4] == 4096


def test_the_margin_is_hidden_and_nothing_beyond_it():
    rng = np.random.default_rng(0)
    surface = Surface(rng.integers(0, 256, (540, 640), dtype=np.uint8), Color())
    laid_regions = regions([surface], [(640, 360)], [detections([[100, 100, 200, 300]])], [HideSpec(False)])
    changed = np.argwhere(hide([surface], laid_regions.table, laid_regions.masks)[0].data[:360] != surface.data[:360])
    assert changed.min(0).tolist() == [80, 90]
    assert changed.max(0).tolist() == [319, 209]
    assert len(changed) > 0.97 * 120 * 240


def test_the_center_is_that_of_the_visible_part():
    seen = ((40.0, 0.0), (60.0, 0.0), (60.0, 80.0), (40.0, 80.0))
    table = detections([[-100, 0, 100, 80]])
    assert len(laid(table, HideSpec(True, zones=(seen,))).table) == 1
    whole = ((-10.0, 0.0), (10.0, 0.0), (10.0, 80.0), (-10.0, 80.0))
    assert len(laid(table, HideSpec(True, zones=(whole,))).table) == 0
    right = ((580.0, 0.0), (600.0, 0.0), (600.0, 80.0), (580.0, 80.0))
    assert len(laid(detections([[540, 0, 740, 80]]), HideSpec(True, zones=(right,))).table) == 1


def test_the_center_of_an_outside_box_is_on_the_edge():
    """Its margin is in sight."""
    left = ((0.0, 0.0), (60.0, 0.0), (60.0, 80.0), (0.0, 80.0))
    top = detections([[20, -20, 40, -1]])
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
    records = laid(table, HideSpec(True, zones=zones, grow=0.0)).table
    assert records["x1"].tolist() == [90, 490]
    shares = tuple(tuple((x / 640, y / 360) for x, y in zone) for zone in zones)
    assert laid(table, HideSpec(True, zones=shares, share=True, grow=0.0)).table["x1"].tolist() == [90, 490]


def test_a_zone_is_at_its_position():
    zone = ((101.0, 51.0), (300.0, 51.0), (300.0, 200.0), (101.0, 200.0))
    laid_regions = laid(detections(), HideSpec(False, objects=False, zones=(zone,)))
    (record,) = laid_regions.table
    assert [int(record[name]) for name in ("x1", "y1", "x2", "y2")] == [100, 50, 302, 202]
    assert (int(record["cell"]), int(record["columns"]), int(record["rows"])) == (16, 13, 10)
    assert laid_regions.masks.tolist() == [1] * 130
    (large,) = laid(detections(), HideSpec(False, objects=False, zones=(zone,)), width=1920, height=1080).table
    assert int(large["cell"]) == 44  # a 24th of the height


def test_masks_of_zones_are_consecutive():
    zones = tuple(((x, 0.0), (x + 15.0, 0.0), (x + 15.0, 15.0), (x, 15.0)) for x in (0.0, 100.0))
    surfaces = [gray(640, 360)] * 2
    laid_regions = regions(surfaces, [(640, 360)] * 2, [], [HideSpec(True, objects=False, zones=zones)])
    assert laid_regions.table["frame"].tolist() == [0, 0, 1, 1]
    each = int(laid_regions.table["columns"][0] * laid_regions.table["rows"][0])
    assert laid_regions.table["mask"].tolist() == [0, each, 2 * each, 3 * each]
    assert len(laid_regions.masks) == 4 * each
    assert laid_regions.table["smooth"].tolist() == [1] * 4


def test_nothing_is_hidden_without_regions():
    laid_regions = laid(detections(), HideSpec(True))
    assert (len(laid_regions.table), len(laid_regions.masks)) == (0, 0)
    objects = laid(detections([[10, 10, 50, 50]]), HideSpec(True))
    assert (objects.table["mask"].tolist(), len(objects.masks)) == ([-1], 0)
