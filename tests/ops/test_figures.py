"""Masks and skeletons as they are drawn."""

import numpy as np
import pytest

from streamkit.core.data import Color, Detections, Shown, Skeleton, Surface
from streamkit.ops import rle
from streamkit.ops.annotate import annotate
from streamkit.ops.glyphs import Atlas
from streamkit.ops.overlay import LINE, MARK, STENCIL, draw
from streamkit.ops.style import Style, palette_yuv

QUIET = {"labels": False, "scores": False, "tracks": False}
COLOR = Color()


def gray(height=360, width=640):
    return Surface(np.full((height * 3 // 2, width), 128, np.uint8), COLOR)


def table(n=1, **extra):
    skeleton = extra.pop("skeleton", None)
    boxes = np.tile(np.array([10, 10, 30, 30], np.float32), (n, 1))
    return Detections(
        boxes, np.ones(n, np.float32), np.zeros(n, np.int32), labels=("a",), extra=extra, skeleton=skeleton
    )


def points(*rows):
    return np.array([rows], np.float32)


def laid(drawn, style=None, facts=(), atlas=None):
    return annotate([gray()], [drawn], style or Style(**QUIET), atlas or Atlas(), facts)


def changed(marks, ends, atlas, surface=None):
    before = surface or gray()
    after = draw([before], marks, ends, atlas)[0]
    return after.data[: after.height] != before.data[: before.height]


def test_a_skeleton_is_drawn_between_visible_keypoints():
    person = table(
        keypoints=points([100, 100, 0.9], [200, 100, 0.9], [200, 50, 0.2], [900, 9, 0.9], [np.nan, 9, 0.9]),
        skeleton=Skeleton(edges=((0, 1), (1, 2), (0, 3), (0, 4), (0, 9))),
    )
    marks, _ = laid(person)
    lines = marks[marks["sprite"] == LINE]
    assert len(lines) == 1
    assert (marks["sprite"] >= 0).sum() == 2, "two points are in the frame and sure enough"
    assert lines[0]["color"] >> 24 == 255
    assert not ((marks.view(np.int32).reshape(-1, 8)[:, :5]) & 1).any()
    assert len(laid(person, Style(**QUIET, min_keypoint_score=0.1))[0]) == 1 + 3 + 2


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((100, 100), (200, 160)),
        ((200, 100), (100, 160)),
        ((50, 90), (50, 200)),
        ((50, 90), (220, 90)),
        ((9, 9), (9, 9)),
    ],
)
@pytest.mark.parametrize("thickness", [2, 4, 6, 8])
def test_a_line_covers_the_pixels_near_it(a, b, thickness):
    person = table(keypoints=points([*a, 1], [*b, 1]), skeleton=Skeleton(edges=((0, 1),)))
    atlas = Atlas()
    marks, _ = laid(person, Style(**QUIET, thickness=thickness), atlas=atlas)
    marks = marks[marks["sprite"] == LINE]
    seen = changed(marks, [1], atlas)
    y, x = np.mgrid[:360, :640] + 0.5
    (ax, ay), (bx, by) = np.array([a, b], float)
    length = (bx - ax) ** 2 + (by - ay) ** 2
    along = np.clip(((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / max(length, 1), 0, 1)
    far = np.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay))
    assert not (seen & (far > thickness / 2 + 3.5)).any(), "a block, and a place made even, at most"
    assert (seen | (far > max(0.1, thickness / 2 - 3.5))).all() or thickness == 2
    assert seen.any()


def test_a_line_has_no_holes():
    person = table(keypoints=points([20, 20, 1], [320, 187, 1]), skeleton=Skeleton(edges=((0, 1),)))
    atlas = Atlas()
    marks, _ = laid(person, Style(**QUIET, thickness=2), atlas=atlas)
    seen = changed(marks[marks["sprite"] == LINE], [1], atlas)
    assert seen[:, 20:320].any(axis=0).all()


def test_a_mask_is_drawn_on_blocks_above_a_share():
    mask = np.zeros((360, 640), bool)
    mask[101:140, 51:90] = True
    mask[110:120, 60:70] = False
    atlas = Atlas()
    column = np.full(1, None)
    column[0] = rle.encode(mask, 640, 360)
    marks, _ = laid(table(mask=column), Style(**QUIET, masks=0.5), atlas=atlas)
    marks = marks[marks["sprite"] == STENCIL]
    before = gray()
    after = draw([before], marks, [1], atlas)[0]
    luma = after.data[:360]
    fours = mask.reshape(180, 2, 320, 2).sum((1, 3)) >= 2
    wanted = fours.repeat(2, 0).repeat(2, 1)
    assert np.array_equal(luma != 128, wanted)
    fills = [int(palette_yuv(COLOR)[0][0]) >> shift & 255 for shift in (0, 8, 16)]
    y, cb, cr = ((128 * 127 + fill * 128 + 127) // 255 for fill in fills)
    assert 128 not in (cb, cr)
    assert set(luma[wanted].tolist()) == {y}
    assert np.array_equal(after.data[360:, 0::2], np.where(fours, cb, 128))
    assert np.array_equal(after.data[360:, 1::2], np.where(fours, cr, 128))


def test_masks_may_be_left_out_and_empty_ones_draw_nothing():
    column = np.full(2, None)
    column[0] = rle.encode(np.zeros((9, 9), bool), 640, 360)
    marks, _ = laid(table(2, mask=column))
    assert not (marks["sprite"] == STENCIL).any()
    column = column.copy()
    column[1] = rle.encode(np.ones((9, 9), bool), 640, 360)
    assert (laid(table(2, mask=column))[0]["sprite"] == STENCIL).sum() == 1
    assert not (laid(table(2, mask=column), Style(**QUIET, masks=0))[0]["sprite"] == STENCIL).any()


def test_class_maps_are_drawn_below_everything():
    atlas = Atlas()
    road, sky = (rle.encode(np.ones((90, 640), bool), 640, 360, 0, top) for top in (270, 0))
    facts = [{"segmentation": {"road": road, "sky": sky}}]
    marks, ends = annotate([gray()], [table()], Style(**QUIET), atlas, facts)
    assert marks["sprite"].tolist() == [STENCIL, STENCIL, -1]
    seen = changed(marks, ends, atlas)
    assert seen[270:].all()
    assert not seen[120:260, 100:].any()
    only = annotate([gray()], [], Style(**QUIET, only=("sky",)), Atlas(), facts)[0]
    assert len(only) == 1
    assert only[0]["y1"] == 0
    other = annotate([gray()], [], Style(**QUIET), Atlas(), [{"segmentation": {"sky": sky}}])[0]
    assert other[0]["color"] == only[0]["color"], "whatever else there is"


def test_stencils_beyond_the_border_are_clipped():
    atlas = Atlas()
    blocks = np.ones((40, 40), bool)
    marks = np.zeros(2, MARK)
    for mark, (x, y) in zip(marks, ((-20, -30), (620, 340)), strict=True):
        mark["x1"] = x
        mark["y1"] = y
        mark["x2"] = x + 80
        mark["y2"] = y + 80
        mark["color"] = 0xFF0000FF
        mark["sprite"] = STENCIL
        mark["ink"] = atlas.stencil(blocks)
    seen = changed(marks, [2], atlas)
    assert seen[:50, :60].all()
    assert seen[340:, 620:].all()
    assert seen.sum() == 50 * 60 + 20 * 20


def test_a_batch_forgets_the_stencils_of_the_last():
    atlas = Atlas()
    assert atlas.stencil(np.ones((3, 9), bool)) == 0
    assert atlas.stencil(np.ones((1, 1), bool)) == 6
    assert len(atlas.stencils()) == 7
    atlas.begin()
    assert atlas.stencil(np.ones((1, 1), bool)) == 0
    assert len(atlas.stencils()) == 1


# ----------------------------------------------------------------------------------------- rotated boxes, lines, zones


def distance_to(a, b, height=360, width=640):
    """The distance of the middle of each pixel from the line between two points."""
    y, x = np.mgrid[:height, :width] + 0.5
    (ax, ay), (bx, by) = np.array([a, b], float)
    length = (bx - ax) ** 2 + (by - ay) ** 2
    along = np.clip(((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / max(length, 1), 0, 1)
    return np.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay))


def seen_of(style=None, size=(640, 360), extra=None, shown=()):
    """The pixels that a table with rotated boxes, or lines, change."""
    atlas = Atlas()
    surface = gray(size[1], size[0])
    boxes = table(len(next(iter(extra.values()))), **extra) if extra else table(0)
    marks, ends = annotate([surface], [boxes], style or Style(**QUIET), atlas, shown=shown)
    return changed(marks, ends, atlas, surface), marks


CORNERS = np.array([[[200, 80], [300, 120], [280, 170], [180, 130]]], np.float32)


@pytest.mark.parametrize("shift", [(0, 0), (-230, 0), (400, 0), (0, -110), (0, 240)])
def test_a_rotated_box_is_its_four_edges(shift):
    corners = CORNERS + np.array(shift, np.float32)
    seen, _ = seen_of(Style(**QUIET, thickness=4), extra={"corners": corners})
    far = np.min([distance_to(corners[0, i], corners[0, i - 1]) for i in range(4)], axis=0)
    assert seen.any()
    assert not (seen & (far > 5.5)).any()
    assert (seen | (far > 0.1)).all()


@pytest.mark.parametrize("shift", [(0, 0), (-230, 0), (400, 0), (0, -110), (0, 240), (0, 2000)])
@pytest.mark.parametrize("turn", [1, -1])
def test_a_rotated_box_is_tinted_inside(shift, turn):
    """Blocks of 2 x 2 pixels whose middle is inside, whichever way round the corners are."""
    corners = (CORNERS + np.array(shift, np.float32))[:, ::turn]
    atlas = Atlas()
    marks, _ = laid(table(1, corners=corners), Style(**QUIET, fill=0.5), atlas=atlas)
    tint = marks[marks["sprite"] == STENCIL]
    seen = changed(tint, [len(tint)], atlas)
    y, x = (np.mgrid[:180, :320] + 0.5) * 2
    ends_of = zip(corners[0], np.roll(corners[0], -1, axis=0), strict=True)
    sides = [(bx - ax) * (y - ay) - (by - ay) * (x - ax) for (ax, ay), (bx, by) in ends_of]
    inside = np.all([side * turn >= 0 for side in sides], axis=0)
    assert np.array_equal(seen, inside.repeat(2, 0).repeat(2, 1))
    assert inside.any() == (shift != (0, 2000))
    assert all(int(mark["color"]) >> 24 == 128 for mark in tint)


def test_only_rows_with_corners_are_rotated_boxes():
    corners = np.concatenate([CORNERS, np.full((1, 4, 2), np.nan, np.float32)])
    _, marks = seen_of(Style(**QUIET, fill=0.5), extra={"corners": corners})
    assert (marks["sprite"] == STENCIL).sum() == 1
    assert (marks["sprite"] == LINE).sum() == 4
    assert (marks["sprite"] == -1).sum() == 2, "the upright box: its outline and its tint"


@pytest.mark.parametrize(
    ("points", "closed"),
    [
        (((100, 100), (300, 200), (500, 50)), False),
        (((100, 100), (300, 200), (500, 50)), True),
        (((-500, 100), (1200, 300)), False),
        (((320, -900), (330, 900)), False),
        (((-300, -200), (900, 500)), False),
        (((900, -200), (-300, 500)), False),
        (((-50, 40), (100, -20)), False),
        (((0, 0), (640, 360)), False),
        (((100, 180), (540, 180)), False),
        (((320, 20), (320, 340)), False),
    ],
)
@pytest.mark.parametrize("thickness", [2, 4, 6])
def test_lines_and_zones_cover_the_pixels_near_them(points, closed, thickness):
    shown = [({"a": Shown(points, closed=closed)}, 640, 360)]
    seen, _ = seen_of(Style(**QUIET, thickness=thickness), shown=shown)
    pairs = list(zip(points, (*points[1:], points[0]), strict=True))[: len(points) - (not closed)]
    far = np.min([distance_to(a, b) for a, b in pairs], axis=0)
    assert seen.any()
    assert not (seen & (far > thickness / 2 + 3.5)).any()
    assert (seen | (far > max(0.1, thickness / 2 - 3.5))).all() or thickness == 2
    assert seen[far < 1].mean() > 0.4


@pytest.mark.parametrize(
    "points", [((-100, 10), (-50, 300)), ((10, -100), (600, -60)), ((700, 0), (700, 360)), ((-900, 180), (320, -900))]
)
def test_lines_outside_of_the_frame_are_left_out(points):
    seen, marks = seen_of(shown=[({"a": Shown(points)}, 640, 360)])
    assert not seen.any()
    assert len(marks) == 0


def test_a_level_line_is_even_a_rectangle():
    """Rows and columns of its thickness, without the rounding of blocks."""
    for points, axis in (((100, 181), (540, 181)), 1), (((321, 20), (321, 340)), 0):
        seen, marks = seen_of(Style(**QUIET, thickness=4), shown=[({"a": Shown(points)}, 640, 360)])
        assert marks["sprite"].tolist() == [-1]
        assert seen.any(axis=axis).sum() == 4


def test_dots_lie_around_their_points():
    person = table(keypoints=points([101, 80, 0.9], [300, 201, 0.9]))
    marks, _ = laid(person, Style(**QUIET, thickness=4))
    dots = marks[marks["sprite"] >= 0]
    assert (dots["x2"] - dots["x1"]).tolist() == (dots["y2"] - dots["y1"]).tolist() == [8, 8]
    middles = [((int(d["x1"]) + int(d["x2"])) / 2, (int(d["y1"]) + int(d["y2"])) / 2) for d in dots]
    assert np.abs(np.array(middles) - [(101, 80), (300, 201)]).max() <= 1
