"""The size in an image's header, beside the size of what OpenCV decodes."""

import io
import struct
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.io.image_header import image_size

KINDS = {
    "png": [],
    "bmp": [],
    "webp": [cv2.IMWRITE_WEBP_QUALITY, 101],
    "jpg": [],
    "jpg progressive": [cv2.IMWRITE_JPEG_PROGRESSIVE, 1],
    "jpg restarts": [cv2.IMWRITE_JPEG_RST_INTERVAL, 1],
    "webp lossy": [cv2.IMWRITE_WEBP_QUALITY, 60],
    "tif": [],
    "tif lzw": [cv2.IMWRITE_TIFF_COMPRESSION, 5],
}


def encoded(kind, width, height, channels=3):
    pixels = np.random.default_rng(1).integers(0, 255, (height, width, channels), np.uint8)
    done, data = cv2.imencode("." + kind.split()[0], pixels, KINDS[kind])
    assert done
    return data.tobytes()


def size_of(data):
    return image_size(io.BytesIO(data))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (40, 30), (30, 41), (300, 257)])
def test_the_header_gives_the_size_decoded_by_opencv(kind, channels, size):
    data = encoded(kind, *size, channels)
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape[1::-1] == size
    assert size_of(data) == size


def vp8x(width, height):
    return (
        b"RIFF\0\0\0\0WEBPVP8X"
        + struct.pack("<II", 10, 0)
        + b"".join((n - 1).to_bytes(3, "little") for n in (width, height))
    )


def tiff(order, entries, big=False):
    """A TIFF's header and a directory of (tag, type, value)."""
    mark = {"<": b"II", ">": b"MM"}[order]
    if big:
        rows = [struct.pack(order + "HHQ", tag, kind, 1) + value.ljust(8, b"\0") for tag, kind, value in entries]
        return mark + struct.pack(order + "HHHQQ", 43, 8, 0, 16, len(rows)) + b"".join(rows)
    rows = [struct.pack(order + "HHI", tag, kind, 1) + value.ljust(4, b"\0") for tag, kind, value in entries]
    return mark + struct.pack(order + "HIH", 42, 8, len(rows)) + b"".join(rows)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (vp8x(16000, 16001), (16000, 16001)),
        (vp8x(1, 1 << 24), (1, 1 << 24)),
        (b"BM" + bytes(12) + struct.pack("<IHH", 12, 70, 80), (70, 80)),
        (b"BM" + bytes(12) + struct.pack("<Iii", 40, 70, -80), (70, 80)),
        (tiff("<", [(256, 3, struct.pack("<H", 300)), (257, 4, struct.pack("<I", 70_000))]), (300, 70_000)),
        (tiff(">", [(254, 4, b""), (256, 3, struct.pack(">H", 300)), (257, 4, struct.pack(">I", 7))]), (300, 7)),
        (tiff("<", [(256, 16, struct.pack("<Q", 1 << 33)), (257, 1, b"\7")], big=True), (1 << 33, 7)),
        (tiff(">", [(256, 4, struct.pack(">I", 9)), (257, 18, struct.pack(">Q", 8))], big=True), (9, 8)),
        (tiff("<", [(256, 3, b"\1\0"), (256, 3, b"\xff\xff"), (257, 3, b"\2\0"), (257, 3, b"\1\0")]), (65535, 2)),
        # a JPEG with fill bytes, a marker without a length, and a table before the size
        (b"\xff\xd8\xff\xff\x01\xff\xc4\0\4ab\xff\xff\xff\xc2\0\x11\10\0\5\0\6\3", (6, 5)),
    ],
)
def test_headers_not_written_by_opencv_are_read(data, size):
    assert size_of(data) == size


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"P6 60000 60000 255\n",
        b"GIF89a\1\0\1\0" + bytes(20),
        b"\x76\x2f\x31\x01" + bytes(40),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIDAT" + bytes(40),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(40),
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8\xff\xda\0\2\xff\xc0\0\x11\10\0\5\0\6\3",
        b"\xff\xd8\0\0\0\0",
        b"\xff\xd8\xff\xc0\0\x11\10\0\0\0\0",
        b"BM" + bytes(12) + struct.pack("<Iii", 40, -70, 80),
        b"\xff\xd8\xff\xc0\0\x11\10\0\5\0\0",
        b"\xff\xd8\xff\xc0\0\x11\10\0\0\0\6",
        b"BM" + bytes(12) + struct.pack("<Iii", 40, 0, 80),
        b"BM" + bytes(12) + struct.pack("<Iii", 40, 70, 0),
        tiff("<", [(256, 3, b"\1\0")]),
        tiff("<", [(257, 3, b"\1\0")]),
        tiff("<", [(256, 5, b"\1\0"), (257, 5, b"\1\0")]),
        b"RIFF\0\0\0\0WEBPVP8 " + bytes(20),
        b"RIFF\0\0\0\0WAVEVP8X" + bytes(20),
        vp8x(5, 5)[:-1],
        b"RIFF\0\0\0\0WEBPVP8L" + bytes(20),
    ],
)
def test_headers_without_a_size_give_none(data):
    assert size_of(data) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_header_gives_no_size_or_the_right_one(kind):
    data = encoded(kind, 40, 30)
    assert {size_of(data[:end]) for end in range(min(len(data), 700))} <= {None, (40, 30)}


@given(st.sampled_from(sorted(KINDS)), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4))
def test_a_broken_header_raises_nothing(kind, changes):
    data = bytearray(encoded(kind, 9, 8))
    for at, value in changes:
        data[at % len(data)] = value
    size = size_of(bytes(data))
    assert size is None or min(size) > 0


def test_a_jpeg_of_nothing_but_empty_segments_ends():
    assert size_of(b"\xff\xd8" + b"\xff\xe0\0\2" * 200_000) is None


def test_a_decompression_bomb_is_recognized_by_its_header():
    header = struct.pack(">IIBBBBB", 16_000, 16_000, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(header))
    assert size_of(data) == (16_000, 16_000)
