from typing import Any

import numpy as np
import pytest

from streamkit import BatchStage, Count, FrameStage, Seconds
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, Composite, CompositePart, default_registry, stage
from streamkit.stages.sources.test_pattern import TestPattern

REGISTRY = default_registry()
PARTS: dict[str, Any] = {}


class Plain(FrameStage):
    """A part need not be a dataclass."""

    def __init__(self, n: int = 0) -> None:
        if n < 0:
            raise LookupError("no such number")


with Collecting(REGISTRY):

    @stage("find", reads="pixels", writes="detections")
    class Find(BatchStage):
        """Take options."""

        n: Count = 1
        every: Seconds | None = None
        names: list[str] | None = None
        word: str = ""

        def __post_init__(self):
            if self.word == "bad":
                raise ValueError("word must be good")

    @stage("whole", reads="pixels", writes="detections")
    class Whole(Composite):
        """Stand for what a test says."""

        how: str = ""

        def parts(self):
            parts = PARTS[self.how]
            return parts() if callable(parts) else parts


def graph(parts, below="below: {stage: track, from: it.find}"):
    PARTS["it"] = parts
    text = f"sources: {{a: samples/street.mp4}}\nstages:\n  it: {{stage: whole, how: it}}\n  {below}\n"
    return build(read_text(text, registry=REGISTRY))


def problem_texts(parts):
    with pytest.raises(ConfigError) as caught:
        graph(parts)
    return [str(problem).removeprefix("pipeline.yaml:") for problem in caught.value.problems]


def test_parts_of_a_composite_form_a_chain():
    options = {"n": np.int64(2), "every": 1, "names": ("a",), "word": "b"}
    built_graph = graph(
        lambda: (part for part in [CompositePart("find", Find, options), CompositePart("plain", Plain, {"n": 1})])
    )
    assert list(built_graph.nodes) == ["it.find", "it.plain", "below"]
    assert built_graph.nodes["it.find"].options is options


def fails():
    raise RuntimeError("no parts today")


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (fails, "it: the parts of whole cannot be made: RuntimeError: no parts today"),
        (None, "it: parts() of whole must return a list of CompositePart(name, type, options), got None"),
        ([], "it: parts() of whole must return a list of CompositePart(name, type, options), got []"),
        (
            [("find", 1, {})],
            "it: parts() of whole must return a list of CompositePart(name, type, options), got [('find', 1, {})]",
        ),
        (
            [CompositePart("find", Find, {}), CompositePart("find", Plain, {})],
            "it: two parts of whole are called 'find'; give each a name of its own",
        ),
        (
            [CompositePart("find", Whole, {"how": "it"})],
            "it.find: a part must be one of the kinds BatchStage, StreamStage, FrameStage, Sink, and Whole is none",
        ),
        (
            [CompositePart("find", TestPattern, {})],
            "it.find: a part must be one of the kinds BatchStage, StreamStage, FrameStage, Sink, and TestPattern is",
        ),
        ([CompositePart("find", Find, {"name": []})], "it.find: Find has no option 'name'; did you mean 'names'?"),
        ([CompositePart("find", Find, {"n": "x"})], "it.find: n must be a whole number, got 'x'"),
        ([CompositePart("find", Find, {"n": 0})], "it.find: n must be at least 1, got 0"),
        ([CompositePart("find", Find, {"every": []})], "it.find: every must be a duration such as 10s"),
        ([CompositePart("find", Find, {"word": "bad"})], "it.find: word must be good"),
        ([CompositePart("find", Plain, {"n": -1})], "it.find: LookupError: no such number"),
        ([CompositePart("find", Plain, {"m": 1})], "it.find: Plain.__init__() got an unexpected keyword argument 'm'"),
    ],
)
def test_invalid_parts_are_reported_once_at_the_composite(parts, text):
    (problem,) = problem_texts(parts)
    assert problem.startswith(f"3:7: {text}")


def test_problems_of_all_parts_are_reported_together():
    assert len(problem_texts([CompositePart("find", Find, {"n": 0}), CompositePart("more", Find, {"m": 0})])) == 2
