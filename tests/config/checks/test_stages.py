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
    ("when", "expected"),
    [
        (None, []),
        ("line.crossed", []),
        ("line", []),
        (["line.crossed", "line_two.returned", "crowd.anything", "crowd"], []),
        ("line.crosed", ["line writes no event 'line.crosed'; did you mean 'line.crossed'?"]),
        ("lines.crossed", ["no stage writes the event 'lines.crossed'; did you mean 'line.crossed'?"]),
        (
            ["draw.drawn", "line_two.x"],
            [
                "draw writes no events, so there is no 'draw.drawn'",
                "line_two writes no event 'line_two.x'; known: line_two.crossed, line_two.",
            ],
        ),
        ("beside.crowded", ["end does not see the events of beside; write from: beside, or put end after beside"]),
    ],
)
def test_names_of_events_are_checked(nodes, when, expected):
    texts = list(unknown_events(when, nodes["end"], nodes))
    assert len(texts) == len(expected)
    assert all(text.startswith(want.partition(";")[0]) for text, want in zip(texts, expected, strict=True)), texts
    assert all(want in text for text, want in zip(texts, expected, strict=True) if "did you mean" in want), texts


HEAD = "sources: {a: samples/street.mp4}\nstages:\n"
TRACK = HEAD + "  detect: {model: demo}\n  follow: {stage: track}\n"


def problem_texts(text, root):
    with pytest.raises(ConfigError) as caught:
        check(read_text(text, folder=root))
    return [str(problem) for problem in caught.value.problems]


def problems_of(text, root, registry=None):
    try:
        build(read_text(text, folder=root, registry=registry))
    except ConfigError as error:
        return [problem.text for problem in error.problems]
    return []


ALARM = "alarms:\n  slow: total_fps < 1 for 30s\n"
HOOK = "  hook: {stage: webhook, url: 'https://host/x', send: events, when: WHEN}\n"


@pytest.mark.parametrize(("alarms", "refused"), [(ALARM, False), ("", True)])
def test_alarm_events_need_a_pipeline_with_alarms(alarms, refused, root):
    problems = problems_of(alarms + HEAD + HOOK.replace("WHEN", "alarms.raised"), root)
    assert bool(problems) == refused
    problems = problems_of(alarms + HEAD + HOOK.replace("WHEN", "alarms.rised"), root)
    assert len(problems) == 1
    assert ("did you mean 'alarms.raised'?" in problems[0]) != refused


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        (
            "  track: {}\n",
            "track reads detections, which no earlier stage writes; put a detector such as detect above it",
        ),
        ("  infer: {model: demo}\n", "infer reads tensor, which no earlier stage writes; put preprocess above it"),
        (
            "  door: {stage: line_counter, line: [[0, 0], [9, 9]]}\n",
            "door reads track_id, which no earlier stage writes; put a tracker above it",
        ),
        (
            "  preprocess: {model: demo}\n  infer: {model: demo}\n  more: {stage: infer, model: demo}\n",
            "more reads tensor, which infer uses up; put it between preprocess and infer",
        ),
        ("  preprocess: {model: demo}\n  infer: {model: demo}\n", ""),
    ],
)
def test_data_read_by_a_stage_must_be_written_above_it(stages, text, root):
    assert "|".join(problems_of(HEAD + stages, root)) == text


@pytest.mark.parametrize(
    ("sources", "count"),
    [
        ("{a: samples/street.mp4}", 0),
        ("{a: samples/street.mp4, b: samples/street.mp4}", 2),
        ("{a: samples/street.mp4, b: samples/street.mp4, c: samples/street.mp4}", 3),
    ],
)
def test_a_single_file_accepts_a_single_source(sources, count, root):
    stages = "  video: {path: out/all.mp4}\n  boxes: {stage: detections, path: samples/street.truth.jsonl}\n"
    problems = problems_of(f"sources: {sources}\nstages:\n{stages}", root)
    written = f'video: {count} sources into the one file out/all.mp4; write "{{source}}" into the path'
    assert (written in problems) == bool(count)
    assert len(problems) <= 2


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
def test_a_missing_package_is_reported_at_its_stage(module, package, extra, why, stage, root, monkeypatch):
    without(monkeypatch, module)
    text = HEAD + f"  detect: {{model: demo}}\n  mine: {{{stage}}}\n"
    command = install_command(extra)
    assert problem_texts(text, root) == [
        f"pipeline.yaml:4:9: mine: {why} needs the package {package}; install it with: {command}"
    ]


def test_available_files_and_packages_give_no_problem(root):
    assert check(read_text(TRACK, folder=root)).nodes["follow"]


def test_a_network_without_onnxruntime_is_reported_at_its_stage(root, monkeypatch):
    from streamkit.models import network_file, onnxruntime_package

    without(monkeypatch, "onnxruntime")
    monkeypatch.setattr(onnxruntime_package, "installed_builds", dict)
    network_file._inspect.cache_clear()
    problems = problem_texts(HEAD + "  detect: {model: demo}\n", root)
    assert problems == [
        "pipeline.yaml:3:11: detect: a network needs the package onnxruntime; install it with: "
        + install_command("cpu")
    ]


def test_all_missing_things_are_reported_together(root, monkeypatch):
    without(monkeypatch, "numba")
    without(monkeypatch, "httpx")
    texts = problem_texts(TRACK + "  hook: {stage: webhook, url: 'https://host/x'}\n  also: {stage: track}\n", root)
    assert [text.split(":")[1] for text in texts] == ["4", "5", "6"]


def test_problems_visible_only_in_a_run_are_not_reported(root):
    text = HEAD + "  push: {stage: stream, url: 'srt://host:9000'}\n"
    assert check(read_text(text, folder=root)).nodes["push"]
