"""The boxes of an MP4 file, by their headers alone."""

import struct

import pytest

from streamkit.media.mp4_boxes import Box, boxes, is_whole


def box(kind, size, *, wide=False):
    body = bytes(size)
    if wide:
        return struct.pack(">I4sQ", 1, kind, 16 + size) + body
    return struct.pack(">I4s", 8 + size, kind) + body


def listed(data):
    return list(boxes(lambda start, end: data[start:end], len(data)))


def test_boxes_follow_each_other():
    data = box(b"ftyp", 4) + box(b"mdat", 100, wide=True) + box(b"moov", 0)
    assert listed(data) == [Box(b"ftyp", 0, 12), Box(b"mdat", 12, 128), Box(b"moov", 128, 136)]


def test_a_box_without_a_length_reaches_to_the_end():
    data = box(b"ftyp", 4) + struct.pack(">I4s", 0, b"mdat") + bytes(50)
    assert listed(data) == [Box(b"ftyp", 0, 12), Box(b"mdat", 12, 70)]


@pytest.mark.parametrize("length", [1, 2, 7])
def test_an_invalid_length_ends_the_boxes(length):
    data = box(b"ftyp", 4) + struct.pack(">I4s", length, b"mdat") + bytes(6)
    assert listed(data) == [Box(b"ftyp", 0, 12)]


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (box(b"ftyp", 4) + box(b"moov", 9), True),
        ((box(b"ftyp", 4) + box(b"moov", 9))[:-1], False),
        (box(b"ftyp", 4) + b"\0\0\0\x09mda", False),  # less than a header
        (box(b"ftyp", 4) + struct.pack(">I4s", 0, b"mdat"), True),
        (b"", True),
    ],
)
def test_whether_a_file_ends_with_a_box(data, whole):
    assert is_whole(lambda start, end: data[start:end], len(data)) == whole
