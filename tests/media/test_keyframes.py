import av
import pytest
from support.clips import REFRESH, X264, X265, write

from streamkit.media.demux import Demuxer
from streamkit.media.keyframes import Keyframes, annexb_headers, prefix_size


def entries(path):
    """The numbers of the packets that the container calls keyframes, and of those that decoding can begin at."""
    demuxer = Demuxer(str(path))
    keyframes = Keyframes(demuxer.stream, demuxer.info.codec)
    packets = list(enumerate(demuxer.packets()))
    called = [(n, packet) for n, packet in packets if packet.is_keyframe]
    demuxer.close()
    return [n for n, _ in called], [n for n, packet in called if keyframes.enters(packet)]


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
def test_where_decoding_can_begin(tmp_path, name, codec, options):
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    called, entered = entries(write(tmp_path / name, frames=60, codec=codec, options=options, pix_fmt=pix_fmt))
    assert len(called) > 3
    assert entered == called


def test_a_refresh_over_many_pictures_is_no_beginning(tmp_path):
    called, entered = entries(write(tmp_path / "a.ts", 128, 96, 60, options=REFRESH))
    assert len(called) > 3
    assert entered == [0]


def test_a_flag_alone_is_no_keyframe(tmp_path):
    path = write(tmp_path / "a.mp4", frames=10)
    demuxer = Demuxer(str(path))
    keyframes = Keyframes(demuxer.stream, "h264")
    assert [keyframes.enters(packet) for packet in demuxer.packets()] == [True] + [False] * 9


@pytest.mark.parametrize(("codec", "kind"), [("libx264", 7), ("libx265", 32)])
def test_parameter_sets_in_the_stream(tmp_path, codec, kind):
    options = {"g": "10", "x265-params": "log-level=none:repeat-headers=1:keyint=10"}
    demuxer = Demuxer(str(write(tmp_path / "a.ts", frames=20, codec=codec, options=options)))
    keyframes = Keyframes(demuxer.stream, demuxer.info.codec)
    first, second = [keyframes.headers(packet) for packet in demuxer.packets() if packet.is_keyframe][:2]
    assert first == second
    assert (first[0] & 31 if codec == "libx264" else first[0] >> 1) == kind
    in_mp4 = Demuxer(str(write(tmp_path / "a.mp4", frames=5, codec=codec)))
    keyframes = Keyframes(in_mp4.stream, in_mp4.info.codec)
    assert keyframes.headers(next(in_mp4.packets())) == b""


def test_parameter_sets_of_the_container(tmp_path):
    write(tmp_path / "a.mp4", frames=5)
    with av.open(str(tmp_path / "a.mp4")) as given:
        stream = given.streams.video[0]
        boxed = bytes(stream.codec_context.extradata)
        filtered = av.BitStreamFilterContext("h264_mp4toannexb", stream).filter(next(given.demux(stream)))
    found = annexb_headers("h264", boxed)
    assert found.count(b"\0\0\0\1") == 2
    first = bytes(filtered[0])
    units = [unit.lstrip(b"\0\1") for unit in found.split(b"\0\0\0\1") if unit]
    assert all(unit in first for unit in units)
    assert [unit[0] & 31 for unit in units] == [7, 8]
    assert annexb_headers("h264", found) == found
    assert annexb_headers("hevc", bytes([1, 1]) + bytes(30)) == annexb_headers("vp9", b"abc") == b""


def test_how_long_a_length_is():
    assert prefix_size("h264", b"\x01\x64\x00\x1f\xfd\xe1\x00") == 2
    assert prefix_size("h264", b"\0\0\0\1\x67\x64\x00\x1f") is None
    assert prefix_size("hevc", b"\x01" + bytes(20) + b"\xff\x00") == 4
    assert prefix_size("hevc", b"\0\0\0\1" + bytes(30)) is None
    assert prefix_size("vp9", b"\x01" * 30) is None
