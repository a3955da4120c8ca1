"""Motion JPEG with incomplete images: their frames are shown as far as they go, and are damaged."""

import contextlib
import io
import itertools
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image
from support.http_cameras import http_camera, noisy_jpeg, part

from streamkit.core.counters import Counters
from streamkit.core.errors import SourceError
from streamkit.core.stage import Context
from streamkit.stages.sources.source import VideoSource

END = b"\xff\xd9"


def saved(index, **options):
    noise = np.random.default_rng(index).integers(0, 256, (48, 64, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "JPEG", quality=85, **options)
    return buffer.getvalue()


def half(image):
    return image[: len(image) // 2]


def read(uri, **options):
    """The frames of a source up to its end or its error, what was counted, and the error."""
    source = VideoSource(uri=str(uri), **options)
    source.context = Context("cam", counters=Counters())
    frames = []
    error = None
    try:
        frames.extend(source.frames())
    except SourceError as raised:
        error = raised
    return frames, source.context.counters.values, error


def avi(path, images):
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mjpeg", rate=10)
        stream.width = 64
        stream.height = 48
        stream.pix_fmt = "yuvj420p"
        for number, image in enumerate(images):
            packet = av.Packet(image)
            packet.stream = stream
            packet.time_base = Fraction(1, 10)
            packet.pts = packet.dts = number
            packet.is_keyframe = True
            output.mux_one(packet)
    return path


@pytest.mark.parametrize("options", [{}, {"decoders": 2}, {"every": 1, "start": 0.05}])
def test_incomplete_images_are_damaged_frames(tmp_path, options):
    images = [noisy_jpeg(index) for index in range(10)]
    whole = avi(tmp_path / "whole.avi", images)
    for number in (3, 6):
        images[number] = half(images[number]) + END
    path = avi(tmp_path / "half.avi", images)
    expected, _, error = read(whole, **options)
    assert error is None
    frames, counts, error = read(path, **options)
    assert [frame.index for frame in frames] == [frame.index for frame in expected]
    assert [frame.index for frame in frames if frame.damaged] == [3, 6]
    assert counts["decode errors concealed"] == 2
    assert "2 frames were lost or concealed" in str(error)
    for frame, whole_frame in zip(frames, expected, strict=True):
        is_equal = frame.surface.data[:16] == whole_frame.surface.data[:16]
        assert is_equal.all(), "what there is of an image is shown"
        is_equal = frame.surface.data == whole_frame.surface.data
        assert is_equal.all() != frame.damaged


@pytest.mark.parametrize(
    ("image", "damaged"),
    [
        (saved(0), False),
        (saved(0)[:-2], False),  # only its end is missing
        (saved(0) + bytes(64), False),
        (saved(0, progressive=True), False),
        (saved(0, restart_marker_blocks=2), False),
        (half(saved(0)), True),
        (half(saved(0, progressive=True)) + END, True),
        (half(saved(0, restart_marker_blocks=2)) + END, True),
    ],
    ids=["whole", "no end", "padded", "progressive", "restarts", "half", "half progressive", "half with restarts"],
)
def test_incomplete_images_are_recognized(tmp_path, image, damaged):
    frames, _, _ = read(avi(tmp_path / "a.avi", [saved(1), image, saved(2)]))
    assert [frame.damaged for frame in frames] == [False, damaged, False]


def test_an_image_without_any_pixels_is_not_decoded(tmp_path):
    frames, counts, _ = read(avi(tmp_path / "a.avi", [saved(0), saved(1)[:200], saved(2)]))
    assert [frame.index for frame in frames] == [0, 1]
    assert counts["packets not decodable"] == 1


def test_incomplete_images_of_a_camera_are_damaged():
    def body(_):
        for index in itertools.count():
            image = noisy_jpeg(index)
            yield part(half(image) if index % 4 == 3 else image)

    with http_camera(body) as camera:
        source = VideoSource(uri=camera.url)
        source.context = Context("cam", counters=Counters())
        with contextlib.closing(source.frames()) as frames:
            damaged = [frame.damaged for frame in itertools.islice(frames, 12)]
    assert damaged == [False, False, False, True] * 3
