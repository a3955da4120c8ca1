import pytest

from streamkit.core.errors import SourceError
from streamkit.media.link import ConnectionOptions, device_options


def options(uri, **given):
    return ConnectionOptions(**given).opening(uri)[2]


def test_rtsp():
    assert options("rtsp://h/a") == {"fpsprobesize": "0", "rtsp_flags": "prefer_tcp"}
    assert options("rtsps://h/a", transport="udp")["rtsp_transport"] == "udp"
    assert options("rtsp://h/a", jitter_s=0.2)["max_delay"] == "200000"


def test_low_latency():
    assert options("rtsp://h/a", low_latency=True)["reorder_queue_size"] == "0"
    assert options("http://h/a.m3u8", low_latency=True)["live_start_index"] == "-1"
    both = options("rtsp://h/a", low_latency=True, jitter_s=0.1)
    assert both["max_delay"] == "100000"
    assert "reorder_queue_size" not in both


def test_a_file_is_opened_as_it_is():
    assert ConnectionOptions(low_latency=True).opening("file:///a.mp4") == ("/a.mp4", None, {})


@pytest.mark.parametrize("uri", ["/dev/video0", "v4l2:///dev/video0"])
def test_a_device(uri):
    assert ConnectionOptions().opening(uri) == ("/dev/video0", "v4l2", {})


def test_a_devices_options():
    uri = "v4l2:///dev/video2?size=1280x720&fps=30&format=mjpeg"
    expected = {"video_size": "1280x720", "framerate": "30", "input_format": "mjpeg"}
    assert ConnectionOptions().opening(uri) == ("/dev/video2", "v4l2", expected)
    with pytest.raises(SourceError, match="size, fps, format, not 'width'"):
        device_options("v4l2:///dev/video0?width=640")
