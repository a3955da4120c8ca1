import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from streamkit.core import yaml_tree
from streamkit.core.errors import ConfigError
from streamkit.core.yaml_tree import YamlNode, load, load_file, scalar, within


def plain(text, **environment):
    node, problems = load(text, "x.yaml", environment)
    assert problems == []
    return node.plain()


def problem_texts(text, **environment):
    _, problems = load(text, "x.yaml", environment)
    return [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # YAML 1.2 core schema: null, true and false in three spellings, and nothing else by another name
        ("~", None),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("", None),
        ("nULL", "nULL"),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("tRUE", "tRUE"),
        ("false", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("N", "N"),
        # numbers
        ("0", 0),
        ("-12", -12),
        ("+7", 7),
        ("007", 7),
        ("0o17", 15),
        ("0xFF", 255),
        ("0b11", "0b11"),
        ("1e-3", 0.001),
        ("1E5", 1e5),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("-2.5e+3", -2500.0),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("+.inf", math.inf),
        # what YAML 1.1 read as something else
        ("1:30", "1:30"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("2026-11-20", "2026-11-20"),
        ("=", "="),
        ("1e", "1e"),
        (".", "."),
        ("-", "-"),
        ("0o8", "0o8"),
        ("0xZZ", "0xZZ"),
        ("1.2.3", "1.2.3"),
        ("10s", "10s"),
        ("inf", "inf"),
        ("nan", "nan"),
    ],
)
def test_scalars_are_typed_by_yaml_1_2(text, value):
    typed = scalar(text)
    assert typed == value
    assert type(typed) is type(value)


def test_nan_is_read():
    assert math.isnan(scalar(".nan"))


def test_quoted_and_str_tagged_values_are_text():
    assert plain("a: '5'\nb: \"true\"\nc: !!str 7\nd: |\n  1\n") == {"a": "5", "b": "true", "c": "7", "d": "1\n"}


@given(st.integers())
def test_every_integer_is_read_back(number):
    assert scalar(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_back(number):
    assert scalar(repr(number)) == number
    assert isinstance(scalar(repr(number)), float)


def test_an_unknown_tag_is_refused():
    assert problem_texts(
        "a: !include other.yaml\nb: !!str 5\nc: !!int 5\nd: !x [1]\ne: !!python/name:os.system ''\n"
    ) == [
        "x.yaml:1:4: the tag !include means nothing here; leave it out",
        "x.yaml:4:4: the tag !x means nothing here; leave it out",
        "x.yaml:5:4: the tag !!python/name:os.system means nothing here; leave it out",
    ]


def test_values_and_keys_have_positions():
    node, _ = load("a: 1\nb:\n  - x\n  - {c: 2}\n", "x.yaml")
    assert node.keys == {"a": (1, 1), "b": (2, 1)}
    inner, path = node.follow(["b", 1, "c", "more"])
    assert (inner.value, inner.line, inner.column, path) == (2, 4, 9, ["b", "1", "c"])
    assert str(node.problem("oh", "b")) == "x.yaml:2:1: oh"
    assert str(inner.problem("oh")) == "x.yaml:4:9: oh"
    assert node.follow(["b", 7])[1] == ["b"]


def test_a_duplicate_key_is_refused():
    assert problem_texts("stages:\n  draw: {}\n  jsonl: {}\n  draw: {a: 1}\n") == [
        "x.yaml:4:3: the key 'draw' is here twice, first in line 2"
    ]


@pytest.mark.parametrize("text", ["? [a, b]\n: 1\n", "{}: 1", "'': 1"])
def test_keys_must_be_scalars(text):
    assert problem_texts(text) == [problem_texts(text)[0]]
    assert problem_texts(text)[0].endswith("a key must be a word")


def test_keys_stay_text_whatever_they_look_like():
    assert plain("{on: 1, 5: 2, null: 3}") == {"on": 1, "5": 2, "null": 3}


def test_anchors_and_aliases_are_resolved():
    assert plain("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}
    assert problem_texts("a: &x [*x]\n") == ["x.yaml:1:8: an alias cannot stand inside what it names"]


def test_a_merge_key_is_refused_with_the_fix():
    (text,) = problem_texts("a: &x {b: 1}\nc: {<<: *x, d: 2}\n")
    assert text.startswith("x.yaml:2:5: YAML's merge key << is not read here; write the options out")


def test_a_wrong_indentation_is_reported_with_an_example():
    with pytest.raises(ConfigError) as caught:
        load("stages:\n  detect:\n    model: demo\n   min_score: 0.4\n", "x.yaml")
    first, *example = str(caught.value).splitlines()
    assert first.startswith("x.yaml:4:4: not valid YAML: ")
    assert f"this line is indented by 3 spaces, {MISFIT}" in first
    assert example == [
        "    stages:",
        "      detect:",
        "        model: demo",
        "        min_score: 0.4",
        "      draw: {}",
    ]


def test_an_empty_file_is_an_empty_mapping():
    assert plain("") == {}
    assert plain("# nothing\n") == {}


MISFIT = "which fits no line above it; the keys of a mapping begin in the same column"


@pytest.mark.parametrize(
    ("text", "start", "hint"),
    [
        ("a: [1, 2\n", "x.yaml:2:1: not valid YAML: ", ""),
        ("a: 1\n b: 2\n", "x.yaml:2:3: not valid YAML: ", f"is indented by 1 space, {MISFIT}"),
        ("a:\n  b: 1\n c: 2\n", "x.yaml:3:2: not valid YAML: ", f"is indented by 1 space, {MISFIT}"),
        ("s:\n  draw\n  b: {}\n", "x.yaml:3:4: not valid YAML: ", "; the line above lacks its colon: draw:"),
        ("s:\n  draw\n\n  # c\n  b: {}\n", "x.yaml:5:3: not valid YAML: ", "; the line above lacks its colon: draw:"),
        ("a:\n\t- b\n", "x.yaml:2:1: not valid YAML: ", "; indent with spaces, not tabs"),
        ("a: @b\n", "x.yaml:1:4: not valid YAML: ", ""),
        ("a: *nothing\n", "x.yaml:1:4: not valid YAML: ", ""),
        ("v: {path: {source}.mp4, x: 1}\n", "x.yaml:1:19: not valid YAML: ", "put quotes around a value with braces"),
        ("v: {path: out/{source}.mp4}\n", "x.yaml:1:", "put quotes around a value with braces"),
        ("a: \x01\n", "x.yaml:1:1: not valid YAML: ", ""),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1: not valid YAML: expected a single document in the stream, but found", ""),
        ('a: 1\nb: "x\nc: 1\n', "x.yaml:4:1: not valid YAML: found unexpected end", "quoted scalar from line 2 on"),
    ],
)
def test_invalid_yaml_is_reported_with_its_position(text, start, hint):
    with pytest.raises(ConfigError) as caught:
        load(text, "x.yaml")
    (problem,) = map(str, caught.value.problems)
    assert problem.startswith(start)
    assert hint in problem
    assert "\n" not in problem


def test_the_environment_is_read_before_scalars_are_typed():
    text = "a: ${N}\nb: rtsp://u:${PW}@h/${N:-1}\nc: ${GONE:-7}\nd: '${N}'\ne: ${EMPTY:-x}\nf: ${GONE:-}\ng: $N ${}\n"
    assert plain(text, N="5", PW="secret", EMPTY="") == {
        "a": 5,
        "b": "rtsp://u:secret@h/5",
        "c": 7,
        "d": "5",
        "e": "x",
        "f": None,
        "g": "$N ${}",
    }


def test_an_environment_variable_cannot_bring_structure():
    assert plain("a: ${X}", X="[1, 2]") == {"a": "[1, 2]"}
    assert plain("a: ${X}", X="b: c") == {"a": "b: c"}


def test_an_unset_variable_is_reported():
    assert problem_texts("a:\n  b: x${NO_SUCH}\n") == [
        "x.yaml:2:6: the environment variable NO_SUCH is not set; set it, or write ${NO_SUCH:-a default}"
    ]


def test_variables_can_be_read_from_files(tmp_path):
    (tmp_path / "pipeline.yaml").write_text("a: ä\n", encoding="utf-8")
    assert load_file(tmp_path / "pipeline.yaml")[0].plain() == {"a": "ä"}
    (tmp_path / "latin").write_bytes(b"a: \xe4\n")
    for name, text in (
        ("pipelin.yaml", "there is no such file; did you mean 'pipeline.yaml'?"),
        ("no/x.yaml", "no/x.yaml: there is no such file; the folder"),
        ("", "is a folder; name a YAML file in it"),
        ("latin", "is not a text file: a pipeline is a YAML file in UTF-8"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_file(tmp_path / name)
        assert text in str(caught.value)


def test_plain_converts_nested_values():
    node = YamlNode(
        {"a": YamlNode([YamlNode(1, "", 1, 1), YamlNode({"b": YamlNode(None, "", 1, 1)}, "", 1, 1)], "", 1, 1)},
        "",
        1,
        1,
    )
    assert node.plain() == {"a": [1, {"b": None}]}


def test_a_byte_order_mark_and_crlf_are_accepted(tmp_path):
    path = Path(tmp_path / "w.yaml")
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert load_file(path)[0].plain() == {"a": 1, "b": 2}


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000])
def test_an_overlong_number_is_reported_with_its_position(number):
    assert problem_texts(f"a: 1\nb: [{number}]\n") == [
        f"x.yaml:2:5: a number has at most 1000 digits, got {len(number)}; put quotes around text"
    ]


def refused(text):
    with pytest.raises(ConfigError) as caught:
        load(text, "x.yaml", {})
    return [str(problem) for problem in caught.value.problems]


TOO_DEEP = "lists and mappings may stand at most 100 deep in each other"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[" * 101 + "]" * 101, "1:101"),
        ("a: 1\nb: " + "{a: " * 100 + "1" + "}" * 100, "2:400"),
        ("[" * 1_000_000, "1:101"),
        ("- " * 200_000 + "1", "1:201"),
    ],
)
def test_too_deep_nesting_is_reported_with_its_position(text, place):
    assert refused(text) == [f"x.yaml:{place}: {TOO_DEEP}"]


def test_nesting_up_to_the_limit_is_read():
    assert plain("[" * 99 + "1" + "]" * 99)


def test_aliases_count_toward_the_nesting_limit():
    lines = ["a0: &a0 [1]", f"a1: &a1 {'[' * 50}*a0{']' * 50}", f"a2: {'[' * 47}*a1{']' * 47}"]
    assert plain("\n".join(lines))
    lines[2] = f"a2: {'[' * 48}*a1{']' * 48}"
    assert refused("\n".join(lines)) == [f"x.yaml:3:53: {TOO_DEEP}"]


def test_the_depth_of_an_anchor_is_relative():
    lines = [f"deep: {'[' * 90}1{']' * 90}", "flat: &flat [1]", f"a: {'[' * 90}*flat{']' * 90}"]
    assert plain("\n".join(lines))
    lines = [f"a: [&a {'[' * 60}1{']' * 60}, &b [2]]", f"b: {'[' * 60}*b{']' * 60}", f"c: {'[' * 60}*a{']' * 60}"]
    assert refused("\n".join(lines)) == [f"x.yaml:3:64: {TOO_DEEP}"]


def test_nested_aliases_are_bounded_with_position_and_fix():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    (text,) = refused("\n".join(lines))
    assert text == (
        "x.yaml:5:10: the aliases of this file may stand for at most 10,000 values together, and *a3 exceeds that; "
        "aliases of aliases multiply: write the values out where they are needed"
    )


def test_the_limit_counts_each_value_of_an_alias():
    text = "a: &a {b: [1, 2], c: 3}\nd: &d [*a]\ne: *d\n"
    assert load(text, "x.yaml", {}, max_aliased=11)[0].plain()["e"] == [{"b": [1, 2], "c": 3}]  # 5 of *a, 6 of *d
    with pytest.raises(ConfigError, match=r"^x\.yaml:5:4: the aliases of this file may stand for at most 11 values"):
        load(text + "f: &f 1\ng: *f\n", "x.yaml", {}, max_aliased=11)
    with pytest.raises(ConfigError, match=r"^x\.yaml:3:4: the aliases of this file"):
        load(text, "x.yaml", {}, max_aliased=10)


def test_a_longer_file_may_have_more_aliases():
    """One of two thousand cameras with common options has them; one of 2 MB has no more than one of 5 kB."""
    cameras = "".join(f"cam{n}: {{uri: 'rtsp://10.0.0.7/{n}', reconnect: *r}}\n" for n in range(2000))
    assert len(plain("r: &r {max_backoff: 3s, attempts: 5, give_up: 1h}\n" + cameras)) == 2001
    comment = f"# {'x' * 2_000_000}\n"
    values = f"a: &a [{', '.join(['x'] * 999)}]\nb: [{', '.join(['*a'] * 101)}]\n"
    assert "at most 100,000 values" in refused(comment + values)[0]
    assert plain(comment + values.replace(", *a", "", 1))


def test_an_alias_is_a_separate_value_with_its_position():
    node, problems = load("a: &a {b: [1]}\nc: *a\n", "x.yaml", {})
    assert problems == []
    node.value["c"].value["b"].value.append(node)
    node.value["c"].keys["new"] = (1, 1)
    assert node.value["a"].plain() == {"b": [1]}
    assert node.value["a"].keys == {"b": (1, 8)}
    assert (node.value["c"].line, node.value["c"].column) == (1, 4)


def test_duplicate_anchors_and_aliases_as_keys_are_refused():
    assert "found duplicate anchor 'x'" in refused("a: &x 1\nb: &x 2\n")[0]
    assert problem_texts("a: &x b\n*x : 1\n") == ["x.yaml:2:1: a key must be a word"]
    assert plain("&k a: 1\nb: *k\n") == {"a": 1, "b": "a"}


@pytest.mark.parametrize(
    "text",
    [
        "k: abc  def",
        'k: "abc  def"',
        "x: 1\nk: |\n  abc def\n  ghi\n",
        "x: 1\ny: 2\nk: >\n  abc\n  def\n",
        "x: 1\nk: 'abc\n  def'",
    ],
)
def test_each_character_of_a_text_has_a_position(text):
    node = load(text, "x.yaml", {})[0].value["k"]
    lines = text.split("\n")
    for offset, character in enumerate(node.value.rstrip("\n")):
        line, column = within(node, offset)
        if not character.isspace():
            assert lines[line - 1].index(character) == column - 1
        elif lines[line - 1][column - 1 :]:  # else it is the line's end
            assert (line, column) == (within(node, offset - 1)[0], within(node, offset - 1)[1] + 1)
    last = within(node, len(node.value.rstrip()) - 1)
    assert within(node, len(node.value)) == (last[0], last[1] + 1)


def test_an_escaped_character_has_the_position_of_its_text():
    node = load('x: 1\nk: "a\\u0042"', "x.yaml", {})[0].value["k"]
    assert node.value == "aB"
    assert within(node, 0) == (2, 5)
    assert within(node, 1) == (2, 4)


def test_a_message_hides_the_secrets_of_addresses():
    node = YamlNode("rtsp://me:secret@cam/1", "x.yaml", 1, 1)
    assert node.problem(f"got {node.value}").text == "got rtsp://me:***@cam/1"


def test_a_long_value_in_a_message_is_shortened():
    node = YamlNode("x" * 10_000, "x.yaml", 1, 1)
    text = str(node.problem(f"must be a word, got {node.value!r}; write one"))
    assert len(text) < 1000
    assert text.startswith("x.yaml:1:1: must be a word, got 'xxx")
    assert text.endswith("xxx'; write one")
    assert node.problem("x" * 1000).text == "x" * 1000


@pytest.mark.parametrize(
    "text",
    [
        *(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parents[2].glob("examples/**/*.yaml"))),
        "\ufeffa: 1\r\nb: 'it''s'\r\nc: \"\\u00e4 \\\n  x\"\r\n",
        "a: |\n  x\n   y\n\nb: >-\n  folded\n  text\nc: ä ö  # a comment\nd: [ä, 'ö', {e: ~}]\n",
        "a: &x !!str 5\nb: *x\nc: ! 7\nd: !!map {}\ne: plain on\n  two lines\n",
    ],
)
def test_both_parsers_give_the_same_tree(text):
    text = text.removeprefix("\ufeff")
    fast, slow = (yaml_tree._TreeBuilder("x.yaml", {}, text) for _ in range(2))
    assert fast.build(yaml_tree._FastParser(text)) == slow.build(yaml.SafeLoader(text))
    assert fast.problems == slow.problems


def test_the_fast_parser_is_available():
    assert yaml_tree._FastParser is yaml.CSafeLoader


def test_texts_of_plain_values_are_expanded_and_typed_like_yaml():
    environment = {"HOST": "10.0.0.7", "PORT": "554", "EMPTY": ""}
    values = {
        "uri": "rtsp://${HOST}:${PORT}/a",
        "port": "${PORT}",
        "name": "${NONE:-gate}",
        "empty": "${EMPTY:-full}",
        "list": ["${HOST}", 3],
        "points": (1, 2),
        "path": Path("a/b"),
        "other": None,
        "plain": "554",
    }
    assert yaml_tree.expand(values, "x", environment) == {
        "uri": "rtsp://10.0.0.7:554/a",
        "port": 554,
        "name": "gate",
        "empty": "full",
        "list": ["10.0.0.7", 3],
        "points": [1, 2],
        "path": "a/b",
        "other": None,
        "plain": "554",
    }


def test_every_unset_variable_is_reported():
    with pytest.raises(ConfigError) as raised:
        yaml_tree.expand({"a": "${ONE}", "b": ["${TWO}"]}, "pipeline", {})
    assert [problem.text.split(";")[0] for problem in raised.value.problems] == [
        "the environment variable ONE is not set",
        "the environment variable TWO is not set",
    ]
