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
        self.frames, self.begun, self.ends = [], [], 0

    def begin(self, source, drops):
        self.begun.append((source, drops))
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


def frame(index, **given):
    return Frame("a", index, index / 25, 16, 16, **given)


def live(index, **given):
    return frame(index, time_s=1.0, due_s=1.0, **given)


def reader(source, inlet=None, *, limit=None, spans=Spans):
    made = SourceReader(
        SourceConfig("a", type(source), {}, None), SourceState(), inlet or Inlet(), lambda *_: source, limit, spans
    )
    made.test_source = source
    return made


@pytest.fixture
def inlet():
    return Inlet()


# ------------------------------------------------------------------------------------------------- from start to end


def test_a_source_is_read_from_its_first_frame_to_its_last(inlet):
    source = Scripted(lambda: map(frame, range(3)))
    one = reader(source, inlet)
    assert (one.paused, one.start_line, one.start_number, one.error) == (False, None, 0, None)
    assert not one.state.begun
    one()
    state = one.state
    assert inlet.begun == [("a", state.drops)]
    assert inlet.begun[0][1] is state.drops
    assert inlet.indices == [0, 1, 2]
    assert [made.pts_s for made in inlet.frames] == [0.0, 1 / 25, 2 / 25]
    assert all(made._state.source_state is state for made in inlet.frames)
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

    one = reader(Scripted(five), inlet, limit=limit)
    one()
    assert inlet.indices == list(range(frames))
    assert one.state.frames == frames
    assert taken == list(range(max(1, frames))), "no frame is decoded beyond the limit"
    assert one.test_source.calls == ["open", "close"]


def test_the_timeline_shows_decoding_and_the_waits_for_the_batcher(inlet):
    noted = []

    class Noting(Spans):
        def call(self, name, call, *, waiting=False):
            noted.append((name, waiting))
            return call

        def each(self, name, items, *, waiting=False, about=None):
            noted.append((name, waiting, about))
            return items

    reader(Scripted(lambda: [frame(0)]), inlet, spans=Noting)()
    assert noted == [("wait for the batcher", True), ("decode", False, {"source": "a"})]


@pytest.mark.parametrize(("due_s", "is_live"), [(None, False), (5.0, True)])
def test_the_first_frame_says_whether_a_source_is_live(inlet, due_s, is_live):
    states = []

    def frames():
        yield frame(0, due_s=due_s)
        states.append((one.state.state, one.state.live))
        one.state.live = None
        yield frame(1, due_s=due_s)
        states.append((one.state.state, one.state.live))
        one.state.set_state("connecting")
        yield frame(2, due_s=due_s)
        states.append((one.state.state, one.state.live))

    one = reader(Scripted(frames), inlet)
    one()
    assert states == [("running", is_live), ("running", None), ("running", is_live)]


def test_the_first_frame_does_not_hide_what_a_source_reports(inlet):
    states = []

    def frames():
        one.state.set_state("reconnecting", "lost")
        yield frame(0, due_s=1.0)
        states.append((one.state.state, one.state.cause, one.state.live))

    one = reader(Scripted(frames), inlet)
    one()
    assert states == [("reconnecting", "lost", True)]


# ------------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("error", "told", "cause"),
    [
        (SourceError("no such camera", cause="not_found"), "no such camera", "not_found"),
        (SourceError("odd"), "odd", None),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero", None),
    ],
)
def test_an_exception_is_the_failure_of_its_source(inlet, error, told, cause):
    def frames():
        yield frame(0)
        raise error

    one = reader(Scripted(frames), inlet)
    one()
    state = one.state
    assert told in state.error
    assert state.raised is error
    assert (state.state, state.cause, state.message, state.done) == ("failed", cause, state.error, True)
    assert one.error is None
    assert (inlet.indices, inlet.ends, one.test_source.calls) == ([0], 1, ["open", "close"])


def test_a_source_error_is_told_in_its_own_words(inlet):
    def refuse():
        raise SourceError("there is no such camera")

    one = reader(Scripted(on_open=refuse), inlet)
    one()
    assert one.state.error == "there is no such camera"
    assert one.test_source.calls == ["open"], "what was not opened is not closed"


def test_an_exception_after_the_end_is_no_failure(inlet):
    def frames():
        yield frame(0)
        one.end()
        raise ValueError

    one = reader(Scripted(frames), inlet)
    one()
    assert (one.state.state, one.state.error, one.state.raised) == ("ended", None, None)


def test_an_error_that_ends_the_run_is_kept(inlet):
    def frames():
        yield frame(0)
        raise SystemExit(3)

    one = reader(Scripted(frames), inlet)
    one()
    assert isinstance(one.error, SystemExit)
    assert (one.state.done, one.state.state, inlet.ends) == (True, "ended", 1)


def test_an_aborted_run_ends_a_source_without_an_error(inlet):
    def aborted(*_):
        raise Aborted

    inlet.put = aborted
    one = reader(Scripted(lambda: [frame(0)]), inlet)
    one()
    assert (one.state.state, one.state.error, one.state.done, one.error) == ("ended", None, True, None)
    assert one.test_source.calls == ["open", "close"]
    assert inlet.ends == 1


def test_a_source_whose_turn_comes_after_the_abort_is_not_opened(inlet):
    def aborted(*_):
        raise Aborted

    inlet.begin = aborted
    one = reader(Scripted(), inlet)
    one()
    assert (one.state.state, one.state.begun, one.state.done, one.test_source.calls) == ("ended", True, True, [])


# ------------------------------------------------------------------------------------------------------------------ end


def test_a_source_that_hangs_is_cut_off_from_the_batcher_at_once():
    hangs, release = threading.Event(), threading.Event()

    def frames():
        yield frame(0)
        hangs.set()
        release.wait(30)

    batcher = Batcher(4, 0.0, np)
    batcher.expect(1)
    one = reader(Scripted(frames), batcher)
    thread = in_thread(one)
    assert hangs.wait(30)
    assert [made.index for made in batcher.next().frames] == [0]
    one.end()
    found = []
    taker = in_thread(lambda: found.append(batcher.next()))
    taker.join(30)
    assert found[0].ended == ("a",)
    assert thread.is_alive()
    assert one.test_source.calls == ["open", "stop"]
    release.set()
    thread.join(30)
    assert one.test_source.calls == ["open", "stop", "close"]
    assert one.state.state == "ended"


def test_a_source_that_is_ended_before_its_turn_is_not_made(inlet):
    one = reader(None, inlet)
    one._make = lambda *_: pytest.fail("it is made")
    one.end()
    one()
    assert inlet.ends >= 1
    assert (one.state.state, one.state.error) == ("ended", None)


def test_a_source_that_is_ended_while_it_is_made_is_not_opened(inlet):
    source = Scripted()
    one = reader(source, inlet)
    one._make = lambda *_: one.end() or source
    one()
    assert source.calls == []
    assert one.state.state == "ended"


def test_a_source_that_has_ended_is_not_stopped(inlet):
    one = reader(Scripted(lambda: [frame(0)]), inlet)
    one()
    one.end()
    one.pause(True)
    assert one.test_source.calls == ["open", "close"]
    assert one.state.state == "ended"


def test_no_frame_follows_the_end(inlet):
    def frames():
        yield frame(0)
        one.end()
        yield frame(1)
        pytest.fail("it is read on")

    one = reader(Scripted(frames), inlet)
    one()
    assert inlet.indices == [0]
    assert one.state.state == "ended"


# ---------------------------------------------------------------------------------------------------------------- pause


def test_a_pause_is_a_state_and_so_is_its_end():
    one = reader(Scripted())
    one.pause(True)
    assert (one.paused, one.state.state) == (True, "paused")
    one.state.message = "kept"
    one.pause(True)
    assert one.state.message == "kept", "nothing changes"
    one.pause(False)
    assert (one.paused, one.state.state) == (False, "connecting")
    one.state.set_state("running")
    one.pause(False)
    assert one.state.state == "running"


def test_a_pause_takes_precedence_over_what_a_source_reports():
    one = reader(Scripted())
    one._set_state("running", "c", "m")
    assert (one.state.state, one.state.cause, one.state.message) == ("running", "c", "m")
    one._set_state("connecting")
    assert (one.state.state, one.state.cause, one.state.message) == ("connecting", None, "")
    one.pause(True)
    one._set_state("running")
    assert one.state.state == "paused"
    one.pause(False)
    one.end()
    one._set_state("running")
    assert one.state.state == "connecting"


@pytest.mark.parametrize(
    ("kind", "first", "stopped"), [(Scripted, live, False), (Camera, live, True), (Camera, frame, False)]
)
def test_a_pause_stops_a_source_that_cannot_hold_a_frame(inlet, kind, first, stopped):
    """A camera is stopped; a file, or a source with a pace that the first frame shows, holds its frame."""

    def frames():
        yield first(0)
        one.pause(True)
        one.pause(False)

    one = reader(kind(frames, list), inlet)
    one()
    assert ("stop" in one.test_source.calls) == stopped
    assert one.test_source.calls.count("open") == 1 + stopped, "a stopped source is opened again"
    assert one.state.state == "ended"


@pytest.mark.parametrize(("kind", "stopped"), [(Scripted, False), (Camera, True)])
def test_before_the_first_frame_only_what_has_an_end_can_hold(inlet, kind, stopped):
    def frames():
        one.pause(True)
        one.pause(False)
        yield frame(0)

    one = reader(kind(frames, list), inlet)
    one()
    assert ("stop" in one.test_source.calls) == stopped


def test_the_end_of_a_pause_stops_nothing(inlet):
    def frames():
        yield live(0)
        one.pause(False)
        yield live(1)

    one = reader(Camera(frames), inlet)
    one()
    assert one.test_source.calls == ["open", "close"]


def test_a_camera_continues_its_indices_and_times_after_a_pause(inlet, monkeypatch):
    clock = Clock(monkeypatch)

    def resume():
        clock.now_s += 2.5
        one.pause(False)

    def before():
        yield live(3)
        yield live(4)
        one.pause(True)
        yield live(5)
        pytest.fail("it is read on")

    def after():
        yield live(7)
        yield live(8)

    one = reader(Camera(before, after, on_close=resume), inlet)
    one()
    assert inlet.indices == [3, 4, 5, 6]
    assert [made.pts_s for made in inlet.frames] == pytest.approx([3 / 25, 4 / 25, 4 / 25 + 2.5, 5 / 25 + 2.5])
    assert one.test_source.calls == ["open", "stop", "close", "open", "close"]
    assert (one.state.state, one.state.frames) == ("ended", 4)


def test_a_camera_that_counts_on_by_itself_continues_its_times_too(inlet, monkeypatch):
    clock = Clock(monkeypatch)

    def resume():
        clock.now_s += 2.5
        one.pause(False)

    def before():
        yield live(0)
        one.pause(True)
        yield live(1)

    def after():
        yield Frame("a", 1, 0.0, 16, 16, time_s=1.0, due_s=1.0)
        yield Frame("a", 2, 0.1, 16, 16, time_s=1.0, due_s=1.0)

    one = reader(Camera(before, after, on_close=resume), inlet)
    one()
    assert inlet.indices == [0, 1, 2]
    assert [made.pts_s for made in inlet.frames] == pytest.approx([0.0, 2.5, 2.6])


def test_each_pause_of_a_camera_adds_to_its_times(inlet, monkeypatch):
    clock = Clock(monkeypatch)

    def resume():
        clock.now_s += 1.0
        one.pause(False)

    def one_frame():
        yield live(0)
        one.pause(True)
        yield live(1)

    one = reader(Camera(one_frame, one_frame, lambda: [live(0)], on_close=resume), inlet)
    one()
    assert inlet.indices == [0, 1, 2]
    assert [made.pts_s for made in inlet.frames] == pytest.approx([0.0, 1.0, 2.0])


def test_a_file_holds_its_frame_and_delays_its_due_time_by_the_pause(inlet, monkeypatch):
    clock = Clock(monkeypatch)

    def frames():
        yield frame(0, due_s=100.0)
        clock.now_s = 110.0
        one.pause(True)
        yield frame(1, due_s=110.5)
        yield frame(2)

    def then(_):
        clock.now_s += 3.0
        one.paused = clock.now_s < 115.0

    one = reader(Scripted(frames), inlet)
    one._changed = Waits(then)
    one()
    assert inlet.indices == [0, 1, 2]
    assert [made.due_s for made in inlet.frames] == [100.0, 116.5, None]
    assert one._changed.timeouts == [None, None]
    assert one.test_source.calls == ["open", "close"]


def test_a_file_without_a_pace_holds_its_frame_too(inlet):
    def frames():
        one.pause(True)
        yield frame(0)

    one = reader(Scripted(frames), inlet)
    one._changed = Waits(lambda _: one.pause(False))
    one()
    assert [made.due_s for made in inlet.frames] == [None]


def test_a_source_that_is_ended_in_a_pause_ends(inlet):
    def frames():
        yield frame(0)
        one.pause(True)
        yield frame(1)

    one = reader(Scripted(frames), inlet)
    one._changed = Waits(lambda _: one.end())
    one()
    assert inlet.indices == [0]
    assert one.test_source.calls == ["open", "stop", "close"]
    assert one.state.state == "ended"


def test_a_source_that_is_paused_while_it_is_made_is_made_again(inlet):
    source, made = Scripted(lambda: [frame(0)]), []

    def make(*_):
        made.append(one.state.state)
        one.pause(len(made) == 1)
        return source

    one = reader(source, inlet)
    one._make = make
    one._changed = Waits(lambda _: one.pause(False))
    one()
    assert len(made) == 2
    assert (inlet.indices, source.calls) == ([0], ["open", "close"])


def test_a_camera_is_opened_again_even_if_the_pause_ends_before_it_has_stopped(inlet):
    def short():
        one.pause(True)
        one.pause(False)
        return iter(())

    one = reader(Camera(short, lambda: map(live, range(2))), inlet)
    one()
    assert inlet.indices == [0, 1]
    assert one.test_source.calls == ["open", "stop", "close", "open", "close"]


def test_a_file_that_is_paused_at_its_end_is_not_read_again(inlet):
    def frames():
        yield frame(0)
        one.pause(True)

    one = reader(Scripted(frames, lambda: [frame(0)]), inlet)
    one._changed = Waits(lambda _: one.pause(False))
    one()
    assert inlet.indices == [0]
    assert (one.state.state, one._changed.timeouts) == ("ended", [])


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
    one = reader(Scripted(lambda: [first, frame(1, due_s=6.0)]), inlet)
    one.start_line = line = Line()
    one.start_number = 3
    one()
    assert [made.due_s for made in inlet.frames] == [due_s, 6.0]
    assert line.calls == calls
    assert one.start_line is None


def test_a_source_without_a_frame_does_not_keep_the_others_waiting(inlet):
    one = reader(Scripted(list), inlet)
    one.start_line = line = Line()
    one()
    assert line.calls == ["arrive"]


@pytest.mark.parametrize("ends", ["pause", "end"])
def test_a_pause_or_an_end_ends_the_wait_at_the_start(inlet, ends):
    found = []

    def then(over):
        one.pause(True) if ends == "pause" else one.end()
        found.append(over())
        one.end()

    one = reader(Scripted(lambda: [frame(0, due_s=5.0)]), inlet)
    one.start_line = Line(then)
    one()
    assert found == [True]
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
