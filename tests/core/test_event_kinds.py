"""The table of events: each kind has a sentence, and an example with the keys that the table lists."""

import pytest

from streamkit.core import sentences
from streamkit.core.event_kinds import EVENT_KINDS


@pytest.mark.parametrize("event_kind", EVENT_KINDS, ids=lambda event_kind: f"{event_kind.stage}.{event_kind.kind}")
def test_each_example_has_its_keys_and_a_distinct_sentence(event_kind):
    event = event_kind.event()
    facts = {"down_s"} if event_kind.stage == "alarms" else set()
    assert set(event_kind.keys) <= set(event_kind.example) <= {*event_kind.keys, *event_kind.optional, *facts}
    text = sentences.sentence(event)
    assert text != sentences._line(sentences._generic(event, event.data))
    assert "gate" in text


@pytest.mark.parametrize("kind", EVENT_KINDS, ids=lambda kind: f"{kind.stage}.{kind.kind}")
def test_the_times_of_an_example_are_those_of_its_frames(kind):
    event = kind.event()
    assert (event.frame, event.pts_s) == (100, 4.0)
    for facts in (event.data, event.data.get("of", {})):
        if "frame" in facts:
            assert facts["pts_s"] == facts["frame"] / 25


def test_the_kinds_are_those_with_a_sentence():
    assert {event_kind.kind for event_kind in EVENT_KINDS} == sentences.KINDS
    assert len({(event_kind.stage, event_kind.kind) for event_kind in EVENT_KINDS}) == len(EVENT_KINDS)
