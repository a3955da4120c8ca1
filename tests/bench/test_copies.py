"""Many paced copies of a pipeline's sources, whose outputs go elsewhere."""

from pathlib import Path

import pytest

from streamkit.bench import copies
from streamkit.bench.copies import due_fps, multiply, read_copies
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_text
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, Sink, Source, default_registry, stage
from streamkit.core.yaml_tree import load


def config(root, text):
    registry = default_registry()
    with Collecting(registry):

        @stage("send")
        class Send(Sink):
            """Sends frames to somebody."""

            def write(self, frame: Frame) -> None:
                raise AssertionError

        @stage("still")
        class Still(Source):
            """A plugin's source."""

            uri: str

            def frames(self):
                raise AssertionError

    return read_text(text, folder=root, registry=registry)


def test_copies_alternate_between_sources_and_keep_their_options(root, tmp_path):
    copied = config(
        root,
        """
        sources:
          street: {uri: samples/street.mp4, every: 2}
          test: {stage: test_pattern, uri: "test://"}
        stages: {jsonl: {path: "out/all.jsonl"}}
    """,
    )
    multiply(copied, 3, 10.0, tmp_path)
    assert [source.id for source in copied.sources] == ["street-0", "test-1", "street-2"]
    street, test, _ = (source.options for source in copied.sources)
    assert (street["pace"], street["loop"], street["every"]) == (10.0, True, 2)
    assert test["pace"] == 10.0
    assert "loop" not in test
    build(copied)


def test_the_pace_of_the_yaml_is_used(root, tmp_path):
    sources = (
        "{a: {uri: samples/street.mp4, pace: 5}, b: samples/street.mp4, c: {uri: samples/street.mp4, pace: unpaced}}"
    )
    copied = config(root, f"{{sources: {sources}, stages: {{jsonl: {{path: a.jsonl}}}}}}")
    multiply(copied, 3, None, tmp_path)
    assert [source.options["pace"] for source in copied.sources] == [5, "realtime", "realtime"]
    assert due_fps(copied.sources[2], None) == due_fps(copied.sources[1], None)


def test_file_sinks_write_to_a_folder_and_other_sinks_are_removed(root, tmp_path):
    copied = config(
        root,
        """
        sources: {street: samples/street.mp4}
        stages:
          draw: {from: decode}
          send: {}
          video: {path: "out/street.mp4"}
          jsonl: {from: [send], path: "-"}
    """,
    )
    messages = []
    messages += multiply(copied, 2, None, tmp_path)
    graph = build(copied)
    paths = {node.id: node.options["path"] for node in graph.nodes.values() if "path" in node.options}
    assert paths == {"video": str(tmp_path / "video" / "{source}.mp4"), "jsonl": str(tmp_path / "jsonl" / "{source}")}
    assert [graph.nodes[name].inputs for name in ("video", "jsonl")] == [["draw"], ["draw"]]
    assert len(messages) == 1
    assert messages[0].startswith("send is removed")


def test_the_text_of_the_copies_is_the_changed_pipeline(root, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(f"""
        device: {{use: cpu, processes: 3}}
        batch: {{max_latency: 2s}}
        sources: {{street: {{uri: {root}/samples/street.mp4, start: 1s}}, test: "test://?width=64&height=48"}}
        stages:
          draw: {{thickness: 6, labels: false}}
          mqtt: {{url: "mqtt://127.0.0.1:1", topic: a}}
          jsonl: {{from: mqtt, path: "out/all.jsonl"}}
    """)
    copied, removed = read_copies(
        path, {"sources.street.every": "4", "batch.size": "5"}, "cpu", 3, 10.0, tmp_path / "o"
    )
    again = read(path, text=copied.text, device="cpu")  # as a worker process reads it
    assert [text[:15] for text in removed] == ["mqtt is removed"]
    for copy in (copied, again):
        build(copy)
        assert (copy.device, copy.processes, copy.batch.size, copy.batch.max_latency) == ("cpu", 3, 5, 2.0)
        assert [(s.id, s.options["pace"], s.options.get("every")) for s in copy.sources] == [
            ("street-0", 10.0, 4),
            ("test-1", 10.0, None),
            ("street-2", 10.0, 4),
        ]
        assert copy.sources[2].options["uri"] == f"{root}/samples/street.mp4"
        assert (copy.sources[0].options["loop"], copy.sources[0].options["start"]) == (True, 1.0)
        assert copy.stages[-1].options["path"] == str(tmp_path / "o" / "jsonl" / "{source}.jsonl")
        assert copy.stages[-1].inputs == ["draw"]
        assert (copy.stages[0].options["thickness"], copy.stages[0].options["labels"]) == (6, False)


def test_numbers_and_texts_are_preserved(tmp_path):
    values = {"a": [float("inf"), -float("inf"), 1e-7, 12, True, None, "yes", "1:30", "é😀\n{", "0o17", ".inf"]}
    loaded, problems = load(copies._flow(values), "x.yaml")
    assert (loaded.plain(), problems) == (values, [])
    assert load(copies._flow([float("nan")]), "x.yaml")[0].plain()[0] != 0


def test_a_source_without_a_pace_is_refused(root, tmp_path):
    copied = config(root, "{sources: {a: {stage: still, uri: x}}, stages: {jsonl: {path: a.jsonl}}}")
    assert not copied.problems
    with pytest.raises(ConfigError, match="source a is a still, which has no pace"):
        multiply(copied, 2, None, tmp_path)


@pytest.mark.parametrize(
    ("options", "pace", "due"),
    [("", None, 25), (", every: 5", None, 5), (", fps: 10", None, 10), (", pace: 30", None, 30), ("", 12, 12)],
)
def test_due_frames_are_computed_from_the_pace(root, options, pace, due):
    text = (
        f"{{sources: {{a: {{uri: {Path(root)}/samples/street.mp4{options}}}}}, stages: {{jsonl: {{path: a.jsonl}}}}}}"
    )
    assert due_fps(config(root, text).sources[0], pace) == pytest.approx(due)
