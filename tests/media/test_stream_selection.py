"""Files with several video streams."""

from contextlib import closing

import av
import pytest
from support.clips import two_streams, write

from streamkit.core.errors import SourceError
from streamkit.core.stage import Context
from streamkit.media.demux import Demuxer
from streamkit.stages.sources.source import VideoSource


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return two_streams(tmp_path_factory.mktemp("clips") / "two.mkv", [(64, 48), (320, 240), (128, 96)])


@pytest.mark.parametrize(("stream", "size"), [(None, (320, 240)), (0, (64, 48)), (1, (320, 240)), (2, (128, 96))])
def test_several_video_streams(two, stream, size):
    source = VideoSource(uri=str(two), stream=stream)
    source.context = Context(id="cam")
    frames = list(source.frames())
    assert [(f.width, f.height) for f in frames] == [size] * 10
    source = VideoSource(uri=str(two), stream=stream, loop=2, decoders=2, start=0.2)
    source.context = Context(id="cam")
    assert [(f.width, f.height) for f in source.frames()] == [size] * 10


def test_the_best_stream_is_the_one_that_ffmpeg_takes(test_data):
    path = str(test_data / "videos" / "codec" / "nasa_13013.mp4")
    with closing(Demuxer(path)) as best, closing(Demuxer(path, number=0)) as first:
        assert (best.info.width, best.info.frames) == (480, 390)
        assert (first.info.width, first.info.frames) == (320, 325)


@pytest.mark.parametrize(
    ("name", "stream", "told"),
    [
        ("two", 3, "stream must be 0 to 2, for it has 3 video streams, got 3"),
        ("one", 1, "stream must be 0, for it has 1 video stream, got 1"),
    ],
)
def test_a_stream_that_is_not_there(two, tmp_path, name, stream, told):
    path = two if name == "two" else write(tmp_path / "one.mp4", frames=5)
    with pytest.raises(SourceError) as caught:
        Demuxer(str(path), number=stream)
    assert str(caught.value) == f"{path}: {told}"
    assert caught.value.cause == "no_video"


def test_the_default_stream_goes_before_a_larger_one(tmp_path):
    path = two_streams(tmp_path / "two.mp4", [(64, 48), (320, 240)])
    with av.open(str(path)) as source, av.open(str(tmp_path / "marked.mkv"), "w") as output:
        copies = [output.add_stream_from_template(stream) for stream in source.streams.video]
        copies[0].disposition = av.stream.Disposition.default
        copies[1].disposition = av.stream.Disposition(0)
        for packet in source.demux():
            if packet.size:
                packet.stream = copies[packet.stream.index]
                output.mux(packet)
    with closing(Demuxer(str(tmp_path / "marked.mkv"))) as demuxer:
        assert demuxer.info.width == 64
