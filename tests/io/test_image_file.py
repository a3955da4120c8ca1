import os
import tracemalloc

import cv2
import numpy as np
import pytest
from PIL import Image

from streamkit.core.data import Color
from streamkit.core.errors import SourceError
from streamkit.io.image_file import check_image, read_rgb
from streamkit.media.demux import Demuxer
from streamkit.ops import color
from streamkit.ops.color import from_rgb

SUFFIXES = ["png", "bmp", "jpg", "webp", "tif"]


@pytest.fixture
def image(tmp_path):
    """Write a gray image, return its path."""

    def write(suffix: str, width: int, height: int) -> str:
        path = str(tmp_path / f"a.{suffix}")
        assert cv2.imwrite(path, np.full((height, width, 3), 90, np.uint8))
        return path

    return write


def error_text(path, *limit) -> str:
    with pytest.raises(SourceError) as caught:
        read_rgb(path, *limit)
    return str(caught.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_limit_applies_to_pixels(suffix, image):
    path = image(suffix, 200, 50)
    assert read_rgb(path, 0.01).shape == (50, 200, 3)
    assert error_text(path, 0.009999) == (
        f"{path}: 200x50 is 0.0 megapixels, and the limit is 0.009999; raise max_megapixels if you trust the file"
    )


def test_more_than_100_megapixels_are_refused_before_any_is_decoded(tmp_path):
    path = tmp_path / "bomb.bmp"  # its pixels are not even there
    path.write_bytes(b"BM" + bytes(12) + np.array([40, 16_000, -16_000], "<i4").tobytes() + bytes(60))
    assert error_text(str(path)) == (
        f"{path}: 16000x16000 is 256.0 megapixels, and the limit is 100; raise max_megapixels if you trust the file"
    )
    with pytest.raises(SourceError, match="; raise --max-megapixels if you trust the file"):
        read_rgb(str(path), 100, "--max-megapixels")


@pytest.mark.parametrize("side", [10_000, 10_001])
def test_100_megapixels_pass_the_header(side, tmp_path):
    path = tmp_path / "large.bmp"
    path.write_bytes(b"BM" + bytes(12) + np.array([40, side, 10_000], "<i4").tobytes() + bytes(60))
    assert ("the limit is 100" in error_text(str(path))) == (side > 10_000)  # else OpenCV finds no pixels


def test_a_file_far_larger_than_its_pixels_is_refused(image):
    path = image("png", 10, 10)
    os.truncate(path, 16 * 100 + (1 << 24))
    assert read_rgb(path).shape == (10, 10, 3)
    os.truncate(path, 16 * 100 + (1 << 24) + 1)
    assert error_text(path) == f"{path}: 16,778,817 bytes are too many for an image of 10x10"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the file is empty"),
        (b"P6 60000 60000 255\n" + bytes(99), "this is not an image that OpenCV can read: no JPEG, PNG, BMP, TIFF or"),
        (b"hello", "this is not an image that OpenCV can read"),
    ],
)
def test_a_file_that_is_not_an_image_is_refused(content, text, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    assert error_text(str(path)).startswith(f"{path}: {text}")
    assert error_text(str(tmp_path / "none.png")) == f"{tmp_path / 'none.png'}: No such file or directory"


@pytest.mark.parametrize(
    "siting", [Color("bt601", True, 0.5, 0.5), Color("bt709"), Color("bt2020", False, 0.0, 1.0)], ids=str
)
def test_converting_in_bands_equals_converting_at_once(siting, monkeypatch):
    generator = np.random.default_rng(3)
    for height, width in [(1, 1), (2, 5), (3, 2), (7, 8), (16, 31), (33, 6)]:
        rgb = generator.integers(0, 256, (height, width, 3), np.uint8)
        monkeypatch.setattr(color, "_BAND", 1 << 22)
        whole = from_rgb(rgb, siting)
        for band in (1, 4 * width, 6 * width + 1):
            monkeypatch.setattr(color, "_BAND", band)
            assert np.array_equal(from_rgb(rgb, siting), whole), (height, width, band)


def test_no_float_copy_of_an_image_is_made(monkeypatch):
    monkeypatch.setattr(color, "_BAND", 1 << 18)
    rgb = np.zeros((2001, 4001, 3), np.uint8)
    tracemalloc.start()
    try:
        from_rgb(rgb, Color("bt601", True, 0.5, 0.5))
        assert tracemalloc.get_traced_memory()[1] < 5 * rgb[..., 0].size  # 12 bytes a pixel were one float32 copy
    finally:
        tracemalloc.stop()


def test_an_image_above_the_limit_is_not_passed_to_ffmpeg(tmp_path):
    path = tmp_path / "bomb.mp4"  # FFmpeg goes by the content
    path.write_bytes(b"BM" + bytes(12) + np.array([40, 16_000, -16_000], "<i4").tobytes() + bytes(60))
    with pytest.raises(SourceError, match="16000x16000 is more than 100 megapixels a frame, and is not decoded"):
        Demuxer(str(path))


def test_frames_decoded_by_ffmpeg_are_bounded(image):
    demuxer = Demuxer(image("png", 200, 50))
    assert demuxer.stream.codec_context.options == {"max_pixels": "100000000"}
    demuxer.close()


def test_a_pipe_is_not_read_for_its_header(tmp_path):
    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)
    check_image(str(pipe))  # would wait for a writer
    check_image(str(tmp_path / "none"))


def noise(path, **options):
    """Write a JPEG image of noise, and return its bytes."""
    pixels = np.random.default_rng(1).integers(0, 256, (120, 160, 3), np.uint8)
    Image.fromarray(pixels).save(path, "JPEG", quality=85, **options)
    return path.read_bytes()


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 4}], ids=str)
@pytest.mark.parametrize("share", [0.3, 0.5, 0.97])
def test_a_truncated_jpeg_with_an_end_marker_is_refused(tmp_path, options, share):
    """OpenCV fills the rest with one color and reports it on standard error only."""
    path = tmp_path / "a.jpg"
    whole = noise(path, **options)
    assert read_rgb(str(path)).shape == (120, 160, 3)
    path.write_bytes(whole[: int(share * len(whole))] + b"\xff\xd9")
    assert error_text(str(path)) == f"{path}: the JPEG is truncated"


def test_an_image_of_a_single_color_is_complete(image):
    assert read_rgb(image("jpg", 160, 120)).shape == (120, 160, 3)
