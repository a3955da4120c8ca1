"""`streamkit doctor pipeline.yaml`: whether the endpoints of `ask` answer, and have the model."""

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.doctor.endpoints import endpoints

PIPELINE = """
sources: {{a: samples/street.mp4}}
stages:
  detect: {{model: demo}}
  track: {{}}
  ask: {{url: "{url}", model: {model}, of: person, prompt: "?", answer: {{injured: bool}}}}
"""


def told(url, model, root):
    return [str(one) for one in endpoints(build(read_text(PIPELINE.format(url=url, model=model), folder=root)))]


def test_an_endpoint_that_has_the_model(vlm, root):
    assert told(vlm.url, "eye-7b", root) == [f"ok    ask: {vlm.url} has the model eye-7b"]
    assert vlm.calls == [], "no image is sent"


@pytest.mark.parametrize(("model", "way"), [("eye-8b", "; did you mean 'eye-7b'?"), ("gpt", "; known: eye-7b")])
def test_an_endpoint_without_the_model(vlm, root, model, way):
    assert told(vlm.url, model, root) == [
        f"warn  ask: {vlm.url} has no model '{model}'{way}; fix: correct model, or load it there"
    ]


def test_nobody_answers(root):
    (line,) = told("http://127.0.0.1:1/v1", "eye-7b", root)
    assert line.startswith("warn  ask: http://127.0.0.1:1/v1/models: no answer: ")
    assert line.endswith("fix: start it, or correct url; some servers have no list of models")
