"""Live addresses of every kind, each from a real server on loopback."""

import contextlib
import http.server
import itertools
import shutil
import ssl
import subprocess
import threading
import time
from contextlib import closing

import av
import cv2
import numpy as np
import pytest
from support.clips import X264, write
from support.http_cameras import http_camera, transport_stream
from support.rtsp import free_port, wait_until

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.core.stage import Context, RuntimeContext
from streamkit.media.demux import Demuxer, chroma_of, clone_packet
from streamkit.media.link import ConnectionOptions
from streamkit.media.reader import VideoReader
from streamkit.media.stream_info import StreamInfo
from streamkit.media.surfaces import SurfacePool
from streamkit.stages.sources.source import VideoSource

JPEG_GAP_S = 0.1


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """250 frames, 25 a second, a keyframe every 25."""
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=250, options={"g": "25", "bf": "0"})


def jpegs():
    context = av.CodecContext.create("mjpeg", "w")
    context.width = 64
    context.height = 48
    context.pix_fmt = "yuvj420p"
    context.framerate = 25
    for i in itertools.count():
        frame = av.VideoFrame(64, 48, "yuvj420p")
        for n, plane in enumerate(frame.planes):
            plane.update(bytes([(i * 40 + n) % 256]) * plane.buffer_size)
        for packet in context.encode(frame):
            yield bytes(packet)


class MjpegHandler(http.server.BaseHTTPRequestHandler):
    """A camera's MJPEG over HTTP: a frame each JPEG_GAP_S, without times; closes after `frames`."""

    pictures = 10**6

    def do_GET(self):
        if self.path.startswith("/private") and self.headers.get("Authorization") is None:
            self.send_error(401)
            return
        if not self.path.startswith(("/private", "/video")):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace;boundary=frame")
        self.end_headers()
        for picture in itertools.islice(jpegs(), self.pictures):
            head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n\r\n"
            try:
                self.wfile.write(head.encode() + picture + b"\r\n")
            except OSError:
                return
            time.sleep(JPEG_GAP_S)

    def log_message(self, *args):
        pass


@pytest.fixture
def mjpeg():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), MjpegHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def taken(uri, count, link=None):
    """So many frames of an address, with when each came, and what was said of the stream."""
    with closing(
        VideoReader(uri, Device(), SurfacePool(Device()), Counters(), link=link or ConnectionOptions(10.0))
    ) as reader:
        arrivals = []
        for _, frame in reader.frames():
            arrivals.append((frame, time.monotonic()))
            if len(arrivals) == count:
                break
        return arrivals, reader.info


def test_mjpeg_over_http_has_the_times_of_arrival(mjpeg):
    arrivals, info = taken(f"{mjpeg}/video", 12)
    assert info.live
    assert info.codec == "mjpeg"
    (first, first_s) = arrivals[0]
    (last, last_s) = arrivals[-1]
    assert last.pts_s - first.pts_s == pytest.approx(last_s - first_s, abs=0.3)  # not at the 25 a second of a guess


def ages_s(uri):
    """How old 10 frames of a source are, by its clocks, when decoding waited for 20 ms with each packet."""
    source = VideoSource(uri=uri)
    source.context = Context("cam", Device(), runtime=RuntimeContext(on_packet=lambda packet: time.sleep(0.02)))
    with closing(source.frames()) as frames:
        for frame in itertools.islice(frames, 10):
            yield time.monotonic() - frame.due_s, time.time() - frame.time_s


def test_a_frames_age_counts_from_the_arrival_of_its_packet(mjpeg):
    for age_s, by_the_wall_s in ages_s(f"{mjpeg}/video"):
        assert age_s >= 0.02
        assert by_the_wall_s == pytest.approx(age_s, abs=0.01)


def test_a_frames_age_counts_from_the_arrival_of_its_packet_over_rtsp(rtsp, clip):
    assert all(0.02 <= age_s < 60 for age_s, _ in ages_s(rtsp({"a": clip}).url("a")))


@pytest.mark.parametrize(("path", "cause"), [("private", "auth"), ("nowhere", "not_found")])
def test_http_errors_are_reported(mjpeg, path, cause):
    with pytest.raises(SourceError) as caught:
        Demuxer(f"{mjpeg}/{path}")
    assert caught.value.cause == cause


def test_a_camera_that_hangs_up_is_lost(mjpeg, monkeypatch):
    monkeypatch.setattr(MjpegHandler, "pictures", 12)
    with pytest.raises(SourceError) as caught:
        taken(f"{mjpeg}/video", 100)
    assert caught.value.cause == "lost"


@pytest.fixture
def hls(clip, tmp_path):
    """A playlist that grows as a camera's does."""
    if shutil.which("ffmpeg") is None:
        pytest.skip("no ffmpeg to make a live playlist")
    command = ["ffmpeg", "-v", "error", "-re", "-stream_loop", "-1", "-i", str(clip), "-c", "copy", "-f", "hls"]
    command += ["-hls_time", "1", "-hls_list_size", "4", "-hls_flags", "delete_segments", str(tmp_path / "a.m3u8")]

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        process = subprocess.Popen(command)
        wait_until((tmp_path / "a.m3u8").exists, what="the playlist")
        yield f"http://127.0.0.1:{server.server_port}/a.m3u8", process
        process.kill()
        process.wait()
        server.shutdown()


def test_a_live_playlist_is_read(hls):
    uri, _ = hls
    arrivals, info = taken(uri, 40)
    assert info.live
    assert (info.codec, info.width) == ("h264", 64)
    times = [frame.pts_s for frame, _ in arrivals]
    assert all(b > a for a, b in itertools.pairwise(times))


def test_a_playlist_that_grows_no_more_times_out(hls):
    uri, process = hls
    link = ConnectionOptions(2.5)
    with (
        closing(VideoReader(uri, Device(), SurfacePool(Device()), Counters(), link=link)) as reader,
        link.interrupt,
    ):
        process.kill()
        with pytest.raises(SourceError) as caught:
            for _ in reader.frames():
                pass
    assert caught.value.cause == "timeout"


def test_rtmp_is_read(clip):
    if shutil.which("ffmpeg") is None:
        pytest.skip("no ffmpeg to serve RTMP")
    uri = f"rtmp://127.0.0.1:{free_port()}/live/a"
    command = ["ffmpeg", "-v", "error", "-re", "-i", str(clip), "-c", "copy", "-f", "flv", "-listen", "1", uri]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    arrivals = None
    try:
        for _ in range(100):
            with contextlib.suppress(SourceError):  # it does not listen yet
                arrivals, info = taken(uri, 20)
                break
            time.sleep(0.2)
        assert arrivals is not None
    finally:
        process.kill()
        process.wait()
    assert info.live
    assert info.codec == "h264"
    assert len(arrivals) == 20


def test_rtsps_is_read(rtsp, proxy, clip, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate")
    key = tmp_path / "key.pem"
    certificate = tmp_path / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = rtsp({"a": clip}, user="ann", password="pa/ss@wo:rd")
    between = proxy(server.port, tls=context)
    uri = server.url("a", port=between.port).replace("rtsp://", "rtsps://")
    arrivals, info = taken(uri, 10)
    assert info.live
    assert len(arrivals) == 10


@pytest.mark.parametrize("transport", ["auto", "tcp", "udp"])
def test_the_transport_option_selects_tcp_or_udp(rtsp, proxy, clip, transport):
    server = rtsp({"a": clip})
    between = proxy(server.port)
    arrivals, _ = taken(
        server.url("a", port=between.port), 10, ConnectionOptions(10.0, transport=transport, low_latency=True)
    )
    assert len(arrivals) == 10
    assert bool(between.passed) == (transport == "udp")  # datagrams


def test_opening_a_slow_camera_does_not_count_against_its_timeout(tmp_path):
    """FFmpeg reads several frames to open it. It is never silent for longer than a quarter of a second."""
    clip = write(tmp_path / "a.mp4", frames=12, options={"bf": "0", "g": "3"})
    with http_camera(lambda path: transport_stream(clip, 4.0), "video/mp2t") as camera:
        start_s = time.monotonic()
        frames, _ = taken(f"{camera.url}/live", 8, ConnectionOptions(0.8))
    assert len(frames) == 8
    assert frames[0][1] - start_s > 0.8, "longer than the timeout"
    assert len(camera.paths) == 1


@pytest.mark.parametrize("sends", [[], [b"\x47" * 50]], ids=["nothing", "a start"])
def test_opening_a_silent_peer_ends_after_the_timeout(sends):
    released = threading.Event()

    def body(_):
        yield from sends
        released.wait(3600)

    with http_camera(body, "video/mp2t") as camera:
        with pytest.raises(SourceError, match="no answer in time") as caught:
            Demuxer(f"{camera.url}/live", ConnectionOptions(0.5))
        released.set()
    assert caught.value.cause == "timeout"


def test_the_first_packets_of_a_camera_that_reorders_frames_have_times(rtsp, tmp_path):
    """FFmpeg gives them none: it computes decoding times only once it has seen how many frames are reordered."""
    server = rtsp({"a": write(tmp_path / "reordered.mp4", 128, 96, 60, options=X264)})
    with closing(Demuxer(server.url("a"), link=ConnectionOptions(timeout_s=10.0))) as demuxer:
        packets = list(itertools.islice(demuxer.packets(), 10))
    decoding_times = [packet.dts for packet in packets]
    assert None not in [packet.pts for packet in packets]
    assert None not in decoding_times
    assert decoding_times == sorted(set(decoding_times))


def test_silence_is_reported_after_a_single_timeout(rtsp, clip):
    """What FFmpeg's parser held back comes out when the wait is ended; it does not begin another wait."""
    server = rtsp({"a": clip})
    timeout_s = 2.0
    with closing(Demuxer(server.url("a"), link=ConnectionOptions(timeout_s=timeout_s))) as demuxer:
        packets = demuxer.packets()
        next(packets)
        server.freeze()
        came_s = [time.monotonic()] * 2
        with pytest.raises(SourceError, match="no answer in time"):
            came_s.extend(time.monotonic() for _ in packets)
        server.thaw()
    assert time.monotonic() - came_s[-2] < 1.8 * timeout_s


def test_packets_without_decodable_frames_are_reported(rtsp, clip):
    def spoil(packet):
        memoryview(packet)[5:] = bytes(packet.size - 5)

    source = VideoSource(uri=rtsp({"a": clip}).url("a"), timeout=1.5)
    source.context = Context("cam", Device(), runtime=RuntimeContext(on_packet=spoil))
    with pytest.raises(SourceError, match=r"packets arrive, but no frame could be decoded in 1\.5 s") as caught:
        list(source.frames())
    assert caught.value.cause == "codec"


def test_auto_uses_udp_if_tcp_is_refused(rtsp, proxy, clip):
    server = rtsp({"a": clip})
    between = proxy(server.port, refuse_tcp=True)
    arrivals, _ = taken(server.url("a", port=between.port), 10)
    assert len(arrivals) == 10
    assert between.passed > 0


def test_an_unreachable_host_is_reported():
    with pytest.raises(SourceError, match="the host does not exist") as caught:
        Demuxer("rtsp://ann:secret@camera.invalid/a")
    assert caught.value.cause == "not_found"
    assert "secret" not in str(caught.value)


def test_missing_srt_support_is_reported():
    uri = f"srt://ann:secret@127.0.0.1:{free_port()}"
    try:
        av.open(uri, timeout=0.2).close()
    except av.error.ProtocolNotFoundError:
        message = "built without SRT"
        cause = None
    except (av.FFmpegError, OSError):
        # nothing listens there
        message = "no answer in time"
        cause = "timeout"
    with pytest.raises(SourceError, match=message) as caught:
        Demuxer(uri, ConnectionOptions(1.0))
    assert caught.value.cause == cause
    assert "secret" not in str(caught.value)


def test_a_device_that_is_not_a_camera_is_reported():
    with pytest.raises(SourceError, match="/dev/null: not a V4L2 capture device, or not with these settings"):
        Demuxer("v4l2:///dev/null")


def test_a_missing_device_is_reported():
    with pytest.raises(SourceError, match="there is no such device") as caught:
        Demuxer("v4l2:///dev/video97?size=640x480&fps=30")
    assert caught.value.cause == "not_found"


@pytest.mark.parametrize(
    ("width", "height", "is_refused"),
    [(12000, 12000, True), (20000, 5001, True), (5001, 20000, True), (9999, 10000, False)],
)
def test_frames_of_more_than_100_megapixels_are_refused_before_any_is_decoded(tmp_path, width, height, is_refused):
    _, encoded = cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))
    payload = bytearray(encoded.tobytes())
    size = payload.index(b"\xff\xc0") + 5  # in the header of the frame
    payload[size : size + 4] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    (tmp_path / "a.mjpeg").write_bytes(bytes(payload) * 3)
    if not is_refused:
        Demuxer(str(tmp_path / "a.mjpeg")).close()
        return
    with pytest.raises(SourceError, match=rf"a\.mjpeg: {width}x{height} is more than 100 megapixels") as caught:
        Demuxer(str(tmp_path / "a.mjpeg"))
    assert caught.value.cause == "codec"


@pytest.fixture(scope="module")
def indexed_clip(tmp_path_factory):
    """50 frames, 25 a second, a keyframe every 10."""
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=50, options={"g": "10", "bf": "2"})


def test_stream_information_of_a_file_is_read(indexed_clip):
    with closing(Demuxer(str(indexed_clip))) as demuxer:
        assert demuxer.info == StreamInfo(
            codec="h264",
            width=64,
            height=48,
            pixel_format="yuv420p",
            bit_depth=8,
            chroma=420,
            average_rate=25.0,
            start_s=0.0,
            duration_s=2.0,
            frames=50,
            live=False,
        )
        assert demuxer.info.facts() == {
            "codec": "h264",
            "width": 64,
            "height": 48,
            "fps": 25.0,
            "frames": 50,
            "duration_s": 2.0,
        }
        assert not demuxer.decode_times
        assert demuxer.sender_offset_s is None
        assert demuxer.step == demuxer.stream.time_base.denominator // 25
        packets = list(demuxer.packets())
        assert (len(packets), demuxer.packets_read, demuxer.discarded, demuxer.damaged) == (50, 50, 0, 0)


@pytest.mark.parametrize(
    ("pixel_format", "chroma"),
    [
        ("yuv420p", 420),
        ("nv12", 420),
        ("yuv422p", 422),
        ("yuv444p", 444),
        ("gray", 400),
        ("rgb24", 0),
        ("gbrp", 0),
        ("yuva420p", 420),
        ("yuv411p", 0),
        ("yuv440p", 0),
        ("yuv420p10le", 420),
        ("ya8", 400),
        (None, 0),
    ],
)
def test_the_chroma_of_a_pixel_format(pixel_format, chroma):
    assert chroma_of(pixel_format and av.VideoFormat(pixel_format, 64, 48)) == chroma


@pytest.mark.parametrize(("at_s", "keyframe"), [(0.0, 0), (0.39, 0), (0.4, 10), (0.41, 10), (1.99, 40), (9.0, 40)])
def test_a_seek_goes_to_the_keyframe_at_or_before(indexed_clip, at_s, keyframe):
    with closing(Demuxer(str(indexed_clip))) as demuxer:
        assert demuxer.seek(at_s)
        packet = next(demuxer.packets())
        assert packet.is_keyframe
        assert round(packet.pts * packet.time_base * 25) == keyframe


@pytest.mark.parametrize("name", ["a.ts", "a.h264"])
def test_a_container_without_an_index_is_read_sequentially(tmp_path, name):
    with closing(Demuxer(str(write(tmp_path / name, frames=20)))) as demuxer:
        assert not demuxer.seek(0.4)
        assert len(list(demuxer.packets())) == 20, "nothing was left out for it"


@pytest.mark.parametrize("number", [0, 4], ids=["keyframe", "other"])
@pytest.mark.parametrize("corrupt", [True, False])
def test_a_packet_of_the_same_bytes_keeps_its_times_and_its_flags(indexed_clip, number, corrupt):
    with closing(Demuxer(str(indexed_clip))) as demuxer:
        packet = list(demuxer.packets())[number]
    packet.is_corrupt = corrupt
    for copied, data in (
        (clone_packet(packet), bytes(packet)),
        (clone_packet(packet, b"head"), b"head" + bytes(packet)),
    ):
        assert bytes(copied) == data
        assert (copied.pts, copied.dts, copied.time_base) == (packet.pts, packet.dts, packet.time_base)
        assert copied.is_keyframe is packet.is_keyframe is (number == 0)
        assert not copied.is_discard
        assert copied.is_corrupt is corrupt


def test_a_spare_decoder_does_not_affect_that_of_the_stream(indexed_clip):
    with closing(Demuxer(str(indexed_clip))) as demuxer:
        packets = list(demuxer.packets())
        with demuxer.single_frame_decoder() as context:
            assert context is not demuxer.stream.codec_context
            assert context.thread_count == 1
            frames = context.decode(packets[0]) + context.decode(None)
        assert [(frame.width, frame.height) for frame in frames] == [(64, 48)]
        assert not demuxer.stream.codec_context.is_open
