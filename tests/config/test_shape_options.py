"""Which options of stages are areas and lines, and what a YAML says there."""

import pytest

from streamkit.config.shape_options import shape_options, shapes_of
from streamkit.core.stage import default_registry
from streamkit.core.yaml_tree import load


def shapes_at(text, option):
    root, _ = load(text, "p.yaml")
    (shapes,) = (entry for entry in shapes_of(root, default_registry()) if ".".join(entry.option.path) == option)
    return shapes


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("zone", [(("polygon",), "area", True, True, False)]),
        ("line_counter", [(("line",), "line", True, True, False)]),
        ("direction", [(("directions",), "arrow", False, True, False)]),
        ("detect", [(("roi",), "area", True, True, False)]),
        ("draw", [(("blur", "zone"), "area", True, True, True), (("pixelate", "zone"), "area", True, True, True)]),
        ("speed", []),
        ("jsonl", []),
    ],
)
def test_shape_options_of_a_stage_are_listed(stage, options):
    declared = shape_options(default_registry()[stage])
    assert [(option.path, option.kind, option.single, option.named, option.hides) for option in declared] == options
    assert [option.by_source for option in declared] == [stage in ("zone", "line_counter")] * len(declared)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ("", {}),
        ("sources: [gate]", {"a": ["gate"], "b": ["gate"]}),
        ("sources: {b: [gate, yard]}", {"b": ["gate", "yard"]}),
        ("sources: {c: [gate], b: []}", {}),
        ("sources: 3", {}),
    ],
)
def test_sources_of_shapes_are_listed(sources, expected):
    lines = "{a: [[1, 2], [3, 4]], b: [[1, 2], [3, 4]]}"
    assert shapes_at(f"stages: {{line_counter: {{line: {lines}, {sources}}}}}", "line").sources == expected
    shapes = shapes_at("stages: {line_counter: {line: [[1, 2], [3, 4]], sources: [gate]}}", "line")
    assert shapes.sources == {"": ["gate"]}


def test_shapes_are_read_with_names_and_units():
    shapes = shapes_at("stages: {a: {stage: zone, units: share, polygon: {b: [[0, 0], [1, 0], [1, 1]]}}}", "polygon")
    assert (shapes.stage, shapes.type, shapes.units, shapes.shapes) == (
        "a",
        "zone",
        "share",
        {"b": [[0, 0], [1, 0], [1, 1]]},
    )
    shapes = shapes_at("stages: {line_counter: {line: [[1, 2], [3, 4]]}}", "line")
    assert (shapes.units, shapes.shapes) == ("pixels", {"": [[1, 2], [3, 4]]})
    assert shapes_at("stages: {draw: }", "blur.zone").units == "share"  # of shapes that are yet to be drawn


@pytest.mark.parametrize("option", ["blur", "pixelate"])
@pytest.mark.parametrize(
    ("hides", "reason"),
    [
        ("[person]", "hides objects; it cannot hide a part of the frame as well"),
        ("all", "hides objects; it cannot hide a part of the frame as well"),
        ("{labels: [person]}", "hides objects; with a zone it would hide only those in it"),
    ],
)
def test_the_reason_for_not_editing_a_hiding_stage_is_given(option, hides, reason):
    assert shapes_at(f"stages: {{draw: {{{option}: {hides}}}}}", f"{option}.zone").fixed == f"{option} {reason}"


@pytest.mark.parametrize("blur", ["all", "[person]", "{labels: [person]}"])
def test_a_stage_that_hides_objects_is_not_edited_as_a_mask(blur):
    shapes = shapes_at(f"stages: {{draw: {{blur: {blur}}}}}", "blur.zone")
    assert "hides objects" in shapes.fixed
    assert shapes_at(f"stages: {{draw: {{blur: {blur}}}}}", "pixelate.zone").fixed == ""


def test_an_option_that_is_not_a_list_of_points_cannot_be_drawn():
    assert "not a list of points" in shapes_at("stages: {zone: {polygon: [[1, a], 3]}}", "polygon").fixed
