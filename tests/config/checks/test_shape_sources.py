"""Warnings of lines and areas for sources that do not exist."""

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError

TEXT = """
sources: {{gate: "test://", yard: "test://"}}
stages:
  detect: {{model: demo}}
  track: {{}}
  line_counter: {{line: {{a: [[1, 2], [3, 4]]}}, sources: {sources}}}
"""


def warned(sources):
    return [
        (warning.column, warning.text) for warning in build(read_text(TEXT.format(sources=sources))).config.warnings
    ]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ("[gate, yard]", []),
        ("{a: [gate]}", []),
        ("[gate, yart]", [(63, "line_counter.sources: there is no source 'yart'; did you mean 'yard'?")]),
        ("{a: [lane]}", [(61, "line_counter.sources.a: there is no source 'lane'; known: gate, yard")]),
    ],
)
def test_each_unknown_source_gives_a_warning_with_its_position(sources, expected):
    assert warned(sources) == expected


@pytest.mark.parametrize(
    ("planes", "text"),
    [
        ("{gate: PLANE, yart: PLANE}", "identify.planes.yart: there is no source 'yart'; did you mean 'yard'?"),
        ("{lane: PLANE}", "identify.planes.lane: there is no source 'lane'; known: gate, yard"),
    ],
)
def test_an_option_for_an_unknown_source_is_refused(planes, text):
    four = "[[0, 0], [9, 0], [9, 9], [0, 9]]"
    stages = (
        "sources: {gate: 'test://', yard: 'test://'}\nstages:\n  detect: {model: demo}\n  track: {}\n"
        "  embed: {model: demo-embed}\n  identify: {planes: "
        + planes.replace("PLANE", f"{{points: {four}, ground: {four}}}")
        + "}\n"
    )
    with pytest.raises(ConfigError) as error:
        build(read_text(stages))
    assert text in [problem.text for problem in error.value.problems]
