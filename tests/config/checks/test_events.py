import pytest

from streamkit import FrameStage
from streamkit.config.checks.events import strange
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.stage import Collecting, default_registry, stage


@pytest.fixture(scope="module")
def nodes():
    registry = default_registry()
    with Collecting(registry):

        @stage("line", writes="events", emits=("crossed", "returned"))
        class Line(FrameStage):
            """Says which kinds it emits."""

        @stage("crowd", writes="events")
        class Crowd(FrameStage):
            """Does not say which kinds it emits."""

    text = """
sources: {a: "test://"}
stages:
  line: {}
  line_two: {stage: line}
  crowd: {}
  draw: {}
  beside: {stage: crowd, from: decode}
  end: {stage: jsonl, path: x.jsonl, from: draw}
"""
    return build(read_text(text, registry=registry)).nodes


@pytest.mark.parametrize(
    ("when", "said"),
    [
        (None, []),
        ("line.crossed", []),
        ("line", []),
        (["line.crossed", "line_two.returned", "crowd.anything", "crowd"], []),
        ("line.crosed", ["line writes no event 'line.crosed'; did you mean 'line.crossed'?"]),
        ("lines.crossed", ["no stage writes the event 'lines.crossed'; did you mean 'line.crossed'?"]),
        (["draw.drawn", "line_two.x"], ["draw writes no events, so there is no 'draw.drawn'",
                                        "line_two writes no event 'line_two.x'; known: line_two.crossed, line_two."]),
        ("beside.crowded", ["end does not see the events of beside; write from: beside, or put it behind beside"]),
    ],
)  # fmt: skip
def test_names_of_events(nodes, when, said):
    found = list(strange(when, nodes["end"], nodes))
    assert len(found) == len(said)
    assert all(text.startswith(want.partition(";")[0]) for text, want in zip(found, said, strict=True)), found
    assert all(want in text for text, want in zip(found, said, strict=True) if "did you mean" in want), found
