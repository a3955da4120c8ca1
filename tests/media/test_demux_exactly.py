"""What a container says of its video, where a seek goes, and what a copied packet keeps; from files alone."""

from contextlib import closing

import av
import pytest
from support.clips import write

from streamkit.core.errors import SourceError
from streamkit.media.demux import Demuxer, chroma_of, clone_packet
from streamkit.media.stream_info import StreamInfo


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """50 frames, 25 a second, a keyframe every 10."""
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=50, options={"g": "10", "bf": "2"})


def test_what_a_file_says_of_its_video(clip):
    with closing(Demuxer(str(clip))) as demuxer:
        assert demuxer.info == StreamInfo(
            codec="h264",
            width=64,
            height=48,
            pixel_format="yuv420p",
            bit_depth=8,
            chroma=420,
            average_rate=25.0,
            start_s=0.0,
            duration_s=2.0,
            frames=50,
            live=False,
        )
        assert demuxer.info.facts() == {
            "codec": "h264",
            "width": 64,
            "height": 48,
            "fps": 25.0,
            "frames": 50,
            "duration_s": 2.0,
        }
        assert not demuxer.decode_times
        assert demuxer.sender_offset_s is None
        assert demuxer.step == demuxer.stream.time_base.denominator // 25
        packets = list(demuxer.packets())
        assert (len(packets), demuxer.packets_read, demuxer.discarded, demuxer.damaged) == (50, 50, 0, 0)


def test_packets_that_are_damaged_are_counted(clip):
    with closing(Demuxer(str(clip))) as demuxer:
        packets = list(demuxer.packets())
        for number in (3, 7):
            packets[number].is_corrupt = True
        demuxer._read = lambda: iter(packets)
        assert list(demuxer.packets()) == packets
        assert demuxer.damaged == 2


@pytest.mark.parametrize(
    ("pixel_format", "chroma"),
    [
        ("yuv420p", 420),
        ("nv12", 420),
        ("yuv422p", 422),
        ("yuv444p", 444),
        ("gray", 400),
        ("rgb24", 0),
        ("gbrp", 0),
        ("yuva420p", 420),
        ("yuv411p", 0),
        ("yuv440p", 0),
        ("yuv420p10le", 420),
        ("ya8", 400),
        (None, 0),
    ],
)
def test_the_chroma_of_a_pixel_format(pixel_format, chroma):
    assert chroma_of(pixel_format and av.VideoFormat(pixel_format, 64, 48)) == chroma


@pytest.mark.parametrize(("at_s", "keyframe"), [(0.0, 0), (0.39, 0), (0.4, 10), (0.41, 10), (1.99, 40), (9.0, 40)])
def test_a_seek_goes_to_the_keyframe_at_or_before(clip, at_s, keyframe):
    with closing(Demuxer(str(clip))) as demuxer:
        assert demuxer.seek(at_s)
        packet = next(demuxer.packets())
        assert packet.is_keyframe
        assert round(packet.pts * packet.time_base * 25) == keyframe


@pytest.mark.parametrize("name", ["a.ts", "a.h264"])
def test_a_container_without_an_index_is_read_through(tmp_path, name):
    with closing(Demuxer(str(write(tmp_path / name, frames=20)))) as demuxer:
        assert not demuxer.seek(0.4)
        assert len(list(demuxer.packets())) == 20, "nothing was left out for it"


def test_a_closed_file_ends(clip):
    demuxer = Demuxer(str(clip))
    demuxer.close()
    with pytest.raises((SourceError, AssertionError)):
        next(demuxer.packets())


@pytest.mark.parametrize("number", [0, 4], ids=["keyframe", "other"])
@pytest.mark.parametrize("corrupt", [True, False])
def test_a_packet_of_the_same_bytes_keeps_its_times_and_its_flags(clip, number, corrupt):
    with closing(Demuxer(str(clip))) as demuxer:
        packet = list(demuxer.packets())[number]
    packet.is_corrupt = corrupt
    for copied, data in (
        (clone_packet(packet), bytes(packet)),
        (clone_packet(packet, b"head"), b"head" + bytes(packet)),
    ):
        assert bytes(copied) == data
        assert (copied.pts, copied.dts, copied.time_base) == (packet.pts, packet.dts, packet.time_base)
        assert copied.is_keyframe is packet.is_keyframe is (number == 0)
        assert not copied.is_discard
        assert copied.is_corrupt is corrupt


def test_a_spare_decoder_leaves_the_streams_own_alone(clip):
    with closing(Demuxer(str(clip))) as demuxer:
        packets = list(demuxer.packets())
        with demuxer.single_frame_decoder() as context:
            assert context is not demuxer.stream.codec_context
            assert context.thread_count == 1
            frames = context.decode(packets[0]) + context.decode(None)
        assert [(frame.width, frame.height) for frame in frames] == [(64, 48)]
        assert not demuxer.stream.codec_context.is_open


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SourceError, match=r"none\.mp4"):
        Demuxer(str(tmp_path / "none.mp4"))
    with write(tmp_path / "b.mp4", frames=5).open("rb") as file, closing(Demuxer("x.mp4", file=file)) as demuxer:
        assert len(list(demuxer.packets())) == 5, "an open file is read in place of its address"
