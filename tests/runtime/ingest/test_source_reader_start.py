"""Paced sources wait for each other before their clocks start."""

import threading
import time

import pytest

from streamkit.core.data import Frame
from streamkit.core.errors import SourceError
from streamkit.core.retry import Retry
from streamkit.core.stage import Collecting, FrameStage, Registry, Source, stage
from streamkit.runtime.ingest.source_reader import SynchronizedStart


class DueTimes:
    """A stage that notes when each frame was due."""

    def __init__(self) -> None:
        seen: dict[str, list[float]] = {}
        self.seen = seen
        with Collecting(Registry()):

            @stage("due")
            class Due(FrameStage):
                """Note when frames were due."""

                def process(self, frame: Frame) -> None:
                    seen.setdefault(frame.source, []).append(frame.due_s)

        self.type = Due


@pytest.fixture
def due_s() -> DueTimes:
    return DueTimes()


def start_line(sources: int, patience_s: float | None = None) -> SynchronizedStart:
    """A released start line of several sources."""
    line = SynchronizedStart(patience_s)
    assert [line.join() for _ in range(sources)] == list(range(sources))
    line.release()
    return line


def waited(line: SynchronizedStart, over=lambda: False) -> tuple[threading.Thread, list[float]]:
    waits_s: list[float] = []
    thread = threading.Thread(target=lambda: waits_s.append(line.wait(0, over)))
    thread.start()
    return thread, waits_s


def test_paced_sources_start_together():
    line = start_line(2, patience_s=60)
    line.arrive()
    thread, waits_s = waited(line)
    time.sleep(0.15)
    assert thread.is_alive()
    line.arrive()
    thread.join(10)
    assert 0.14 <= waits_s[0] < 10


def test_no_source_waits_once_all_are_ready():
    line = start_line(1, patience_s=60)
    line.arrive()
    assert line.wait(0, lambda: False) < 1


def test_the_wait_for_other_sources_is_bounded():
    line = start_line(2, patience_s=0.1)
    line.arrive()
    assert 0.09 <= line.wait(0, lambda: False) < 10


def test_sources_start_ten_milliseconds_apart():
    line = start_line(1)
    line.arrive()
    assert 0.29 <= line.wait(30, lambda: False) < 10
    assert line.wait(1000, lambda: True) < 5, "a source that is ended waits for no turn"


def test_an_ended_source_does_not_wait():
    line = start_line(2, patience_s=60)
    over = threading.Event()
    thread, waits_s = waited(line, over.is_set)
    over.set()
    thread.join(10)
    assert waits_s[0] < 10


@pytest.mark.parametrize(("sources", "patience_s"), [(1, 1.3), (100, 31.0)])
def test_the_wait_grows_with_the_number_of_sources(sources, patience_s):
    before_s = time.monotonic()
    line = start_line(sources)
    assert line._end_s() - before_s == pytest.approx(patience_s, abs=0.5)


def test_sources_opened_early_wait_for_the_release():
    line = SynchronizedStart(patience_s=60)
    assert line.join() == 0
    line.arrive()
    thread, waits_s = waited(line)
    time.sleep(0.5)
    assert thread.is_alive(), "it may have to wait for longer than the patience: networks are loaded"
    line.release()
    thread.join(10)
    assert 0.4 <= waits_s[0] < 10


def test_an_ended_source_does_not_wait_for_the_release():
    line = SynchronizedStart()
    line.join()
    assert line.wait(0, lambda: True) < 5


@pytest.mark.alone
def test_clocks_of_paced_sources_start_when_the_slowest_has_its_first_frame(run_pipeline, due_s):
    opened_s: list[float] = []

    with Collecting(Registry()):

        @stage("slow_to_open")
        class SlowToOpen(Source):
            """Take half a second to open, as a decoder beside many others does."""

            unbounded = True

            def open(self) -> None:
                time.sleep(0.5)
                opened_s.append(time.monotonic())

            def frames(self):
                yield Frame(self.context.id, 0, 0.0, 64, 48, due_s=time.monotonic())

    sources = "\n".join(
        f"  p{n}: {{uri: 'test://?width=64&height=48&fps=10&frames=3', pace: realtime}}" for n in range(3)
    )
    outcome = run_pipeline(
        f"sources:\n{sources}\n  slow: {{stage: slow_to_open}}\nstages: {{due: {{}}, collect: {{}}}}",
        extra=[SlowToOpen, due_s.type],
    )
    assert outcome.code == 0
    assert {name: len(records) for name, records in outcome.records.items()} == {"p0": 3, "p1": 3, "p2": 3, "slow": 1}
    for name in ("p0", "p1", "p2"):
        first, second, third = due_s.seen[name]
        assert first >= opened_s[0] - 0.2, "the clock starts once all have a frame"
        assert second - first == pytest.approx(0.1, abs=0.01)
        assert third - second == pytest.approx(0.1, abs=0.01)
        assert first < opened_s[0] + 0.6


def test_paced_sources_do_not_wait_for_a_camera_that_cannot_be_reached(run_pipeline, due_s):
    given_up_s: list[float] = []

    with Collecting(Registry()):

        @stage("absent")
        class Absent(Source):
            """A camera that refuses its connections for 0.6 s, and then fails for good."""

            unbounded = True
            retry = Retry()

            def open(self) -> None:
                if not given_up_s:
                    given_up_s.append(time.monotonic() + 0.6)
                raise SourceError("no server answers", cause="refused" if time.monotonic() < given_up_s[0] else None)

            def frames(self):
                yield from ()

    outcome = run_pipeline(
        "sources:\n  clip: {uri: 'test://?width=64&height=48&fps=10&frames=3', pace: realtime}\n"
        "  gone: {stage: absent}\nstages: {due: {}, collect: {}}",
        extra=[Absent, due_s.type],
    )
    assert outcome.code == 1
    assert len(outcome.records["clip"]) == 3
    assert due_s.seen["clip"][0] < given_up_s[0]
