import os
import subprocess
from fractions import Fraction

import av
import numpy as np
import pytest

from streamkit.counters import Counters
from streamkit.data import Color, Surface
from streamkit.errors import OutputError
from streamkit.media.encode import TIME_BASE, CpuEncoder, Encoding
from streamkit.media.mux import VideoFile, container_format, copy_packets
from streamkit.outputs import WholeFile

W, H = 64, 48
SECOND = TIME_BASE.denominator


def surface(i, rng=None):
    data = np.full((H * 3 // 2, W), 128, np.uint8)
    data[:H] = rng.integers(0, 255, (H, W)) if rng else (i * 9) % 200
    return Surface(data, Color())


def video_file(path, codec="h264", size=(W, H), **asked):
    file = WholeFile(path)
    file.begin()
    return VideoFile(file, CpuEncoder(Encoding(codec, **asked), *size, Color(), Fraction(25), 1, Counters()))


def write_all(video, surfaces):
    for i, one in enumerate(surfaces):
        video.write(one, i * SECOND // 25)
    video.finish()


def times(path):
    with av.open(str(path)) as back:
        return [frame.pts * frame.time_base for frame in back.decode(video=0)]


@pytest.mark.parametrize(("path", "expected"), [("a.mp4", "mp4"), ("b/c.MKV", "matroska")])
def test_containers(path, expected):
    assert container_format(path) == expected


@pytest.mark.parametrize("path", ["a.avi", "a", "a.mp4.txt"])
def test_other_containers_are_refused(path):
    with pytest.raises(ValueError, match=r"must end in \.mp4 or \.mkv"):
        container_format(path)


CLOCKS = {
    "25 fps": [Fraction(i, 25) for i in range(30)],
    "ntsc": [Fraction(i * 1001, 30000) for i in range(30)],
    "90 kHz, late start": [Fraction(123_457 + i * 3003, 90_000) for i in range(30)],
    "variable, 12800": [Fraction(i * 512 + (i % 3) * 7 + (i > 9) * 64_001, 12_800) for i in range(30)],
    "slow": [Fraction(i * 7) for i in range(5)],
    "two frames": [Fraction(1, 3), Fraction(1)],
    "one frame": [Fraction(5, 2)],
}


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("clock", CLOCKS)
def test_every_time_is_kept(tmp_path, clock, suffix, codec):
    wanted, path = CLOCKS[clock], tmp_path / f"a.{suffix}"
    video = video_file(path, codec)
    for i, at in enumerate(wanted):
        video.write(surface(i), round(at * SECOND))
    video.finish()
    found = times(path)
    assert len(found) == len(wanted)
    allowed = Fraction(1, 2000) if suffix == "mkv" else TIME_BASE / 2
    assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) <= allowed


def test_the_last_frame_lasts_as_long_as_the_one_before(tmp_path):
    video = video_file(tmp_path / "a.mp4")
    for i in range(10):
        video.write(surface(i), i * SECOND // 10)
    video.finish()
    with av.open(str(tmp_path / "a.mp4")) as back:
        assert back.streams.video[0].duration * back.streams.video[0].time_base == 1


def test_nothing_has_the_name_before_the_end(tmp_path):
    path = tmp_path / "a.mp4"
    video = video_file(path)
    for i in range(60):
        video.write(surface(i), i * SECOND // 25)
    assert os.listdir(tmp_path) == [".a.mp4.part"]
    video.finish()
    assert os.listdir(tmp_path) == ["a.mp4"]
    assert len(times(path)) == 60


def test_a_discarded_video_is_gone(tmp_path):
    video = video_file(tmp_path / "a.mp4")
    video.write(surface(0), 0)
    video.discard()
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_encoded_is_one_error_and_no_file(tmp_path):
    video = video_file(tmp_path / "a.mp4", size=(16, 16), preset="nonsense")
    with pytest.raises(OutputError, match=r"cannot write .*a\.mp4: "):
        write_all(video, [surface(i) for i in range(3)])
    assert os.listdir(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_full_disk_is_one_error_and_no_file(small_disk, suffix):
    rng = np.random.default_rng(0)
    video = video_file(small_disk / f"a.{suffix}", quality=1)
    with pytest.raises(OutputError, match=rf"cannot write .*a\.{suffix}: the disk is full"):
        write_all(video, (surface(i, rng) for i in range(300)))
    assert os.listdir(small_disk) == []


def test_copied_packets_are_the_same_packets(tmp_path, test_data):
    uri = str(test_data / "videos" / "ahmetozlu_pedestrian.mp4")  # B frames
    with av.open(uri) as source:
        wanted = [(bytes(p), p.pts * p.time_base) for p in source.demux(video=0) if p.size]
    file = WholeFile(tmp_path / "a.mp4")
    file.begin()
    copy_packets(uri, file, float(min(at for _, at in wanted)), float(max(at for _, at in wanted)))
    with av.open(str(tmp_path / "a.mp4")) as back:
        found = [(bytes(p), p.pts * p.time_base) for p in back.demux(video=0) if p.size]
    assert [data for data, _ in found] == [data for data, _ in wanted]
    start = found[0][1] - wanted[0][1]
    assert all(abs(a - b - start) < Fraction(1, 10_000) for (_, a), (_, b) in zip(found, wanted, strict=True))


def test_a_copied_stretch_begins_at_a_keyframe_and_ends_in_time(tmp_path, test_data):
    uri = str(test_data / "videos" / "bench_1080p_h264.mp4")  # 25 fps, a keyframe every 50
    file = WholeFile(tmp_path / "a.mkv")
    file.begin()
    copy_packets(uri, file, 2.5, 4.5)
    with av.open(str(tmp_path / "a.mkv")) as back:
        packets = [p for p in back.demux(video=0) if p.size]
    assert packets[0].is_keyframe
    assert 60 <= len(packets) <= 68
    with av.open(str(tmp_path / "a.mkv")) as back:
        assert next(back.decode(video=0)).key_frame


def test_what_cannot_be_copied_leaves_no_file(tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    file = WholeFile(tmp_path / "out" / "a.mp4")
    file.begin()
    with pytest.raises(OutputError, match="cannot write"):
        copy_packets(str(tmp_path / "text.mp4"), file, 0, 1)
    assert os.listdir(tmp_path / "out") == []
