"""Packets rewritten here are the packets that FFmpeg's filters make, between keyframes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import av
import pytest

from streamkit.media.annexb import AnnexB, rewriter

_FILTERS = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb"}
_FILES = ["ahmetozlu_pedestrian.mp4", "bench_1080p_hevc_opengop.mp4", "codec/h265_video.mp4", "codec/h264_10bits.mp4"]


@pytest.mark.parametrize("file", _FILES)
def test_the_same_bytes_as_ffmpegs_filter(test_data: Path, file: str) -> None:
    compared = 0
    with av.open(str(test_data / "videos" / file)) as container:
        stream = container.streams.video[0]
        codec = stream.codec_context.codec.canonical_name
        ours = rewriter(codec, stream.codec_context.extradata)
        assert ours is not None
        theirs = av.BitStreamFilterContext(_FILTERS[codec], stream)
        for packet in container.demux(stream):
            if not packet.size or packet.is_keyframe:
                continue
            before = bytes(packet)
            assert ours.rewrite(packet)
            assert bytes(packet) == before, "the packet itself is somebody else's"
            rewritten = ctypes.string_at(ours.address, packet.size)
            # the filter writes start codes of three bytes within a packet, and of four at its beginning
            (made,) = theirs.filter(packet)
            assert [u for u in rewritten.split(b"\0\0\1") if u.strip(b"\0")] == [
                u for u in bytes(made).split(b"\0\0\1") if u.strip(b"\0")
            ] or rewritten.replace(b"\0\0\0\1", b"\0\0\1") == bytes(made).replace(b"\0\0\0\1", b"\0\0\1")
            compared += 1
    assert compared >= 5


@pytest.mark.parametrize("units", [b"\0\0\0\xff1234", b"\0\0\0\x051234", b"\xff\xff\xff\xff", b"\0\0\0\x041234\0\0"])
def test_lengths_that_do_not_add_up_are_told(units: bytes) -> None:
    packet = av.Packet(units)
    assert not AnnexB().rewrite(packet)


def test_units_one_after_the_other() -> None:
    ours = AnnexB()
    assert ours.rewrite(av.Packet(b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01d"))
    assert ctypes.string_at(ours.address, 16) == b"\0\0\0\1abc\0\0\0\1\0\0\0\1d"
    assert ours.rewrite(av.Packet(b"\0\0\x01\x00" + b"x" * 256)), "a longer packet gets a longer buffer"
    assert ctypes.string_at(ours.address, 5) == b"\0\0\0\1x"


@pytest.mark.parametrize(
    ("codec", "extradata", "there"),
    [
        ("h264", b"\1\x64\0\x1f\xff\xe1", True),
        ("h264", b"\1\x64\0\x1f\xfd\xe1", False),  # lengths of two bytes
        ("h264", b"\0\0\0\1\x67\x64", False),  # start codes already
        ("h264", None, False),
        ("hevc", b"\1" + bytes(20) + b"\x0f\1", True),
        ("hevc", b"\1" + bytes(20), False),
        ("mpeg4", b"\1" * 30, False),
    ],
)
def test_which_streams_need_it(codec: str, extradata: bytes | None, there: bool) -> None:
    assert (rewriter(codec, extradata) is not None) is there
