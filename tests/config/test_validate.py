import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import AfterValidator

from streamkit import Count, FrameStage, Point, Score, Seconds
from streamkit.config.validate import OptionValidator
from streamkit.core.stage import Collecting, Registry, stage
from streamkit.core.yaml_tree import load, tree
from streamkit.models.card_option import Model


@dataclass
class Zone:
    """A mapping within an option."""

    points: list[Point]
    share: Score = 0.5

    def __post_init__(self):
        if self.share == 0:
            raise RuntimeError("no share")


def even(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


with Collecting(Registry()):

    @stage("probe")
    class Probe(FrameStage):
        """Take options of every kind."""

        line: Annotated[tuple[Point, Point], "two points."]
        n: Count = 1
        share: Score = 0.5
        each: Score | dict[str, Score] | None = None
        wait: Seconds = 1.0
        word: Literal["left", "right"] = "left"
        names: list[str] | None = None
        pairs: tuple[tuple[str, int], ...] = ()
        on: bool = False
        zone: Zone | None = None
        anything: Any = None
        text: str = ""
        file: Path = Path()

        def __post_init__(self):
            if self.text == "bad":
                raise ValueError("text must be good")
            if self.text == "worse":
                raise KeyError("no such text")

    @stage("paired")
    class Paired(FrameStage):
        """Take an even number, whose own check says what a number is."""

        first: Annotated[int, AfterValidator(even)] | Literal["auto"] = 2
        last: Literal["auto"] | Annotated[int, AfterValidator(even)] = 2

    @stage("carded")
    class Carded(FrameStage):
        """Take a card."""

        model: Model = None


def check(text, kind=Probe, folder=Path()):
    node, _ = load(text, "x.yaml")
    problems = []
    values = OptionValidator(folder, problems)(kind, node, "it")
    return values, [str(problem).removeprefix("x.yaml:") for problem in problems]


LINE = "line: [[0, 1], [2.5, 3]]"


def test_values_are_converted_to_the_types_of_the_fields():
    values, problems = check(
        f"{{{LINE}, n: 3, share: 1, each: {{car: 0.5}}, wait: 200ms, names: [a], pairs: [[a, 1]], on: true,"
        " zone: {points: [[1, 2]]}, anything: {a: [1]}, text: '5'}"
    )
    assert problems == []
    assert values == {
        "line": ((0, 1), (2.5, 3)),
        "n": 3,
        "share": 1.0,
        "each": {"car": 0.5},
        "wait": 0.2,
        "names": ["a"],
        "pairs": (("a", 1),),
        "on": True,
        "zone": Zone([(1, 2)]),
        "anything": {"a": [1]},
        "text": "5",
    }


def test_only_given_options_are_returned():
    assert check(f"{{{LINE}}}")[0] == {"line": ((0, 1), (2.5, 3))}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{n: 2}", "1:1: it.line is required: two points."),
        ("{line: [[0, 1], [2]]}", "1:17: it.line.1.1 is required"),
        ("{line: [[0, 1]]}", "it.line.1 is required"),
        ("{line: [[0, 1], [2, x]]}", "1:21: it.line.1.1 must be a number, got 'x'"),
        ("{line: 5}", "1:8: it.line must be a list, got 5"),
        (f"{{{LINE}, n: 2.5}}", "it.n must be a whole number, got 2.5"),
        (f"{{{LINE}, n: '2'}}", "it.n must be a whole number, got '2'"),
        (f"{{{LINE}, n: 0}}", "it.n must be at least 1, got 0"),
        (f"{{{LINE}, share: 1.01}}", "it.share must be 0 to 1, got 1.01"),
        (f"{{{LINE}, share: '0.5'}}", "it.share must be a number, got '0.5'"),
        (f"{{{LINE}, share: .nan}}", "it.share must be"),
        (
            f"{{{LINE}, wait: 10 parsecs}}",
            "it.wait must be a duration such as 10s, 200ms or 5min (a bare number is seconds), got '10 parsecs'",
        ),
        (f"{{{LINE}, word: lefft}}", "it.word must be left or right, got 'lefft'; did you mean 'left'?"),
        (f"{{{LINE}, word: 7}}", "it.word must be left or right, got 7"),
        ("{line: [0, 1, 2, 3]}", "it.line must be a list of 2, got [0, 1, 2, 3]"),
        (f"{{{LINE}, names: a}}", "it.names must be a list, got 'a'"),
        (f"{{{LINE}, names: [a, 5]}}", "it.names.1 must be text, got 5"),
        (f"{{{LINE}, on: yes}}", "it.on must be true or false, got 'yes'"),
        (f"{{{LINE}, on: 1}}", "it.on must be true or false, got 1"),
        (f"{{{LINE}, each: high}}", "it.each must be a number or a mapping, got 'high'"),
        (f"{{{LINE}, each: {{car: 2}}}}", "it.each"),
        (f"{{{LINE}, zone: {{}}}}", "it.zone.points is required"),
        (f"{{{LINE}, zone: {{points: [[1, 2]], share: 2}}}}", "it.zone.share must be 0 to 1, got 2"),
        (f"{{{LINE}, zone: 5}}", "it.zone must be a mapping, got 5"),
        (f"{{{LINE}, text: ~}}", "it.text must be text, got None"),
        (f"{{{LINE}, text: bad}}", "1:1: it: text must be good"),
        (f"{{{LINE}, text: worse}}", "1:1: it: KeyError: 'no such text'"),
        (
            f"{{{LINE}, zone: {{points: [], shar: 1}}}}",
            "1:47: it.zone has no option 'shar'; did you mean 'share'?",
        ),
        (f"{{{LINE}, zone: {{points: [], share: 0}}}}", "it: its options cannot be read: RuntimeError: no share"),
        (f"{{{LINE}, points: []}}", "probe has no option 'points'; it stands within zone, as in zone: {points: ...}"),
        (f"{{{LINE}, txt: a}}", "probe has no option 'txt'; did you mean 'text'?"),
        (f"{{{LINE}, zebra: a}}", "probe has no option 'zebra'"),
    ],
)
def test_an_invalid_value_is_reported_once_with_its_position(text, message):
    values, problems = check(text)
    assert values is None
    assert len(problems) == 1, problems
    assert message in problems[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{first: 3}", "1:9: it.first 3 is odd or auto"),  # its own words have the number
        ("{last: 3}", "1:8: it.last must be auto or 3 is odd, got 3"),
        ("{first: x}", "1:9: it.first must be a whole number or auto, got 'x'"),
    ],
)
def test_a_message_does_not_repeat_a_number(text, problem):
    assert check(text, Paired)[1] == [problem]


def test_all_problems_are_reported_together():
    values, problems = check("{n: 0, share: 2, onn: true, names: [1, 2]}")
    assert values is None
    assert len(problems) == 6


def check_values(values, kind=Probe):
    problems = []
    return OptionValidator(Path(), problems)(kind, tree(values, "x"), "it"), [problem.text for problem in problems]


def test_file_names_that_are_not_utf_8_keep_their_bytes():
    name = os.fsdecode(b"caf\xe9.mp4")
    values, problems = check_values({"line": [[0, 1], [2, 3]], "text": name, "file": name, "share": 0.25})
    assert problems == []
    assert values == {"line": ((0, 1), (2, 3)), "text": name, "file": Path(name), "share": 0.25}


def test_options_beside_a_non_utf_8_file_name_are_checked():
    values, problems = check_values({"line": [[0, 1], [2, 3]], "text": os.fsdecode(b"caf\xe9.mp4"), "share": 2})
    assert values is None
    assert problems == ["it.share must be 0 to 1, got 2"]


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({"anything": functools.reduce(lambda inner, _: [inner], range(300), 1)}, "recursion limit exceeded"),
        ({"text": "a\ud800"}, "Input should be a valid string"),
    ],
    ids=["nested too deep", "half of a surrogate pair"],
)
def test_values_without_a_json_form_are_a_problem(option, reason):
    values, (problem,) = check_values({"line": [[0, 1], [2, 3]], **option})
    assert values is None
    assert problem.startswith("it: its options cannot be read: ")
    assert reason in problem


def test_a_card_is_loaded(tmp_path):
    root = Path(__file__).resolve().parents[2]
    values, problems = check("{model: demo}", Carded)
    assert problems == []
    assert values["model"].labels == ("car", "person", "bike")
    assert check("{model: demo}", Carded, root)[0]["model"].file == root / "models" / "demo.onnx"
    assert "there is no model card nothing.yaml" in check("{model: nothing}", Carded, tmp_path)[1][0]
    assert "must be the name of a model card, or the path of an .onnx file, got 5" in check("{model: 5}", Carded)[1][0]


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (np.ndarray | None, "numpy.ndarray | None"),
        (Callable[[int], int], "collections.abc.Callable[[int], int]"),
        (list[Registry], "list[streamkit.core.stage.Registry]"),
    ],
)
def test_a_type_without_a_yaml_form_is_refused_with_the_supported_ones(kind, shown):
    with Collecting(Registry()):
        kind_of_stage = stage("odd")(
            type("Odd", (FrameStage,), {"__annotations__": {"n": int, "a": kind}, "n": 1, "a": None})
        )
    values, (problem,) = check("{n: 2}", kind_of_stage)
    assert values is None
    assert problem.startswith(
        f"1:1: it: the option a has a type that a YAML cannot give: {shown}; take int, float, str,"
    )
