"""What Prometheus reads of sources that were lost, dropped frames, and loads."""

import re

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from servers import served

from streamkit.runtime.states import SourceState
from streamkit.serve.engine import reconnects
from streamkit.serve.metrics import registry


def test_reconnects_by_cause_are_counted_once():
    state = SourceState()
    assert reconnects(state) == {}
    state.counters.add("reconnects", 3)
    state.counters.add("reconnects: lost", 2)
    state.counters.add("reconnects: timeout")
    assert reconnects(state) == {"lost": 2, "timeout": 1}


def test_a_source_that_counts_no_causes_still_shows_that_it_came_back():
    state = SourceState()
    for word in ("running", "reconnecting", "running"):
        state.tell(word)
    assert reconnects(state) == {"unknown": 1}


def test_drops_and_reconnects_have_their_cause_as_a_label(server):
    state = server.engine.state("gate")
    state.counters.add("reconnects: lost", 4)
    state.drops.add("dropped: too old", 5)
    text = generate_latest(registry(server.engine)).decode()
    found = {
        (s.name, *sorted(s.labels.values())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert found["streamkit_reconnects_total", "gate", "lost"] == 4
    assert found["streamkit_dropped_total", "gate", "too old"] == 5


def test_names_of_sources_cannot_break_the_text(server):
    new = {"id": "yard", "uri": "test://", "options": {"pace": 5}}
    assert server.client.post("/sources", json=new).status_code == 201
    states = server.engine.running.sources
    states.states = {**states.states, 'a"b\\c\n': SourceState()}
    families = list(text_string_to_metric_families(server.open.get("/metrics").text))
    assert any(s.labels.get("source") == 'a"b\\c\n' for family in families for s in family.samples)


@pytest.mark.gpu
def test_the_load_of_the_gpu_and_of_its_decoder(root, monkeypatch):
    monkeypatch.chdir(root)
    text = """
device: cuda
sources: {cam: {uri: samples/street.mp4, pace: realtime, loop: true}}
stages: {detect: {model: demo}}
"""
    with served(text, root) as one:
        one.running("cam")
        for name in ("gpu", "decoder"):
            (load,) = re.findall(rf"^streamkit_{name}_load (\S+)$", one.open.get("/metrics").text, re.MULTILINE)
            assert 0 <= float(load) <= 1
