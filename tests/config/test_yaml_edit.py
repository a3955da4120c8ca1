"""Edits of values in a YAML's text: only what is meant changes."""

import textwrap
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from streamkit.config.yaml_edit import REMOVED, EditError, diff, digest, replaced

TEXT = """\
# the shop
sources:
  street: {uri: samples/street.mp4, pace: realtime}   # a file
stages:
  till:            # who waits
    stage: zone
    units:   share
    polygon:
      # at the till
      till: [[0.1, 0.1], [0.5, 0.1], [0.5, 0.5]]   # three corners
      door:   # in a block
        - [0.1, 0.2]  # the first
        - [0.3, 0.2]
        - [0.3, 0.6]
    more_than: 3

  line: {stage: line_counter, line: [[320, 60], [320, 360]]}
  draw:
  jsonl:
    path: "out/{source}.jsonl"   # quoted
"""
TILL = [[0.1, 0.1], [0.5, 0.1], [0.5, 0.5]]
DOOR = [[0.1, 0.2], [0.3, 0.2], [0.3, 0.6]]


def changed(path: str, value: Any, text: str = TEXT) -> list[str]:
    """The lines that an edit removes and adds, without the places of the diff."""
    edited = replaced(text, path.split("."), value)
    return [line for line in diff(text, edited, "p").splitlines()[2:] if line[:1] in "+-"]


def test_a_moved_point_changes_only_its_line():
    assert changed("stages.till.polygon", {"till": [[0.1, 0.1], [0.55, 0.1], [0.5, 0.5]], "door": DOOR}) == [
        "-      till: [[0.1, 0.1], [0.5, 0.1], [0.5, 0.5]]   # three corners",
        "+      till: [[0.1, 0.1], [0.55, 0.1], [0.5, 0.5]]   # three corners",
    ]


def test_inserting_or_deleting_a_point_in_a_block_changes_a_single_line():
    more = [DOOR[0], [0.2, 0.2], *DOOR[1:]]
    assert changed("stages.till.polygon.door", more) == ["+        - [0.2, 0.2]"]
    assert changed("stages.till.polygon.door", [[0, 0], *DOOR]) == ["+        - [0, 0]"]
    assert changed("stages.till.polygon.door", [*DOOR, [0.1, 0.7]]) == ["+        - [0.1, 0.7]"]
    assert changed("stages.till.polygon.door", DOOR[1:]) == ["-        - [0.1, 0.2]  # the first"]


def test_points_of_a_flow_list_stay_in_their_line():
    assert changed("stages.line.line", [[320, 60], [300, 100], [320, 360]]) == [
        "-  line: {stage: line_counter, line: [[320, 60], [320, 360]]}",
        "+  line: {stage: line_counter, line: [[320, 60], [300, 100], [320, 360]]}",
    ]
    assert replaced("a: [[1, 2],  [3, 4],\n  [5, 6]] # x", ["a"], [[1, 2], [5, 6]]) == "a: [[1, 2],  [5, 6]] # x"
    assert replaced("a: [[1, 2], [3, 4]]", ["a"], [[0, 0], [1, 2], [3, 4]]) == "a: [[0, 0], [1, 2], [3, 4]]"


def test_shapes_are_added_renamed_and_removed():
    both = {"till": TILL, "door": DOOR}
    assert changed("stages.till.polygon", {**both, "new one": TILL}) == [
        '+      "new one": [[0.1, 0.1], [0.5, 0.1], [0.5, 0.5]]'
    ]
    assert changed("stages.till.polygon", {"till": TILL, "gate": DOOR}) == [
        "-      door:   # in a block",
        "+      gate:   # in a block",
    ]
    assert len(changed("stages.till.polygon", {"till": TILL})) == 4
    assert changed("stages.till.polygon", {"door": DOOR}) == [
        "-      till: [[0.1, 0.1], [0.5, 0.1], [0.5, 0.5]]   # three corners"
    ]


def test_an_option_is_added_to_empty_and_flow_style_stages():
    assert changed("stages.draw.blur.zone", {"plate": TILL}) == [
        "+    blur:",
        "+      zone:",
        "+        plate: [[0.1, 0.1], [0.5, 0.1], [0.5, 0.5]]",
    ]
    assert changed("stages.line.units", "share")[1].endswith("[320, 360]], units: share}")
    assert changed("stages.till.more_than", 4) == ["-    more_than: 3", "+    more_than: 4"]


def test_an_option_is_removed():
    assert changed("stages.till.more_than", REMOVED) == ["-    more_than: 3"]
    assert changed("stages.line.stage", REMOVED)[1] == "+  line: {line: [[320, 60], [320, 360]]}"
    assert changed("stages.jsonl.path", REMOVED) == [
        "-  jsonl:",
        '-    path: "out/{source}.jsonl"   # quoted',
        "+  jsonl: {}   # quoted",
    ]
    assert changed("stages.till.nothing.there", REMOVED) == []


@pytest.mark.parametrize("before", ["", "\n", "\n\n", "# first\n", "\n# first\n"])
def test_lines_before_a_removed_option_stay(before):
    assert replaced(f"{before}a: 1\nb: 2\n", ["a"], REMOVED) == f"{before}b: 2\n"


@pytest.mark.parametrize("text", ["Tür: außen", "入口 #1", "🚪: 1"])
def test_text_that_is_not_ascii_stays_readable(text):
    changed_text = replaced("a: b\n", ["a"], text)
    assert text in changed_text
    assert yaml.safe_load(changed_text) == {"a": text}


def test_a_shape_without_a_name_becomes_several_with_names_and_back():
    text = "stages:\n  zone:\n    polygon: [[1, 2], [3, 4], [5, 9]]  # all\n    margin: 3\n"
    edited = replaced(
        text, ["stages", "zone", "polygon"], {"a": [[1, 2], [3, 4], [5, 9]], "b": [[1, 2], [3, 4], [5, 8]]}
    )
    assert edited == textwrap.dedent("""\
        stages:
          zone:
            polygon:
              a: [[1, 2], [3, 4], [5, 9]]
              b: [[1, 2], [3, 4], [5, 8]]  # all
            margin: 3
        """)
    assert "margin: 3\n" in replaced(edited, ["stages", "zone", "polygon"], [[1, 2], [3, 4], [5, 9]])


def test_references_to_environment_variables_stay():
    text = 'sources: {gate: "rtsp://u:${SECRET}@host/1"}\nstages: {zone: {polygon: [[0, 0], [4, 0], [4, 4]]}}\n'
    assert '"rtsp://u:${SECRET}@host/1"' in replaced(text, ["stages", "zone", "polygon"], [[0, 0], [4, 0], [4, 5]])


def test_line_endings_and_a_missing_final_one_stay():
    text = "stages:\r\n  zone:\r\n    polygon:\r\n      a: [[0, 0], [4, 0], [4, 4]]"
    edited = replaced(text, ["stages", "zone", "polygon"], {"a": TILL, "b": TILL})
    assert edited.count("\r\n") == edited.count("\n") == 4
    assert not edited.endswith("\n")
    edited = replaced("a:\r\n  b: 1  # c\r\nd: 2\r\n", ["a", "e"], 3)
    assert edited == "a:\r\n  b: 1  # c\r\n  e: 3\r\nd: 2\r\n"


ANCHORS = """\
area: &area [[0, 0], [4, 0], [4, 4]]
own: &own [[0, 0], [4, 0], [4, 4]]
stages:
  zone: {polygon: *area}
  other: &other {polygon: {a: [[0, 0], [4, 0], [4, 4]]}}
  third: *other
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [("area", 1), ("stages.zone.polygon", 4), ("stages.other.polygon.a", 5), ("stages.third.polygon.a", 6)],
)
def test_a_value_used_in_several_places_is_refused(path, line):
    with pytest.raises(EditError, match=f"line {line}: .* too; edit the YAML as text"):
        replaced(ANCHORS, path.split("."), [[1, 1], [4, 0], [4, 4]])
    with pytest.raises(EditError, match="&other"):
        replaced(ANCHORS, ["stages"], {})


def test_an_unused_anchor_is_accepted():
    assert "own: &own [[1, 1], [4, 0], [4, 4]]" in replaced(ANCHORS, ["own"], [[1, 1], [4, 0], [4, 4]])


def test_a_value_that_is_not_a_mapping_is_refused():
    with pytest.raises(EditError, match="is no mapping"):
        replaced(TEXT, ["stages", "till", "units", "x"], 1)


def test_an_edit_has_a_diff_and_a_digest():
    assert diff("a\nb\n", "a\nc\n", "p.yaml") == "--- p.yaml\n+++ p.yaml\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    assert diff("a", "a", "p") == ""
    assert digest("a") != digest("b")
    assert len(digest("\ud800")) == 64


# --------------------------------------------------------------------------------------------------- any YAML at all

POINT = st.tuples(st.integers(0, 9), st.floats(0, 1, width=16)).map(list)
SHAPES = st.dictionaries(
    st.sampled_from(["a", "b c", "no", "1", "ä:"]), st.lists(POINT, min_size=2, max_size=4), max_size=4
)


@given(before=SHAPES, after=SHAPES, flow=st.sampled_from([True, False, None]), indent=st.sampled_from([2, 4]))
def test_any_edit_of_shapes_leaves_the_rest_of_the_file(before, after, flow, indent):
    inner = yaml.safe_dump(
        {"polygon": before}, default_flow_style=flow, indent=indent, allow_unicode=True, sort_keys=False
    )
    text = (
        f"# head\nstages:\n  zone: # z\n{textwrap.indent(inner, '    ')}    # inside\n    margin: 3 # m\n  draw: {{}}\n"
    )
    if flow is True:
        text = text.replace(textwrap.indent(inner, "    "), f"    polygon: {inner.strip()[10:-1]}\n")
    edited = replaced(text, ["stages", "zone", "polygon"], after)
    assert yaml.safe_load(edited) == {"stages": {"zone": {"polygon": after, "margin": 3}, "draw": {}}}
    assert edited.startswith("# head\nstages:\n  zone: # z\n    polygon:")
    assert edited.endswith("    # inside\n    margin: 3 # m\n  draw: {}\n")


@pytest.mark.parametrize("blank_lines", [0, 1, 3])
def test_blank_lines_within_a_text_are_preserved(blank_lines):
    text = "a: |+\n  first\n" + "\n" * blank_lines + "b: {c: 1}\n"
    assert replaced(text, ["a"], "second") == "a: second\n" + "\n" * blank_lines + "b: {c: 1}\n"


def test_a_long_list_is_written_below_its_key():
    fits = "a" * 101
    longer = "a" * 102
    assert changed("stages.till.labels", [fits, "b"]) == [f"+    labels: [{fits}, b]"]
    assert changed("stages.till.labels", [longer, "b"]) == ["+    labels:", f"+      - {longer}", "+      - b"]
