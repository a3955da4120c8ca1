"""One source read without a pipeline: a made-up batcher and clock show each step of pauses, ends and failures."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from support.batches import in_thread

from streamkit.config.plan import SourceConfig
from streamkit.core.data import Frame
from streamkit.core.errors import SourceError
from streamkit.core.stage import Source
from streamkit.core.tracing import Spans
from streamkit.runtime.execution.channel import Aborted
from streamkit.runtime.ingest import source_reader
from streamkit.runtime.ingest.batcher import Batcher
from streamkit.runtime.ingest.source_reader import SourceReader, SynchronizedStart
from streamkit.runtime.ingest.source_status import SourceState


class Inlet:
    """The batcher and its inlet: notes what the reader passes on."""

    def __init__(self):
        self.frames, self.begins, self.ends = [], [], 0

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
        self.openings, self.calls = iter(openings), []
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


class Clock:
    """The clock of the reader; waits take no time but move it on."""

    def __init__(self, monkeypatch):
        self.now_s = 100.0
        monkeypatch.setattr(source_reader, "time", SimpleNamespace(monotonic=lambda: self.now_s))


class Waits:
    """A condition whose waits are noted and do something instead."""

    def __init__(self, then):
        self.timeouts, self._then = [], then

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def notify_all(self):
        pass

    def wait(self, timeout=None):
        self.timeouts.append(timeout)
        assert len(self.timeouts) < 10_000, "it waits for ever"
        self._then(timeout)


def frame(index, **fields):
    return Frame("a", index, index / 25, 16, 16, **fields)


def live(index, **fields):
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


# ------------------------------------------------------------------------------------------------- from start to end


def test_a_source_is_read_from_its_first_frame_to_its_last(inlet):
    source = Scripted(lambda: map(frame, range(3)))
    reader = reader_of(source, inlet)
    assert (reader.paused, reader.start_line, reader.start_number, reader.error) == (False, None, 0, None)
    assert not reader.state.begun
    reader()
    state = reader.state
    assert inlet.begins == [("a", state.drops)]
    assert inlet.begins[0][1] is state.drops
    assert inlet.indices == [0, 1, 2]
    assert [passed.pts_s for passed in inlet.frames] == [0.0, 1 / 25, 2 / 25]
    assert all(passed._state.source_state is state for passed in inlet.frames)
    assert source.calls == ["open", "close"]
    assert inlet.ends == 1
    assert (state.begun, state.done, state.frames, state.state, state.error) == (True, True, 3, "ended", None)


@pytest.mark.parametrize(("limit", "frames"), [(None, 5), (0, 0), (1, 1), (3, 3), (9, 5)])
def test_a_source_with_a_limit_is_read_no_further(inlet, limit, frames):
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


def test_the_timeline_shows_decoding_and_the_waits_for_the_batcher(inlet):
    noted = []

    class Noting(Spans):
        def call(self, name, call, *, waiting=False):
            noted.append((name, waiting))
            return call

        def each(self, name, items, *, waiting=False, about=None):
            noted.append((name, waiting, about))
            return items

    reader_of(Scripted(lambda: [frame(0)]), inlet, spans=Noting)()
    assert noted == [("wait for the batcher", True), ("decode", False, {"source": "a"})]


@pytest.mark.parametrize(("due_s", "is_live"), [(None, False), (5.0, True)])
def test_the_first_frame_says_whether_a_source_is_live(inlet, due_s, is_live):
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


def test_the_first_frame_does_not_hide_what_a_source_reports(inlet):
    states = []

    def frames():
        reader.state.set_state("reconnecting", "lost")
        yield frame(0, due_s=1.0)
        states.append((reader.state.state, reader.state.cause, reader.state.live))

    reader = reader_of(Scripted(frames), inlet)
    reader()
    assert states == [("reconnecting", "lost", True)]


# ------------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("error", "message", "cause"),
    [
        (SourceError("no such camera", cause="not_found"), "no such camera", "not_found"),
        (SourceError("odd"), "odd", None),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero", None),
    ],
)
def test_an_exception_is_the_failure_of_its_source(inlet, error, message, cause):
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


def test_a_source_error_is_told_in_its_own_words(inlet):
    def refuse():
        raise SourceError("there is no such camera")

    reader = reader_of(Scripted(on_open=refuse), inlet)
    reader()
    assert reader.state.error == "there is no such camera"
    assert reader.test_source.calls == ["open"], "what was not opened is not closed"


def test_an_exception_after_the_end_is_no_failure(inlet):
    def frames():
        yield frame(0)
        reader.end()
        raise ValueError

    reader = reader_of(Scripted(frames), inlet)
    reader()
    assert (reader.state.state, reader.state.error, reader.state.raised) == ("ended", None, None)


def test_an_error_that_ends_the_run_is_kept(inlet):
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


def test_a_source_whose_turn_comes_after_the_abort_is_not_opened(inlet):
    def aborted(*_):
        raise Aborted

    inlet.begin = aborted
    reader = reader_of(Scripted(), inlet)
    reader()
    assert (reader.state.state, reader.state.begun, reader.state.done, reader.test_source.calls) == (
        "ended",
        True,
        True,
        [],
    )


# ------------------------------------------------------------------------------------------------------------------ end


def test_a_source_that_hangs_is_cut_off_from_the_batcher_at_once():
    hangs, release = threading.Event(), threading.Event()

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


def test_a_source_that_is_ended_before_its_turn_is_not_made(inlet):
    reader = reader_of(None, inlet)
    reader._make = lambda *_: pytest.fail("it is made")
    reader.end()
    reader()
    assert inlet.ends >= 1
    assert (reader.state.state, reader.state.error) == ("ended", None)


def test_a_source_that_is_ended_while_it_is_made_is_not_opened(inlet):
    source = Scripted()
    reader = reader_of(source, inlet)
    reader._make = lambda *_: reader.end() or source
    reader()
    assert source.calls == []
    assert reader.state.state == "ended"


def test_a_source_that_has_ended_is_not_stopped(inlet):
    reader = reader_of(Scripted(lambda: [frame(0)]), inlet)
    reader()
    reader.end()
    reader.pause(True)
    assert reader.test_source.calls == ["open", "close"]
    assert reader.state.state == "ended"


def test_no_frame_follows_the_end(inlet):
    def frames():
        yield frame(0)
        reader.end()
        yield frame(1)
        pytest.fail("it is read on")

    reader = reader_of(Scripted(frames), inlet)
    reader()
    assert inlet.indices == [0]
    assert reader.state.state == "ended"


# ---------------------------------------------------------------------------------------------------------------- pause


def test_a_pause_is_a_state_and_so_is_its_end():
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


def test_a_pause_takes_precedence_over_what_a_source_reports():
    reader = reader_of(Scripted())
    reader._set_state("running", "c", "m")
    assert (reader.state.state, reader.state.cause, reader.state.message) == ("running", "c", "m")
    reader._set_state("connecting")
    assert (reader.state.state, reader.state.cause, reader.state.message) == ("connecting", None, "")
    reader.pause(True)
    reader._set_state("running")
    assert reader.state.state == "paused"
    reader.pause(False)
    reader.end()
    reader._set_state("running")
    assert reader.state.state == "connecting"


@pytest.mark.parametrize(
    ("kind", "first", "stopped"), [(Scripted, live, False), (Camera, live, True), (Camera, frame, False)]
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
def test_before_the_first_frame_only_what_has_an_end_can_hold(inlet, kind, stopped):
    def frames():
        reader.pause(True)
        reader.pause(False)
        yield frame(0)

    reader = reader_of(kind(frames, list), inlet)
    reader()
    assert ("stop" in reader.test_source.calls) == stopped


def test_the_end_of_a_pause_stops_nothing(inlet):
    def frames():
        yield live(0)
        reader.pause(False)
        yield live(1)

    reader = reader_of(Camera(frames), inlet)
    reader()
    assert reader.test_source.calls == ["open", "close"]


def test_a_camera_continues_its_indices_and_times_after_a_pause(inlet, monkeypatch):
    clock = Clock(monkeypatch)

    def resume():
        clock.now_s += 2.5
        reader.pause(False)

    def before():
        yield live(3)
        yield live(4)
        reader.pause(True)
        yield live(5)
        pytest.fail("it is read on")

    def after():
        yield live(7)
        yield live(8)

    reader = reader_of(Camera(before, after, on_close=resume), inlet)
    reader()
    assert inlet.indices == [3, 4, 5, 6]
    assert [passed.pts_s for passed in inlet.frames] == pytest.approx([3 / 25, 4 / 25, 4 / 25 + 2.5, 5 / 25 + 2.5])
    assert reader.test_source.calls == ["open", "stop", "close", "open", "close"]
    assert (reader.state.state, reader.state.frames) == ("ended", 4)


def test_a_camera_that_counts_on_by_itself_continues_its_times_too(inlet, monkeypatch):
    clock = Clock(monkeypatch)

    def resume():
        clock.now_s += 2.5
        reader.pause(False)

    def before():
        yield live(0)
        reader.pause(True)
        yield live(1)

    def after():
        yield Frame("a", 1, 0.0, 16, 16, time_s=1.0, due_s=1.0)
        yield Frame("a", 2, 0.1, 16, 16, time_s=1.0, due_s=1.0)

    reader = reader_of(Camera(before, after, on_close=resume), inlet)
    reader()
    assert inlet.indices == [0, 1, 2]
    assert [passed.pts_s for passed in inlet.frames] == pytest.approx([0.0, 2.5, 2.6])


def test_each_pause_of_a_camera_adds_to_its_times(inlet, monkeypatch):
    clock = Clock(monkeypatch)

    def resume():
        clock.now_s += 1.0
        reader.pause(False)

    def frame_then_pause():
        yield live(0)
        reader.pause(True)
        yield live(1)

    reader = reader_of(Camera(frame_then_pause, frame_then_pause, lambda: [live(0)], on_close=resume), inlet)
    reader()
    assert inlet.indices == [0, 1, 2]
    assert [passed.pts_s for passed in inlet.frames] == pytest.approx([0.0, 1.0, 2.0])


def test_a_file_holds_its_frame_and_delays_its_due_time_by_the_pause(inlet, monkeypatch):
    clock = Clock(monkeypatch)

    def frames():
        yield frame(0, due_s=100.0)
        clock.now_s = 110.0
        reader.pause(True)
        yield frame(1, due_s=110.5)
        yield frame(2)

    def then(_):
        clock.now_s += 3.0
        reader.paused = clock.now_s < 115.0

    reader = reader_of(Scripted(frames), inlet)
    reader._changed = Waits(then)
    reader()
    assert inlet.indices == [0, 1, 2]
    assert [passed.due_s for passed in inlet.frames] == [100.0, 116.5, None]
    assert reader._changed.timeouts == [None, None]
    assert reader.test_source.calls == ["open", "close"]


def test_a_file_without_a_pace_holds_its_frame_too(inlet):
    def frames():
        reader.pause(True)
        yield frame(0)

    reader = reader_of(Scripted(frames), inlet)
    reader._changed = Waits(lambda _: reader.pause(False))
    reader()
    assert [passed.due_s for passed in inlet.frames] == [None]


def test_a_source_that_is_ended_in_a_pause_ends(inlet):
    def frames():
        yield frame(0)
        reader.pause(True)
        yield frame(1)

    reader = reader_of(Scripted(frames), inlet)
    reader._changed = Waits(lambda _: reader.end())
    reader()
    assert inlet.indices == [0]
    assert reader.test_source.calls == ["open", "stop", "close"]
    assert reader.state.state == "ended"


def test_a_source_that_is_paused_while_it_is_made_is_made_again(inlet):
    source, states = Scripted(lambda: [frame(0)]), []

    def make(*_):
        states.append(reader.state.state)
        reader.pause(len(states) == 1)
        return source

    reader = reader_of(source, inlet)
    reader._make = make
    reader._changed = Waits(lambda _: reader.pause(False))
    reader()
    assert len(states) == 2
    assert (inlet.indices, source.calls) == ([0], ["open", "close"])


def test_a_camera_is_opened_again_even_if_the_pause_ends_before_it_has_stopped(inlet):
    def short():
        reader.pause(True)
        reader.pause(False)
        return iter(())

    reader = reader_of(Camera(short, lambda: map(live, range(2))), inlet)
    reader()
    assert inlet.indices == [0, 1]
    assert reader.test_source.calls == ["open", "stop", "close", "open", "close"]


def test_a_file_that_is_paused_at_its_end_is_not_read_again(inlet):
    def frames():
        yield frame(0)
        reader.pause(True)

    reader = reader_of(Scripted(frames, lambda: [frame(0)]), inlet)
    reader._changed = Waits(lambda _: reader.pause(False))
    reader()
    assert inlet.indices == [0]
    assert (reader.state.state, reader._changed.timeouts) == ("ended", [])


# -------------------------------------------------------------------------------------------------------------- start


class Line:
    """A start barrier that notes calls."""

    def __init__(self, then=lambda over: None):
        self.calls, self._then = [], then

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
        (live(0), 1.0, ["arrive"]),
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


def test_a_source_without_a_frame_does_not_keep_the_others_waiting(inlet):
    reader = reader_of(Scripted(list), inlet)
    reader.start_line = line = Line()
    reader()
    assert line.calls == ["arrive"]


@pytest.mark.parametrize("ends", ["pause", "end"])
def test_a_pause_or_an_end_ends_the_wait_at_the_start(inlet, ends):
    is_over = []

    def then(over):
        reader.pause(True) if ends == "pause" else reader.end()
        is_over.append(over())
        reader.end()

    reader = reader_of(Scripted(lambda: [frame(0, due_s=5.0)]), inlet)
    reader.start_line = Line(then)
    reader()
    assert is_over == [True]
    assert not inlet.frames


def start_line(sources, patience_s=None):
    line = SynchronizedStart(patience_s)
    for _ in range(sources):
        line.join()
    line.release()
    return line


def test_the_start_is_waited_for_in_small_steps(monkeypatch):
    clock = Clock(monkeypatch)

    def moved_on(timeout):
        clock.now_s += timeout

    line = start_line(2, 0.12)
    line._changed = waits = Waits(moved_on)
    assert line.wait(0, lambda: False) == pytest.approx(0.12)
    assert waits.timeouts == pytest.approx([0.05, 0.05, 0.02])
    waits.timeouts.clear()
    assert line.wait(7, lambda: False) == pytest.approx(0.07), "patience counts from the beginning"
    assert waits.timeouts == pytest.approx([0.05, 0.02])


def test_the_start_comes_with_the_last_source(monkeypatch):
    clock = Clock(monkeypatch)
    line = start_line(3, 60.0)

    def arrived(timeout):
        clock.now_s += 0.25
        line.arrive()

    line._changed = waits = Waits(arrived)
    assert line.wait(0, lambda: False) == 0.75
    assert waits.timeouts == [0.05] * 3


def test_a_start_without_others_is_at_once(monkeypatch):
    Clock(monkeypatch)
    line = start_line(1)
    line._changed = waits = Waits(lambda _: None)
    line.arrive()
    assert line.wait(0, lambda: False) == 0.0
    assert start_line(1).wait(5, lambda: True) == 0.0
    assert waits.timeouts == []
