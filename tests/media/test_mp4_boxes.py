"""The boxes of an MP4 file, by their headers alone."""

import struct

import pytest

from streamkit.media.mp4_boxes import Box, boxes, is_whole


def box(kind, size, *, wide=False):
    body = bytes(size)
    if wide:
        return struct.pack(">I4sQ", 1, kind, 16 + size) + body
    return struct.pack(">I4s", 8 + size, kind) + body


def listed(content):
    return list(boxes(lambda start, end: content[start:end], len(content)))


def test_consecutive_boxes_are_listed():
    content = box(b"ftyp", 4) + box(b"mdat", 100, wide=True) + box(b"moov", 0)
    assert listed(content) == [Box(b"ftyp", 0, 12), Box(b"mdat", 12, 128), Box(b"moov", 128, 136)]


def test_a_box_without_a_length_reaches_to_the_end():
    content = box(b"ftyp", 4) + struct.pack(">I4s", 0, b"mdat") + bytes(50)
    assert listed(content) == [Box(b"ftyp", 0, 12), Box(b"mdat", 12, 70)]


@pytest.mark.parametrize("length", [1, 2, 7])
def test_an_invalid_length_ends_the_boxes(length):
    content = box(b"ftyp", 4) + struct.pack(">I4s", length, b"mdat") + bytes(6)
    assert listed(content) == [Box(b"ftyp", 0, 12)]


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (box(b"ftyp", 4) + box(b"moov", 9), True),
        ((box(b"ftyp", 4) + box(b"moov", 9))[:-1], False),
        (box(b"ftyp", 4) + b"\0\0\0\x09mda", False),  # less than a header
        (box(b"ftyp", 4) + struct.pack(">I4s", 0, b"mdat"), True),
        (b"", True),
    ],
)
def test_a_complete_file_ends_with_a_box(content, whole):
    assert is_whole(lambda start, end: content[start:end], len(content)) == whole
