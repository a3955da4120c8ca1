"""Sources that come back by themselves: against faults on purpose, and against real RTSP cameras."""

import itertools
import json
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamkit.config import read_text
from streamkit.counters import Counters
from streamkit.data import Device, Frame
from streamkit.errors import SourceError
from streamkit.fault import Fault
from streamkit.graph import build
from streamkit.retry import Retry
from streamkit.runtime.device import choose
from streamkit.runtime.faulty import Faults, FaultySource
from streamkit.runtime.reconnect import Reconnecting, reconnecting
from streamkit.runtime.run import Pipeline
from streamkit.stage import Context, Source
from streamkit.stages.source import VideoSource

sys.path.insert(0, str(Path(__file__).parents[1] / "media"))
from clips import write  # the path is set just above
from rtsp import free_port, wait_until


class Camera:
    """A source that is read on a thread of its own, and what came of it."""

    def __init__(self, uri, *, fault=None, most=None, **given):
        self.frames, self.states, self.said, self.error = [], [], [], None
        self.counters = Counters()
        made = VideoSource(uri=str(uri), **given)
        if fault is not None:
            made = FaultySource(made, Faults(Fault(**fault), "cam"))
        self.source = reconnecting(made)
        self.source.context = Context(
            "cam", Device(), counters=self.counters, say=self.said.append,
            status=lambda state, cause, words: self.states.append((state, cause)),
        )  # fmt: skip
        self._most = most
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            self.source.open()
            frames = self.source.frames()
            for frame in frames:
                frame.surface = None
                self.frames.append((frame, time.monotonic()))
                if len(self.frames) == self._most:
                    break
            frames.close()
            self.source.close()
        except SourceError as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.source.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()

    def join(self):
        self.thread.join(60)
        assert not self.thread.is_alive()

    @property
    def state(self):
        return self.states[-1] if self.states else None

    def wait_for_frames(self, more=5, timeout_s=60.0):
        count = len(self.frames) + more
        wait_until(lambda: len(self.frames) >= count or self.error, timeout_s, f"{more} more frames")
        assert self.error is None

    def wait_for_state(self, state, cause=None):
        wait_until(lambda: self.state == (state, cause), what=f"{state}, {cause} (it is {self.state})")

    def check_order(self):
        """Indices and times rise, and times go with the clock."""
        indices = [frame.index for frame, _ in self.frames]
        times = [frame.pts_s for frame, _ in self.frames]
        assert all(b > a for a, b in itertools.pairwise(indices))
        assert all(b > a for a, b in itertools.pairwise(times))


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """75 pictures, 25 a second."""
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=75, options={"g": "10"})


@pytest.fixture(scope="module")
def videos(test_data):
    return test_data / "videos"


# ------------------------------------------------------------------------------------------------------ no network


def test_a_file_is_left_closed_unless_asked(clip):
    assert isinstance(reconnecting(VideoSource(uri=str(clip))), VideoSource)
    assert isinstance(reconnecting(VideoSource(uri=str(clip), pace="realtime")), VideoSource)
    assert isinstance(reconnecting(VideoSource(uri=str(clip), reconnect=True)), Reconnecting)
    assert isinstance(reconnecting(VideoSource(uri="rtsp://host/a")), Reconnecting)
    assert isinstance(reconnecting(VideoSource(uri="rtsp://host/a", reconnect=False)), VideoSource)


def test_a_file_that_is_away_comes_back(clip):
    fault = {"away": {"at": 0.6, "for": 0.8}}
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


# ------------------------------------------------------------------------------------------------------ RTSP cameras


def test_the_server_goes_and_comes_back(rtsp, videos):
    server = rtsp({"a": videos / "vtest_480x360.mp4"}, user="ann", password="secret")
    with Camera(server.url("a"), timeout=5.0) as camera:
        camera.wait_for_frames()
        frame = camera.frames[0][0]
        assert abs(frame.time_s - time.time()) < 60
        server.stop()
        wait_until(lambda: camera.state[0] == "reconnecting")
        wait_until(lambda: camera.counters["connection attempts failed"] >= 2)
        assert camera.state == ("reconnecting", "refused")
        server.start()
        camera.wait_for_frames()
    camera.check_order()
    assert camera.counters["reconnects"] == 1
    ((event, frame),) = [(event, frame) for frame, _ in camera.frames for event in frame.events]
    assert (event.kind, event.stage, event.source, event.frame) == ("reconnected", "decode", "cam", frame.index)
    assert (event.pts_s, event.data["cause"]) == (frame.pts_s, "refused")
    before = next(one for one, _ in reversed(camera.frames) if one.index < frame.index)
    assert 0 < event.data["away_s"] < frame.pts_s - before.pts_s + 1
    assert "secret" not in " ".join(camera.said)


def test_auth_not_found_and_a_password_that_changes(rtsp, videos):
    server = rtsp({"a": videos / "vtest_480x360.mp4"}, user="ann", password="right")
    with Camera(server.url("a", password="wrong")) as wrong, Camera(server.url("b")) as nowhere:
        wrong.wait_for_state("reconnecting", "auth")
        nowhere.wait_for_state("reconnecting", "not_found")
        server.change_password("wrong")
        wrong.wait_for_frames()
    with Camera(server.url("a")) as camera:
        camera.wait_for_frames()
        server.change_password("other")
        camera.wait_for_state("reconnecting", "auth")
        server.change_password("wrong")
        camera.wait_for_frames()
    assert camera.counters["reconnects: auth"] == 1


def test_a_frozen_server_times_out_and_comes_back(rtsp, videos):
    server = rtsp({"a": videos / "vtest_480x360.mp4"})
    with Camera(server.url("a"), timeout=1.5) as camera:
        camera.wait_for_frames()
        server.freeze()
        camera.wait_for_state("reconnecting", "timeout")
        server.thaw()
        camera.wait_for_frames()
    camera.check_order()
    assert camera.counters["reconnects: timeout"] >= 1


def test_stopping_does_not_wait_for_a_peer_that_hangs(rtsp, videos):
    server = rtsp({"a": videos / "vtest_480x360.mp4"})
    with Camera(server.url("a"), timeout=60.0) as reading:
        reading.wait_for_frames()
        server.freeze()
        with Camera(server.url("a"), timeout=60.0) as opening:
            time.sleep(1.0)  # both wait in FFmpeg
            begun_s = time.monotonic()
            for camera in (reading, opening):
                camera.source.stop()
            for camera in (reading, opening):
                camera.join()
            assert time.monotonic() - begun_s < 10.0  # not 60
    assert not opening.frames


def test_another_camera_at_the_same_address(rtsp, videos, tmp_path):
    other = write(tmp_path / "b.mp4", width=320, height=192, frames=75, codec="libx265", rate=5, options={"g": "5"})
    server = rtsp({"a": videos / "vtest_480x360.mp4"})
    with Camera(server.url("a"), timeout=5.0) as camera:
        camera.wait_for_frames()
        server.swap("a", other)
        wait_until(lambda: camera.frames[-1][0].width == 320)
        camera.wait_for_frames()
    camera.check_order()
    sizes = dict.fromkeys((frame.width, frame.height) for frame, _ in camera.frames)
    assert list(sizes) == [(480, 360), (320, 192)]
    times = [frame.pts_s for frame, _ in camera.frames if frame.width == 320]
    assert all(b - a == pytest.approx(0.2, abs=0.002) for a, b in itertools.pairwise(times))  # 5 a second, not 10


def test_a_connection_cut_in_the_middle_of_a_packet(rtsp, proxy, videos):
    server = rtsp({"a": videos / "car-detection.mp4"})
    between = proxy(server.port)
    with Camera(server.url("a", port=between.port), timeout=5.0) as camera:
        camera.wait_for_frames()
        between.cut(5000)
        wait_until(lambda: camera.counters["reconnects"] == 1)
        camera.wait_for_frames()
    camera.check_order()
    assert between.connections >= 2


def test_udp_with_lost_packets_goes_on(rtsp, proxy, videos):
    server = rtsp({"a": videos / "car-detection.mp4"})
    between = proxy(server.port, loss=0.03, seed=1)
    with Camera(server.url("a", port=between.port), transport="udp", timeout=10.0, jitter=0.1) as camera:
        wait_until(lambda: between.lost >= 5 or camera.error)
        camera.wait_for_frames(20)
    camera.check_order()
    assert camera.counters["decode errors concealed"] + camera.counters["packets not decodable"] > 0
    assert camera.counters["reconnects"] == 0


def test_the_senders_clock(rtsp, videos):
    server = rtsp({"a": videos / "car-detection.mp4"})
    with Camera(server.url("a"), clock="sender") as camera:
        camera.wait_for_frames(60)
    told = [f.time_s - f.pts_s for f, _ in camera.frames][-5:]
    assert max(told) - min(told) < 1e-3  # the sender's time goes with the presentation time, not with arrival
    assert abs(camera.frames[-1][0].time_s - time.time()) < 60


def test_a_pipeline_goes_on_with_another_camera_and_stops_at_once(rtsp, videos, tmp_path, root):
    server = rtsp({"a": videos / "vtest_480x360.mp4"}, user="ann", password="secret")
    text = f"""
sources: {{a: {{uri: '{server.url("a")}', timeout: 60s}}}}
stages:
  detect: {{model: demo}}
  draw: {{}}
  jsonl: {{path: '{tmp_path}/a.jsonl'}}
"""
    said: list[str] = []
    pipeline = Pipeline(build(read_text(text, folder=root)), choose("cpu", said.append), say=said.append)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(pipeline.run()))
    thread.start()
    state = pipeline.states["a"]
    wait_until(lambda: state.frames > 10, what="frames")
    server.stop()
    wait_until(lambda: state.state == "reconnecting", what="the loss")
    before = state.frames
    server.cameras["a"] = videos / "car-detection.mp4"
    server.start()
    wait_until(lambda: state.frames > before + 10, what="frames of the other camera")
    assert (state.state, state.reconnects) == ("running", 1)
    server.freeze()
    time.sleep(0.5)
    pipeline.stop()
    thread.join(20)  # not the 60 s of the timeout
    assert codes == [130]
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert {(row["width"], row["height"]) for row in rows} == {(480, 360), (768, 432)}
    assert all(b["pts_s"] > a["pts_s"] and b["frame"] > a["frame"] for a, b in itertools.pairwise(rows))
    now = datetime.now(UTC)
    assert all(abs((datetime.fromisoformat(row["time"]) - now).total_seconds()) < 120 for row in rows)
    assert "secret" not in " ".join(said) + json.dumps(pipeline.report(130))
