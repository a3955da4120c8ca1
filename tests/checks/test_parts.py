from typing import Any

import numpy as np
import pytest

from streamkit import BatchStage, Count, FrameStage, Seconds
from streamkit.config import read_text
from streamkit.errors import ConfigError
from streamkit.graph import build
from streamkit.stage import Collecting, Composite, Part, default_registry, stage
from streamkit.stages.test_pattern import TestPattern

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
            made = PARTS[self.how]
            return made() if callable(made) else made


def graph(parts, below="below: {stage: track, from: it.find}"):
    PARTS["it"] = parts
    text = f"sources: {{a: samples/street.mp4}}\nstages:\n  it: {{stage: whole, how: it}}\n  {below}\n"
    return build(read_text(text, registry=REGISTRY))


def told(parts):
    with pytest.raises(ConfigError) as caught:
        graph(parts)
    return [str(problem).removeprefix("pipeline.yaml:") for problem in caught.value.problems]


def test_parts_stand_in_a_chain():
    options = {"n": np.int64(2), "every": 1, "names": ("a",), "word": "b"}
    made = graph(lambda: (part for part in [Part("find", Find, options), Part("plain", Plain, {"n": 1})]))
    assert list(made.nodes) == ["it.find", "it.plain", "below"]
    assert made.nodes["it.find"].options is options


def fails():
    raise RuntimeError("no parts today")


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (fails, "it: the parts of whole cannot be made: RuntimeError: no parts today"),
        (None, "it: parts() of whole must return a list of Part(name, type, options), got None"),
        ([], "it: parts() of whole must return a list of Part(name, type, options), got []"),
        (
            [("find", 1, {})],
            "it: parts() of whole must return a list of Part(name, type, options), got [('find', 1, {})]",
        ),
        (
            [Part("find", Find, {}), Part("find", Plain, {})],
            "it: two parts of whole are called 'find'; give each a name of its own",
        ),
        (
            [Part("find", Whole, {"how": "it"})],
            "it.find: a part must be one of the kinds BatchStage, StreamStage, FrameStage, Sink, and Whole is none",
        ),
        (
            [Part("find", TestPattern, {})],
            "it.find: a part must be one of the kinds BatchStage, StreamStage, FrameStage, Sink, and TestPattern is",
        ),
        ([Part("find", Find, {"name": []})], "it.find: Find has no option 'name'; did you mean 'names'?"),
        ([Part("find", Find, {"n": "x"})], "it.find: n must be a whole number, got 'x'"),
        ([Part("find", Find, {"n": 0})], "it.find: n must be at least 1, got 0"),
        ([Part("find", Find, {"every": []})], "it.find: every must be a duration such as 10s"),
        ([Part("find", Find, {"word": "bad"})], "it.find: word must be good"),
        ([Part("find", Plain, {"n": -1})], "it.find: LookupError: no such number"),
        ([Part("find", Plain, {"m": 1})], "it.find: Plain.__init__() got an unexpected keyword argument 'm'"),
    ],
)
def test_parts_that_cannot_stand_are_told_once_at_the_composite(parts, text):
    (problem,) = told(parts)
    assert problem.startswith(f"3:7: {text}")


def test_every_part_is_told_at_once():
    assert len(told([Part("find", Find, {"n": 0}), Part("more", Find, {"m": 0})])) == 2
