"""Long clips repeat the packets of a short clip, and decode to its frames repeated; the network to measure with."""

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import av
import pytest
from support.default_network import shipped_as_default

from streamkit.bench.inputs import clip_of, lengthen, network, scratch_folder
from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, SourceError
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import SurfacePool
from streamkit.models.card import load_card


def shown(path):
    """A hash and the time of every picture; the reader complains where any is lost."""
    device = Device("cpu")
    with closing(VideoReader(str(path), device, SurfacePool(device), Counters(), threads=2)) as reader:
        return [(hash(picture.surface.data.tobytes()), picture.pts_s) for _, picture in reader.frames()]


# B frames and an uneven rate; HEVC
@pytest.mark.parametrize("name", ["ahmetozlu_pedestrian.mp4", "codec/testsrc2_h265.mp4"])
def test_a_long_clip_repeats_the_frames_in_order(name, test_data, tmp_path):
    clip = test_data / "videos" / name
    out = tmp_path / "long.mp4"
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
    with av.open(str(test_data / "videos" / "ahmetozlu_pedestrian.mp4")) as video, av.open(str(bare), "w") as output:
        stream = output.add_stream_from_template(video.streams.video[0])
        for number, packet in enumerate(video.demux(video=0)):
            if packet.size and number < 30:
                packet.stream = stream
                output.mux(packet)
    with pytest.raises(SourceError, match="without timestamps"):
        lengthen(bare, tmp_path / "long.mp4", 100)


def test_a_missing_clip_is_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"bench_1080p_hevc.mp4.*--data"):
        clip_of("hevc", tmp_path, tmp_path)
    with pytest.raises(ConfigError, match=r"h264 and hevc, not of 'av1'.*--clip"):
        clip_of("av1", tmp_path, tmp_path)


def test_the_scratch_folder_is_removed():
    with scratch_folder() as name:
        (Path(name) / "file").write_text("x")
    assert not Path(name).exists()


# ------------------------------------------------------------------------------------------------------- the network


def test_a_custom_card_is_not_changed(tmp_path, root):
    assert network("demo", None, tmp_path, "f16") == ("demo", "demo")
    shipped = root / "models" / "demo.yaml"
    assert network(str(shipped), None, tmp_path, "f16")[0] == str(shipped)


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_without_a_data_folder_the_sample_video_is_encoded(codec, tmp_path):
    clip = clip_of(codec, None, tmp_path)
    with av.open(str(clip)) as video:
        stream = video.streams.video[0]
        assert (stream.codec.canonical_name, stream.width, stream.height) == (codec, 1920, 1080)
        assert sum(1 for packet in video.demux(stream) if packet.size) == 100


def test_without_card_and_data_the_downloaded_network_is_used(tmp_path, monkeypatch):
    shipped_as_default(tmp_path)
    monkeypatch.chdir(tmp_path)
    path, _ = network(None, None, tmp_path, "f32")
    assert load_card(Path(path)).file.name == "demo.onnx"


def test_a_card_is_written_for_the_network_of_the_data_folder(tmp_path, test_data):
    path, message = network(None, test_data, tmp_path, "f32")
    card = load_card(tmp_path / "yolox-nano-f32.yaml")
    assert (path, message) == (str(tmp_path / "yolox-nano-f32.yaml"), "yolox-nano in f32")
    assert (card.family, card.file) == ("yolox", (test_data / "models" / "yolox_nano_dyn.onnx").resolve())


def test_the_card_of_the_data_folders_network_has_the_chosen_precision(tmp_path, test_data):
    path, message = network(None, test_data, tmp_path, "f16")
    assert (load_card(Path(path)).precision, message) == ("f16", "yolox-nano in f16")
