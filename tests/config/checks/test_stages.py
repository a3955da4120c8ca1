"""Checks of single stages: names of events, and packages that are missing, with the command that installs them."""

import sys

import pytest

from streamkit import FrameStage
from streamkit.cli.check import check
from streamkit.config.checks.stages import unknown_events
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, default_registry, stage
from streamkit.core.text import install_command


@pytest.fixture(scope="module")
def nodes():
    registry = default_registry()
    with Collecting(registry):

        @stage("line", writes="events", emits=("crossed", "returned"))
        class Line(FrameStage):
            """Says which kinds it emits."""

        @stage("crowd", writes="events")
        class Crowd(FrameStage):
            """Does not say which kinds it emits."""

    text = """
sources: {a: "test://"}
stages:
  line: {}
  line_two: {stage: line}
  crowd: {}
  draw: {}
  beside: {stage: crowd, from: decode}
  end: {stage: jsonl, path: x.jsonl, from: draw}
"""
    return build(read_text(text, registry=registry)).nodes


@pytest.mark.parametrize(
    ("when", "said"),
    [
        (None, []),
        ("line.crossed", []),
        ("line", []),
        (["line.crossed", "line_two.returned", "crowd.anything", "crowd"], []),
        ("line.crosed", ["line writes no event 'line.crosed'; did you mean 'line.crossed'?"]),
        ("lines.crossed", ["no stage writes the event 'lines.crossed'; did you mean 'line.crossed'?"]),
        (["draw.drawn", "line_two.x"], ["draw writes no events, so there is no 'draw.drawn'",
                                        "line_two writes no event 'line_two.x'; known: line_two.crossed, line_two."]),
        ("beside.crowded", ["end does not see the events of beside; write from: beside, or put end after beside"]),
    ],
)  # fmt: skip
def test_names_of_events(nodes, when, said):
    found = list(unknown_events(when, nodes["end"], nodes))
    assert len(found) == len(said)
    assert all(text.startswith(want.partition(";")[0]) for text, want in zip(found, said, strict=True)), found
    assert all(want in text for text, want in zip(found, said, strict=True) if "did you mean" in want), found


HEAD = "sources: {a: samples/street.mp4}\nstages:\n"
TRACK = HEAD + "  detect: {model: demo}\n  follow: {stage: track}\n"


def told(text, root):
    with pytest.raises(ConfigError) as caught:
        check(read_text(text, folder=root))
    return [str(one) for one in caught.value.problems]


def without(monkeypatch, module):
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("module", "package", "extra", "why", "stage"),
    [
        ("httpx", "httpx", "webhook", "webhook", "stage: webhook, url: 'https://host/x'"),
        ("confluent_kafka", "confluent-kafka", "kafka", "kafka", "stage: kafka, url: 'kafka://host', topic: x"),
        ("fastavro", "fastavro", "avro", "format: avro", "stage: kafka, url: 'kafka://host', topic: x, format: avro"),
        ("paho", "paho-mqtt", "mqtt", "mqtt", "stage: mqtt, url: 'mqtt://host', topic: x"),
        ("pyarrow", "pyarrow", "parquet", "stage: parquet", "stage: parquet, path: out"),
        ("psycopg", "psycopg", "postgres", "postgres", "stage: postgres, url: 'postgres://host/x'"),
        ("numba", "numba", "track", "track", "stage: track"),
    ],
)
def test_a_package_that_is_missing_is_told_at_its_stage(module, package, extra, why, stage, root, monkeypatch):
    without(monkeypatch, module)
    text = HEAD + f"  detect: {{model: demo}}\n  mine: {{{stage}}}\n"
    command = install_command(extra)
    assert told(text, root) == [
        f"pipeline.yaml:4:9: mine: {why} needs the package {package}; install it with: {command}"
    ]


def test_what_is_there_is_no_problem(root):
    assert check(read_text(TRACK, folder=root)).nodes["follow"]


def test_without_onnxruntime_a_network_is_told_at_its_stage(root, monkeypatch):
    from streamkit.models import network, onnxruntime_package

    without(monkeypatch, "onnxruntime")
    monkeypatch.setattr(onnxruntime_package, "installed_builds", dict)
    network._inspect.cache_clear()
    problems = told(HEAD + "  detect: {model: demo}\n", root)
    assert problems == [
        "pipeline.yaml:3:11: detect: a network needs the package onnxruntime; install it with: "
        + install_command("cpu")
    ]


def test_all_that_is_missing_is_told_at_once(root, monkeypatch):
    without(monkeypatch, "numba")
    without(monkeypatch, "httpx")
    found = told(TRACK + "  hook: {stage: webhook, url: 'https://host/x'}\n  also: {stage: track}\n", root)
    assert [one.split(":")[1] for one in found] == ["4", "5", "6"]


def test_what_only_a_run_can_tell_is_no_problem_of_a_check(root):
    text = HEAD + "  push: {stage: stream, url: 'srt://host:9000'}\n"
    assert check(read_text(text, folder=root)).nodes["push"]
