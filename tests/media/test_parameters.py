import av
import pytest
from support.clips import write

from streamkit.media.parameters import parameters

FILTERS = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb", "mpeg4": "dump_extra"}


def keyframe_parameters(path, codec):
    found = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        name = FILTERS.get(codec)
        bsf = av.BitStreamFilterContext(name, stream) if name else None
        for packet in container.demux(stream):
            if packet.size and packet.is_keyframe:
                found += [parameters(codec, bytes(part)) for part in (bsf.filter(packet) if bsf else [packet])]
    return found


@pytest.mark.parametrize(
    ("codec", "encoder", "suffix"),
    [
        ("h264", "libx264", "mp4"), ("hevc", "libx265", "mp4"), ("mpeg4", "mpeg4", "avi"),
        ("vp9", "libvpx-vp9", "webm"), ("vp8", "libvpx", "webm"),
        ("mpeg2video", "mpeg2video", "ts"), ("av1", "libsvtav1", "mkv"),
    ],
)  # fmt: skip
def test_they_change_with_the_size_and_only_with_it(tmp_path, codec, encoder, suffix):
    if encoder not in av.codecs_available:
        pytest.skip(f"this FFmpeg has no {encoder}")
    options = {"g": "5"}
    if encoder == "libsvtav1":
        options |= {"preset": "12", "svtav1-params": "keyint=5"}
    one = keyframe_parameters(write(tmp_path / f"a.{suffix}", 64, 64, 12, codec=encoder, options=options), codec)
    two = keyframe_parameters(write(tmp_path / f"b.{suffix}", 96, 64, 12, codec=encoder, options=options), codec)
    assert len(one) > 1
    assert one[0]
    assert set(one) == {one[0]}
    assert set(two) == {two[0]}
    assert one[0] != two[0]


@pytest.mark.parametrize("codec", ["h264", "hevc", "mpeg4", "mpeg2video", "vp8", "vp9", "av1", "prores"])
@pytest.mark.parametrize("data", [b"", b"\0\0\1", b"\xff" * 20, b"\0\0\1\x67", b"\x0a\xff\xff\xff"])
def test_rubbish_is_no_trouble(codec, data):
    assert isinstance(parameters(codec, data), bytes)
