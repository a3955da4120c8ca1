from __future__ import annotations

import ctypes
from pathlib import Path

import av
import pytest
from support.clips import REFRESH, X264, X265, write

from streamkit.media.bitstream import AnnexB, PacketParser, annexb_headers, prefix_size, rewriter, sequence_header
from streamkit.media.demux import Demuxer


def entries(path):
    """The numbers of the packets that the container calls keyframes, and of those that decoding can begin at."""
    demuxer = Demuxer(str(path))
    parser = PacketParser(demuxer.stream, demuxer.info.codec)
    packets = list(enumerate(demuxer.packets()))
    called = [(n, packet) for n, packet in packets if packet.is_keyframe]
    demuxer.close()
    return [n for n, _ in called], [n for n, packet in called if parser.is_random_access(packet)]


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.mp4", "libx264", {"g": "10"}),
        ("a.ts", "libx264", {"g": "10"}),
        ("open.mp4", "libx264", X264),
        ("open.ts", "libx264", X264),
        ("open.mp4", "libx265", X265),
        ("open.ts", "libx265", X265),
        ("a.webm", "libvpx-vp9", {"g": "10"}),
        ("a.webm", "libvpx", {"g": "10"}),
        ("a.mkv", "mjpeg", {}),
    ],
)
def test_decoding_can_start_at_keyframes(tmp_path, name, codec, options):
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    called, entered = entries(write(tmp_path / name, frames=60, codec=codec, options=options, pix_fmt=pix_fmt))
    assert len(called) > 3
    assert entered == called


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.mp4", "libx264", {"preset": "medium", "g": "10", "bf": "3", "b-pyramid": "none"}),
        ("a.ts", "libx264", {"preset": "medium", "g": "10", "bf": "3", "b-pyramid": "none"}),
        ("a.mp4", "libx265", X265),
        ("a.ts", "libx265", X265),
        ("a.mp4", "mpeg4", {"bf": "2"}),
        ("a.ts", "mpeg2video", {"bf": "2"}),
        ("a.mpg", "mpeg1video", {"bf": "2"}),
        ("a.ts", "mpeg2video", {"bf": "0"}),
        ("a.webm", "libvpx-vp9", {"g": "10"}),
    ],
)
def test_dropping_unreferenced_frames_does_not_change_the_others(tmp_path, name, codec, options):
    demuxer = Demuxer(str(write(tmp_path / name, 128, 96, 40, codec=codec, options=options)))
    parser = PacketParser(demuxer.stream, demuxer.info.codec)
    packets = [(bytes(packet), packet.pts, parser.is_disposable(packet)) for packet in demuxer.packets()]

    def decoded(*, disposable):
        context = av.CodecContext.create(demuxer.info.codec, "r")
        context.extradata = demuxer.stream.codec_context.extradata
        frames = []
        for payload, pts, is_disposable in packets:
            if disposable or not is_disposable:
                packet = av.Packet(payload)
                packet.pts = pts
                frames += context.decode(packet)
        return {frame.pts: frame.to_ndarray().tobytes() for frame in (*frames, *context.decode(None))}

    whole = decoded(disposable=True)
    others = decoded(disposable=False)
    count = sum(is_disposable for *_, is_disposable in packets)
    assert (count > 5) is (options.get("bf") != "0" and codec != "libvpx-vp9")
    assert len(whole) == 40
    assert len(others) == 40 - count
    assert others.items() <= whole.items()
    demuxer.close()


def test_a_gradual_refresh_is_not_an_entry_point(tmp_path):
    called, entered = entries(write(tmp_path / "a.ts", 128, 96, 60, options=REFRESH))
    assert len(called) > 3
    assert entered == [0]


def test_a_keyframe_flag_alone_is_not_trusted(tmp_path):
    path = write(tmp_path / "a.mp4", frames=10)
    demuxer = Demuxer(str(path))
    parser = PacketParser(demuxer.stream, "h264")
    assert [parser.is_random_access(packet) for packet in demuxer.packets()] == [True] + [False] * 9


def test_an_av1_unit_without_a_size_ends_with_its_packet():
    sized = bytes([1 << 3 | 2, 2, 10, 20, 99])
    unsized = bytes([1 << 3, 10, 20])
    assert sequence_header("av1", sized) == sequence_header("av1", unsized) == bytes([10, 20])


def test_a_truncated_hevc_keyframe_is_recognized_by_its_type(tmp_path):
    demuxer = Demuxer(str(write(tmp_path / "a.ts", frames=10, codec="libx265", options=X265)))
    parser = PacketParser(demuxer.stream, "hevc")
    demuxer.close()
    for kind, can_begin in ((19, True), (1, False)):  # an IDR frame, and one that refers to others
        assert parser.is_random_access(av.Packet(bytes([0, 0, 0, 1, kind << 1, 1]))) == can_begin


@pytest.mark.parametrize(("codec", "kind"), [("libx264", 7), ("libx265", 32)])
def test_parameter_sets_are_read_from_the_stream(tmp_path, codec, kind):
    options = {"g": "10", "x265-params": "log-level=none:repeat-headers=1:keyint=10"}
    demuxer = Demuxer(str(write(tmp_path / "a.ts", frames=20, codec=codec, options=options)))
    parser = PacketParser(demuxer.stream, demuxer.info.codec)
    first, second = [parser.parameter_sets(packet) for packet in demuxer.packets() if packet.is_keyframe][:2]
    assert first == second
    assert (first[0] & 31 if codec == "libx264" else first[0] >> 1) == kind
    in_mp4 = Demuxer(str(write(tmp_path / "a.mp4", frames=5, codec=codec)))
    parser = PacketParser(in_mp4.stream, in_mp4.info.codec)
    assert parser.parameter_sets(next(in_mp4.packets())) == b""


def test_parameter_sets_are_read_from_the_container(tmp_path):
    write(tmp_path / "a.mp4", frames=5)
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        boxed = bytes(stream.codec_context.extradata)
        filtered = av.BitStreamFilterContext("h264_mp4toannexb", stream).filter(next(container.demux(stream)))
    headers = annexb_headers("h264", boxed)
    assert headers.count(b"\0\0\0\1") == 2
    first = bytes(filtered[0])
    units = [unit.lstrip(b"\0\1") for unit in headers.split(b"\0\0\0\1") if unit]
    assert all(unit in first for unit in units)
    assert [unit[0] & 31 for unit in units] == [7, 8]
    assert annexb_headers("h264", headers) == headers
    assert annexb_headers("hevc", bytes([1, 1]) + bytes(30)) == annexb_headers("vp9", b"abc") == b""


def test_the_length_prefix_size_is_detected():
    assert prefix_size("h264", b"\x01\x64\x00\x1f\xfd\xe1\x00") == 2
    assert prefix_size("h264", b"\0\0\0\1\x67\x64\x00\x1f") is None
    assert prefix_size("hevc", b"\x01" + bytes(20) + b"\xff\x00") == 4
    assert prefix_size("hevc", b"\0\0\0\1" + bytes(30)) is None
    assert prefix_size("vp9", b"\x01" * 30) is None


FILTERS = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb", "mpeg4": "dump_extra"}


def keyframe_parameters(path, codec):
    parameters = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        name = FILTERS.get(codec)
        bsf = av.BitStreamFilterContext(name, stream) if name else None
        for packet in container.demux(stream):
            if packet.size and packet.is_keyframe:
                parameters += [
                    sequence_header(codec, bytes(part)) for part in (bsf.filter(packet) if bsf else [packet])
                ]
    return parameters


@pytest.mark.parametrize(
    ("codec", "encoder", "suffix"),
    [
        ("h264", "libx264", "mp4"),
        ("hevc", "libx265", "mp4"),
        ("mpeg4", "mpeg4", "avi"),
        ("vp9", "libvpx-vp9", "webm"),
        ("vp8", "libvpx", "webm"),
        ("mpeg2video", "mpeg2video", "ts"),
        ("av1", "libsvtav1", "mkv"),
    ],
)
def test_parameter_sets_change_only_with_the_size(tmp_path, codec, encoder, suffix):
    if encoder not in av.codecs_available:
        pytest.skip(f"this FFmpeg has no {encoder}")
    options = {"g": "5"}
    if encoder == "libsvtav1":
        options |= {"preset": "12", "svtav1-params": "keyint=5"}
    small = keyframe_parameters(write(tmp_path / f"a.{suffix}", 64, 64, 12, codec=encoder, options=options), codec)
    large = keyframe_parameters(write(tmp_path / f"b.{suffix}", 96, 64, 12, codec=encoder, options=options), codec)
    assert len(small) > 1
    assert small[0]
    assert set(small) == {small[0]}
    assert set(large) == {large[0]}
    assert small[0] != large[0]


@pytest.mark.parametrize("codec", ["h264", "hevc", "mpeg4", "mpeg2video", "vp8", "vp9", "av1", "prores"])
@pytest.mark.parametrize("data", [b"", b"\0\0\1", b"\xff" * 20, b"\0\0\1\x67", b"\x0a\xff\xff\xff"])
def test_invalid_bytes_are_ignored(codec, data):
    assert isinstance(sequence_header(codec, data), bytes)


_FILTERS = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb"}
_FILES = ["ahmetozlu_pedestrian.mp4", "bench_1080p_hevc_opengop.mp4", "codec/h265_video.mp4", "codec/h264_10bits.mp4"]


@pytest.mark.parametrize("file", _FILES)
def test_annex_b_output_equals_that_of_ffmpeg(test_data: Path, file: str) -> None:
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
            (filtered,) = theirs.filter(packet)
            assert [u for u in rewritten.split(b"\0\0\1") if u.strip(b"\0")] == [
                u for u in bytes(filtered).split(b"\0\0\1") if u.strip(b"\0")
            ] or rewritten.replace(b"\0\0\0\1", b"\0\0\1") == bytes(filtered).replace(b"\0\0\0\1", b"\0\0\1")
            compared += 1
    assert compared >= 5


@pytest.mark.parametrize("units", [b"\0\0\0\xff1234", b"\0\0\0\x051234", b"\xff\xff\xff\xff", b"\0\0\0\x041234\0\0"])
def test_invalid_lengths_are_reported(units: bytes) -> None:
    packet = av.Packet(units)
    assert not AnnexB().rewrite(packet)


def test_units_are_split_in_order() -> None:
    ours = AnnexB()
    assert ours.rewrite(av.Packet(b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01d"))
    assert ctypes.string_at(ours.address, 16) == b"\0\0\0\1abc\0\0\0\1\0\0\0\1d"
    assert ours.rewrite(av.Packet(b"\0\0\x01\x00" + b"x" * 256)), "a longer packet gets a longer buffer"
    assert ctypes.string_at(ours.address, 5) == b"\0\0\0\1x"


@pytest.mark.parametrize(
    ("codec", "extradata", "there"),
    [
        ("h264", b"\1\x64\0\x1f\xff\xe1\0", True),
        ("h264", b"\1\x64\0\x1f\xfd\xe1\0", False),  # lengths of two bytes
        ("h264", b"\0\0\0\1\x67\x64", False),  # start codes already
        ("h264", None, False),
        ("hevc", b"\1" + bytes(20) + b"\x0f\1", True),
        ("hevc", b"\1" + bytes(20), False),
        ("mpeg4", b"\1" * 30, False),
    ],
)
def test_streams_with_length_prefixes_are_rewritten(codec: str, extradata: bytes | None, there: bool) -> None:
    assert (rewriter(codec, extradata) is not None) is there
