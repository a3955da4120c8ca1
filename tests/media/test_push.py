"""How a receiver is addressed; tests/stages/video/test_stream.py pushes to real receivers."""

import signal
import time

import numpy as np
import pytest
from support.commands import child_running
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Surface
from streamkit.core.errors import OutputError
from streamkit.media.encode import TIME_BASE, CpuEncoder, Encoding
from streamkit.media.push import Push, check_protocol, check_target, target_options

PUSHER = "streamkit.media.pusher"


@pytest.mark.parametrize(
    ("url", "container", "option"),
    [
        ("rtsp://h/a", "rtsp", ("timeout", "2500000")),
        ("RTSPS://h/a", "rtsp", ("rtsp_transport", "tcp")),
        ("rtmp://h/live/a", "flv", ("rw_timeout", "2500000")),
        ("srt://h:9000", "mpegts", ("timeout", "2500000")),
        ("out/a.m3u8", "hls", ("hls_flags", "delete_segments+independent_segments+temp_file")),
        ("file:///out/a.m3u8", "hls", ("hls_time", "2")),
        ("https://h/a.m3u8?token=x", "hls", ("method", "PUT")),
    ],
)
def test_addresses_are_parsed(url, container, option):
    check_target(url)
    kind, options = target_options(url, 2.5)
    assert kind == container
    assert option in options.items()


@pytest.mark.parametrize("url", ["http://h/a", "a.mp4", "udp://h:1", "rtsp.m3u9", ""])
def test_invalid_addresses_are_refused(url):
    with pytest.raises(ValueError, match="url must begin with rtsp://, "):
        check_target(url)


@pytest.mark.parametrize("url", ["rtsp://h/a", "a.m3u8"])
def test_protocols_are_available_in_ffmpeg(url):
    check_protocol(url)


def surface(i):
    data = np.full((72, 64), 128, np.uint8)
    data[:48] = i
    return Surface(data, Color("bt601"))


def push(url):
    encoder = CpuEncoder(Encoding(live=True, gop=10), 64, 48, Color("bt601"), 25, 1, Counters())
    return Push(str(url), encoder, 5.0)


def test_a_killed_process_is_an_error_and_leaves_no_process(tmp_path):
    pusher = push(tmp_path / "a" / "a.m3u8")
    pusher.write(surface(0), 0)
    process = child_running(PUSHER)
    process.kill()
    with pytest.raises(OutputError, match=r"cannot push to .*a\.m3u8"):  # noqa: PT012 it is noticed by and by
        for i in range(1, 500):
            pusher.write(surface(i % 200), round(i / 25 / TIME_BASE))
            time.sleep(0.01)
    assert not process.is_running()
    pusher.close()


def test_a_crashed_process_is_an_error_with_its_stacks(tmp_path):
    logged = collect()
    pusher = push(tmp_path / "a.m3u8")
    for i in range(500):
        pusher.write(surface(i % 200), round(i / 25 / TIME_BASE))
        if pusher.connected:
            break
        time.sleep(0.01)
    child_running(PUSHER).send_signal(signal.SIGSEGV)
    with pytest.raises(OutputError, match=r"a\.m3u8: its process was killed by SIGSEGV$"):  # noqa: PT012
        for i in range(500, 1000):
            pusher.write(surface(i % 200), round(i / 25 / TIME_BASE))
            time.sleep(0.01)
    assert "a.m3u8 was killed by SIGSEGV:\nFatal Python error: Segmentation fault\n" in logged[0]
    assert "pusher.py" in logged[0]


def test_the_process_ends_when_the_push_is_closed(tmp_path):
    pusher = push(tmp_path / "a.m3u8")
    for i in range(30):
        pusher.write(surface(i), round(i / 25 / TIME_BASE))
    process = child_running(PUSHER)
    pusher.close()
    assert pusher.connected
    assert not process.is_running()
    assert "#EXT-X-ENDLIST" in (tmp_path / "a.m3u8").read_text()
