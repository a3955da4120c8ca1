"""Checks of `collect`: detectors that cannot be compared, missing objects, and each mistake with its place."""

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.core.stage import default_registry

TEXT = """sources: {street: samples/street.mp4}
stages:
  detect: {model: demo}
  cars: {stage: detect, model: demo, labels: [car]}
"""


def built(root, last):
    return build(read_text(f"{TEXT}  {last}\n", folder=root, registry=default_registry()))


BETWEEN = "collect.disagreement.between"
RATE = "must be 1 to 10000 in a period (s, min, h, day), such as 20/min or 500/day, got"
NO_VECTORS = "5:12: collect reads embedding, which no earlier stage writes; put embed above it"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("disagreement: {between: [detect, car]}", f"{BETWEEN}: there is no stage 'car'; did you mean 'cars'?"),
        ("disagreement: {between: [cars, cars]}", f"5:37: {BETWEEN}: names cars twice; it compares two detectors"),
        ("disagreement: {between: [detect.bus, cars]}", f"{BETWEEN}: detect has no class 'bus'"),
        ("disagreement: {between: [detect.bike, cars]}", "no class in common: detect finds bike and cars finds car"),
        ("disagreement: {iou: 0.5}", f"5:27: {BETWEEN} is required"),
        ("random: 6/week", f"5:21: collect.random {RATE} '6/week'"),
        ("random: 6/h, at_most: 500", f"5:35: collect.at_most {RATE} 500"),
        ("novelty: 0.3", NO_VECTORS),
        ("random: 6/h, same_vector: 0.1", NO_VECTORS),
        ("low_score: [0.3, 0.5], of: trucks", "collect.of: there is no stage 'trucks'"),
        ("when: door.crossed", "collect: no stage writes the event 'door.crossed'"),
        ("quality: 90", "collect: set at least one reason: when, disagreement, low_score, novelty, random"),
        ("random: 6/h, capture: object, from: decode", "collect.capture: object needs a detector above it"),
    ],
)
def test_invalid_options_are_reported_with_their_position(root, options, message):
    with pytest.raises(ConfigError) as error:
        built(root, f"collect: {{{options}, path: out}}")
    assert message in str(error.value)


def test_the_stage_resolves_the_models_of_its_objects(root):
    graph = built(root, "collect: {path: out, disagreement: {between: [detect.car, cars]}}")
    assert graph.nodes["collect"].options["models"] == {"detect": "demo", "cars": "demo"}
