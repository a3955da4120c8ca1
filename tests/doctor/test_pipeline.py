"""`streamkit doctor pipeline.yaml`: the packages of its stages, and whether the endpoints of `ask` answer."""

import sys

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.doctor.pipeline import endpoints, stage_packages
from streamkit.stages.inference.ask.endpoint import ChatEndpoint

PIPELINE = """
sources: {{a: samples/street.mp4}}
stages:
  detect: {{model: demo}}
  track: {{}}
  ask: {{url: "{url}", model: {model}, of: person, prompt: "?", answer: {{injured: bool}}}}
"""


def lines_of(url, model, root):
    return [str(finding) for finding in endpoints(build(read_text(PIPELINE.format(url=url, model=model), folder=root)))]


def test_an_endpoint_with_the_model_passes(vlm, root):
    assert lines_of(vlm.url, "eye-7b", root) == [f"ok    ask: {vlm.url} has the model eye-7b"]
    assert vlm.calls == [], "no image is sent"


@pytest.mark.parametrize(("model", "way"), [("eye-8b", "; did you mean 'eye-7b'?"), ("gpt", "; known: eye-7b")])
def test_an_endpoint_without_the_model_is_reported(vlm, root, model, way):
    assert lines_of(vlm.url, model, root) == [
        f"warn  ask: {vlm.url} has no model '{model}'{way}; fix: correct model, or load it there"
    ]


def test_an_unreachable_endpoint_is_reported(root):
    (line,) = lines_of("http://127.0.0.1:1/v1", "eye-7b", root)
    assert line.startswith("warn  ask: http://127.0.0.1:1/v1/models: no answer: ")
    assert line.endswith("fix: start it, or correct url; some servers have no list of models")


def test_a_missing_package_of_a_stage_is_a_failure(root, monkeypatch):
    text = "sources: {a: 'test://'}\nstages: {mqtt: {url: 'mqtt://h'}, redis: {url: 'redis://h'}}\n"
    graph = build(read_text(text, folder=root))
    assert [str(finding) for finding in stage_packages(graph)] == [
        "ok    pipeline: the packages of its stages are installed"
    ]
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    (line,) = [str(finding) for finding in stage_packages(graph)]
    assert line.startswith("fail  mqtt: mqtt needs the package paho-mqtt; fix: python -m pip install ")


@pytest.mark.parametrize(("count", "named"), [(19, True), (20, False)])
def test_no_model_of_a_server_with_many_is_suggested(root, monkeypatch, count, named):
    monkeypatch.setattr(ChatEndpoint, "models", lambda endpoint: [f"eye-{number}b" for number in range(count)])
    (line,) = lines_of("http://127.0.0.1:1/v1", "eye-7", root)
    assert ("did you mean 'eye-7b'?" in line) is named
