"""Sources that come back by themselves: real RTSP cameras that go, hang, change and come again."""

import itertools
import json
import threading
import time
from datetime import UTC, datetime

import pytest
from support.clips import write
from support.messages import collect
from support.returning import Camera
from support.rtsp import wait_until

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.runtime.execution.device import choose
from streamkit.runtime.pipeline import PipelineRun


@pytest.fixture(scope="module")
def videos(test_data):
    return test_data / "videos"


def test_a_source_reconnects_after_a_restart_of_the_server(rtsp, videos):
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
    before = next(earlier for earlier, _ in reversed(camera.frames) if earlier.index < frame.index)
    assert 0 < event.data["away_s"] < frame.pts_s - before.pts_s + 1
    assert "secret" not in " ".join(camera.logged)


def test_auth_and_not_found_are_causes_and_a_new_password_reconnects(rtsp, videos):
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


def test_a_frozen_server_times_out_and_reconnects(rtsp, videos):
    server = rtsp({"a": videos / "vtest_480x360.mp4"})
    with Camera(server.url("a"), timeout=1.5) as camera:
        camera.wait_for_frames()
        server.freeze()
        camera.wait_for_state("reconnecting", "timeout")
        server.thaw()
        camera.wait_for_frames()
    camera.check_order()
    assert camera.counters["reconnects: timeout"] >= 1


def test_stopping_does_not_wait_for_a_hanging_peer(rtsp, videos):
    server = rtsp({"a": videos / "vtest_480x360.mp4"})
    with Camera(server.url("a"), timeout=3600.0) as reading:
        reading.wait_for_frames()
        server.freeze()
        with Camera(server.url("a"), timeout=3600.0) as opening:
            time.sleep(1.0)  # both wait in FFmpeg
            for camera in (reading, opening):
                camera.source.stop()
            for camera in (reading, opening):
                camera.join()
    assert not opening.frames


def test_another_camera_at_the_same_address_is_accepted(rtsp, videos, tmp_path):
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


def test_a_connection_cut_within_a_packet_reconnects(rtsp, proxy, videos):
    server = rtsp({"a": videos / "car-detection.mp4"})
    between = proxy(server.port)
    with Camera(server.url("a", port=between.port), timeout=5.0) as camera:
        camera.wait_for_frames()
        between.cut(5000)
        wait_until(lambda: camera.counters["reconnects"] == 1)
        camera.wait_for_frames()
    camera.check_order()
    assert between.connections >= 2


def test_udp_with_lost_packets_continues(rtsp, proxy, videos):
    server = rtsp({"a": videos / "car-detection.mp4"})
    between = proxy(server.port, loss=0.03, seed=1)
    with Camera(server.url("a", port=between.port), transport="udp", timeout=10.0, jitter_buffer=0.1) as camera:
        wait_until(lambda: between.lost >= 5 or camera.error)
        camera.wait_for_frames(20)
    camera.check_order()
    assert camera.counters["decode errors concealed"] + camera.counters["packets not decodable"] > 0
    assert camera.counters["reconnects"] == 0


def test_frames_have_the_time_of_the_senders_clock(rtsp, videos):
    server = rtsp({"a": videos / "car-detection.mp4"})
    by_arrival = "frames timed by arrival"
    with Camera(server.url("a"), clock="sender") as camera:
        wait_until(lambda: 0 < camera.counters[by_arrival] < len(camera.frames) - 30, what="the sender's own time")
    before = camera.counters[by_arrival]  # until the first sender report, and not one frame after it
    assert abs(len(camera.frames) - before - sum(_goes_with(camera.frames[before:]))) <= 1
    offsets_s = [f.time_s - f.pts_s for f, _ in camera.frames[before + 1 :]]
    assert max(offsets_s) - min(offsets_s) < 1e-3  # the sender's time goes with the presentation time, not with arrival
    early = [f.time_s - f.pts_s for f, _ in camera.frames[:before]]
    assert max(early) - min(early) > 1e-3
    assert abs(camera.frames[-1][0].time_s - time.time()) < 60


def test_the_arrival_time_is_that_of_the_packet(rtsp, videos):
    """By default: nothing is counted, since nothing falls back."""
    server = rtsp({"a": videos / "vtest_480x360.mp4"})
    with Camera(server.url("a")) as camera:
        camera.wait_for_frames(5)
    assert not any("sender" in name for name in camera.counters.values)
    for frame, came_s in camera.frames:
        assert -0.05 < came_s - frame.due_s < 60.0
        assert abs((frame.time_s - time.time()) - (frame.due_s - time.monotonic())) < 1.0


def _goes_with(frames):
    """For each frame, whether its time goes with its presentation time as the last one's does."""
    last = frames[-1][0].time_s - frames[-1][0].pts_s
    return [abs(frame.time_s - frame.pts_s - last) < 1e-3 for frame, _ in frames]


def test_a_pipeline_continues_with_another_camera_and_stops_at_once(rtsp, videos, tmp_path, root):
    server = rtsp({"a": videos / "vtest_480x360.mp4"}, user="ann", password="secret")
    text = f"""
sources: {{a: {{uri: '{server.url("a")}', timeout: 60s}}}}
stages:
  detect: {{model: demo}}
  draw: {{}}
  jsonl: {{path: '{tmp_path}/a.jsonl'}}
"""
    logged = collect()
    pipeline = PipelineRun(build(read_text(text, folder=root)), choose("cpu"))
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
    assert "secret" not in " ".join(logged) + json.dumps(pipeline.report(130))


def test_a_thinned_camera_continues_after_its_clock_is_set_back(rtsp, videos):
    """The mount is shared: who joins makes the server begin its presentation times again, for everybody."""
    server = rtsp({"a": videos / "vtest_480x360.mp4"})
    with Camera(server.url("a"), fps=5, timeout=30.0) as camera, Camera(server.url("a"), start=1.0) as later:
        camera.wait_for_frames(12)
        later.wait_for_frames(1)
        before = len(camera.frames)
        with Camera(server.url("a"), timeout=30.0) as second:
            second.wait_for_frames(1)
            wait_until(lambda: camera.counters["timestamp jumps corrected"], what="the jump back")
            camera.wait_for_frames(5)
            later.wait_for_frames(5)
    for client in (camera, later):
        client.check_order()
        assert client.counters["reconnects"] == 0
    times = [frame.pts_s for frame, _ in camera.frames[before:]]
    assert max(b - a for a, b in itertools.pairwise(times)) < 2  # not as long as it had run before


def test_a_camera_with_rare_keyframes_does_not_time_out(rtsp, tmp_path):
    clip = write(tmp_path / "a.mp4", frames=100, rate=25, options={"g": "5", "bf": "0"})
    server = rtsp({"a": clip})
    with Camera(server.url("a"), keyframes=True, fps=0.4, timeout=1.0) as camera:
        camera.wait_for_frames(2)
    assert camera.counters["reconnects"] == 0
    assert ("reconnecting", "codec") not in camera.states
    times = [frame.pts_s for frame, _ in camera.frames]
    assert times[1] - times[0] == pytest.approx(2.5, abs=0.3)
