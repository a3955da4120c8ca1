"""Going out live: every receiver here is a real one, on loopback."""

import dataclasses
import socket
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from support.clock import fake_time
from support.commands import child_running
from support.messages import collect
from support.rtsp import free_port, wait_until

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Device, Frame, Surface
from streamkit.core.errors import DeviceError, OutputError
from streamkit.core.stage import Context
from streamkit.media import push as pushing
from streamkit.stages.video import stream as module
from streamkit.stages.video.stream import Stream

SIZE = 160, 96


def frame(i, fps=25.0, size=SIZE, **fields):
    width, height = size
    data = np.full((height * 3 // 2, width), 128, np.uint8)
    data[:height] = 40 + (i * 5) % 160
    return Frame("gate", i, 7.0 + i / fps, width, height, Surface(data, Color("bt601")), **fields)


def sink(url, **options):
    logged = collect()
    stage = Stream(url=url, **options)
    stage.context = Context(id="stream", counters=Counters())
    stage.logged = logged
    stage.open()
    return stage


def push(out, count, first=0, until=None, **options):
    """Write so many frames, as fast as 100 a second; stop early where `until` is true."""
    for i in range(first, first + count):
        out.write(frame(i, **options))
        if until is not None and until():
            return i + 1
        time.sleep(0.01)
    return first + count


@pytest.fixture
def taken(monkeypatch):
    """Wait until the receiver takes what is sent: on a busy machine it is long before the sender's process runs."""
    monkeypatch.setattr(pushing, "_GRACE_S", 60.0)

    def wait(out):
        wait_until(lambda: out._push._check_connected() or out._push.connected, what="the connection")

    return wait


def streamed(out):
    return out.context.counters["frames streamed"]


def decoded(path):
    with av.open(str(path)) as back:
        return [(f.width, f.height, round(float(f.to_ndarray()[:96].mean()))) for f in back.decode(video=0)]


def packets(path):
    with av.open(str(path)) as back:
        return [(float(p.pts * p.time_base), p.is_keyframe) for p in back.demux(video=0) if p.size]


def test_a_playlist_in_a_folder(tmp_path, taken):
    out = sink(str(tmp_path / "hls" / "gate.m3u8"))
    push(out, 151)
    taken(out)
    out.close()
    text = (tmp_path / "hls" / "gate.m3u8").read_text()
    parts = [line for line in text.splitlines() if line.endswith(".ts")]
    assert text.startswith("#EXTM3U")
    assert len(parts) == 3
    times = packets(tmp_path / "hls" / "gate.m3u8")
    assert len(times) == 150
    assert times[0][1], "the first picture can be decoded"
    steps = np.diff([at for at, _ in times])
    assert steps.max() == pytest.approx(0.04, abs=1e-3)
    seen = decoded(tmp_path / "hls" / "gate.m3u8")
    assert len(seen) == 150
    for i, (_, _, gray) in enumerate(seen, 1):  # the first frame told the rate only
        assert abs(gray - (40 + (i * 5) % 160)) <= 6
    assert out.context.counters.values == {"frames not streamed: first frame": 1, "frames streamed": 150}


def test_a_playlist_over_http(uploads):
    out = sink(f"{uploads.url}/live/gate.m3u8?token=geheim")
    push(out, 3000, until=lambda: streamed(out) > 60)
    out.close()
    names = sorted(path.partition("?")[0] for path in uploads.files)
    assert any(name == "/live/gate.m3u8" for name in names), names
    assert any(name.endswith(".ts") for name in names), names
    assert "geheim" not in " ".join(out.logged)


def test_rtsp_with_a_password(rtsp_receiver, tmp_path):
    receiver = rtsp_receiver("gate", tmp_path / "gate.mkv", user="ann:geheim")
    out = sink(receiver.url)
    first = push(out, 3000, until=lambda: streamed(out))
    push(out, 150, first)
    out.close()
    wait_until(lambda: receiver.target.stat().st_size > 1500, what="the recording")
    receiver.stop(gently=True)
    assert len(decoded(receiver.target)) > 50
    assert packets(receiver.target)[0][1]
    assert out.logged == [f"gate is streamed to rtsp://ann:***@127.0.0.1:{receiver.url.split(':')[-1]}"]


def test_rtsp_with_the_wrong_password(rtsp_receiver, tmp_path):
    receiver = rtsp_receiver("gate", tmp_path / "gate.mkv", user="ann:geheim")
    out = sink(receiver.url.replace("geheim", "falsch"))
    push(out, 3000, until=lambda: out.logged)
    out.close()
    assert "401" in out.logged[0] or "authorization" in out.logged[0].lower(), out.logged
    assert "falsch" not in out.logged[0]
    assert streamed(out) == 0


def test_rtmp(rtmp_receiver, tmp_path):
    receiver = rtmp_receiver(tmp_path / "gate.mkv", 60)
    out = sink(receiver.url, bitrate=300_000)
    push(out, 3000, until=lambda: receiver.done)
    out.close()
    seen = packets(receiver.target)
    assert len(seen) == 60
    assert seen[0] == (0.0, True)
    assert np.diff([at for at, _ in seen]).max() < 0.06


def test_a_restarted_receiver_is_reconnected(rtsp_receiver, tmp_path):
    receiver = rtsp_receiver("gate", tmp_path / "gate.mkv")
    out = sink(receiver.url, max_backoff=0.5)
    count = out.context.counters
    at = push(out, 5000, until=lambda: streamed(out))
    receiver.stop()
    at = push(out, 5000, at, until=lambda: count["stream connections lost or refused"])
    before = streamed(out)
    receiver.start()
    at = push(out, 5000, at, until=lambda: streamed(out) > before + 20)
    assert streamed(out) > before + 20
    out.close()
    assert count["stream reconnects"] >= 1
    total = at - count["frames not streamed: first frame"]
    assert streamed(out) + count["frames not streamed: no connection"] == total
    assert any("retrying until it works" in text for text in out.logged)


def test_a_hanging_receiver_is_disconnected(rtsp_receiver, tmp_path):
    receiver = rtsp_receiver("gate", tmp_path / "gate.mkv")
    out = sink(receiver.url, timeout=0.5)
    at = push(out, 5000, until=lambda: streamed(out))
    receiver.freeze()
    noise = np.random.default_rng(1)
    lost = out.context.counters
    for i in range(at, at + 2000):
        noisy = frame(i, size=(640, 480))
        noisy.surface.data[:] = noise.integers(0, 255, noisy.surface.data.shape, np.uint8)  # fills every buffer soon
        out.write(noisy)
        if lost["stream connections lost or refused"]:
            break
    assert lost["stream connections lost or refused"] == 1
    out.close()


def test_an_unreachable_receiver_is_retried():
    out = sink(f"rtsp://ann:geheim@127.0.0.1:{free_port()}/gate", max_backoff=0.2)
    push(out, 3000, until=lambda: out.context.counters["stream connections lost or refused"] > 2)
    out.close()
    assert "geheim" not in " ".join(out.logged)
    assert any("Connection refused" in text for text in out.logged)
    assert streamed(out) == 0


def test_pixels_that_are_not_square_stay_so(tmp_path, taken):
    out = sink(str(tmp_path / "gate.m3u8"))
    push(out, 51, pixel_aspect=Fraction(2))
    taken(out)
    out.close()
    with av.open(str(tmp_path / "gate.m3u8")) as back:
        assert back.streams.video[0].sample_aspect_ratio == 2


def test_a_size_change_restarts_the_stream(tmp_path, taken):
    out = sink(str(tmp_path / "gate.m3u8"))
    push(out, 51)
    taken(out)
    push(out, 50, 51, size=(320, 192))
    taken(out)
    out.close()
    assert out.context.counters["frames streamed"] == 100
    seen = decoded(tmp_path / "gate.m3u8")
    assert {picture[:2] for picture in seen} == {(320, 192)}, "the playlist is that of the new size"
    assert len(seen) == 50


def test_thinned_to_fps(tmp_path, taken):
    out = sink(str(tmp_path / "gate.m3u8"), fps=5.0)
    push(out, 101)
    taken(out)
    out.close()
    at = [pts for pts, _ in packets(tmp_path / "gate.m3u8")]
    assert 19 <= len(at) <= 21
    assert np.diff(at) == pytest.approx(0.2, abs=0.041)


def test_unsent_frames_are_counted(tmp_path):
    out = sink(str(tmp_path / "gate.m3u8"))
    push(out, 3)
    bad = frame(3)
    bad.error = "detect failed"
    out.write(bad)
    out.write(frame(1))
    out.write(dataclasses.replace(frame(4), surface=None))
    out.close()
    counts = dict(out.context.counters.values)
    # on a busy machine the playlist is not open yet when they come
    assert counts.pop("frames streamed", 0) + counts.pop("frames not streamed: no connection", 0) == 2
    assert counts == {
        "frames not streamed: first frame": 1,
        "frames not streamed: no pixels": 2,
        "frames not streamed: timestamp not increasing": 1,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "http://host/x.mp4"}, "url must begin with"),
        ({"url": "ftp://u:geheim@host/x"}, r"url must begin with .*ftp://u:\*\*\*@host/x"),
        ({"url": "rtmp://h/a", "codec": "hevc"}, "codec must be h264"),
        ({"url": "rtsp://h/a", "bitrate": 1000, "quality": 3}, "exclude each other"),
        ({"url": "rtsp://h/a", "preset": "slowish"}, "preset must be one of"),
        ({"url": "rtsp://h/a", "timeout": 0}, "timeout must be longer"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Stream(**options)


def test_srt_is_refused_where_ffmpeg_lacks_it():
    try:
        av.open("srt://127.0.0.1:1?mode=listener&listen_timeout=1", timeout=0.1).close()
    except av.error.ProtocolNotFoundError:
        pass
    except (av.FFmpegError, OSError):
        pytest.skip("this FFmpeg has SRT")
    with pytest.raises(OutputError, match="built without SRT"):
        sink("srt://u:geheim@127.0.0.1:9000")


def test_nvenc_needs_a_gpu():
    with pytest.raises(DeviceError, match="nvenc needs frames on a GPU"):
        sink("rtsp://h/a", encoder="nvenc")


def test_the_password_is_not_among_the_arguments_of_a_process(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the connection and never answers
        out = sink(f"rtsp://ann:geheim@127.0.0.1:{silent.getsockname()[1]}/gate", timeout=60)
        push(out, 2)
        process = child_running("streamkit.media.pusher")
        silent.settimeout(60)
        silent.accept()[0].close()  # the process runs, and knows the address
        seen = {name: Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ")}
        process.kill()
        out.close()
    assert b"streamkit.media.pusher" in seen["cmdline"]
    assert not any(b"geheim" in text for text in seen.values())


def test_unreceived_frames_do_not_count_as_streamed():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the connection and never answers
        out = sink(f"rtsp://127.0.0.1:{silent.getsockname()[1]}/gate", timeout=60)
        push(out, 5)
        child_running("streamkit.media.pusher").kill()
        out.close()
    assert out.context.counters.values == {
        "frames not streamed: first frame": 1,
        "frames not streamed: no connection": 4,
    }


@pytest.mark.gpu
def test_pictures_on_a_gpu(tmp_path):
    import cupy

    out = Stream(url=str(tmp_path / "gate.m3u8"))
    out.context = Context(id="stream", device=Device("cuda", 0), counters=Counters())
    out.open()
    for i in range(60):
        device_frame = frame(i)
        device_frame.surface = Surface(cupy.asarray(device_frame.surface.data), device_frame.surface.color)
        out.write(device_frame)
    out.close()
    assert len(decoded(tmp_path / "gate.m3u8")) == 59


class Receiver:
    """Takes the place of the connection: refuses, takes, or loses what is pushed."""

    def __init__(self):
        self.refuses = False
        self.connects_after = 1
        self.tried_s = []
        self.encodings = []
        self.pushes = []


@pytest.fixture
def clock(monkeypatch):
    return fake_time(monkeypatch, module)


@pytest.fixture
def receiver(monkeypatch, clock):
    fake = Receiver()

    class Push:
        def __init__(self, url, encoder, timeout_s):
            self.connected = False
            self.ticks = []
            self.closed = False
            fake.tried_s.append(round(clock.now_s - 1000.0, 3))
            fake.pushes.append(self)

        def write(self, surface, ticks):
            if fake.refuses:
                raise OutputError("cannot push to it: Connection refused")
            self.ticks.append(ticks)
            self.connected = len(self.ticks) >= fake.connects_after

        def close(self):
            self.closed = True

    def encoder(chosen, encoding, surface, rate, *rest):
        fake.encodings.append((encoding, rate))

    monkeypatch.setattr(module, "Push", Push)
    monkeypatch.setattr(module, "make_encoder", encoder)
    return fake


def surface(width=64, height=48):
    return Surface(np.full((height * 3 // 2, width), 128, np.uint8), Color("bt601"))


def frame_at(pts_s, **options):
    return Frame("gate", 0, pts_s, 64, 48, options.get("surface") or surface())


def sink_on_clock(**options):
    stage = Stream(url="rtsp://ann:secret@host/gate", encoder="cpu", **options)
    stage.logged = collect()
    stage.context = Context(id="stream", counters=Counters())
    stage.open()
    return stage


def counts(out):
    return dict(out.context.counters.values)


@pytest.mark.parametrize(
    ("step_s", "fps", "rate", "gop"),
    [
        (0.04, None, Fraction(25), 50),
        (1 / 240, None, Fraction(240), 480),
        (1 / 241, None, Fraction(25), 50),
        (10.0, None, Fraction(1, 10), 1),
        (10.1, None, Fraction(25), 50),
        (0.04, 5.0, Fraction(5), 10),
        (0.04, 50.0, Fraction(25), 50),
        (1001 / 30000, None, Fraction(30000, 1001), 60),
    ],
)
def test_rate_and_keyframes_come_from_the_first_two_frames(receiver, step_s, fps, rate, gop):
    out = sink_on_clock(fps=fps)
    out.write(frame_at(0.0))
    out.write(frame_at(step_s))
    ((encoding, encoder_rate),) = receiver.encodings
    assert float(encoder_rate) == pytest.approx(float(rate), rel=1e-4)
    assert (encoding.gop, encoding.live, encoding.codec) == (gop, True, "h264")
    assert sink_on_clock(gop=7).gop == 7


def test_retry_waits_double_up_to_the_maximum(receiver, clock):
    receiver.refuses = True
    out = sink_on_clock(max_backoff=3.0)
    for n in range(200):
        clock.now_s = 1000.0 + n / 10
        out.write(frame_at(n / 10))
    assert receiver.tried_s == [0.1, 0.6, 1.6, 3.6, 6.6, 9.6, 12.6, 15.6, 18.6]
    assert counts(out) == {
        "frames not streamed: first frame": 1,
        "frames not streamed: no connection": 199,
        "stream connections lost or refused": 9,
        "stream reconnects": 8,
    }
    assert set(out.logged) == {"cannot push to it: Connection refused; retrying until it works"}


def test_frames_count_as_streamed_once_there_is_a_connection(receiver):
    receiver.connects_after = 3
    out = sink_on_clock()
    seen = []
    for n in range(6):
        out.write(frame_at(n / 25))
        seen.append(counts(out).get("frames streamed", 0))
    assert seen == [0, 0, 0, 3, 4, 5]
    assert out.logged == ["gate is streamed to rtsp://ann:***@host/gate"]
    out.close()
    assert receiver.pushes[0].closed
    assert counts(out) == {"frames not streamed: first frame": 1, "frames streamed": 5}
