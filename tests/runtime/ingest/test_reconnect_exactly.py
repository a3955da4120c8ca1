"""A source that comes back, by a made-up clock: each connection, wait, message and count."""

import logging
from types import SimpleNamespace

import pytest

from streamkit.core.counters import Counters
from streamkit.core.data import Event, Frame
from streamkit.core.errors import SourceError
from streamkit.core.retry import Retry
from streamkit.core.stage import Context, RuntimeContext, Source
from streamkit.runtime.ingest import reconnect
from streamkit.runtime.ingest.reconnect import RECONNECTED, ReconnectingSource, _MessageLimiter, reconnecting
from streamkit.testing.kit import gray

LOST = SourceError("cut", cause="lost")
REFUSED = SourceError("no answer", cause="refused")


class World:
    """The clock, the log and the waits of a source; a wait moves the clock on by a second."""

    def __init__(self, monkeypatch):
        self.now_s, self.logged, self.statuses, self.closed = 1000.0, [], [], []
        monkeypatch.setattr(reconnect, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(reconnect, "at_now", lambda: "NOW")
        monkeypatch.setattr(reconnect, "logger", SimpleNamespace(log=lambda *entry: self.logged.append(entry)))
        monkeypatch.setattr(reconnect, "random", SimpleNamespace(uniform=lambda low, high: high))
        trimmer = SimpleNamespace(count_close=lambda: self.closed.append(self.now_s))
        monkeypatch.setattr(reconnect, "heap_trimmer", trimmer)

    def source(self, *connections, waits=100, **retry):
        """A source with these connections; it is stopped in its last wait."""
        source = ReconnectingSource(ScriptedSource(connections), Retry(**retry))
        runtime = RuntimeContext(report_status=lambda *status: self.statuses.append(status))
        source.context = Context("cam", counters=Counters(), runtime=runtime)
        source.waited = []
        source._stopped.wait = lambda seconds: self._wait(source, seconds, waits)
        return source

    def _wait(self, source, seconds, waits):
        source.waited.append(seconds)
        self.now_s += 1.0
        if len(source.waited) >= waits:
            source.stop()


class ScriptedSource(Source):
    """Connections, each a list of frames, functions and exceptions; notes the calls."""

    unbounded = "its own"

    def __init__(self, connections):
        self._connections, self.calls = iter(connections), []

    def open(self):
        self.calls.append("open")
        self._items = list(next(self._connections))
        if self._items and self._items[0] == "refuses":
            raise REFUSED

    def close(self):
        self.calls.append("close")

    def stop(self):
        self.calls.append("stop")

    def frames(self):
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            if callable(item):
                item()
            else:
                yield item


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def live(index, pts_s, **fields):
    return Frame("cam", index, pts_s, 16, 16, time_s=1.0, **{"due_s": 1.0, **fields})


def recorded(index, pts_s):
    return Frame("cam", index, pts_s, 16, 16)


def seen(frames):
    return [(frame.index, round(frame.pts_s, 6)) for frame in frames]


# -------------------------------------------------------------------------------------------------------- connections


def test_a_live_stream_that_ends_is_opened_again_and_goes_on(world):
    source = world.source([live(4, 7.0), live(5, 7.5)], [live(0, 90.0), live(1, 90.25)], [live(3, 0.0)], waits=3)
    frames = list(source.frames())
    assert seen(frames) == [(4, 7.0), (5, 7.5), (6, 8.5), (7, 8.75), (8, 9.75)]
    assert source._inner.calls == ["open", "close"] * 3 + ["stop"]
    assert world.closed == [1000.0, 1001.0, 1002.0]
    assert source.waited == [0.25, 0.5, 1.0]
    running, again = ("running", None, ""), ("reconnecting", "lost", "the stream ended")
    assert world.statuses == [("connecting", None, ""), *[running, again] * 3]
    assert source.context.counters.values == {"reconnects": 2, "reconnects: lost": 2}
    events = [event for frame in frames for event in frame.events]
    about = {"cause": "lost", "away_s": 1.0}
    assert [(e.kind, e.stage, e.source, e.frame, round(e.pts_s, 6), e.data) for e in events] == [
        (RECONNECTED, "decode", "cam", 6, 8.5, about), (RECONNECTED, "decode", "cam", 8, 9.75, about)
    ]  # fmt: skip
    assert RECONNECTED == "reconnected"
    assert isinstance(events[0], Event)


def test_the_gap_is_told_to_the_millisecond_and_a_failure_without_a_cause_is_counted_too(world):
    def later():
        world.now_s += 0.23456

    source = world.source([live(0, 0.0), SourceError("odd")], [later, live(0, 0.0)], waits=2)
    first, second = source.frames()
    assert first.events == []
    assert second.events[0].data == {"cause": None, "away_s": 1.235}
    assert source.context.counters.values == {"reconnects": 1, "reconnects: failed": 1}


def test_a_recording_that_ends_has_ended(world):
    source = world.source([recorded(0, 0.0), recorded(1, 0.5)])
    assert seen(source.frames()) == [(0, 0.0), (1, 0.5)]
    assert source.waited == []


def test_a_recording_is_opened_again_after_an_error_only_if_asked(world):
    source = world.source([recorded(0, 0.0), LOST])
    with pytest.raises(SourceError) as raised:
        list(source.frames())
    assert raised.value is LOST
    source = world.source([recorded(0, 0.0), LOST], [recorded(0, 0.0)], files=True)
    assert seen(source.frames()) == [(0, 0.0), (1, 1.0)]


@pytest.mark.parametrize(("files", "frames"), [(False, [(0, 0.0)]), (True, [(0, 0.0), (1, 1.0), (2, 1.5)])])
def test_a_live_stream_that_becomes_a_recording_ends_unless_files_are_opened_again(world, files, frames):
    source = world.source([live(0, 0.0)], [recorded(0, 0.0), recorded(1, 0.5)], files=files)
    assert seen(source.frames()) == frames
    assert source._inner.calls == ["open", "close", "open", "close"]


def test_times_of_a_recording_may_jump(world):
    source = world.source([recorded(0, 0.0), recorded(1, 500.0), recorded(2, 3.0)])
    assert seen(source.frames()) == [(0, 0.0), (1, 500.0), (2, 3.0)]
    assert source.context.counters.values == {}


def test_a_source_that_is_refused_is_not_closed(world):
    source = world.source(["refuses"], ["refuses"], [live(0, 4.0)], waits=3)
    assert seen(source.frames()) == [(0, 4.0)]
    assert source._inner.calls == ["open", "open", "open", "close", "stop"]
    assert source.context.counters.values == {
        "connection attempts failed": 2, "reconnects": 1, "reconnects: refused": 1
    }  # fmt: skip
    assert world.statuses[1:4] == [("reconnecting", "refused", "no answer")] * 2 + [("running", None, "")]


# ------------------------------------------------------------------------------------------------------------ the end


def test_a_source_that_is_stopped_is_not_opened(world):
    source = world.source([live(0, 0.0)])
    source.stop()
    assert list(source.frames()) == []
    assert source._inner.calls == ["stop"]
    assert source.unbounded == "its own"


@pytest.mark.parametrize("last", [[], [LOST]])
def test_a_source_that_is_stopped_while_it_is_read_ends_without_an_error(world, last):
    source = world.source([live(0, 0.0), lambda: source.stop(), *last])
    assert len(list(source.frames())) == 1
    assert source.waited == []
    assert world.logged == []


def test_it_is_given_up_after_so_many_failed_connections_in_a_row(world):
    refused = ["refuses"]
    source = world.source(refused, [live(0, 0.0)], refused, refused, attempts=2)
    with pytest.raises(SourceError) as raised:
        list(source.frames())
    assert str(raised.value) == "no answer; given up after 2 attempts"
    assert raised.value.cause == "refused"
    assert raised.value.__cause__ is REFUSED
    assert len(source.waited) == 3


def test_it_is_given_up_so_long_after_the_last_frame_or_the_beginning(world):
    source = world.source(*[["refuses"]] * 9, give_up_s=3.0)
    with pytest.raises(SourceError) as raised:
        list(source.frames())
    assert str(raised.value) == "no answer; given up after 3 s without a frame"
    assert len(source.waited) == 3

    def later():
        world.now_s += 2.0

    source = world.source([later, live(0, 0.0), LOST], *[["refuses"]] * 9, give_up_s=3.0)
    with pytest.raises(SourceError, match="no answer; given up after 3 s without a frame"):
        list(source.frames())
    assert len(source.waited) == 3


def test_waits_begin_anew_only_after_a_connection_that_held(world):
    def later():
        world.now_s += 3.5

    short, long, refused = [live(0, 0.0)], [live(0, 0.0), later], ["refuses"]
    source = world.source(refused, refused, short, long, short, refused, waits=6, max_wait_s=3.0)
    list(source.frames())
    assert source.waited == [0.25, 0.5, 1.0, 0.25, 0.5, 1.0]


# ------------------------------------------------------------------------------------------------------------- frozen


class Detector:
    """Notes what is compared; finds the image frozen when told."""

    def __init__(self, frozen_at=()):
        self.calls, self._frozen_at = [], frozen_at

    def reset(self):
        self.calls.append("reset")

    def __call__(self, surface, now_s):
        self.calls.append((surface, now_s))
        return len(self.calls) in self._frozen_at


def test_an_image_that_does_not_change_is_a_lost_connection(world):
    surface = gray(16, 16)
    source = world.source(
        [live(0, 0.0, surface=surface), live(1, 0.5, surface=surface), live(2, 1.0)],
        [live(0, 0.0, surface=surface, due_s=None), live(1, 0.5)],
        waits=2,
        frozen_s=12.5,
    )
    source._freeze_detector = detector = Detector(frozen_at=(3,))
    assert [index for index, _ in seen(source.frames())] == [0, 2, 3]
    assert detector.calls == ["reset", (surface, 1000.0), (surface, 1000.0), "reset"]
    assert ("reconnecting", "frozen", "the image has not changed for 12.5 s or more") in world.statuses
    assert source.context.counters["reconnects: frozen"] == 1


def test_the_time_for_which_frames_are_held_does_not_count_as_frozen(world):
    def later():
        world.now_s += 0.5

    surface = gray(16, 16)
    pictures = [live(number, number / 2, surface=surface) for number in range(3)]
    source = world.source([pictures[0], later, pictures[1], later, pictures[2]], waits=1, frozen_s=5.0)
    source._freeze_detector = detector = Detector()
    for _ in source.frames():
        world.now_s += 7.0
    assert [now_s for _, now_s in detector.calls[1:]] == [1000.0, 1000.5, 1001.0]


def test_images_are_compared_only_if_asked(world):
    assert world.source()._freeze_detector is None
    assert world.source(frozen_s=4.0)._freeze_detector.limit_s == 4.0


# ----------------------------------------------------------------------------------------------------------- messages


def test_a_message_tells_each_change_once(world):
    auth = SourceError("wrong password", cause="auth")
    refused = ["refuses"]
    source = world.source(
        refused, refused, [auth], [live(0, 0.0)], refused, refused, [live(0, 0.0), SourceError("odd")], waits=7
    )
    list(source.frames())
    warning, info = logging.WARNING, logging.INFO
    assert world.logged == [
        (warning, "source cam cannot be reached NOW (refused): no answer; trying again"),
        (warning, "source cam cannot be reached NOW (auth): wrong password; trying again"),
        (info, "source cam is back NOW, after 3.0 s"),
        (warning, "source cam is lost NOW (lost): the stream ended; trying again"),
        (warning, "source cam is still away NOW (refused): no answer; trying again"),
        (info, "source cam is back NOW, after 3.0 s"),
        (warning, "source cam is lost NOW: odd; trying again"),
    ]


def test_each_loss_is_told_even_for_the_same_cause(world):
    source = world.source(*[[live(0, 0.0), LOST]] * 3, waits=3)
    list(source.frames())
    assert [text for level, text in world.logged if level == logging.WARNING] == [
        "source cam is lost NOW (lost): cut; trying again"
    ] * 3


def test_a_return_is_told_only_if_the_loss_was(world):
    source = world.source([live(0, 0.0)], [live(0, 0.0)], ["refuses"], [live(0, 0.0)], waits=4)
    answers = iter([None, 3, 0, None, None, 0])
    forced = []
    source._limiter = lambda always: forced.append(always) or next(answers)
    list(source.frames())
    assert [text for _, text in world.logged] == [
        "source cam is lost NOW (lost): the stream ended; trying again (3 similar messages suppressed)",
        "source cam is still away NOW (refused): no answer; trying again",
    ]
    assert forced == [False, False, False, True, False]


def test_six_messages_in_a_row_and_then_one_in_ten_minutes(world):
    limiter = _MessageLimiter()
    assert [limiter(False) for _ in range(9)] == [0] * 6 + [None] * 3
    assert limiter(True) == 3, "what must be told is, and tells what was not"
    world.now_s += 599.0
    assert limiter(False) is None
    world.now_s += 1.5
    assert limiter(False) == 1
    assert limiter(False) is None
    world.now_s += 1e6
    assert [limiter(False) for _ in range(8)] == [1] + [0] * 5 + [None] * 2


def test_messages_that_must_be_told_do_not_count(world):
    limiter = _MessageLimiter()
    assert [limiter(True) for _ in range(20)] == [0] * 20
    assert [limiter(False) for _ in range(7)] == [0] * 6 + [None]


def test_a_source_without_a_policy_is_left_as_it_is():
    plain = ScriptedSource([])
    assert reconnecting(plain) is plain
