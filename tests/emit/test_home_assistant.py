"""What Home Assistant is told; a real broker and the example have it in tests/e2e/test_examples_out.py."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.emit.home_assistant import devices

TOPIC = re.compile(r"ha/(sensor|event)/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+/config")


def announced(source="gate", topic="streamkit/gate", **more):
    topics = devices("ha", source, topic, "streamkit/status", **more)
    return {place: json.loads(text) for place, text in topics.items()}


def test_a_sensor_for_each_label_belongs_to_one_device():
    topics = announced(labels=["person", "traffic light"], expire_s=30.0)
    assert len(topics) == 2
    assert topics["ha/sensor/streamkit_gate/person/config"] == {
        "name": "person",
        "unique_id": "streamkit_gate_person",
        "state_class": "measurement",
        "value_template": "{{ value_json.objects | selectattr('label', 'eq', 'person') | list | count }}",
        "state_topic": "streamkit/gate",
        "availability": [{"topic": "streamkit/status"}],
        "device": {"identifiers": ["streamkit_gate"], "name": "gate", "manufacturer": "streamkit", "model": "source"},
        "origin": topics["ha/sensor/streamkit_gate/person/config"]["origin"],
        "expire_after": 30,
    }
    assert len({json.dumps(config["device"]) for config in topics.values()}) == 1


def test_events_share_an_entity_that_does_not_expire():
    ((place, config),) = announced(kinds=["door.crossed", "zone.entered"], expire_s=3.0).items()
    assert place == "ha/event/streamkit_gate/events/config"
    assert config["event_types"] == ["door.crossed", "zone.entered"]
    assert "expire_after" not in config


@given(st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=6, unique=True))
def test_any_names_give_valid_and_distinct_topics(names):
    announcements = [announced(source, f"cameras/{source}", labels=names) for source in names]
    assert all(TOPIC.fullmatch(topic) for topics in announcements for topic in topics)
    ids = [config["unique_id"] for topics in announcements for config in topics.values()]
    assert len(set(ids)) == len(ids) == len(names) ** 2


@pytest.mark.parametrize("label", ["it's", "back\\slash", "{{ 1 }}", "a' or true or 'b"])
def test_a_label_is_literal_text_within_the_template(label):
    jinja2 = pytest.importorskip("jinja2")
    (config,) = announced(labels=[label]).values()
    objects = [{"label": label}, {"label": "other"}, {"class_id": 3}]
    count = jinja2.Environment().from_string(config["value_template"]).render(value_json={"objects": objects})
    assert count == "1"
