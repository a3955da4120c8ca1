"""What `snapshot` has saved is the picture of its event on the page."""

from pathlib import Path

from streamkit import FrameStage
from streamkit.config import read_text
from streamkit.data import Frame
from streamkit.graph import build
from streamkit.runtime.device import choose
from streamkit.runtime.run import Pipeline
from streamkit.serve.gallery import Gallery
from streamkit.serve.preview import follow_sinks
from streamkit.stage import Collecting, default_registry, stage

PIPELINE = """
sources: {street: samples/street.mp4}
stages:
  ticker: {}
  snapshot: {when: ticker.ticked, what: frame, max_size: 320, path: "%s/{source}/{time}.jpg"}
"""


def test_a_saved_picture_is_its_events(root, tmp_path):
    registry = default_registry()
    with Collecting(registry):

        @stage("ticker", writes="events")
        class Ticker(FrameStage):
            """Emit at every frame."""

            emits = ("ticked",)

            def process(self, frame: Frame) -> None:
                frame.emit("ticked")

    registry.add(Ticker)
    config = read_text(PIPELINE.replace("samples", f"{root}/samples") % tmp_path, folder=root, registry=registry)
    gallery, running = Gallery(), Pipeline(build(config), choose("cpu", print), limit=3)
    follow_sinks(running, gallery)
    assert running.run() == 0
    found = gallery.events(10)
    assert [seen.event.kind for seen in found] == ["saved"] * 3
    for seen in found:
        path = Path(seen.event.data["path"])
        assert seen.jpeg == path.read_bytes()
        assert seen.jpeg[:3] == b"\xff\xd8\xff"
