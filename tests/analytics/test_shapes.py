import json

import pytest
from pydantic import TypeAdapter, ValidationError

from streamkit.analytics.shapes import Polygons, check_line, check_polygon, check_units, outside
from streamkit.config.pipeline_config import read_text

SQUARE = ((0, 0), (10, 0), (10, 10), (0, 10))


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "two points or more"),
        ([(1, 2)], "two points or more"),
        ([(1, 2), (1, 2)], "no length: points 1 and 2 are the same"),
        ([(0, 0), (5, 5), (5, 5), (9, 0)], "no length: points 2 and 3 are the same"),
        ([(0, 0), (9, 9), (9, 0), (0, 9)], "part 1 and part 3 meet"),
        ([(0, 0), (9, 0), (4, 0)], "part 1 and part 2 meet"),
        ([(0, 0), (9, 0), (9, 9), (5, 0)], "part 1 and part 3 meet"),
        ([(0, 0), (float("nan"), 1)], "finite"),
    ],
)
def test_invalid_lines_are_refused(points, message):
    with pytest.raises(ValueError, match=message):
        check_line(points)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([(0, 0), (9, 9)], "three corners or more"),
        ([(0, 0), (9, 0), (0, 0)], "no length|three corners|meet|one line"),
        ([(0, 0), (5, 0), (9, 0)], "all its corners lie on one line"),
        ([(0, 0), (9, 9), (9, 0), (0, 9)], "edge 1 and edge 3 meet"),
        ([(0, 0), (0, 0), (9, 0), (0, 9)], "corners 1 and 2 are the same"),
        ([(0, 0), (9, 0), (9, 9), (5, 0), (0, 9)], "edge 1 and edge 3 meet"),
        ([(0, 0), (9, 0), (9, 9), (9, 4)], "edge 2 and edge 3 meet"),
        ([(0, 0), (9, 0), (4, 0), (4, 9)], "edge 1 and edge 2 meet"),
    ],
)
def test_invalid_areas_are_refused(points, message):
    with pytest.raises(ValueError, match=message):
        check_polygon(points)


def test_valid_shapes_are_accepted():
    assert check_polygon([*SQUARE, SQUARE[0]]) == SQUARE  # closed by hand
    assert check_polygon(SQUARE[::-1]) == SQUARE[::-1]
    assert check_polygon([(0, 0), (10, 0), (10, 10), (5, 4), (0, 10)])  # a notch
    assert check_line([(0, 0), (5, 0), (9, 0)]) == ((0, 0), (5, 0), (9, 0))


def test_units_of_shapes_are_checked():
    check_units("pixels", [SQUARE])
    check_units("share", [((0, 0), (1, 0.5), (0.2, 1.5))])
    with pytest.raises(ValueError, match="write units: share"):
        check_units("pixels", [((0, 0.5), (1, 0.5))])
    with pytest.raises(ValueError, match="got 10; leave units out for pixels"):
        check_units("share", [SQUARE])


@pytest.mark.parametrize(
    ("shape", "closed", "beside"),
    [
        (((10, 10), (20, 10), (20, 20)), True, False),
        (((110, 10), (120, 10), (120, 20)), True, True),
        (((100, 10), (120, 10), (120, 20)), True, False),  # it touches the side
        (((-50, -50), (150, -50), (150, 150), (-50, 150)), True, False),  # around the picture
        (((-50, 40), (150, 40), (150, 45), (-50, 45)), True, False),  # across
        (((-50, 20), (20, -50), (-50, -50)), True, True),  # its box meets the picture, it does not
        (((-50, -50), (150, -50), (150, 150), (140, 150), (140, -40), (-50, -40)), True, True),  # around two sides
        (((-50, 40), (150, 40)), False, False),
        (((-50, -50), (150, -50), (150, 150)), False, True),
        (((-50, -50), (150, -50), (150, 150), (-50, 150)), False, True),
    ],
)
def test_shapes_outside_an_image_are_listed(shape, closed, beside):
    assert outside(shape, 100, 60, closed=closed) == beside
    assert outside(shape[::-1], 100, 60, closed=closed) == beside


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("proximity", {"distance": 0.1, "units": "share"}),
        ("proximity", {"distance": 1}),
        (
            "proximity",
            {
                "distance": 0.5,
                "points": [[100, 100], [200, 100], [300, 300], [50, 300]],
                "ground": [[0, 0], [4, 0], [4, 20], [0, 20]],
            },
        ),
        (
            "proximity",
            {
                "distance": 5,
                "units": "share",
                "points": [[0.1, 0.1], [0.2, 0.1], [0.3, 0.9], [0.05, 0.9]],
                "ground": [[0, 0], [4, 0], [4, 20], [0, 20]],
            },
        ),
        ("direction", {"min_speed": 2, "units": "share"}),
        ("direction", {"min_speed": 20, "units": "share", "smoothing": 0.2}),
        ("direction", {"min_speed": 0.02}),
        ("zone", {"polygon": [[100, 100], [200, 100], [300, 300]], "margin": 0.5}),
    ],
)
def test_lengths_are_accepted_in_their_units(stage, options):
    assert problems(stage, **options) == []


def test_every_list_of_points_has_a_name():
    with pytest.raises(ValidationError, match="must have a name for each list of points"):
        TypeAdapter(Polygons).validate_json('{"": [[0, 0], [9, 0], [9, 9]]}')


def problems(stage, **options):
    text = f"""
sources: {{a: samples/street.mp4}}
stages:
  detect: {{model: demo}}
  track: {{stage: simple_track}}
  it:
    stage: {stage}
""" + "".join(f"    {name}: {json.dumps(value)}\n" for name, value in options.items())
    return [str(p).removeprefix("pipeline.yaml:") for p in read_text(text).problems if "simple_track" not in str(p)]


FOUR = [[100, 100], [200, 100], [300, 300], [50, 300]]
SHARES = [[0.1, 0.1], [0.9, 0.1], [0.9, 0.9]]
METERS = [[0, 0], [4, 0], [4, 20], [0, 20]]


@pytest.mark.parametrize(
    ("stage", "options", "message"),
    [
        (
            "zone",
            {"polygon": [[0, 0], [9, 9]]},
            "8:14: it.polygon must have three corners or more, got [[0, 0], [9, 9]]",
        ),
        (
            "zone",
            {"polygon": {"door": [[0, 0], [90, 0], [90, 90]], "till": [[0, 0], [9, 9], [9, 0], [0, 9]]}},
            "8:60: it.polygon.till must not cross or touch itself: edge 1 and edge 3 meet, got "
            "[[0, 0], [9, 9], [9, 0], [0, 9]]",
        ),
        ("zone", {"polygon": [[0, 0], [9, "a"], [9, 9]]}, "8:27: it.polygon.1.1 must be a number, got 'a'"),
        ("zone", {"polygon": [[0, 0], [9], [9, 9]]}, "8:23: it.polygon.1.1 is required"),
        ("zone", {"polygon": "door"}, "8:14: it.polygon must be a list, got 'door'"),
        ("zone", {"polygon": {}}, "8:14: it.polygon must have points, [[x, y], ...], or several such lists by name"),
        ("zone", {"polygon": SHARES, "units": "share", "margin": 5}, "share margin is a share of the frame's height"),
        ("line_counter", {"line": SHARES, "units": "share", "margin": 1.5}, "0 to 1, got 1.5; leave units out for"),
        ("zone", {}, "it.polygon is required: the area's corners"),
        (
            "line_counter",
            {"line": [[5, 5], [5, 5]]},
            "8:11: it.line must not have a part of no length: points 1 and 2 are the same, got [[5, 5], [5, 5]]",
        ),
        ("line_counter", {"line": {"door": [[5, 5]]}}, "8:20: it.line.door must have two points or more, got [[5, 5]]"),
        ("line_counter", {"line": [[0, 0], [0.5, 1]]}, "all coordinates lie within one pixel: write units: share"),
        ("line_counter", {"line": [[0, 0], [640, 0]], "units": "share"}, "got 640; leave units out for pixels"),
        ("line_counter", {"line": [[0, 0], [640, 0]], "units": "percent"}, "it.units must be pixels or share"),
        ("line_counter", {"line": [[0, 0], [640, 0]], "anchor": "feet"}, "9:13: it.anchor must be foot, center, top"),
        ("line_counter", {"line": [[0, 0], [640, 0]], "margin": -1}, "margin must be 0 or more, got -1"),
        ("line_counter", {"line": [[0, 0], [640, 0]], "window": 0}, "window must be longer than 0s"),
        ("zone", {"polygon": FOUR, "crowded_for": "5s"}, "crowded_for needs more_than"),
        (
            "speed",
            {"points": [[0, 0], [10, 10], [20, 20], [0, 90]], "ground": METERS},
            "8:13: it.points must be four points, no three on a line: points 1, 2 and 3 are, got",
        ),
        ("speed", {"points": FOUR[:3], "ground": METERS}, "8:13: it.points must be four points, got"),
        (
            "speed",
            {"points": FOUR, "ground": [METERS[i] for i in (0, 2, 1, 3)]},
            "9:13: it.ground must be four points in",
        ),
        ("speed", {"points": FOUR, "ground": METERS, "smoothing": 0}, "smoothing must be longer than 0s"),
        (
            "direction",
            {"directions": {"north": [[9, 9], [9, 9]]}},
            "8:27: it.directions.north must not have a part of no",
        ),
        ("direction", {"wrong": ["upp"]}, "wrong: there is no direction 'upp'; did you mean 'up'?"),
        ("proximity", {"distance": 0}, "distance must be more than 0"),
        ("proximity", {"distance": 5, "units": "share"}, "0 to 1, got 5; leave units out for pixels"),
        ("proximity", {"distance": 0.1}, "distance must be a pixel or more, got 0.1; write units: share for a share"),
        ("direction", {"min_speed": 20, "units": "share"}, "no track can move at 20 for half of"),
        ("proximity", {"distance": 2, "points": FOUR}, "points and ground go together"),
        ("heatmap", {"path": "out/heat.png"}, 'path must have "{source}" in it'),
        ("heatmap", {"path": "out/{source}.gif"}, "path must end in .png or .jpg"),
        ("draw", {"blur": {"zone": [[0, 0], [9, 9]]}}, "8:20: it.blur.zone must have three corners or more"),
        ("draw", {"blur": []}, "blur needs labels or a zone"),
        ("draw", {"blur": {"label": ["car"]}}, "it.blur has no option 'label'; did you mean 'labels'?"),
    ],
)
def test_check_refuses_invalid_shapes_with_position_and_reason(stage, options, message):
    messages = problems(stage, **options)
    assert any(message in text for text in messages), messages
    assert len(messages) == 1, messages
