"""Sources that come back by themselves: against faults on purpose, without a network."""

import itertools
import logging
import threading
import time
from types import SimpleNamespace

import pytest
from support.clips import write
from support.returning import Camera
from support.rtsp import free_port, wait_until

from streamkit.core.counters import Counters
from streamkit.core.data import Event, Frame
from streamkit.core.errors import SourceError
from streamkit.core.retry import Retry
from streamkit.core.stage import Context, RuntimeContext, Source
from streamkit.runtime.ingest import reconnect
from streamkit.runtime.ingest.reconnect import RECONNECTED, ReconnectingSource, reconnecting
from streamkit.stages.sources.source import VideoSource
from streamkit.testing.kit import gray


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """75 pictures, 25 a second."""
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=75, options={"g": "10"})


def test_a_file_is_not_reopened_by_default(clip):
    assert isinstance(reconnecting(VideoSource(uri=str(clip))), VideoSource)
    assert isinstance(reconnecting(VideoSource(uri=str(clip), pace="realtime")), VideoSource)
    assert isinstance(reconnecting(VideoSource(uri=str(clip), reconnect=True)), ReconnectingSource)
    assert isinstance(reconnecting(VideoSource(uri="rtsp://host/a")), ReconnectingSource)
    assert isinstance(reconnecting(VideoSource(uri="rtsp://host/a", reconnect=False)), VideoSource)


def test_a_missing_file_is_reopened_when_it_returns(clip):
    fault = {"away": {"at": 1.6, "for": 0.8}}
    camera = Camera(clip, fault=fault, pace="realtime", loop=True, reconnect={"max_backoff": 0.2})
    with camera:
        wait_until(lambda: camera.counters["reconnects"] or camera.error)
        camera.wait_for_frames()
    camera.check_order()
    frames = [frame for frame, _ in camera.frames]
    gaps = [b.pts_s - a.pts_s for a, b in itertools.pairwise(frames)]
    assert max(gaps) > 0.5  # the time that it was away is in its times
    assert {b.index - a.index for a, b in itertools.pairwise(frames)} == {1}
    assert camera.counters["reconnects: refused"] == 1
    assert camera.counters["connection attempts failed"] >= 1
    assert list(dict.fromkeys(camera.states)) == [
        ("connecting", None),
        ("running", None),
        ("reconnecting", "lost"),
        ("reconnecting", "refused"),
    ]
    assert camera.state == ("running", None)
    assert "source cam is lost at" in camera.logged[0]
    assert "is back at" in camera.logged[-1]


def test_a_file_is_not_reopened_after_its_end(clip):
    with Camera(clip, reconnect=True) as camera:
        camera.join()
    assert len(camera.frames) == 75
    assert camera.error is None


def test_reconnecting_stops_after_the_configured_attempts(clip):
    fault = {"away": {"at": 0.2, "for": 60.0}}
    with Camera(clip, fault=fault, pace="realtime", reconnect={"max_backoff": 0.05, "attempts": 3}) as camera:
        camera.join()
    assert camera.error.cause == "refused"
    assert "given up after 3 attempts" in str(camera.error)
    with Camera(clip, fault=fault, pace="realtime", reconnect={"max_backoff": 0.05, "give_up": 0.5}) as camera:
        camera.join()
    assert "without a frame" in str(camera.error)


def test_a_frozen_image_is_detected_and_a_still_scene_accepted(clip):
    fault = {"still": {"at": 0.4, "for": 600.0}}
    with Camera(
        clip, fault=fault, pace="realtime", loop=True, reconnect={"max_backoff": 0.1}, freeze_timeout=0.4
    ) as camera:
        wait_until(lambda: camera.counters["reconnects: frozen"] >= 2 or camera.error)
        first, second = (i for i, (_, cause) in enumerate(camera.states) if cause == "frozen")
        assert first < second
        at_s = [b for (_, a), (_, b) in itertools.pairwise(camera.frames) if b - a > 0.045]
        assert at_s
    camera.check_order()


def test_repeated_failures_do_not_fill_the_log(clip):
    fault = {"fail": {"every": 0.1}}
    with Camera(clip, fault=fault, pace="realtime", loop=True, reconnect={"max_backoff": 0.02}) as camera:
        wait_until(lambda: camera.counters["reconnects"] > 15 or camera.error)
    lost = [text for text in camera.logged if "is lost" in text]
    assert len(lost) == 6
    assert sum("is back" in text for text in camera.logged) == 6


def test_a_refused_address_is_tried_until_it_is_stopped():
    with Camera(f"rtsp://u:secret@127.0.0.1:{free_port()}/a", reconnect={"max_backoff": 5.0}) as camera:
        camera.wait_for_state("reconnecting", "refused")
        wait_until(lambda: camera.counters["connection attempts failed"] >= 2)
    assert camera.error is None
    assert "secret" not in " ".join(camera.logged)
    assert "cannot be reached" in camera.logged[0]


def test_permanent_failures_are_not_retried():
    with Camera("v4l2:///dev/video97?width=640") as camera:
        camera.join()
    assert "a device has the options" in str(camera.error)


def test_a_device_may_be_plugged_in_later():
    with Camera("/dev/video97") as camera:
        camera.wait_for_state("reconnecting", "not_found")
    assert "there is no such device" in camera.logged[0]


class Ticking(Source):
    """Frames of a live source as fast as they are taken; each connection begins with times of its own."""

    retry = Retry(max_wait_s=0.01)

    def __init__(self, connections):
        self._connections = iter(connections)

    def frames(self):
        for index, pts_s in enumerate(next(self._connections)):
            yield Frame("cam", index, pts_s, 64, 48, time_s=time.time(), due_s=time.monotonic())


def test_times_continue_over_connections_with_any_first_time():
    source = reconnecting(Ticking([[5.0, 5.1], [0.0, 0.1], [7.0, 7.1]]))
    source.context = Context("cam", counters=Counters())
    frames = list(itertools.islice(source.frames(), 6))
    assert [frame.index for frame in frames] == list(range(6))
    gaps_s = [after.pts_s - before.pts_s for before, after in itertools.pairwise(frames)]
    assert gaps_s[::2] == pytest.approx([0.1] * 3)
    assert all(0 < gap_s < 2 for gap_s in gaps_s)
    assert source.context.counters["reconnects: lost"] == 2


def test_a_live_stream_that_returns_as_a_recording_ends():
    class Ending(Ticking):
        def frames(self):
            live = next(self._connections)
            for frame in range(3):
                yield Frame("cam", frame, frame / 25, 64, 48, time_s=time.time() if live else None)

    source = reconnecting(Ending([True, False]))
    source.context = Context("cam", counters=Counters())
    assert len(list(source.frames())) == 3


@pytest.mark.alone
def test_a_pause_of_the_reader_counts_neither_as_frozen_nor_as_an_outage():
    """The times and the patience of a source count while it is read, not while nobody asks it for a frame."""

    class Scene(Source):
        retry = Retry(max_wait_s=0.01, frozen_s=0.2, give_up_s=0.3, files=True)
        openings = 0

        def frames(self):
            self.openings += 1
            for index in range(4):
                yield Frame("cam", index, index / 10, 16, 16, gray(16, 16), due_s=time.monotonic())
            if self.openings == 1:
                raise SourceError("cannot be read on")

    inner = Scene()
    source = reconnecting(inner)
    source.context = Context("cam", counters=Counters())
    frames = source.frames()
    frames_read = []
    for frame in frames:
        frames_read.append(frame)
        if frame.index in (0, 3):
            time.sleep(0.4)
    assert inner.openings == 2
    assert source.context.counters["reconnects: frozen"] == 0
    assert len(frames_read) == 8
    assert frames_read[4].pts_s - frames_read[3].pts_s < 0.3


def test_the_delay_passes_before_the_next_attempt(monkeypatch):
    """The source sleeps what was drawn, and wakes at once when it is stopped."""

    tried_s = []

    class Away(Source):
        retry = Retry(max_wait_s=0.5)

        def frames(self):
            tried_s.append(time.monotonic())
            raise SourceError("away", cause="refused")

    monkeypatch.setattr(reconnect.random, "uniform", lambda low, high: high)
    source = reconnecting(Away())
    source.context = Context("cam", counters=Counters())
    thread = threading.Thread(target=lambda: list(source.frames()))
    thread.start()
    wait_until(lambda: len(tried_s) >= 4)
    gaps_s = [b - a for a, b in itertools.pairwise(tried_s[:4])]
    assert all(gap >= shortest_s for gap, shortest_s in zip(gaps_s, (0.25, 0.5, 0.5), strict=True))
    source.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_reconnect_options_are_read():
    assert Retry() == Retry(max_wait_s=3.0, attempts=None, give_up_s=None, frozen_s=None, first=True, files=False)
    assert VideoSource(uri="rtsp://host/a").retry == Retry(frozen_s=60.0)
    options = {"max_backoff": 9.0, "attempts": 4, "give_up": 60.0}
    assert VideoSource(uri="rtsp://host/a", reconnect=options, freeze_timeout=5.0).retry == Retry(
        9.0, 4, 60.0, 5.0, True, True
    )
    assert VideoSource(uri="a.mp4", reconnect=True, freeze_timeout=0.0).retry == Retry(files=True)
    assert VideoSource(uri="http://host/a.mp4").retry == Retry(frozen_s=60.0, first=False)
    assert VideoSource(uri="rtsp://host/a", reconnect=False).retry is None
    assert VideoSource(uri="a.mp4").retry is None


LOST = SourceError("cut", cause="lost")


REFUSED = SourceError("no answer", cause="refused")


class World:
    """The clock, the log and the waits of a source; a wait moves the clock on by a second."""

    def __init__(self, monkeypatch):
        self.now_s = 1000.0
        self.logged = []
        self.statuses = []
        self.closed = []
        monkeypatch.setattr(reconnect, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(reconnect, "at_now", lambda: "NOW")
        monkeypatch.setattr(reconnect, "logger", SimpleNamespace(log=lambda *entry: self.logged.append(entry)))
        self.ranges = []
        uniform = lambda low, high: self.ranges.append((low, high)) or high  # noqa: E731
        monkeypatch.setattr(reconnect, "random", SimpleNamespace(uniform=uniform))
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
        self._connections = iter(connections)
        self.calls = []

    def open(self):
        self.calls.append("open")
        self._script = list(next(self._connections))
        if self._script[:1] == ["refuses"]:
            raise REFUSED

    def close(self):
        self.calls.append("close")

    def stop(self):
        self.calls.append("stop")

    def frames(self):
        for step in self._script:
            if isinstance(step, Exception):
                raise step
            if callable(step):
                step()
            else:
                yield step


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def live(index, pts_s, **fields):
    return Frame("cam", index, pts_s, 16, 16, time_s=1.0, **{"due_s": 1.0, **fields})


def recorded(index, pts_s):
    return Frame("cam", index, pts_s, 16, 16)


def seen(frames):
    return [(frame.index, round(frame.pts_s, 6)) for frame in frames]


def test_a_live_stream_that_ends_is_reopened_and_continues(world):
    source = world.source([live(4, 7.0), live(5, 7.5)], [live(0, 90.0), live(1, 90.25)], [live(3, 0.0)], waits=3)
    frames = list(source.frames())
    assert seen(frames) == [(4, 7.0), (5, 7.5), (6, 8.5), (7, 8.75), (8, 9.75)]
    assert source._inner.calls == ["open", "close"] * 3 + ["stop"]
    assert world.closed == [1000.0, 1001.0, 1002.0]
    assert source.waited == [0.25, 0.5, 1.0]
    running = ("running", None, "")
    again = ("reconnecting", "lost", "the stream ended")
    assert world.statuses == [("connecting", None, ""), *[running, again] * 3]
    assert source.context.counters.values == {"reconnects": 2, "reconnects: lost": 2}
    events = [event for frame in frames for event in frame.events]
    about = {"cause": "lost", "away_s": 1.0}
    assert [(e.kind, e.stage, e.source, e.frame, round(e.pts_s, 6), e.data) for e in events] == [
        (RECONNECTED, "decode", "cam", 6, 8.5, about),
        (RECONNECTED, "decode", "cam", 8, 9.75, about),
    ]
    assert RECONNECTED == "reconnected"
    assert isinstance(events[0], Event)


def test_a_recording_is_reopened_after_an_error_only_if_configured(world):
    source = world.source([recorded(0, 0.0), LOST])
    with pytest.raises(SourceError) as raised:
        list(source.frames())
    assert raised.value is LOST
    source = world.source([recorded(0, 0.0), LOST], [recorded(0, 0.0)], files=True)
    assert seen(source.frames()) == [(0, 0.0), (1, 1.0)]


@pytest.mark.parametrize(("files", "frames"), [(False, [(0, 0.0)]), (True, [(0, 0.0), (1, 1.0), (2, 1.5)])])
def test_a_live_stream_that_returns_as_a_recording_ends_unless_files_are_reopened(world, files, frames):
    source = world.source([live(0, 0.0)], [recorded(0, 0.0), recorded(1, 0.5)], files=files)
    assert seen(source.frames()) == frames
    assert source._inner.calls == ["open", "close", "open", "close"]


def test_a_source_that_failed_to_open_is_not_closed(world):
    source = world.source(["refuses"], ["refuses"], [live(0, 4.0)], waits=3)
    assert seen(source.frames()) == [(0, 4.0)]
    assert source._inner.calls == ["open", "open", "open", "close", "stop"]
    assert source.context.counters.values == {
        "connection attempts failed": 2,
        "reconnects": 1,
        "reconnects: refused": 1,
    }
    assert world.statuses[1:4] == [("reconnecting", "refused", "no answer")] * 2 + [("running", None, "")]


@pytest.mark.parametrize("last", [[], [LOST]])
def test_a_source_that_is_stopped_while_it_is_read_ends_without_an_error(world, last):
    source = world.source([live(0, 0.0), lambda: source.stop(), *last])
    assert len(list(source.frames())) == 1
    assert source.waited == []
    assert world.logged == []


def test_consecutive_failures_up_to_the_limit_end_the_source(world):
    refused = ["refuses"]
    source = world.source(refused, [live(0, 0.0)], refused, refused, attempts=2)
    with pytest.raises(SourceError) as raised:
        list(source.frames())
    assert str(raised.value) == "no answer; given up after 2 attempts"
    assert raised.value.cause == "refused"
    assert raised.value.__cause__ is REFUSED
    assert len(source.waited) == 3


def test_a_source_ends_a_time_after_its_last_frame_or_start(world):
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


@pytest.mark.parametrize(
    ("max_wait_s", "waited_s"),
    [
        (3.0, [0.25, 0.5, 1.0, 2.0, 3.0, 3.0]),
        (100.0, [0.25 * 2**n for n in range(9)] + [100.0]),
        (0.1, [0.1] * 2000),  # a night: 2 to that power is no float
    ],
    ids=["default", "long", "a night"],
)
def test_waits_double_up_to_the_maximum(world, max_wait_s, waited_s):
    refusals = [["refuses"]] * len(waited_s)
    source = world.source(*refusals, waits=len(waited_s), max_wait_s=max_wait_s)
    assert list(source.frames()) == []
    assert source.waited == waited_s
    assert world.ranges == [(longest_s / 2, longest_s) for longest_s in waited_s], "cameras that one switch took away"
    assert source.context.counters["connection attempts failed"] == len(waited_s)


@pytest.mark.parametrize(
    ("error", "retry", "openings"),
    [
        (REFUSED, {}, 2),
        (REFUSED, {"first": False}, 1),
        (SourceError("no such protocol"), {}, 1),
        (SourceError("no such protocol"), {"first": False, "files": True}, 2),
    ],
    ids=["refused", "refused, an address of files", "unknown cause", "files"],
)
def test_a_temporarily_failing_first_connection_is_retried(world, error, retry, openings):
    source = world.source([error], [live(0, 0.0)], waits=2, **retry)
    if openings == 1:
        with pytest.raises(SourceError) as raised:
            list(source.frames())
        assert raised.value is error
    else:
        assert len(list(source.frames())) == 1
    assert source._inner.calls.count("open") == openings


def test_waits_restart_only_after_a_lasting_connection(world):
    def later():
        world.now_s += 3.5

    short = [live(0, 0.0)]
    long = [live(0, 0.0), later]
    refused = ["refuses"]
    source = world.source(refused, refused, short, long, short, refused, waits=6, max_wait_s=3.0)
    list(source.frames())
    assert source.waited == [0.25, 0.5, 1.0, 0.25, 0.5, 1.0]


def test_each_state_change_is_logged_once(world):
    auth = SourceError("wrong password", cause="auth")
    refused = ["refuses"]
    source = world.source(
        refused, refused, [auth], [live(0, 0.0)], refused, refused, [live(0, 0.0), SourceError("odd")], waits=7
    )
    list(source.frames())
    warning = logging.WARNING
    info = logging.INFO
    assert world.logged == [
        (warning, "source cam cannot be reached NOW (refused): no answer; trying again"),
        (warning, "source cam cannot be reached NOW (auth): wrong password; trying again"),
        (info, "source cam is back NOW, after 3.0 s"),
        (warning, "source cam is lost NOW (lost): the stream ended; trying again"),
        (warning, "source cam is still away NOW (refused): no answer; trying again"),
        (info, "source cam is back NOW, after 3.0 s"),
        (warning, "source cam is lost NOW: odd; trying again"),
    ]


def test_each_loss_is_logged_even_for_the_same_cause(world):
    source = world.source(*[[live(0, 0.0), LOST]] * 3, waits=3)
    list(source.frames())
    assert [text for level, text in world.logged if level == logging.WARNING] == [
        "source cam is lost NOW (lost): cut; trying again"
    ] * 3
