"""The options of `kafka`: mistakes that people make, told with the way out and without secrets."""

import json

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError

pytest.importorskip("confluent_kafka")


def problems(**options):
    stages = {"kafka": {"url": "kafkas://me:hunter2@h", **options}}
    try:
        build(read_text(json.dumps({"sources": {"gate": "test://"}, "stages": stages})))
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topic": "{source}.all-of_them", "key": "a b"},
        {"settings": {"compression.type": "zstd", "linger.ms": 50, "bootstrap.servers": "10.0.0.1:9092"}},
        {"settings": {"security.protocol": "sasl_ssl"}, "tls": {"ca": "not/there/yet.pem"}},
        {"settings": {"ssl.ca.location": "not/there/yet.pem"}},
    ],
)
def test_valid_options_are_accepted(options):
    assert problems(**options) == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a b"}, "topic must be of letters from a to z, digits, dots, _ and -, at most 249, as in cameras."),
        ({"topic": "cameras/{source}"}, "got 'cameras/{source}'"),
        ({"topic": "."}, "got '.'"),
        ({"topic": "x" * 250}, "at most 249"),
        ({"topic": "{sorce}"}, "unknown variable {sorce}; did you mean 'source'?"),
        ({"settings": {"compresion.type": "zstd"}}, 'No such configuration property: "compresion.type"'),
        ({"settings": {"compression.type": "zst"}}, 'Invalid value "zst" for configuration property'),
        ({"settings": {"acks": 1}}, "`acks` must be set to `all` when `enable.idempotence` is true"),
        ({"settings": {"error_cb": "x"}}, "settings must be librdkafka settings, as its CONFIGURATION.md lists them: "),
    ],
)
def test_invalid_options_are_refused_with_the_fix(options, message):
    problem = problems(**options)
    assert problem.startswith("pipeline.yaml:1:")
    assert message in problem
    assert "hunter2" not in problem
