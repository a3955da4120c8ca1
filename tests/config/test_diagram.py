from pathlib import Path

from streamkit.config.diagram import as_mermaid, as_text, crossings, kind_name
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.stage import Collecting, FrameStage, Sink, default_registry, stage

ROOT = Path(__file__).parents[2]
REGISTRY = default_registry()

with Collecting(REGISTRY):

    @stage("count", reads="detections")
    class Count(FrameStage):
        """Count objects."""


DETECT = "detect: {model: demo}"


def graph(*lines, sources="{a: samples/street.mp4}"):
    text = f"sources: {sources}\nstages:\n" + "".join(f"  {line}\n" for line in lines)
    return build(read_text(text, folder=ROOT, registry=REGISTRY))


def test_kinds_are_named_in_a_word():
    kinds = {kind_name(REGISTRY.get(name)) for name in ("draw", "track", "count", "jsonl", "source")}
    assert kinds == {"batch", "stream", "frame", "sink", "source"}
    assert issubclass(REGISTRY.get("jsonl"), Sink)


def test_the_text_shows_stages_and_crossings():
    built_graph = graph(DETECT, "track: {}", "draw: {}", 'video: {path: "out/{source}.mp4"}')
    text = as_text(built_graph, "cuda:0").splitlines()
    assert text[0] == "a: samples/street.mp4"
    assert any(
        line.split() == ["track", "stream", "host", "from", "detect.postprocess", "adds", "track_id"] for line in text
    )
    assert any(line.startswith("detect.infer") and "cuda:0" in line for line in text)
    assert "crossing  detect.postprocess -> track: the table goes from device to host, one copy a batch" in text
    assert not any("crossing" in line for line in as_text(built_graph, "cpu").splitlines())
    assert len(crossings(built_graph, built_graph.nodes["video"])) == 1


def test_the_text_shows_where_frames_come_from_and_no_password():
    built_graph = graph("draw: {}", sources="{gate: 'rtsp://user:SECRET@10.0.0.7/a?token=SECRET', t: 'test://'}")
    assert as_text(built_graph, "cpu").splitlines()[:2] == ["gate: rtsp://user:***@10.0.0.7/a?token=***", "t: test://"]


def test_mermaid_has_a_dotted_arrow_where_host_and_device_meet():
    built_graph = graph(DETECT, "track: {}", "draw: {}")
    text = as_mermaid(built_graph, "cuda:0")
    assert text.startswith("flowchart LR\n")
    assert text.count("-.->") == 2
    assert text.count(" --> ") == 4
    assert as_mermaid(built_graph, "cpu").count("-.->") == 0
