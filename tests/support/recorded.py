"""A video whose frames show their number, runs that record it at events, and a reader of clips."""

import json

import av
import numpy as np
import pytest

from streamkit import FrameStage
from streamkit.core.data import Frame
from streamkit.core.stage import Collecting, default_registry, stage


def ticker():
    """Return a stage that emits `ticked` at the given frames and `passed` at the others."""
    with Collecting(default_registry()):

        @stage("ticker", writes="events", emits=("ticked", "passed"))
        class Ticker(FrameStage):
            """Emit at the frames with the indices `at`."""

            at: tuple[int, ...] = ()

            def process(self, frame: Frame) -> None:
                frame.emit("ticked" if frame.index in self.at else "passed", n=frame.index)

    return Ticker


@pytest.fixture(name="video", scope="module")
def video_fixture(tmp_path_factory):
    """10 s, 25 pictures a second, a keyframe every second, B frames; each picture's brightness says its number."""
    path = tmp_path_factory.mktemp("record") / "gate.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width = 64
        stream.height = 48
        stream.pix_fmt = "yuv420p"
        stream.options = {"g": "25", "bf": "2", "sc_threshold": "0", "crf": "10"}
        for i in range(250):
            planes = np.full((72, 64), 128, np.uint8)
            planes[:48] = i
            out.mux(stream.encode(av.VideoFrame.from_ndarray(planes, format="yuv420p")))
        out.mux(stream.encode(None))
    return path


@pytest.fixture(name="run")
def run_fixture(run_pipeline, tmp_path, monkeypatch):
    """Run `record` on a video with events at these frames; return the outcome and the events of later stages."""
    monkeypatch.chdir(tmp_path)

    def go(video, at, source="", top="", **record):
        text = f"""
{top}
sources: {{gate: {{uri: "{video}", {source}}}}}
stages:
  ticker: {{at: {list(at)}}}
  record: {json.dumps({"when": "ticker.ticked", "before": 2, "after": 1, **record})}
  collect: {{}}
"""
        return run_pipeline(text, extra=[ticker()])

    return go


def events(outcome, kind, source="gate"):
    return [e for record in outcome.records[source] for e in record["events"] if e["kind"] == kind]


def shown(path):
    """Return time in seconds and number of each frame; check that the first is a keyframe and none is damaged."""
    with av.open(str(path)) as back:
        frames = list(back.decode(video=0))
    assert frames[0].key_frame
    assert not any(frame.is_corrupt for frame in frames)
    return [(round(float(f.time), 3), round(float(f.to_ndarray()[:48].mean()))) for f in frames]
