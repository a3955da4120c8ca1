"""Long clips are the short one's packets again and again, and decode to its pictures repeated."""

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from streamkit.bench.clips import clip_of, lengthen, scratch_folder
from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, SourceError
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import SurfacePool


def shown(path):
    """A hash and the time of every picture; the reader complains where any is lost."""
    device = Device("cpu")
    with closing(VideoReader(str(path), device, SurfacePool(device), Counters(), print, threads=2)) as reader:
        return [(hash(picture.surface.data.tobytes()), picture.pts_s) for _, picture in reader.frames()]


# B frames and an uneven rate; HEVC
@pytest.mark.parametrize("name", ["ahmetozlu_pedestrian.mp4", "codec/testsrc2_h265.mp4"])
def test_a_long_clip_shows_the_pictures_again_in_order(name, test_data, tmp_path):
    clip, out = test_data / "videos" / name, tmp_path / "long.mp4"
    once = shown(clip)
    assert lengthen(clip, out, len(once) + 1) == 2 * len(once)
    twice = shown(out)
    assert [picture for picture, _ in twice] == [picture for picture, _ in once] * 2
    times = [at for _, at in twice]
    steps = [b - a for a, b in pairwise(times)]
    longest = max(b - a for (_, a), (_, b) in pairwise(once))
    assert min(steps) > 0
    assert max(steps) < longest + 0.002


def test_packets_without_times_are_refused(tmp_path, test_data):
    import av

    bare = tmp_path / "bare.h264"
    with av.open(str(test_data / "videos" / "ahmetozlu_pedestrian.mp4")) as given, av.open(str(bare), "w") as output:
        stream = output.add_stream_from_template(given.streams.video[0])
        for number, packet in enumerate(given.demux(video=0)):
            if packet.size and number < 30:
                packet.stream = stream
                output.mux(packet)
    with pytest.raises(SourceError, match="without times"):
        lengthen(bare, tmp_path / "long.mp4", 100)


def test_a_missing_clip_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"bench_1080p_hevc.mp4.*--data"):
        clip_of("hevc", tmp_path)
    with pytest.raises(ConfigError, match=r"h264 and hevc, not of 'av1'.*--clip"):
        clip_of("av1", tmp_path)


def test_the_scratch_folder_goes_away():
    with scratch_folder() as name:
        (Path(name) / "file").write_text("x")
    assert not Path(name).exists()
