"""What HTTP addresses answer with: still images, which are polled, and streams that FFmpeg does not recognize."""

import contextlib
import io
import itertools
import threading
import time

import pytest
from PIL import Image
from support.clips import scene
from support.http_cameras import http_camera, jpeg, part
from support.messages import collect

from streamkit.core.errors import SourceError
from streamkit.core.stage import Context, RuntimeContext
from streamkit.media.http_content import describe_start
from streamkit.media.ring import PacketRing
from streamkit.stages.sources.source import VideoSource


def opened(uri, *, ring=None, **options):
    source = VideoSource(uri=uri, timeout=3.0, **options)
    source.context = Context("gate", runtime=RuntimeContext(packet_buffer=ring))
    return source


def first_frames(source, count):
    with contextlib.closing(source.frames()) as frames:
        return list(itertools.islice(frames, count))


# ---------------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        (jpeg(), "the server sends JPEG images one after the other, without boundaries"),
        (b"Content-Type: image/jpeg\r\n\r\n" + jpeg(), "an image before the first boundary"),
        (b"Content-Type: image/jpeg\n\n" + jpeg(), "an image before the first boundary"),
        (b"--frame\r\nContent-Length: 9\r\n\r\n" + jpeg(), "have no Content-Type"),
        (b"\r\n--frame\r\nContent-Length: 9\r\n\r\n" + jpeg(), "have no Content-Type"),
        (b"--frame\r\nContent-Type: image/jpeg\r\n\r\n" + jpeg(), None),
        (b"<html><title>Sign in</title></html>", "a web page, not with a video: 'Sign in'"),
        (b"busy\n", "text, not with a video: 'busy'"),
        (b"x" * 100, f"text, not with a video: '{'x' * 60}'"),
        (b"#EXTM3U\n#EXTINF:2\na.ts\n", None),
        (b"\0\0\0\1", None),
        (b"", None),
    ],
)
def test_an_unusable_answer_is_described(start, problem):
    described = describe_start(start)
    assert described is None if problem is None else problem in described


BARE = (lambda: (jpeg(n) for n in itertools.count()), "without boundaries between them")
EARLY = (
    lambda: (b"Content-Type: image/jpeg\r\n\r\n" + jpeg(n) + b"\r\n--frame\r\n" for n in itertools.count()),
    "before the first boundary",
)
UNTYPED = (
    lambda: (part(jpeg(n)).replace(b"Content-Type: image/jpeg\r\n", b"") for n in itertools.count()),
    "have no Content-Type",
)
PAGE = (lambda: [b"<html><body>Sign in, please</body></html>"], "a web page, not with a video: 'Sign in, please'")


@pytest.mark.parametrize(("answer", "problem"), [BARE, EARLY, UNTYPED, PAGE], ids=["bare", "early", "untyped", "page"])
def test_an_unrecognized_answer_of_a_camera_is_reported(answer, problem):
    with http_camera(lambda path: answer()) as camera:
        source = opened(f"{camera.url}/video?token=secret")
        with pytest.raises(SourceError, match=problem) as caught:
            first_frames(source, 1)
    assert caught.value.cause == "codec"
    assert "secret" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------- still images


@pytest.mark.quiet
@pytest.mark.parametrize(("path", "content_type"), [("snapshot.jpg", "image/jpeg"), ("shot", None)])
def test_a_still_image_is_polled(path, content_type):
    numbers = itertools.count()
    with http_camera(lambda _: [jpeg(next(numbers))], content_type) as camera:
        source = opened(f"{camera.url}/{path}", poll=0.15)
        start_s = time.monotonic()
        frames = first_frames(source, 5)
        took_s = time.monotonic() - start_s
        assert [frame.index for frame in frames] == list(range(5))
        assert len(camera.paths) == 6, "one request to recognize it, and one for each frame"
    assert 0.6 <= took_s < 2.0
    times_s = [frame.pts_s for frame in frames]
    gaps_s = [after - before for before, after in itertools.pairwise(times_s)]
    assert gaps_s == pytest.approx([0.15] * 4, abs=0.1)
    assert len({frame.surface.data.tobytes() for frame in frames}) == 5
    assert all(frame.time_s == pytest.approx(time.time(), abs=5.0) for frame in frames)
    assert source.context.runtime.facts["fps"] == pytest.approx(1 / 0.15)


def test_a_still_image_is_polled_every_second_by_default():
    with http_camera(lambda _: [jpeg()], "image/jpeg") as camera:
        first, second = first_frames(opened(f"{camera.url}/snapshot.jpg"), 2)
    assert second.pts_s - first.pts_s == pytest.approx(1.0, abs=0.3)


def test_images_of_changing_size_and_png_are_read(tmp_path):
    def png(width):
        buffer = io.BytesIO()
        Image.fromarray(scene(0, width, 48)).save(buffer, "PNG")
        return buffer.getvalue()

    widths = iter([64, 64, 64, 128])
    with http_camera(lambda _: [png(next(widths))], "image/png") as camera:
        frames = first_frames(opened(f"{camera.url}/shot", poll=0.05), 3)
    assert [frame.width for frame in frames] == [64, 64, 128]


def test_an_address_that_no_longer_returns_an_image_is_lost():
    answers = itertools.chain([jpeg(), jpeg(), jpeg()], itertools.repeat(b"<html>busy</html>"))
    with http_camera(lambda _: [next(answers)], "image/jpeg") as camera:
        source = opened(f"{camera.url}/snapshot.jpg", poll=0.05)
        frames = []
        with pytest.raises(SourceError, match="answers no longer with an image of the same kind") as caught:
            frames.extend(source.frames())
        assert caught.value.cause == "codec"


def test_an_unanswered_poll_is_lost_after_the_timeout():
    requests = itertools.count()

    def body(_):
        if next(requests) >= 3:
            time.sleep(3.0)
        yield jpeg()

    with http_camera(body, "image/jpeg") as camera:
        source = VideoSource(uri=f"{camera.url}/snapshot.jpg", poll=0.05, timeout=0.4)
        source.context = Context("gate")
        with pytest.raises(SourceError, match="no answer in time") as caught:
            list(source.frames())
    assert caught.value.cause == "timeout"


def test_stopping_ends_the_wait_for_the_next_poll():
    with http_camera(lambda _: [jpeg()], "image/jpeg") as camera:
        source = opened(f"{camera.url}/snapshot.jpg", poll=3600.0)
        timer = threading.Timer(0.3, source.stop)
        timer.start()
        assert len(list(source.frames())) == 1
        timer.join()


def test_polled_images_are_kept_for_clips():
    ring = PacketRing(("record",), limit_bytes=1 << 20)
    with http_camera(lambda _: [jpeg()], "image/jpeg") as camera:
        frames = first_frames(opened(f"{camera.url}/snapshot.jpg", ring=ring, poll=0.1), 3)
    packets = [ring.get(frame._state.packet_ref.number) for frame in frames]
    assert [packet.number for packet in packets] == [0, 1, 2]
    assert all(packet.keyframe and packet.data == jpeg() for packet in packets)


def test_poll_of_a_stream_is_reported_as_without_effect():
    logged = collect()
    with http_camera(lambda _: (part(jpeg(n)) for n in itertools.count())) as camera:
        assert len(first_frames(opened(f"{camera.url}/video", poll=5.0), 12)) == 12
    assert logged == [f"{camera.url}/video sends a stream, not a still image: poll has no effect"]


@pytest.mark.parametrize("uri", ["rtsp://gate/a", "snapshot.jpg"])
def test_poll_needs_http(uri):
    with pytest.raises(ValueError, match=f"poll needs an http:// or https:// address of a still image, got {uri}"):
        VideoSource(uri=uri, poll=1.0)


def test_poll_of_zero_is_refused():
    with pytest.raises(ValueError, match="poll must be longer than 0 s"):
        VideoSource(uri="http://gate/a.jpg", poll=0.0)
