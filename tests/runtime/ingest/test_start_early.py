"""Sources are opened beside the stages, as on a GPU; paced recordings and cameras begin once the stages are open."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device, Frame
from streamkit.core.stage import Collecting, FrameStage, Source, default_registry, stage
from streamkit.runtime.ingest.source_reader import EARLY
from streamkit.runtime.ingest.sources import drops_late_frames
from streamkit.runtime.pipeline import PipelineRun

PACED = "{uri: 'test://?width=64&height=48&fps=20&frames=10', pace: realtime}"


class EarlyRun(PipelineRun):
    """A run that opens its sources as one on a GPU does, beside stages that take their time."""

    early: dict[str, str]
    cameras = False
    opening_s = 0.5

    def _open_lanes(self) -> None:
        self.sources.start_early(cameras=self.cameras)
        self.early = {id_: state.state for id_, state in self.states.items()}
        self.begun = [thread.name for thread in self.sources.threads]
        time.sleep(self.opening_s)
        super()._open_lanes()


def made(sources: str, seen: list[tuple[str, int, float]], limit: int | None = None) -> EarlyRun:
    registry = default_registry()
    with Collecting(registry):

        @stage("late")
        class Late(FrameStage):
            """Notes how late each frame is."""

            def process(self, frame: Frame) -> None:
                seen.append((frame.source, frame.index, time.monotonic() - (frame.due_s or 0.0)))

    graph = build(read_text(f"sources: {sources}\nstages: {{late: {{}}}}", registry=registry))
    return EarlyRun(graph, Device("cpu"), limit=limit)


def test_recordings_that_are_opened_early_begin_with_the_stages_and_drop_nothing() -> None:
    seen: list[tuple[str, int, float]] = []
    run = made(f"{{a: {PACED}, b: {PACED}, file: 'test://?width=64&height=48&frames=5'}}", seen)
    assert run.run() == 0
    assert sorted(run.begun) == ["source/0", "source/a", "source/b"]
    assert run.counts() == {}
    for id_, frames in (("a", 10), ("b", 10), ("file", 5)):
        assert [index for source, index, _ in seen if source == id_] == list(range(frames))
    assert max(late_s for source, _, late_s in seen if source != "file") < 0.4, "the clock begins with the stages"


def test_a_camera_is_not_opened_early() -> None:
    run = made(f"{{a: {PACED}, gate: {{uri: 'rtsp://127.0.0.1:9/x'}}}}", [])
    run.sources.start_early()
    assert [thread.name for thread in run.sources.threads] == ["source/a"]
    run.stop()
    run.sources.start()


def test_a_camera_that_is_opened_early_begins_with_the_stages(rtsp: Any, root: Path) -> None:
    seen: list[tuple[str, int, float]] = []
    server = rtsp({"gate": root / "samples" / "street.mp4"})
    run = made(f"{{gate: '{server.url('gate')}', a: {PACED}}}", seen, limit=8)
    run.cameras, run.opening_s = True, 2.5
    assert run.run() == 0
    assert sorted(run.begun) == ["source/a", "source/gate"]
    state = run.states["gate"]
    assert state.counters[EARLY] > 5
    assert state.last is not None
    assert [index for source, index, _ in seen if source == "gate"] == list(range(8))
    assert state.last[0] == 7
    assert 0.0 < state.last[1] < 1.0, "times begin with the first frame that is taken"
    assert max(late_s for *_, late_s in seen) < 0.5, "no frame is old"
    assert [index for source, index, _ in seen if source == "a"] == list(range(8))


def test_a_camera_that_is_paused_or_ended_early(rtsp: Any, root: Path) -> None:
    server = rtsp({"gate": root / "samples" / "street.mp4"})
    run = made(f"{{gate: '{server.url('gate')}', other: '{server.url('gate')}'}}", [], limit=3)
    run.sources.start_early(cameras=True)
    until_s = time.monotonic() + 20
    while not all(state.counters[EARLY] for state in run.states.values()) and time.monotonic() < until_s:
        time.sleep(0.01)
    run.sources.pause("gate")
    run.sources.remove("other")
    while len(run.sources.threads) > 1 and time.monotonic() < until_s:
        time.sleep(0.01)
    assert [thread.name for thread in run.sources.threads] == ["source/gate"]
    run.stop()
    run.sources.start()
    while run.sources.threads and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not run.sources.threads
    assert all(state.frames == 0 for state in run.states.values())


@pytest.mark.parametrize(
    ("number", "options", "early"), [(5, {}, True), (4, {}, False), (5, {"cuda_graph": True}, False)]
)
def test_many_cameras_are_opened_early_unless_graphs_are_captured(number: int, options: Any, early: bool) -> None:
    run = made("{" + ", ".join(f"c{n}: 'rtsp://127.0.0.1:9/{n}'" for n in range(number)) + "}", [])
    run._lanes[0].nodes[0].options |= options
    assert run._connects_early() is early


def test_a_source_that_gives_once_is_not_opened_early() -> None:
    registry = default_registry()
    with Collecting(registry):

        @stage("letters", writes="pixels")
        class Letters(Source):
            """Has no pace, such as a queue of images."""

            uri: str

            @property
            def unbounded(self) -> bool:
                return True

            def frames(self) -> Iterator[Frame]:
                yield from ()

    graph = build(
        read_text("sources: {a: {stage: letters, uri: x}}\nstages: {jsonl: {path: x.jsonl}}", registry=registry)
    )
    run = PipelineRun(graph, Device("cpu"))
    run.sources.start_early(cameras=True)
    assert not run.sources.threads


def test_a_recording_that_is_replaced_while_stages_open_is_read() -> None:
    seen: list[tuple[str, int, float]] = []
    run = made(f"{{a: {PACED}, b: {PACED}}}", seen)
    open_lanes = run._open_lanes

    def replaced() -> None:
        open_lanes()
        (source,) = (one for one in run.graph.sources if one.id == "b")
        run.change(source)

    run._open_lanes = replaced  # type: ignore[method-assign]
    assert run.run() == 0
    assert [index for source, index, _ in seen if source == "b"] == list(range(10))


def test_a_paused_recording_is_not_waited_for() -> None:
    run = made(f"{{a: {PACED}, b: {PACED}}}", [])
    run.sources.pause("b")
    begun_s = time.monotonic()
    run.sources.start_early()
    assert time.monotonic() - begun_s < 1.0
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
