import socket
import threading
import time

import av
import pytest
from support import coded

from streamkit.core.errors import SourceError
from streamkit.media.demux import Demuxer
from streamkit.media.link import ConnectionOptions, Interrupt, device_options


def options(uri, **settings):
    """FFmpeg's options, without the protocols that every network address may lead to."""
    opened_with = ConnectionOptions(**settings).open_arguments(uri)[2]
    assert "file" not in opened_with.pop("protocol_whitelist").split(",")
    return opened_with


def test_rtsp_options_are_passed_to_ffmpeg():
    assert options("rtsp://h/a", timeout_s=2.5) == {
        "fpsprobesize": "0",
        "rtsp_flags": "prefer_tcp",
        "timeout": "2500000",
    }
    assert options("rtsps://h/a", transport="udp")["rtsp_transport"] == "udp"
    assert options("rtsp://h/a", jitter_s=0.2)["max_delay"] == "200000"


def test_a_timeout_beyond_ffmpegs_range_is_not_passed():
    assert "timeout" in options("rtsp://h/a", timeout_s=2147)
    assert "timeout" not in options("rtsp://h/a", timeout_s=3600)


def test_http_options_are_passed_to_ffmpeg():
    assert options("http://h/video", timeout_s=2.5) == {"rw_timeout": "2500000", "fpsprobesize": "4"}
    assert options("https://h/a.mp4", timeout_s=2.5) == {"rw_timeout": "2500000"}


@pytest.mark.parametrize(
    ("uri", "timeout_s", "opening_s"),
    [("http://h/a", 5.0, 60.0), ("rtsp://h/a", 90.0, 90.0), ("/dev/video0", 5.0, 5.0), ("srt://h:1", 5.0, 5.0)],
)
def test_the_time_limit_of_an_opening_depends_on_the_protocol(uri, timeout_s, opening_s):
    """Where FFmpeg limits silence, only that counts against the timeout."""
    assert ConnectionOptions(timeout_s).opening_s(uri) == opening_s


@pytest.mark.parametrize("name", ["live.m3u8", "live.ffconcat", "?x=live.m3u8"])
def test_servers_cannot_redirect_to_local_files(tmp_path, name):
    """A playlist in place of a video: an operator of the API may name any server, but no file."""
    coded.clip(tmp_path / "secret.mp4", 20)
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{tmp_path}/secret.ts\n#EXT-X-ENDLIST\n"
    with av.open(str(tmp_path / "secret.mp4")) as source, av.open(str(tmp_path / "secret.ts"), "w") as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                copy.mux(packet)
    content = {"live.ffconcat": f"ffconcat version 1.0\nfile 'file:{tmp_path}/secret.ts'\n"}.get(name, playlist)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            peer, _ = server.accept()
            with peer:
                peer.sendall(content.encode())

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(SourceError):
            Demuxer(f"tcp://127.0.0.1:{server.getsockname()[1]}/{name}", ConnectionOptions(timeout_s=3))
        thread.join(5)


def test_low_latency_options_are_passed_to_ffmpeg():
    assert options("rtsp://h/a", low_latency=True)["reorder_queue_size"] == "0"
    assert options("http://h/a.m3u8", low_latency=True)["live_start_index"] == "-1"
    both = options("rtsp://h/a", low_latency=True, jitter_s=0.1)
    assert both["max_delay"] == "100000"
    assert "reorder_queue_size" not in both


def test_a_file_is_opened_without_options():
    assert ConnectionOptions(low_latency=True).open_arguments("file:///a.mp4") == ("/a.mp4", None, {})


@pytest.mark.parametrize("uri", ["/dev/video0", "v4l2:///dev/video0"])
def test_a_capture_device_is_opened(uri):
    assert ConnectionOptions().open_arguments(uri) == ("/dev/video0", "v4l2", {})


def test_options_of_a_capture_device_are_passed():
    uri = "v4l2:///dev/video2?size=1280x720&fps=30&format=mjpeg"
    expected = {"video_size": "1280x720", "framerate": "30", "input_format": "mjpeg"}
    assert ConnectionOptions().open_arguments(uri) == ("/dev/video2", "v4l2", expected)
    with pytest.raises(SourceError, match="size, fps, format, not 'width'"):
        device_options("v4l2:///dev/video0?width=640")


@pytest.fixture
def silent():
    """A port where somebody listens and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def waited_s(port):
    start_s = time.monotonic()
    with pytest.raises((av.FFmpegError, OSError)):
        av.open(f"http://127.0.0.1:{port}/a", timeout=(3600, 3600))
    return time.monotonic() - start_s


def test_another_thread_can_end_this_and_later_waits(silent):
    interrupt = Interrupt()
    timer = threading.Timer(0.5, interrupt.stop)
    timer.start()
    with interrupt:
        assert waited_s(silent) > 0.4
        waited_s(silent)
    timer.join()


def test_a_deadline_ends_a_wait(silent):
    interrupt = Interrupt()
    interrupt.deadline_s = time.monotonic() + 0.5
    with interrupt:
        assert waited_s(silent) > 0.4


def test_other_waits_continue(silent):
    stopped = Interrupt()
    stopped.stop()
    with stopped:
        pass
    other = threading.Thread(target=stopped.__enter__)  # watched on its own thread only
    other.start()
    other.join()
    start_s = time.monotonic()
    with pytest.raises((av.FFmpegError, OSError)):
        av.open(f"http://127.0.0.1:{silent}/a", timeout=(1, 1))
    assert time.monotonic() - start_s > 0.9
