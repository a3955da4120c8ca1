"""Warnings of lines and areas for sources that do not exist."""

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text

TEXT = """
sources: {{gate: "test://", yard: "test://"}}
stages:
  detect: {{model: demo}}
  track: {{}}
  line_counter: {{line: {{a: [[1, 2], [3, 4]]}}, sources: {sources}}}
"""


def warned(sources):
    return [(one.column, one.text) for one in build(read_text(TEXT.format(sources=sources))).config.warnings]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ("[gate, yard]", []),
        ("{a: [gate]}", []),
        ("[gate, yart]", [(63, "line_counter.sources: there is no source 'yart'; did you mean 'yard'?")]),
        ("{a: [lane]}", [(61, "line_counter.sources.a: there is no source 'lane'; known: gate, yard")]),
    ],
)
def test_each_unknown_source_is_a_warning_at_its_place(sources, expected):
    assert warned(sources) == expected
