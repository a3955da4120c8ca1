"""What headers say of a video: the same length in every container, wherever its times begin; and which way is up."""

from contextlib import closing
from pathlib import Path

import av
import pytest
from support.clips import shifted, two_streams, write

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.core.stage import Context
from streamkit.media.demux import Demuxer
from streamkit.media.reader import VideoReader
from streamkit.media.stream_info import FILE_OPTIONS, stream_duration_s
from streamkit.media.surfaces import SurfacePool
from streamkit.stages.sources.source import VideoSource

# of 100 frames at 25 a second; two frame times more or less, for B-frames
LENGTH_S = 4.0
SLACK_S = 0.1
# by container: its codec, and what its muxer is told
CONTAINERS = {
    "mp4": ("libx264", {}),
    "mov": ("libx264", {}),
    "mkv": ("libx264", {}),
    "webm": ("libvpx-vp9", {}),
    "ts": ("libx264", {}),
    "flv": ("libx264", {}),
    "nut": ("libx264", {}),
    "asf": ("mpeg4", {}),
    "ogv": ("libvpx", {}),
    "fragments.mp4": ("libx264", {"movflags": "frag_keyframe+empty_moov+default_base_moof"}),
    "untold.flv": ("libx264", {"flvflags": "no_duration_filesize"}),
}


def shifted_clip(folder: Path, name: str, shift_s: float) -> Path:
    codec, options = CONTAINERS[name]
    first = write(folder / "first.nut", frames=100, codec=codec, options={"g": "25"})
    return shifted(folder / f"a.{name}", first, shift_s, **options)


@pytest.mark.parametrize("shift_s", [0.0, 2.0, 10.0, 3600.0])
@pytest.mark.parametrize("name", CONTAINERS)
def test_the_length_does_not_depend_on_the_first_time(tmp_path, name, shift_s):
    path = shifted_clip(tmp_path, name, shift_s)
    with closing(Demuxer(str(path))) as demuxer:
        assert demuxer.info.facts()["duration_s"] == pytest.approx(LENGTH_S, abs=SLACK_S)
    reader = VideoReader(str(path), Device(), SurfacePool(Device()), Counters())
    with closing(reader):
        assert len(list(reader.frames())) == 100  # and nothing is called cut


@pytest.mark.parametrize("first", [0, 50])
def test_the_length_of_avi_is_that_of_its_frame_slots(tmp_path, first):
    ticks = [40 * (first + n) for n in range(100)]  # where it begins later there are empty places
    path = write(tmp_path / "a.avi", frames=100, codec="mpeg4", ticks=ticks)
    reader = VideoReader(str(path), Device(), SurfacePool(Device()), Counters())
    with closing(reader):
        assert reader.info.duration_s == pytest.approx(LENGTH_S + first / 25, abs=SLACK_S)
        assert len(list(reader.frames())) == 100


def test_the_length_of_an_mp4_fragment_is_its_duration(tmp_path):
    """As DASH and HLS cut them: a header, and fragments with the times of the whole."""
    whole = shifted_clip(tmp_path, "fragments.mp4", 0.0).read_bytes()
    begins = [at - 4 for at in range(len(whole)) if whole.startswith(b"moof", at)]  # behind its length
    assert len(begins) == 4
    (tmp_path / "piece.mp4").write_bytes(whole[: begins[0]] + whole[begins[2] : whole.index(b"mfra") - 4])
    with closing(Demuxer(str(tmp_path / "piece.mp4"))) as demuxer:
        assert demuxer.info.start_s == pytest.approx(2.0, abs=SLACK_S)
        assert demuxer.info.duration_s == pytest.approx(2.0, abs=SLACK_S)


def test_an_end_before_the_last_frame_is_read_as_a_length(tmp_path):
    """Some programs write one into Matroska, though the times begin later."""
    path = shifted_clip(tmp_path, "mkv", 10.0)
    with av.open(str(path), options=FILE_OPTIONS) as container:
        stream = container.streams.video[0]
        assert stream_duration_s(container, stream) == pytest.approx(LENGTH_S, abs=SLACK_S)
    data = path.read_bytes()
    at = data.index(b"00:00:14.")
    path.write_bytes(data[:at] + b"00:00:04." + data[at + 9 :])
    with closing(Demuxer(str(path))) as demuxer:
        assert demuxer.info.duration_s == pytest.approx(LENGTH_S, abs=SLACK_S)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return two_streams(tmp_path_factory.mktemp("clips") / "two.mkv", [(64, 48), (320, 240), (128, 96)])


@pytest.mark.parametrize(("stream", "size"), [(None, (320, 240)), (0, (64, 48)), (1, (320, 240)), (2, (128, 96))])
def test_a_video_stream_is_selected_by_number(two, stream, size):
    source = VideoSource(uri=str(two), stream=stream)
    source.context = Context(id="cam")
    frames = list(source.frames())
    assert [(f.width, f.height) for f in frames] == [size] * 10
    source = VideoSource(uri=str(two), stream=stream, loop=2, decoders=2, start=0.2)
    source.context = Context(id="cam")
    assert [(f.width, f.height) for f in source.frames()] == [size] * 10


def test_the_default_stream_is_that_of_ffmpeg(test_data):
    path = str(test_data / "videos" / "codec" / "nasa_13013.mp4")
    with closing(Demuxer(path)) as best, closing(Demuxer(path, number=0)) as first:
        assert (best.info.width, best.info.frames) == (480, 390)
        assert (first.info.width, first.info.frames) == (320, 325)


@pytest.mark.parametrize(
    ("name", "stream", "message"),
    [
        ("two", 3, "stream must be 0 to 2, as it has 3 video streams, got 3"),
        ("one", 1, "stream must be 0, as it has 1 video stream, got 1"),
    ],
)
def test_a_missing_stream_is_reported(two, tmp_path, name, stream, message):
    path = two if name == "two" else write(tmp_path / "one.mp4", frames=5)
    with pytest.raises(SourceError) as caught:
        Demuxer(str(path), number=stream)
    assert str(caught.value) == f"{path}: {message}"
    assert caught.value.cause == "no_video"


def test_a_default_stream_takes_precedence_over_a_larger_one(tmp_path):
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
