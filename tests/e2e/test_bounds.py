"""Ids, durations and sizes that no run could work with are refused beforehand."""

import typing

import jsonschema
import pytest
import yaml

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.schema import json_schema
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Source, default_registry


def valid(text):
    """Whether an editor with the JSON Schema would take it."""
    return jsonschema.Draft202012Validator(json_schema(default_registry())).is_valid(yaml.safe_load(text))


PLAIN = "sources: {%s: 'test://'}\nstages: {%s: {stage: jsonl, path: x.jsonl}}\n"


@pytest.mark.parametrize(
    ("source", "stage", "message"),
    [
        ("a" * 101, "out", "1:11: a source id has at most 100 characters, since files are named after it, got 101"),
        ("a" * 300, "out", "1:11: a source id has at most 100 characters, since files are named after it, got 300"),
        (
            "b/" + "a" * 101,
            "out",
            "1:11: a source id has at most 100 characters between slashes, and 400 in all, "
            "since files are named after it, got 101",
        ),
        (
            "/".join(["a" * 80] * 5),
            "out",
            "1:11: a source id has at most 100 characters between slashes, and 400 in all"
            ", since files are named after it, got 404",
        ),
        ("cam", "a" * 101, "2:10: a stage id has at most 100 characters, since files are named after it, got 101"),
        ("cam", "a" * 300, "2:10: a stage id has at most 100 characters, since files are named after it, got 300"),
    ],
)
def test_an_id_too_long_for_a_file_name_is_refused_before_the_run(source, stage, message):
    with pytest.raises(ConfigError) as caught:
        build(read_text(PLAIN % (source, stage)))
    assert message in str(caught.value)
    assert not valid(PLAIN % (source, stage))


def test_the_longest_ids_are_accepted():
    for source in ("a" * 100, "/".join(["a" * 79] * 5)):
        text = PLAIN % (source, "b" * 100)
        build(read_text(text))
        assert valid(text)


def test_every_duration_and_size_of_every_stage_is_bounded():
    """What a stage, a source, a reconnection or a batch may wait for; an overflow would show in the midst of a run."""
    registry = default_registry()
    seen = 0
    for name in registry.names():
        kind = registry.get(name)
        for option, hint in ((o, str(t)) for o, t in typing.get_type_hints(kind, include_extras=True).items()):
            if "'seconds'" in hint or "'bytes'" in hint:
                seen += 1
                section = "sources: {a: {stage: %s, uri: x, %s: 1e308}}\nstages: {out: {stage: jsonl, path: x}}"
                if not issubclass(kind, Source):
                    section = "sources: {a: 'test://'}\nstages: {out: {stage: %s, %s: 1e308}}"
                with pytest.raises(ConfigError) as caught:
                    build(read_text(section % (name, option), registry=registry))
                assert f"{option} must be" in str(caught.value), (name, option, str(caught.value))
    assert seen > 60
    for text in ("batch: {max_wait: 1e308}", "batch: {max_latency: 1e308}", "watchdog: 1e308"):
        with pytest.raises(ConfigError, match="must be at most 73000d"):
            build(read_text(f"sources: {{a: 'test://'}}\nstages: {{out: {{stage: jsonl, path: x}}}}\n{text}"))
    with pytest.raises(ConfigError, match="at most 73000d"):
        build(
            read_text("sources: {a: {uri: 'rtsp://h/', reconnect: {max_backoff: 1e308}}}\nstages: {jsonl: {path: x}}")
        )
