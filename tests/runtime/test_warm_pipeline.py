"""A warm pipeline: sources go through it, and whoever sent one learns of its end, or of the pipeline's."""

import threading
from pathlib import Path

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_source, read_text
from streamkit.core.data import Device, Frame
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.core.stage import Collecting, FrameStage, Sink, default_registry, stage
from streamkit.runtime.warm_pipeline import WarmPipeline


class Seen:
    """What came out of each end, by source."""

    def __init__(self) -> None:
        self.ends: dict[str, dict[str, list[int]]] = {"first": {}, "second": {}}
        self.hold = threading.Event()
        self.hold.set()


@pytest.fixture
def warm():
    """A pipeline with two ends, of which the second may be held up; and what they saw."""
    registry = default_registry()
    seen = Seen()
    with Collecting(registry):

        @stage("keep")
        class Keep(Sink):
            """Keep the indices of frames."""

            at: str

            def write(self, frame: Frame) -> None:
                if self.at == "second":
                    seen.hold.wait(20)
                seen.ends[self.at].setdefault(frame.source, []).append(frame.index)

        @stage("picky")
        class Picky(FrameStage):
            """Fail on the frames of some sources."""

            def process(self, frame: Frame) -> None:
                if frame.source.startswith("bad"):
                    raise ValueError("no such luck")

    text = """
        sources: {}
        stages:
          picky: {}
          first: {stage: keep, at: first}
          second: {stage: keep, at: second, from: picky}
    """
    pipelines: list[WarmPipeline] = []

    def make(stages: str = text, slots: int = 1) -> tuple[WarmPipeline, Seen]:
        config = read_text(stages.replace("sources: {}", "sources: {a: 'test://'}"), folder=Path(), registry=registry)
        config.sources = []
        pipelines.append(WarmPipeline(build(config), Device("cpu"), slots=slots))
        pipelines[-1].begin()
        return pipelines[-1], seen

    yield make
    seen.hold.set()
    for pipeline in pipelines:
        assert pipeline.end()


def source(warm: WarmPipeline, id_: str, frames: int = 5):
    return read_source(warm.graph.config, id_, f"test://?width=32&height=32&fps=10&frames={frames}")[0]


def test_videos_pass_one_by_one_through_every_output(warm):
    pipeline, seen = warm()
    for id_ in ("a", "b", "a"):
        state = pipeline.send(source(pipeline, id_))
        assert (state.out, state.failed, state.error, state.done) == (5, 0, None, True)
        assert pipeline.states == {}  # nothing is kept of it
    assert seen.ends["first"] == seen.ends["second"] == {"a": [*range(5)] * 2, "b": [*range(5)]}


def test_a_video_ends_when_its_last_output_ends(warm):
    pipeline, seen = warm()
    seen.hold.clear()
    read = threading.Event()
    out = threading.Event()

    def send() -> None:
        pipeline.send(source(pipeline, "a"), read.set)
        out.set()

    thread = threading.Thread(target=send)
    thread.start()
    assert read.wait(20)
    assert not out.wait(0.3)
    seen.hold.set()
    thread.join(20)
    assert out.is_set()


def test_failures_are_reported_for_their_source_only(warm):
    pipeline, _ = warm()
    bad = pipeline.send(source(pipeline, "bad"))
    good = pipeline.send(source(pipeline, "good"))
    assert (bad.failed, bad.failures, good.failed) == (5, 5, 0)
    assert "no such luck" in bad.first_failure
    missing = pipeline.send(read_source(pipeline.graph.config, "gone", "no_such.mp4")[0])
    assert "no such file" in missing.error
    assert type(missing.raised).__name__ == "SourceError"


def test_an_id_in_progress_is_refused(warm):
    pipeline, seen = warm(slots=2)
    seen.hold.clear()
    thread = threading.Thread(target=lambda: pipeline.send(source(pipeline, "a")))
    thread.start()
    while "a" not in pipeline.states:
        pass
    with pytest.raises(ConfigError, match="there is a source 'a' already"):
        pipeline.send(source(pipeline, "a"))
    seen.hold.set()
    thread.join(20)
    assert not thread.is_alive()


def test_waiters_are_notified_of_the_end_of_the_pipeline(warm):
    pipeline, seen = warm()
    seen.hold.clear()
    errors: list[BaseException] = []

    def send() -> None:
        try:
            pipeline.send(source(pipeline, "a", 500))
        except StreamkitError as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while "a" not in pipeline.states:
        pass
    pipeline.stop()
    seen.hold.set()
    thread.join(30)
    assert [str(error) for error in errors] == ["the pipeline was stopped"]
    with pytest.raises(StreamkitError, match="the pipeline was stopped"):
        pipeline.send(source(pipeline, "b"))
