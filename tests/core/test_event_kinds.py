"""The table of events: each kind has a sentence, and an example with the keys that the table lists."""

import pytest

from streamkit.core import sentences
from streamkit.core.event_kinds import EVENT_KINDS


@pytest.mark.parametrize("one", EVENT_KINDS, ids=lambda one: f"{one.stage}.{one.kind}")
def test_the_example_has_the_keys_and_a_sentence_of_its_own(one):
    event = one.event()
    facts = {"down_s"} if one.stage == "alarms" else set()
    assert set(one.keys) <= set(one.example) <= {*one.keys, *one.optional, *facts}
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
    assert {one.kind for one in EVENT_KINDS} == sentences.KINDS
    assert len({(one.stage, one.kind) for one in EVENT_KINDS}) == len(EVENT_KINDS)
