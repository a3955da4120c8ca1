"""Recordings are opened beside the stages, as on a GPU; paced ones begin once the stages are open."""

import time

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device, Frame
from streamkit.core.stage import Collecting, FrameStage, default_registry, stage
from streamkit.runtime.ingest.sources import drops_late_frames
from streamkit.runtime.pipeline import PipelineRun

PACED = "{uri: 'test://?width=64&height=48&fps=20&frames=10', pace: realtime}"


class EarlyRun(PipelineRun):
    """A run that opens its sources as one on a GPU does, beside stages that take their time."""

    early: dict[str, str]

    def _open_lanes(self) -> None:
        self.sources.start_early()
        self.early = {id_: state.state for id_, state in self.states.items()}
        self.early_threads = [thread.name for thread in self.sources.threads]
        time.sleep(0.5)
        super()._open_lanes()


def early_run(sources: str, seen: list[tuple[str, int, float]]) -> EarlyRun:
    registry = default_registry()
    with Collecting(registry):

        @stage("late")
        class Late(FrameStage):
            """Notes how late each frame is."""

            def process(self, frame: Frame) -> None:
                seen.append((frame.source, frame.index, time.monotonic() - (frame.due_s or 0.0)))

    return EarlyRun(build(read_text(f"sources: {sources}\nstages: {{late: {{}}}}", registry=registry)), Device("cpu"))


@pytest.mark.alone
def test_recordings_opened_early_start_with_the_stages_and_drop_nothing() -> None:
    seen: list[tuple[str, int, float]] = []
    run = early_run(f"{{a: {PACED}, b: {PACED}, file: 'test://?width=64&height=48&frames=5'}}", seen)
    assert run.run() == 0
    assert sorted(run.early_threads) == ["source/0", "source/a", "source/b"]
    assert run.counts() == {}
    for id_, frames in (("a", 10), ("b", 10), ("file", 5)):
        assert [index for source, index, _ in seen if source == id_] == list(range(frames))
    assert max(late_s for source, _, late_s in seen if source != "file") < 0.4, "the clock begins with the stages"


def test_a_camera_is_not_opened_early() -> None:
    run = early_run(f"{{a: {PACED}, gate: {{uri: 'rtsp://127.0.0.1:9/x'}}}}", [])
    run.sources.start_early()
    assert [thread.name for thread in run.sources.threads] == ["source/a"]
    run.stop()
    run.sources.start()


def test_a_recording_replaced_while_stages_open_is_read() -> None:
    seen: list[tuple[str, int, float]] = []
    run = early_run(f"{{a: {PACED}, b: {PACED}}}", seen)
    open_lanes = run._open_lanes

    def replaced() -> None:
        open_lanes()
        (source,) = (config for config in run.graph.sources if config.id == "b")
        run.change(source)

    run._open_lanes = replaced  # type: ignore[method-assign]
    assert run.run() == 0
    assert [index for source, index, _ in seen if source == "b"] == list(range(10))


@pytest.mark.alone
def test_a_paused_recording_does_not_delay_the_start() -> None:
    run = early_run(f"{{a: {PACED}, b: {PACED}}}", [])
    run.sources.pause("b")
    start_s = time.monotonic()
    run.sources.start_early()
    assert time.monotonic() - start_s < 1.0
    assert [thread.name for thread in run.sources.threads] == ["source/a"]
    run.stop()
    run.sources.start()


@pytest.mark.parametrize(
    ("source", "drops"),
    [
        (PACED, True),
        ("{uri: 'rtsp://host/one'}", True),
        ("{uri: clip.mp4, loop: true}", False),
        ("{uri: clip.mp4, loop: true, pace: 30}", True),
        ("{uri: clip.mp4, loop: true, pace: unpaced}", False),
        ("{uri: clip.mp4}", False),
    ],
)
def test_sources_with_late_frames_are_cameras_and_paced_recordings(source: str, drops: bool) -> None:
    graph = build(read_text(f"sources: {{a: {source}}}\nstages: {{jsonl: {{path: 'out/a.jsonl'}}}}"))
    assert drops_late_frames(graph.sources[0]) is drops
