"""A tracker method of a plugin in the YAML, its schema and its help, and in messages."""

import pytest
from click.testing import CliRunner

from streamkit.cli.command import cli
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.plugins import load_plugins
from streamkit.config.schema import json_schema
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Registry, default_registry

PLUGIN = """\
import numpy as np

from streamkit.plugin_api import tracker


@tracker({name!r})
class Numbers:
    '''{summary}'''

    def __init__(self, settings):
        pass

    def update(self, objects, frame):
        return np.arange(1, len(objects.box) + 1)
"""
PIPELINE = """\
plugins: [{plugin}]
sources: {{a: samples/street.mp4}}
stages:
  detect: {{model: demo}}
  track: {{method: {method}}}
"""


@pytest.fixture
def plugin(tmp_path):
    def write(file="numbers.py", name="numbers", summary="Number the objects."):
        path = tmp_path / file
        path.write_text(PLUGIN.format(name=name, summary=summary))
        return path

    return write


def test_track_accepts_the_method_of_a_plugin(plugin):
    graph = build(read_text(PIPELINE.format(plugin=plugin(), method="numbers")))
    assert str(graph.nodes["track"].options["method"]) == "numbers"


def test_a_misspelled_method_lists_those_of_plugins(plugin):
    with pytest.raises(ConfigError, match=r":5:19: .*or numbers .*, got 'numbres'; did you mean 'numbers'\?"):
        build(read_text(PIPELINE.format(plugin=plugin(), method="numbres")))


def test_a_method_belongs_to_the_pipelines_that_load_its_plugin(plugin):
    build(read_text(PIPELINE.format(plugin=plugin(), method="numbers")))
    hint = r"sort or iou \(a plugin adds others: list its file under plugins\), got 'numbers'"
    with pytest.raises(ConfigError, match=hint):
        build(read_text(PIPELINE.format(plugin="", method="numbers")))


def test_an_edited_plugin_is_another_method_and_an_equal_one_is_not(plugin):
    methods = []
    for summary in ("One.", "Two.", "Two."):
        graph = build(read_text(PIPELINE.format(plugin=plugin(summary=summary), method="numbers")))
        methods.append(graph.nodes["track"].options["method"])
    assert methods[0] != methods[1]
    assert methods[1] == methods[2]


def test_the_schema_lists_the_methods_of_plugins(plugin):
    def choices(registry):
        schema = json_schema(registry)["$defs"]["stage.track"]["properties"]["method"]
        return next(choice["enum"] for choice in schema["anyOf"] if "enum" in choice)

    registry = default_registry()
    load_plugins(plugin(), registry)
    assert choices(registry) == [*choices(default_registry()), "numbers"]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["explain", "track"], "method: bytetrack | botsort | auto | ocsort | sort | iou | numbers; default bytetrack"),
        (["list"], "numbers  tracker method  Number the objects."),
    ],
    ids=["explain", "list"],
)
def test_commands_show_the_methods_of_plugins(plugin, command, text):
    shown = CliRunner().invoke(cli, [*command, "--plugins", str(plugin())], catch_exceptions=False)
    assert text in shown.output


def test_a_plugin_may_replace_a_built_in_method(plugin):
    registry = Registry()
    messages = load_plugins(plugin(name="sort"), registry)
    assert messages == ["the tracker method sort of numbers.py replaces the built-in tracker method of that name"]
    graph = build(read_text(PIPELINE.format(plugin=plugin(name="sort"), method="sort")))
    assert not graph.nodes["track"].options["method"].compiled


def test_two_plugins_cannot_register_the_same_method(plugin, tmp_path):
    plugin("a.py")
    plugin("b.py")
    with pytest.raises(ConfigError, match=r"two plugins claim the tracker method 'numbers': .*a\.py and .*b\.py"):
        load_plugins(tmp_path, Registry())


def test_check_warns_that_hidden_objects_may_be_visible_between_detections(plugin):
    """Nothing is known of what a plugin's tracker follows."""
    text = PIPELINE.format(plugin=plugin(), method="numbers").replace("model: demo", "model: demo, every: 2")
    graph = build(read_text(text + "  draw: {blur: [person]}\n"))
    assert any("objects stay visible if track does not predict" in str(problem) for problem in graph.config.warnings)
