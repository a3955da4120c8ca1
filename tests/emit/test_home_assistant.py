"""What Home Assistant is told; a real broker and the example have it in tests/e2e/test_examples_out.py."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.emit.home_assistant import devices

TOPIC = re.compile(r"ha/(sensor|event)/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+/config")


def told(source="gate", topic="streamkit/gate", **more):
    found = devices("ha", source, topic, "streamkit/status", **more)
    return {place: json.loads(text) for place, text in found.items()}


def test_a_sensor_for_each_label_belongs_to_one_device():
    found = told(labels=["person", "traffic light"], expire_s=30.0)
    assert len(found) == 2
    assert found["ha/sensor/streamkit_gate/person/config"] == {
        "name": "person",
        "unique_id": "streamkit_gate_person",
        "state_class": "measurement",
        "value_template": "{{ value_json.objects | selectattr('label', 'eq', 'person') | list | count }}",
        "state_topic": "streamkit/gate",
        "availability": [{"topic": "streamkit/status"}],
        "device": {"identifiers": ["streamkit_gate"], "name": "gate", "manufacturer": "streamkit", "model": "source"},
        "origin": found["ha/sensor/streamkit_gate/person/config"]["origin"],
        "expire_after": 30,
    }
    assert len({json.dumps(one["device"]) for one in found.values()}) == 1


def test_events_are_one_entity_that_does_not_expire():
    ((place, one),) = told(kinds=["door.crossed", "zone.entered"], expire_s=3.0).items()
    assert place == "ha/event/streamkit_gate/events/config"
    assert one["event_types"] == ["door.crossed", "zone.entered"]
    assert "expire_after" not in one


@given(st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=6, unique=True))
def test_any_names_give_topics_that_home_assistant_takes_and_no_two_the_same(names):
    found = [told(source, f"cameras/{source}", labels=names) for source in names]
    assert all(TOPIC.fullmatch(place) for one in found for place in one)
    ids = [one["unique_id"] for each in found for one in each.values()]
    assert len(set(ids)) == len(ids) == len(names) ** 2


@pytest.mark.parametrize("label", ["it's", "back\\slash", "{{ 1 }}", "a' or true or 'b"])
def test_a_label_is_text_within_the_template_whatever_it_is(label):
    jinja2 = pytest.importorskip("jinja2")
    (one,) = told(labels=[label]).values()
    objects = [{"label": label}, {"label": "other"}, {"class_id": 3}]
    made = jinja2.Environment().from_string(one["value_template"]).render(value_json={"objects": objects})
    assert made == "1"
