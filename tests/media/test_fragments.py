"""Packets as fragmented MP4: what players get is the video, frame by frame, with its times."""

import io
from fractions import Fraction

import av
import pytest
from support import clips, coded

from streamkit.media.encode import TIME_BASE
from streamkit.media.fragments import FragmentMuxer
from streamkit.media.ring import StreamFormat


def packets(path):
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        form = StreamFormat(stream)
        ticks = Fraction(stream.time_base) / TIME_BASE
        return form, [
            (bytes(packet), round(packet.pts * ticks), round(packet.dts * ticks), packet.is_keyframe)
            for packet in source.demux(stream)
            if packet.size
        ]


def fragments(path):
    """The muxer, and its fragments with whether each is a keyframe."""
    form, sent = packets(path)
    first = sent[0][2]
    muxer = FragmentMuxer(form)
    fragments_of_packets = [muxer.put(data, pts - first, dts - first, keyframe=key) for data, pts, dts, key in sent]
    assert fragments_of_packets[0] is None
    return muxer, fragments_of_packets[1:], sent


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
@pytest.mark.parametrize("bf", [0, 2])
@pytest.mark.parametrize("form", ["mp4", "ts"])  # parameter sets before the video, and within it
def test_each_packet_becomes_a_fragment_with_its_frame_and_time(tmp_path, codec, bf, form):
    path = coded.clip(tmp_path / f"clip.{form}", 40, bf=bf, codec=codec)
    muxer, fragments_and_keys, sent = fragments(path)
    assert muxer.init[4:8] == b"ftyp"
    assert all(fragment is not None and fragment[0][4:8] == b"moof" for fragment in fragments_and_keys)
    assert [key for _, key in fragments_and_keys] == [key for *_, key in sent[:-1]]
    with av.open(io.BytesIO(muxer.init + b"".join(data for data, _ in fragments_and_keys))) as shown:
        pictures = [(frame.time, coded.number_of(frame.to_ndarray(format="rgb24"))) for frame in shown.decode(video=0)]
    first = sent[0][2]
    times = sorted(float((pts - first) * TIME_BASE) for _, pts, *_ in sent)
    assert [number for _, number in pictures[:36]] == list(range(36))  # the last packet waits for its duration
    assert [time for time, _ in pictures[:36]] == pytest.approx(times[:36], abs=1e-4)


def test_a_player_can_start_at_any_keyframe(tmp_path):
    muxer, fragments_and_keys, _ = fragments(coded.clip(tmp_path / "clip.mp4", 40))
    later = b"".join(data for data, _ in fragments_and_keys[20:])
    with av.open(io.BytesIO(muxer.init + later)) as shown:
        pictures = [(frame.time, coded.number_of(frame.to_ndarray(format="rgb24"))) for frame in shown.decode(video=0)]
    assert pictures[0] == (pytest.approx(20 / 25, abs=1e-4), 20)


def test_the_codec_string_is_that_of_browsers(tmp_path):
    muxer = FragmentMuxer(packets(coded.clip(tmp_path / "a.mp4", 3))[0])
    extradata = av.open(str(tmp_path / "a.mp4")).streams.video[0].codec_context.extradata
    assert muxer.codecs == f"avc1.{extradata[1:4].hex()}"
    hevc = FragmentMuxer(packets(coded.clip(tmp_path / "b.mp4", 3, codec="libx265"))[0])
    assert hevc.codecs == "hvc1.1.6.L60.90"
    assert b"hvc1" in hevc.init


def test_a_rotated_video_stays_rotated(tmp_path):
    muxer, fragments_and_keys, _ = fragments(clips.write(tmp_path / "clip.mp4", rotation=90, frames=5))
    with av.open(io.BytesIO(muxer.init + b"".join(data for data, _ in fragments_and_keys))) as shown:
        assert next(shown.decode(video=0)).rotation % 360 == 90


def test_other_codecs_are_refused_by_name(tmp_path):
    path = clips.write(tmp_path / "clip.avi", codec="mpeg4", frames=3)
    with pytest.raises(ValueError, match="this is mpeg4"):
        FragmentMuxer(packets(path)[0])
