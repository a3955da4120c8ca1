import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.core.data import Color, Detections, Shown, Surface
from streamkit.ops.annotate import annotate, separate_labels
from streamkit.ops.glyphs import Atlas
from streamkit.ops.style import PALETTE, Style, palette_yuv

QUIET = Style(labels=False, scores=False, tracks=False)


def gray(height=360, width=640, color=None):
    return Surface(np.full((height * 3 // 2, width), 128, np.uint8), color or Color())


def objects(*boxes, frame=0, **columns):
    n = len(boxes)
    return Detections(
        np.array(boxes, np.float32).reshape(n, 4),
        np.full(n, 0.875, np.float32),
        np.asarray(columns.pop("class_id", np.zeros(n)), np.int32),
        np.full(n, frame, np.int32),
        **columns,
    )


def lay(tables, style=QUIET, surfaces=None, atlas=None):
    return annotate(surfaces or [gray()], tables if isinstance(tables, list) else [tables], style, atlas or Atlas())


def place(mark):
    return tuple(int(mark[name]) for name in ("x1", "y1", "x2", "y2"))


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((10, 20, 50, 60), (10, 20, 52, 62)),
        ((11, 21, 49, 59), (10, 20, 50, 60)),
        ((0, 0, 640, 360), (0, 0, 640, 360)),
        ((-50, -50, 20, 20), (0, 0, 22, 22)),
        ((600, 300, 9000, 9000), (600, 300, 640, 360)),
        ((-np.inf, 10, np.inf, 20), (0, 10, 640, 22)),
        ((100, 100, 100, 100), (100, 100, 102, 102)),
        ((640, 360, 640, 360), (638, 358, 640, 360)),
        ((0, 0, 0, 0), (0, 0, 2, 2)),
    ],
)
def test_outlines_are_placed_around_boxes(box, expected):
    marks, ends = lay(objects(box))
    assert ends == [1]
    assert place(marks[0]) == expected
    assert marks[0]["border"] == 2
    assert marks[0]["sprite"] == -1


@pytest.mark.parametrize(
    "box",
    [(-50, 10, -1, 20), (650, 10, 700, 20), (10, -9, 20, -1), (10, 361, 20, 400), (30, 10, 20, 40), (np.nan, 1, 2, 3)],
)
def test_boxes_outside_the_image_are_skipped(box):
    marks, ends = lay(objects(box, (10, 10, 20, 20)))
    assert ends == [1]
    assert place(marks[0])[:2] == (10, 10)


def test_outline_is_never_further_than_a_pixel_and_half_a_line_from_the_box():
    rng = np.random.default_rng(1)
    start = rng.uniform(20, 200, (300, 2))
    boxes = np.hstack([start, start + rng.uniform(0, 140, (300, 2))]).astype(np.float32)
    table = objects(*boxes)
    marks, _ = lay(table)
    order = np.argsort(boxes[:, 3], kind="stable")
    outlines = np.array([place(m) for m in marks])
    assert not (outlines % 2).any()
    assert np.abs(outlines - (boxes[order] + [-1, -1, 1, 1])).max() <= 2  # 2 only where a box is thinner than a line
    wide = (boxes[order, 2:] - boxes[order, :2]).min(1) > 2
    assert np.abs(outlines - (boxes[order] + [-1, -1, 1, 1]))[wide].max() <= 1


@pytest.mark.parametrize(("size", "line", "text"), [
    ((360, 480), 2, 14), ((480, 640), 2, 16), ((1080, 1920), 4, 26), ((1920, 1080), 4, 26), ((2160, 3840), 8, 44),
    ((2, 2), 2, 8),
])  # fmt: skip
def test_sizes_scale_with_the_image(size, line, text):
    atlas = Atlas()
    marks, _ = lay(objects((0, 0, 2, 2)), Style(), [gray(*size)], atlas)
    assert marks[0]["border"] == line
    assert marks[1]["y2"] - marks[1]["y1"] == text


def test_requested_sizes_are_rounded_to_even():
    marks, _ = lay(objects((100, 100, 200, 200)), Style(thickness=3, text_size=21))
    assert marks[0]["border"] == 4
    assert marks[1]["y2"] - marks[1]["y1"] == 22


@pytest.mark.parametrize(
    ("style", "pieces"),
    [
        (Style(), ["car", "#7", "0.88"]),
        (Style(labels=False), ["#7", "0.88"]),
        (Style(scores=False), ["car", "#7"]),
        (Style(tracks=False), ["car", "0.88"]),
        (QUIET, []),
    ],
)
def test_labels_have_name_score_and_track(style, pieces):
    atlas = Atlas()
    table = objects((100, 100, 200, 200), track_id=np.array([7]), labels=("car",))
    marks, _ = lay(table, style, atlas=atlas)
    expected = [atlas.text(piece, 14) for piece in pieces]
    assert marks["sprite"][1:].tolist() == [sprite for sprite, _ in expected]
    assert (marks["x2"] - marks["x1"])[1:].tolist() == [width for _, width in expected]
    assert marks["x1"][2:].tolist() == marks["x2"][1:-1].tolist(), "pieces stand side by side"


def test_an_identity_replaces_the_track_in_label_and_color():
    atlas = Atlas()
    boxes = (100, 100, 200, 200), (300, 100, 400, 200)
    table = objects(*boxes, track_id=np.array([7, 8]), labels=("car",), extra={"identity": np.array([3, -1])})
    marks, _ = lay(table, Style(scores=False, color="identity"), atlas=atlas)
    assert {atlas.text(piece, 14)[0] for piece in ("id 3", "#8")} <= set(marks["sprite"].tolist())
    colors, _ = palette_yuv(Color())
    outlines = [int(color) & 0xFFFFFF for color in marks["color"][marks["sprite"] == -1]]
    assert outlines == [int(colors[3]), int(colors[0])]
    text = table.with_columns(identity=np.array(["who", "else"], object))  # a plugin's own column
    assert len(lay(text, Style(color="identity"))[0])


def test_a_label_omits_missing_parts():
    atlas = Atlas()
    table = objects((100, 100, 200, 200), track_id=np.array([-1]), class_id=[33], labels=("car",))
    table = table.with_columns(score=np.full(1, np.nan, np.float32))
    marks, _ = lay(table, Style(untracked=True), atlas=atlas)
    assert marks["sprite"].tolist() == [-1, atlas.text("33", 14)[0]]


@pytest.mark.parametrize(
    ("box", "x", "y"),
    [
        ((100, 100, 200, 200), "left", 86),
        ((100, 3, 200, 200), "left", 2),  # no room above: inside
        ((600, 100, 640, 200), "right", 86),  # moved left to be in the frame
        ((0, 0, 640, 360), "left", 0),
        ((100, 352, 200, 360), "left", 338),
    ],
)
def test_a_label_stays_within_the_image(box, x, y):
    marks, _ = lay(objects(box, labels=("person",)), Style())
    outline = marks[0]
    first = marks[1]
    last = marks[-1]
    assert place(first)[1] == y
    assert place(first)[0] == place(outline)[0] if x == "left" else place(last)[2] == 640
    assert place(last)[2] <= 640


@pytest.mark.parametrize("color", [Color("bt601", False), Color("bt709", True)])
def test_colors_follow_the_surface_and_are_stable(color):
    fills, inks = palette_yuv(color)
    table = objects((10, 60, 20, 70), (30, 60, 40, 71), (50, 60, 60, 72), class_id=[0, 3, 23], labels=("a",))
    marks, _ = lay(table, Style(scores=False), [gray(color=color)])
    assert (marks["color"][:3] & 0xFFFFFF).tolist() == fills[[0, 3, 3]].tolist()
    assert (marks["color"][:3] >> 24).tolist() == [255, 255, 255]
    assert marks["ink"][3:].tolist() == inks[[0, 3, 3]].tolist()


def test_color_by_track_falls_back_to_the_class():
    fills, _ = palette_yuv(Color())
    table = objects((10, 10, 20, 20), (30, 10, 40, 21), class_id=[4, 5], track_id=np.array([41, -1]))
    marks, _ = lay(table, Style(False, False, False, color="track", untracked=True))
    assert (marks["color"] & 0xFFFFFF).tolist() == fills[[1, 5]].tolist()


@pytest.mark.parametrize("color", ["class", "track"])
def test_trails_of_every_track_have_a_color_of_the_palette(color):
    """Numbers beyond the palette begin it again, as those of boxes do."""
    colors = []
    for number in (0, 3, len(PALETTE) - 1, len(PALETTE) + 3, 7 * len(PALETTE) + 3):
        trail = Shown(((0, 0), (100, 50)), class_id=number if color == "class" else 1, track_id=number)
        marks = annotate([gray()], [objects()], Style(color=color), Atlas(), shown=[({"trail": trail}, 640, 360)])[0]
        colors.append({int(mark["color"]) & 0xFFFFFF for mark in marks})
    palette = palette_yuv(Color())[0]
    expected = [0, 3, len(PALETTE) - 1, 3, 3]
    assert colors == [{int(palette[number])} for number in expected]


def shown_marks(shape, style=None, size=(640, 360)):
    return annotate([gray(size[1], size[0])], [objects()], style or Style(), Atlas(), shown=[({"a": shape}, *size)])[0]


def test_points_in_shares_are_those_of_the_frame():
    pixels = Shown(((64, 90), (320, 180), (160, 270)), closed=True)
    shares = Shown(((0.1, 0.25), (0.5, 0.5), (0.25, 0.75)), units="share", closed=True)
    assert shown_marks(pixels).tolist() == shown_marks(shares).tolist()
    assert len(shown_marks(pixels)) == 3


@pytest.mark.parametrize(
    ("points", "closed", "corner"),
    [
        (((300, 201), (101, 250)), False, (300, 200)),  # at the first end of a line
        (((300, 200), (101, 251), (320, 280)), True, (100, 250)),  # at the corner of a zone that is next to 0, 0
        (((900, 900), (101, 250)), False, (640, 360)),
        (((-9, -9), (101, 250)), False, (0, 0)),
    ],
)
def test_lines_and_zones_have_labels(points, closed, corner):
    marks = shown_marks(Shown(points, closed=closed, text="door 3"))
    label = marks[marks["sprite"] >= 0]
    assert len(label) > 0
    left = int(label["x1"].min())
    top = int(label["y1"].min())
    right = int(label["x2"].max())
    bottom = int(label["y2"].max())
    height = bottom - top
    expected_top = corner[1] - height if corner[1] >= height else 0
    assert (top, left) == (expected_top, min(corner[0], 640 - (right - left)))


def test_lines_and_trails_may_be_left_out():
    line = Shown(((10, 10), (100, 100)), text="gate")
    trail = Shown(((10, 10), (100, 100)), class_id=0, track_id=3, label="car")
    assert len(shown_marks(line, Style(analytics=False))) == 0
    assert len(shown_marks(trail, Style(analytics=False))) == 1
    assert len(shown_marks(trail, Style(only=("person",)))) == 0
    assert len(shown_marks(trail, Style(only=("car",)))) == 1


def test_labels_are_separated_within_each_frame():
    """The same crowded boxes in two frames: their labels have the same places."""
    boxes = [(100, 100, 160, 200), (104, 100, 164, 200), (108, 102, 168, 200)]
    frame = np.repeat(np.arange(2, dtype=np.int32), 3)
    ones = np.ones(6, np.float32)
    table = Detections(np.array(boxes * 2, np.float32), ones, np.zeros(6, np.int32), frame, labels=("person",))
    marks, ends = annotate([gray(), gray()], [table], Style(), Atlas())
    first = marks[: ends[0]]
    second = marks[ends[0] :]
    assert first.tolist() == second.tolist()
    labels = first[first["sprite"] >= 0]
    assert len({(int(label["x1"]), int(label["y1"])) for label in labels}) == len(labels)


def test_layers_tints_then_outlines_then_dots_then_labels():
    points = np.full((2, 1, 2), 150, np.float32)
    tables = [
        objects((100, 100, 200, 200), (90, 90, 150, 150), labels=("a",)).with_columns(keypoints=points),
        objects((10, 100, 50, 200), labels=("b",)),
    ]
    marks, ends = lay(tables, Style(fill=0.5, scores=False))
    kinds = [
        "label"
        if m["sprite"] >= 0 and m["color"] >> 24
        else "dot"
        if m["sprite"] >= 0
        else "outline"
        if m["border"]
        else "tint"
        for m in marks
    ]
    assert kinds == ["tint"] * 3 + ["outline"] * 3 + ["dot"] * 2 + ["label"] * 3
    assert ends == [11]
    assert {int(m["color"] >> 24) for m in marks[:3]} == {128}
    assert place(marks[3])[3] < place(marks[4])[3], "what stands lower comes later"


def test_keypoints_outside_or_unknown_are_left_out():
    points = np.array([[[50, 60], [np.nan, 3], [-4, 5], [700, 5], [0, 0]]], np.float32)
    table = objects((10, 10, 100, 100)).with_columns(keypoints=points)
    marks, _ = lay(table)
    assert [place(m) for m in marks[1:]] == [(48, 58, 52, 62), (-2, -2, 2, 2)]


def test_objects_are_selected_by_name_or_number():
    table = objects(*[(10, 10 + i, 20, 20 + i) for i in range(4)], class_id=[0, 1, 2, 9], labels=("a", "b", "c"))
    marks, _ = lay(table, Style(False, False, False, only=("b", "9", "zebra")))
    assert marks["y1"].tolist() == [10, 12]


def test_marks_stay_with_their_frame():
    surfaces = [gray(), None, gray(90, 120), gray()]
    table = Detections.concat(
        [objects((10, 10, 20, 20)), objects((1, 1, 9, 9)), objects((50, 50, 200, 60))], rows=[0, 1, 2]
    )
    marks, ends = lay(table, surfaces=surfaces)
    assert ends == [1, 1, 2, 2]
    assert place(marks[1]) == (50, 50, 120, 62)


def test_nothing_is_drawn_without_objects():
    marks, ends = lay([Detections.empty(), Detections.empty()], Style(), [gray(), gray()])
    assert len(marks) == 0
    assert ends == [0, 0]
    assert lay([], Style())[1] == [0]


def test_hundreds_of_boxes_are_drawn():
    rng = np.random.default_rng(0)
    start = rng.uniform(-50, 600, (500, 2))
    table = objects(*np.hstack([start, start + rng.uniform(0, 90, (500, 2))]), labels=("car",))
    marks, ends = lay(table, Style(fill=0.2))
    assert ends == [len(marks)]
    assert len(marks) > 500


SIZE = (640, 360)


def rects(corners, sizes):
    corners = np.array(corners, np.int64)
    sizes = np.array(sizes, np.int64)
    return np.concatenate([corners, corners + sizes], axis=1)


def covered(corner, sizes):
    """The area that labels have in common, pair by pair."""
    label_rects = rects(corner, sizes)
    side = np.minimum(label_rects[:, None, 2:], label_rects[None, :, 2:]) - np.maximum(
        label_rects[:, None, :2], label_rects[None, :, :2]
    )
    both = np.clip(side, 0, None).prod(-1)
    return np.triu(both, 1)


def test_non_overlapping_labels_are_not_moved():
    labels = rects([(10, 10), (100, 10), (10, 24)], [(90, 14)] * 3)
    boxes = rects([(10, 24), (100, 24), (10, 38)], [(50, 50)] * 3)
    assert separate_labels(labels, boxes, SIZE).tolist() == labels[:, :2].tolist()
    assert separate_labels(labels[:0], boxes[:0], SIZE).shape == (0, 2)


def test_an_overlapping_label_moves_to_the_next_free_place():
    """Two objects in one place: the second label goes to the box's right end, or else to the first free place."""
    wide = rects([(100, 100)], [(200, 80)])
    narrow = rects([(100, 100)], [(60, 80)])
    two = rects([(100, 86)] * 2, [(80, 14)] * 2)
    assert separate_labels(two, np.concatenate([wide, wide]), SIZE).tolist() == [[100, 86], [220, 86]]
    assert separate_labels(two, np.concatenate([narrow, narrow]), SIZE).tolist() == [[100, 86], [100, 100]]


def test_overlapping_labels_do_not_move_others():
    labels = rects([(100, 86), (100, 86), (100, 100)], [(80, 14)] * 3)
    boxes = rects([(100, 100), (100, 100), (100, 114)], [(60, 80)] * 3)
    corner = separate_labels(labels, boxes, SIZE)
    assert corner[2].tolist() == [100, 100]
    assert not covered(corner, [(80, 14)] * 3).any()


def test_without_space_the_overlap_is_minimal():
    labels = rects([(0, 0)] * 2, [(20, 14)] * 2)
    assert separate_labels(labels, labels, (20, 20))[1].tolist() == [0, 6]


places = st.tuples(st.integers(0, 250), st.integers(10, 120), st.integers(2, 100), st.integers(2, 100))


@settings(deadline=None)
@given(st.lists(places, min_size=1, max_size=12))
def test_separated_labels_are_even_within_the_frame_and_overlap_no_more(label_places):
    boxes = 2 * rects([p[:2] for p in label_places], [p[2:] for p in label_places])
    sizes = np.array([(90, 14)] * len(label_places))
    wanted = np.clip(boxes[:, :2] - (0, 14), 0, np.array(SIZE) - sizes[0])
    corner = separate_labels(rects(wanted, sizes), boxes, SIZE)
    assert (corner % 2 == 0).all()
    assert (corner >= 0).all()
    assert (corner + sizes <= SIZE).all()
    assert covered(corner, sizes).sum() <= covered(wanted, sizes).sum()


# ----------------------------------------------------------------------------------------------- labels that fit


FITTING = Style(fit_labels=True)


@pytest.mark.parametrize(
    ("box", "columns", "text"),
    [
        ((10, 100, 300, 300), {"track_id": [7]}, ["car", "#7", "0.88"]),
        ((10, 100, 58, 160), {"track_id": [7]}, ["car", "#7"]),
        ((10, 100, 30, 160), {"track_id": [7]}, ["#7"]),
        ((10, 100, 16, 160), {"track_id": [7]}, []),  # narrower than half of the number
        ((10, 100, 300, 124), {"track_id": [7]}, []),  # lower than twice the label
        ((10, 100, 30, 160), {}, ["car"]),
    ],
)
def test_a_label_is_shortened_to_the_width_of_its_object(box, columns, text):
    table = objects(box, labels=("car",), **{name: np.array(column) for name, column in columns.items()})
    atlas = Atlas()
    marks, _ = lay(table, FITTING, atlas=atlas)
    sprites = [int(mark["sprite"]) for mark in marks if mark["sprite"] >= 0]
    height = Style().text_height(360)
    assert sprites == [atlas.text(piece, height)[0] for piece in text]


def test_without_fit_labels_every_label_is_complete():
    marks, _ = lay(objects((10, 100, 16, 110), labels=("car",), track_id=np.array([7])), Style())
    assert len([mark for mark in marks if mark["sprite"] >= 0]) == 3


@pytest.mark.parametrize(("depth_m", "labels", "pieces"), [(2.43, True, 2), (np.nan, True, 1), (2.43, False, 0)])
def test_a_label_has_the_depth_in_meters_where_there_is_one(depth_m, labels, pieces):
    atlas = Atlas()
    table = objects((100, 100, 200, 200), labels=("car",), extra={"depth": np.array([depth_m], np.float32)})
    marks, _ = lay(table, Style(labels=labels, scores=False, tracks=False), atlas=atlas)
    assert np.count_nonzero(marks["sprite"] >= 0) == pieces
    if pieces == 2:
        sprite, width = atlas.text("2.4 m", int(marks["y2"][-1] - marks["y1"][-1]))
        assert marks["sprite"][-1] == sprite
        assert marks["x2"][-1] - marks["x1"][-1] == width
