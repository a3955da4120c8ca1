"""Sources that come back by themselves: against faults on purpose, without a network."""

import itertools
import sys
import time
from pathlib import Path

import pytest
from runtime.returning import Camera

from streamkit.counters import Counters
from streamkit.data import Frame
from streamkit.errors import SourceError
from streamkit.retry import Retry
from streamkit.runtime.reconnect import Reconnecting, reconnecting
from streamkit.stage import Context, Source
from streamkit.stages.source import VideoSource
from streamkit.testing import gray

sys.path.insert(0, str(Path(__file__).parents[1] / "media"))
from clips import write  # the path is set just above
from rtsp import free_port, wait_until


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """75 pictures, 25 a second."""
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=75, options={"g": "10"})


def test_a_file_is_left_closed_unless_asked(clip):
    assert isinstance(reconnecting(VideoSource(uri=str(clip))), VideoSource)
    assert isinstance(reconnecting(VideoSource(uri=str(clip), pace="realtime")), VideoSource)
    assert isinstance(reconnecting(VideoSource(uri=str(clip), reconnect=True)), Reconnecting)
    assert isinstance(reconnecting(VideoSource(uri="rtsp://host/a")), Reconnecting)
    assert isinstance(reconnecting(VideoSource(uri="rtsp://host/a", reconnect=False)), VideoSource)


def test_a_file_that_is_away_comes_back(clip):
    fault = {"away": {"at": 1.6, "for": 0.8}}
    camera = Camera(clip, fault=fault, pace="realtime", loop=True, reconnect={"max_wait": 0.2})
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
        ("connecting", None), ("running", None), ("reconnecting", "lost"), ("reconnecting", "refused"),
    ]  # fmt: skip
    assert camera.state == ("running", None)
    assert "source cam is lost at" in camera.said[0]
    assert "is back at" in camera.said[-1]


def test_the_end_of_a_file_is_its_end(clip):
    with Camera(clip, reconnect=True) as camera:
        camera.join()
    assert len(camera.frames) == 75
    assert camera.error is None


def test_it_is_given_up_when_asked(clip):
    fault = {"away": {"at": 0.2, "for": 60.0}}
    with Camera(clip, fault=fault, pace="realtime", reconnect={"max_wait": 0.05, "attempts": 3}) as camera:
        camera.join()
    assert camera.error.cause == "refused"
    assert "given up after 3 attempts" in str(camera.error)
    with Camera(clip, fault=fault, pace="realtime", reconnect={"max_wait": 0.05, "give_up": 0.5}) as camera:
        camera.join()
    assert "without a picture" in str(camera.error)


def test_a_still_picture_is_noticed_and_a_still_scene_left_alone(clip):
    fault = {"still": {"at": 0.4, "for": 600.0}}
    with Camera(clip, fault=fault, pace="realtime", loop=True, reconnect={"max_wait": 0.1}, frozen=0.4) as camera:
        wait_until(lambda: camera.counters["reconnects: frozen"] >= 2 or camera.error)
        first, second = (i for i, (_, cause) in enumerate(camera.states) if cause == "frozen")
        assert first < second
        at_s = [b for (_, a), (_, b) in itertools.pairwise(camera.frames) if b - a > 0.045]
        assert at_s
    camera.check_order()


def test_a_log_is_not_filled(clip):
    fault = {"fail": {"every": 0.1}}
    with Camera(clip, fault=fault, pace="realtime", loop=True, reconnect={"max_wait": 0.02}) as camera:
        wait_until(lambda: camera.counters["reconnects"] > 15 or camera.error)
    lost = [text for text in camera.said if "is lost" in text]
    assert len(lost) == 6
    assert sum("is back" in text for text in camera.said) == 6


def test_a_refused_address_is_tried_until_it_is_stopped():
    with Camera(f"rtsp://u:secret@127.0.0.1:{free_port()}/a", reconnect={"max_wait": 5.0}) as camera:
        camera.wait_for_state("reconnecting", "refused")
        wait_until(lambda: camera.counters["connection attempts failed"] >= 2)
        begun_s = time.monotonic()
    assert time.monotonic() - begun_s < 4.0
    assert camera.error is None
    assert "secret" not in " ".join(camera.said)
    assert "cannot be reached" in camera.said[0]


def test_what_never_passes_is_not_tried_again():
    with Camera("v4l2:///dev/video97?width=640") as camera:
        camera.join()
    assert "a device has the options" in str(camera.error)


def test_a_device_may_be_plugged_in_later():
    with Camera("/dev/video97") as camera:
        camera.wait_for_state("reconnecting", "not_found")
    assert "there is no such device" in camera.said[0]


class Ticking(Source):
    """Frames of a live source as fast as they are taken; each connection begins with times of its own."""

    retry = Retry(max_wait_s=0.01)

    def __init__(self, connections):
        self._connections = iter(connections)

    def frames(self):
        for index, pts_s in enumerate(next(self._connections)):
            yield Frame("cam", index, pts_s, 64, 48, time_s=time.time(), due_s=time.monotonic())


def test_times_of_a_peer_whose_clock_jumps():
    source = reconnecting(Ticking([[5.0, 5.1, 3.0, 3.1, 90_000.0, 90_000.1], [0.0, 0.1], [7.0, 6.9]]))
    source.context = Context("cam", counters=Counters())
    found = list(itertools.islice(source.frames(), 10))
    assert [frame.index for frame in found] == list(range(10))
    gaps = [b.pts_s - a.pts_s for a, b in itertools.pairwise(found)]
    assert all(0 < gap < 2 for gap in gaps)
    assert [gaps[0], gaps[2], gaps[4]] == pytest.approx([0.1, 0.1, 0.1])
    assert source.context.counters["jumps in time put right"] == 3
    assert source.context.counters["reconnects: lost"] == 2


def test_a_stream_that_becomes_a_recording_has_ended():
    class Ending(Ticking):
        def frames(self):
            live = next(self._connections)
            for frame in range(3):
                yield Frame("cam", frame, frame / 25, 64, 48, time_s=time.time() if live else None)

    source = reconnecting(Ending([True, False]))
    source.context = Context("cam", counters=Counters())
    assert len(list(source.frames())) == 3


def test_a_picture_that_its_reader_holds_in_a_pause_is_not_frozen():
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
    found = []
    for frame in frames:
        found.append(frame)
        if frame.index in (0, 3):
            time.sleep(0.4)
    assert inner.openings == 2
    assert source.context.counters["reconnects: frozen"] == 0
    assert len(found) == 8
    assert found[4].pts_s - found[3].pts_s < 0.3
