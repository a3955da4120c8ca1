"""One source read on a thread: what a pause does to each kind, and what it may not yield."""

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.batches import in_thread
from support.cameras import REGISTRY, WRITTEN, going, pipeline, until  # the paths are set just above
from support.clips import write
from support.clock import fake_time

from streamkit.config.plan import SourceConfig
from streamkit.core.data import Frame
from streamkit.core.errors import SourceError
from streamkit.core.retry import Retry
from streamkit.core.stage import Collecting, Source, stage
from streamkit.core.tracing import Spans
from streamkit.runtime.execution.channel import Aborted
from streamkit.runtime.ingest import source_reader
from streamkit.runtime.ingest.batcher import Batcher
from streamkit.runtime.ingest.source_reader import SourceReader
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.testing.kit import gray

RATE = 50
FRAMES = 60
PAUSE_S = 0.6

with Collecting(REGISTRY):

    @stage("wrong", writes="pixels")
    class Wrong(Source):
        """Yields three frames as it should, and then what it must not."""

        what: str

        def frames(self) -> Iterator[Any]:
            for index in range(3):
                frame = Frame(self.context.id, index, index / 25, 16, 16, gray(16, 16))
                yield frame
            if self.what == "again":
                yield frame
            elif self.what == "foreign":
                yield Frame("b", 3, 0.12, 16, 16, gray(16, 16))
            else:
                yield gray(16, 16)

    @stage("jumping", writes="pixels")
    class Jumping(Source):
        """A camera of a plugin, whose clock is set twice and stands still once."""

        reconnects: bool = False
        times: str = "5.0 5.1 3.0 3.1 15.0 90000.0 90000.1 90000.1"

        @property
        def retry(self) -> Retry | None:
            return Retry() if self.reconnects else None

        @property
        def unbounded(self) -> bool:
            return True

        def frames(self) -> Iterator[Frame]:
            for index, pts_s in enumerate(map(float, self.times.split())):
                now_s = time.monotonic()
                yield Frame(self.context.id, index, pts_s, 16, 16, gray(16, 16), time_s=time.time(), due_s=now_s)
            if self.reconnects:
                raise SourceError("a connection that is not repeated")


@pytest.fixture(autouse=True)
def _clean():
    WRITTEN.clear()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=FRAMES)


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    import cv2

    folder = tmp_path_factory.mktemp("shots")
    for number in range(FRAMES):
        cv2.imwrite(str(folder / f"{number:03}.png"), gray(16, 16).data)
    return folder


@pytest.mark.parametrize(
    "more",
    [
        "uri: 'test://?width=32&height=32&frames=60'",
        "stage: images, uri: SHOTS",
        "uri: CLIP",
        "uri: CLIP, reconnect: true",
        "uri: CLIP, reconnect: true, fault: {fail: 1h}",
        "uri: CLIP, fault: {fail: 1h}",
    ],
)
def test_a_paced_file_and_its_clock_stop_during_a_pause(clip, shots, more):
    text = more.replace("CLIP", str(clip)).replace("SHOTS", str(shots))
    running, logged = pipeline(
        f"sources: {{a: {{{text}, pace: {RATE}, pace_seed: 0}}}}\nbatch: {{max_latency: 1min}}\nstages: {{note: {{}}}}"
    )
    seen: list[tuple[int, float]] = []
    running.listen(lambda shown: seen.extend((frame.index, frame.due_s or 0.0) for frame, _ in shown))
    with going(running):
        until(lambda: len(WRITTEN.get("a", [])) > 10)
        running.pause("a")
        until(lambda: sum(running.queues().values()) == 0)
        at = running.states["a"].frames
        time.sleep(PAUSE_S)
        assert running.states["a"].frames <= at + 1
        running.resume("a")
        until(lambda: running.states["a"].done)
    assert running.states["a"].frames == FRAMES  # a file that began anew would have given more
    assert WRITTEN["a"] == sorted(set(WRITTEN["a"]))
    late_s = [b[1] - a[1] - (b[0] - a[0]) / RATE for a, b in itertools.pairwise(seen)]
    *others, pause_s = sorted(late_s)
    assert pause_s > PAUSE_S - 2 / RATE
    assert max(map(abs, others)) < 1e-6
    assert not [text for text in logged if "faults are injected" not in text]


@pytest.mark.parametrize("uri", ["test://?width=32&height=32&frames=0", "CLIP"])
def test_an_endless_file_stops_during_a_pause(clip, uri):
    loop = ", loop: true" if uri == "CLIP" else ""
    text = f"{{uri: '{uri.replace('CLIP', str(clip))}'{loop}}}"
    running, _ = pipeline(f"sources: {{a: {text}}}\nstages: {{slow: {{pause_s: 0.01}}, note: {{}}}}")
    seen: list[float] = []
    running.listen(lambda shown: seen.extend(frame.pts_s for frame, _ in shown))
    with going(running):
        for _ in range(3):
            so_far = len(seen)
            until(lambda n=so_far: len(seen) > n + 5)
            running.pause("a")
            until(lambda: sum(running.queues().values()) == 0)
            running.resume("a")
    assert seen == pytest.approx([index / 25 for index in range(len(seen))])  # no time passed for it


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("again", "wrong yields the same Frame twice; yield a new Frame for each image"),
        ("foreign", "wrong yields a frame of the source 'b'; create each frame as Frame(self.context.id, ...)"),
        ("surface", "wrong yields Surface, not a Frame; yield a Frame for each image"),
    ],
)
def test_an_invalid_frame_fails_its_source(what, message):
    running, logged = pipeline(
        f"sources: {{a: {{stage: wrong, what: {what}}}, b: 'test://?width=16&height=16&frames=20'}}\n"
        "stages: {note: {}}"
    )
    with going(running):
        until(lambda: running.states["a"].complete and running.states["b"].complete)
    assert logged == [f"source a failed: {message}"]
    assert running.states["a"].state == "failed"
    assert {"a": [0, 1, 2], "b": list(range(20))} == WRITTEN


@pytest.mark.parametrize("reconnects", [False, True])
def test_timestamp_jumps_of_a_live_source_are_corrected(reconnects):
    """A time may be up to 10 s ahead of the clock."""
    running, _ = pipeline(
        f"sources: {{a: {{stage: jumping, reconnects: {reconnects}}}}}\n"
        "batch: {max_latency: 1min}\nstages: {note: {}}",
        limit=8,
    )
    times_s: list[float] = []
    running.listen(lambda shown: times_s.extend(frame.pts_s for frame, _ in shown))
    with going(running):
        until(lambda: running.states["a"].done)
    gaps_s = [after - before for before, after in itertools.pairwise(times_s)]
    assert len(gaps_s) == 7
    assert [gaps_s[0], gaps_s[2]] == pytest.approx([0.1, 0.1])
    assert all(0 < gap_s < 2 for gap_s in (gaps_s[1], gaps_s[3], gaps_s[4], gaps_s[6]))
    assert running.report(0)["counts"]["timestamp jumps corrected"] == 4


def test_plausible_times_of_a_live_source_are_unchanged():
    running, _ = pipeline(
        "sources: {a: {stage: jumping, times: '5.0 14.9 24.8 24.9'}}\nbatch: {max_latency: 1min}\nstages: {note: {}}",
    )
    times_s: list[float] = []
    running.listen(lambda shown: times_s.extend(frame.pts_s for frame, _ in shown))
    with going(running):
        until(lambda: running.states["a"].done)
    assert times_s == [5.0, 14.9, 24.8, 24.9]
    assert "timestamp jumps corrected" not in running.report(0)["counts"]


class Inlet:
    """The batcher and its inlet: notes what the reader passes on."""

    def __init__(self):
        self.frames = []
        self.begins = []
        self.ends = 0

    def begin(self, source, drops):
        self.begins.append((source, drops))
        return self

    def put(self, frame):
        self.frames.append(frame)

    def end(self):
        self.ends += 1

    @property
    def indices(self):
        return [frame.index for frame in self.frames]


class Scripted(Source):
    """A source whose openings are functions that yield frames; notes the calls."""

    unbounded = False

    def __init__(self, *openings, on_open=None, on_close=None, on_stop=None):
        self.openings = iter(openings)
        self.calls = []
        self.hooks = {"open": on_open, "close": on_close, "stop": on_stop}

    def _note(self, call):
        self.calls.append(call)
        if self.hooks[call] is not None:
            self.hooks[call]()

    def open(self):
        self._note("open")

    def close(self):
        self._note("close")

    def stop(self):
        self._note("stop")

    def frames(self):
        yield from next(self.openings)()


class Camera(Scripted):
    """The same without a reader's pace."""

    unbounded = True


def frame(index, **fields):
    return Frame("a", index, index / 25, 16, 16, **fields)


def live_frame(index, **fields):
    return frame(index, time_s=1.0, due_s=1.0, **fields)


def reader_of(source, inlet=None, *, limit=None, spans=Spans):
    new_reader = SourceReader(
        SourceConfig("a", type(source), {}, None), SourceState(), inlet or Inlet(), lambda *_: source, limit, spans
    )
    new_reader.test_source = source
    return new_reader


@pytest.fixture
def inlet():
    return Inlet()


@pytest.mark.parametrize(("limit", "frames"), [(None, 5), (0, 0), (1, 1), (3, 3), (9, 5)])
def test_a_source_is_read_up_to_its_limit(inlet, limit, frames):
    taken = []

    def five():
        for index in range(5):
            taken.append(index)
            yield frame(index)

    reader = reader_of(Scripted(five), inlet, limit=limit)
    reader()
    assert inlet.indices == list(range(frames))
    assert reader.state.frames == frames
    assert taken == list(range(max(1, frames))), "no frame is decoded beyond the limit"
    assert reader.test_source.calls == ["open", "close"]


@pytest.mark.parametrize(("due_s", "is_live"), [(None, False), (5.0, True)])
def test_the_first_frame_decides_whether_a_source_is_live(inlet, due_s, is_live):
    states = []

    def frames():
        yield frame(0, due_s=due_s)
        states.append((reader.state.state, reader.state.live))
        reader.state.live = None
        yield frame(1, due_s=due_s)
        states.append((reader.state.state, reader.state.live))
        reader.state.set_state("connecting")
        yield frame(2, due_s=due_s)
        states.append((reader.state.state, reader.state.live))

    reader = reader_of(Scripted(frames), inlet)
    reader()
    assert states == [("running", is_live), ("running", None), ("running", is_live)]


@pytest.mark.parametrize(
    ("error", "message", "cause"),
    [
        (SourceError("no such camera", cause="not_found"), "no such camera", "not_found"),
        (SourceError("odd"), "odd", None),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero", None),
    ],
)
def test_an_exception_fails_its_source(inlet, error, message, cause):
    def frames():
        yield frame(0)
        raise error

    reader = reader_of(Scripted(frames), inlet)
    reader()
    state = reader.state
    assert message in state.error
    assert state.raised is error
    assert (state.state, state.cause, state.message, state.done) == ("failed", cause, state.error, True)
    assert reader.error is None
    assert (inlet.indices, inlet.ends, reader.test_source.calls) == ([0], 1, ["open", "close"])


def test_an_exception_after_the_end_is_ignored(inlet):
    def frames():
        yield frame(0)
        reader.end()
        raise ValueError

    reader = reader_of(Scripted(frames), inlet)
    reader()
    assert (reader.state.state, reader.state.error, reader.state.raised) == ("ended", None, None)


def test_an_exit_exception_is_stored_as_the_error_of_the_run(inlet):
    def frames():
        yield frame(0)
        raise SystemExit(3)

    reader = reader_of(Scripted(frames), inlet)
    reader()
    assert isinstance(reader.error, SystemExit)
    assert (reader.state.done, reader.state.state, inlet.ends) == (True, "ended", 1)


def test_an_aborted_run_ends_a_source_without_an_error(inlet):
    def aborted(*_):
        raise Aborted

    inlet.put = aborted
    reader = reader_of(Scripted(lambda: [frame(0)]), inlet)
    reader()
    assert (reader.state.state, reader.state.error, reader.state.done, reader.error) == ("ended", None, True, None)
    assert reader.test_source.calls == ["open", "close"]
    assert inlet.ends == 1


def test_ending_a_hanging_source_releases_the_batcher_at_once():
    hangs = threading.Event()
    release = threading.Event()

    def frames():
        yield frame(0)
        hangs.set()
        release.wait(30)

    batcher = Batcher(4, 0.0, np)
    batcher.expect(1)
    reader = reader_of(Scripted(frames), batcher)
    thread = in_thread(reader)
    assert hangs.wait(30)
    assert [passed.index for passed in batcher.next().frames] == [0]
    reader.end()
    batches = []
    taker = in_thread(lambda: batches.append(batcher.next()))
    taker.join(30)
    assert batches[0].ended == ("a",)
    assert thread.is_alive()
    assert reader.test_source.calls == ["open", "stop"]
    release.set()
    thread.join(30)
    assert reader.test_source.calls == ["open", "stop", "close"]
    assert reader.state.state == "ended"


def test_no_frame_is_read_after_the_end(inlet):
    def frames():
        yield frame(0)
        reader.end()
        yield frame(1)
        pytest.fail("it is read on")

    reader = reader_of(Scripted(frames), inlet)
    reader()
    assert inlet.indices == [0]
    assert reader.state.state == "ended"


def test_pausing_and_resuming_set_the_state():
    reader = reader_of(Scripted())
    reader.pause(True)
    assert (reader.paused, reader.state.state) == (True, "paused")
    reader.state.message = "kept"
    reader.pause(True)
    assert reader.state.message == "kept", "nothing changes"
    reader.pause(False)
    assert (reader.paused, reader.state.state) == (False, "connecting")
    reader.state.set_state("running")
    reader.pause(False)
    assert reader.state.state == "running"


@pytest.mark.parametrize(
    ("kind", "first", "stopped"), [(Scripted, live_frame, False), (Camera, live_frame, True), (Camera, frame, False)]
)
def test_a_pause_stops_a_source_that_cannot_hold_a_frame(inlet, kind, first, stopped):
    """A camera is stopped; a file, or a source with a pace that the first frame shows, holds its frame."""

    def frames():
        yield first(0)
        reader.pause(True)
        reader.pause(False)

    reader = reader_of(kind(frames, list), inlet)
    reader()
    assert ("stop" in reader.test_source.calls) == stopped
    assert reader.test_source.calls.count("open") == 1 + stopped, "a stopped source is opened again"
    assert reader.state.state == "ended"


@pytest.mark.parametrize(("kind", "stopped"), [(Scripted, False), (Camera, True)])
def test_a_pause_before_the_first_frame_stops_sources_without_an_end(inlet, kind, stopped):
    def frames():
        reader.pause(True)
        reader.pause(False)
        yield frame(0)

    reader = reader_of(kind(frames, list), inlet)
    reader()
    assert ("stop" in reader.test_source.calls) == stopped


def test_a_camera_continues_its_indices_and_times_after_a_pause(inlet, monkeypatch):
    clock = fake_time(monkeypatch, source_reader)

    def resume():
        clock.now_s += 2.5
        reader.pause(False)

    def before():
        yield live_frame(3)
        yield live_frame(4)
        reader.pause(True)
        yield live_frame(5)
        pytest.fail("it is read on")

    def after():
        yield live_frame(7)
        yield live_frame(8)

    reader = reader_of(Camera(before, after, on_close=resume), inlet)
    reader()
    assert inlet.indices == [3, 4, 5, 6]
    assert [passed.pts_s for passed in inlet.frames] == pytest.approx([3 / 25, 4 / 25, 4 / 25 + 2.5, 5 / 25 + 2.5])
    assert reader.test_source.calls == ["open", "stop", "close", "open", "close"]
    assert (reader.state.state, reader.state.frames) == ("ended", 4)


def test_a_camera_with_continuous_indices_continues_its_times_after_a_pause(inlet, monkeypatch):
    clock = fake_time(monkeypatch, source_reader)

    def resume():
        clock.now_s += 2.5
        reader.pause(False)

    def before():
        yield live_frame(0)
        reader.pause(True)
        yield live_frame(1)

    def after():
        yield Frame("a", 1, 0.0, 16, 16, time_s=1.0, due_s=1.0)
        yield Frame("a", 2, 0.1, 16, 16, time_s=1.0, due_s=1.0)

    reader = reader_of(Camera(before, after, on_close=resume), inlet)
    reader()
    assert inlet.indices == [0, 1, 2]
    assert [passed.pts_s for passed in inlet.frames] == pytest.approx([0.0, 2.5, 2.6])


def test_a_camera_is_reopened_even_if_the_pause_ends_before_it_stopped(inlet):
    def short():
        reader.pause(True)
        reader.pause(False)
        return iter(())

    reader = reader_of(Camera(short, lambda: map(live_frame, range(2))), inlet)
    reader()
    assert inlet.indices == [0, 1]
    assert reader.test_source.calls == ["open", "stop", "close", "open", "close"]


class Line:
    """A start barrier that notes calls."""

    def __init__(self, then=lambda over: None):
        self.calls = []
        self._then = then

    def arrive(self):
        self.calls.append("arrive")

    def wait(self, number, over):
        self.calls.append((number, over()))
        self._then(over)
        return 2.0


@pytest.mark.parametrize(
    ("first", "due_s", "calls"),
    [
        (frame(0, due_s=5.0), 7.0, ["arrive", (3, False)]),
        (frame(0), None, ["arrive"]),
        (live_frame(0), 1.0, ["arrive"]),
    ],
)
def test_only_a_paced_source_waits_at_the_start(inlet, first, due_s, calls):
    reader = reader_of(Scripted(lambda: [first, frame(1, due_s=6.0)]), inlet)
    reader.start_line = line = Line()
    reader.start_number = 3
    reader()
    assert [passed.due_s for passed in inlet.frames] == [due_s, 6.0]
    assert line.calls == calls
    assert reader.start_line is None
