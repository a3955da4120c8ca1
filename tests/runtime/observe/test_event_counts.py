"""Events are counted by source, stage and kind; those of lines and zones also by shape, direction and class."""

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Event
from streamkit.runtime.observe.event_counts import ALL_FILES, EventCounter, EventSeries, shaped_stages

TEXT = """
sources: {gate: "test://"}
stages:
  detect: {model: demo}
  track: {}
  path: {stage: line_counter, line: [[0, 0], [9, 9]]}
  till: {stage: zone, polygon: [[0, 0], [9, 0], [9, 9]]}
"""


@pytest.fixture
def counter(root):
    return EventCounter(build(read_text(TEXT, folder=root)))


def event(kind, stage, source="gate", **data):
    return Event(kind, stage, source, 1, 0.04, 7, data)


def test_stages_with_lines_and_zones_are_listed(root):
    assert shaped_stages(build(read_text(TEXT, folder=root))) == {"path", "till"}


@pytest.mark.parametrize(
    ("counted", "series"),
    [
        (
            event("crossed", "path", line="door", direction="in", label="person"),
            EventSeries("gate", "path", "crossed", "door", "in", "person"),
        ),
        (
            event("crossed", "path", direction="out", label="car"),
            EventSeries("gate", "path", "crossed", "", "out", "car"),
        ),
        (
            event("entered", "till", zone="queue", label="car"),
            EventSeries("gate", "till", "entered", "queue", "", "car"),
        ),
        (event("overcrowded", "till", zone="queue", count=3), EventSeries("gate", "till", "overcrowded", "queue")),
        (event("read", "plates", label="B-XY 12", line="text", direction="up"), EventSeries("gate", "plates", "read")),
        (event("raised", "alarms", "pipeline", alarm="slow"), EventSeries("pipeline", "alarms", "raised")),
    ],
)
def test_events_are_counted_by_their_labels(counter, counted, series):
    counter.add(counted)
    counter.add(counted)
    assert counter.counts() == {series: 2}


def test_events_of_removed_sources_are_counted_together(counter):
    for source, count in (("a", 2), ("b", 3), ("c", 4)):
        for _ in range(count):
            counter.add(event("crossed", "path", source, direction="in", label="car"))
    counter.forget("a")
    counter.forget("b")
    together = EventSeries(ALL_FILES, "path", "crossed", "", "in", "car")
    assert counter.counts() == {together: 5, together._replace(source="c"): 4}
    counter.add(event("crossed", "path", "a", direction="in", label="car"))  # another source has that id now
    assert counter.counts() == {together: 5, together._replace(source="c"): 4, together._replace(source="a"): 1}
