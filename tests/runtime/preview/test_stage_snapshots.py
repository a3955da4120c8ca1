"""What `snapshot` has saved is the picture of its event on the page."""

from pathlib import Path
from types import SimpleNamespace

from streamkit import FrameStage
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Event, Frame
from streamkit.core.stage import Collecting, default_registry, stage
from streamkit.runtime.execution.device import choose
from streamkit.runtime.multiprocess.frame_ipc import RelaySink
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.preview.stage import follow_sinks, tap
from streamkit.runtime.run import RunConfig
from streamkit.testing.kit import frames

PIPELINE = """
sources: {street: samples/street.mp4}
stages:
  ticker: {}
  snapshot: {when: ticker.ticked, capture: frame, max_size: 320, path: "%s/{source}/{time}.jpg"}
"""


BELOW = """
sources: {street: samples/street.mp4}
stages:
  ticker: {}
  snapshot: {when: ticker.ticked, capture: frame, path: "%s/{source}/{time}.jpg"}
  out: {stage: jsonl, path: "%s/out.jsonl"}
  draw: {}
  video: {path: "%s/out.mp4"}
"""


def test_each_saved_event_is_reported_once_also_with_stages_below_the_sink(root, tmp_path):
    registry = default_registry()
    with Collecting(registry):

        @stage("ticker", writes="events", emits=("ticked",))
        class Ticker(FrameStage):
            """Emit at every fourth frame."""

            def process(self, frame: Frame) -> None:
                if frame.index % 4 == 0:
                    frame.emit("ticked")

    registry.add(Ticker)
    text = BELOW.replace("samples", f"{root}/samples") % ((tmp_path,) * 3)
    graph = build(read_text(text, folder=root, registry=registry))
    gallery = Gallery()
    graph.config.stages.append(tap(graph, gallery))
    graph = build(graph.config)
    assert "draw" in graph.nodes["preview"].inputs
    running = PipelineRun(graph, choose("cpu"), RunConfig(limit=20))
    follow_sinks(running, gallery)
    assert running.run() == 0
    entries = gallery.events(100)
    for kind in ("ticked", "saved"):
        assert sorted(entry.event.frame for entry in entries if entry.event.kind == kind) == [0, 4, 8, 12, 16]
    saved = [entry for entry in entries if entry.event.kind == "saved"]
    assert [entry.jpeg == Path(entry.event.data["path"]).read_bytes() for entry in saved] == [True] * 5
    assert running.report(0)["events"] == {"ticked": 5, "saved": 5}


def test_a_saved_image_is_that_of_its_event(root, tmp_path):
    registry = default_registry()
    with Collecting(registry):

        @stage("ticker", writes="events", emits=("ticked",))
        class Ticker(FrameStage):
            """Emit at every frame."""

            def process(self, frame: Frame) -> None:
                frame.emit("ticked")

    registry.add(Ticker)
    config = read_text(PIPELINE.replace("samples", f"{root}/samples") % tmp_path, folder=root, registry=registry)
    gallery = Gallery()
    running = PipelineRun(build(config), choose("cpu"), RunConfig(limit=3))
    follow_sinks(running, gallery)
    assert running.run() == 0
    entries = gallery.events(10)
    assert [seen.event.kind for seen in entries] == ["saved"] * 3
    for seen in entries:
        path = Path(seen.event.data["path"])
        assert seen.jpeg == path.read_bytes()
        assert seen.jpeg[:3] == b"\xff\xd8\xff"


def test_each_process_reports_the_sinks_that_it_runs(root):
    """The parent of worker processes listens to its sinks; a worker has relays in their place."""
    line = "line: {stage: line_counter, line: [[320, 60], [320, 360]]}"
    text = (
        "plugins: [plugins]\nsources: {cam: samples/street.mp4}\nstages:\n  detect: {model: demo}\n"
        f"  track: {{stage: simple_track}}\n  {line}\n  snapshot: {{when: line, path: 'out/{{source}}/{{time}}.jpg'}}"
    )
    parent, worker = (build(read_text(text, folder=root)) for _ in range(2))
    worker.nodes["snapshot"].type = RelaySink
    gallery = Gallery()
    heard = []
    follow_sinks(SimpleNamespace(graph=worker, listen=heard.append), gallery)
    assert heard == []
    follow_sinks(SimpleNamespace(graph=parent, listen=heard.append), gallery)
    frame = frames(1, source="cam")[0]
    events = [Event("saved", stage, "cam", 0, 0.0, None, {"path": "gone.jpg"}) for stage in ("line", "snapshot")]
    heard[0]([(frame, events)])
    assert [entry.event.stage for entry in gallery.events(10)] == ["snapshot"]
