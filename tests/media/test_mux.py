import itertools
import os
import subprocess
import sys
import threading
from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest
from support.clips import shifted, two_streams, write
from support.full_disk import small_disk

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Surface
from streamkit.core.errors import OutputError
from streamkit.io.outputs import AtomicFile, sweep
from streamkit.media.encode import TIME_BASE, CpuEncoder, Encoding
from streamkit.media.mux import Clip, VideoWriter, _backfill_dts, container_format, copy_packets, from_keyframe
from streamkit.media.ring import TICKS_PER_S, PacketRing

W = 64
H = 48
SECOND = TIME_BASE.denominator


def surface(i, rng=None):
    data = np.full((H * 3 // 2, W), 128, np.uint8)
    data[:H] = rng.integers(0, 255, (H, W)) if rng else (i * 9) % 200
    return Surface(data, Color())


def video_file(path, codec="h264", size=(W, H), **encoding):
    file = AtomicFile(path)
    file.begin()
    return VideoWriter(file, CpuEncoder(Encoding(codec, **encoding), *size, Color(), Fraction(25), 1, Counters()))


def write_all(video, surfaces):
    for i, frame in enumerate(surfaces):
        video.write(frame, i * SECOND // 25)
    video.finish()


def times(path):
    with av.open(str(path)) as back:
        return [frame.pts * frame.time_base for frame in back.decode(video=0)]


@pytest.mark.parametrize(("path", "expected"), [("a.mp4", "mp4"), ("b/c.MKV", "matroska")])
def test_all_containers_are_written(path, expected):
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
def test_every_timestamp_is_written(tmp_path, clock, suffix, codec):
    wanted = CLOCKS[clock]
    path = tmp_path / f"a.{suffix}"
    video = video_file(path, codec)
    for i, at in enumerate(wanted):
        video.write(surface(i), round(at * SECOND))
    video.finish()
    written = times(path)
    assert len(written) == len(wanted)
    allowed = Fraction(1, 2000) if suffix == "mkv" else TIME_BASE / 2
    assert max(abs(a - b) for a, b in zip(written, wanted, strict=True)) <= allowed


def test_the_last_frame_has_the_duration_of_the_previous(tmp_path):
    video = video_file(tmp_path / "a.mp4")
    for i in range(10):
        video.write(surface(i), i * SECOND // 10)
    video.finish()
    with av.open(str(tmp_path / "a.mp4")) as back:
        assert back.streams.video[0].duration * back.streams.video[0].time_base == 1


def test_the_final_name_appears_at_the_end(tmp_path):
    path = tmp_path / "a.mp4"
    video = video_file(path)
    for i in range(60):
        video.write(surface(i), i * SECOND // 25)
    assert os.listdir(tmp_path) == [".a.mp4.part"]
    video.finish()
    assert os.listdir(tmp_path) == ["a.mp4"]
    assert len(times(path)) == 60


def test_a_discarded_video_leaves_no_file(tmp_path):
    video = video_file(tmp_path / "a.mp4")
    video.write(surface(0), 0)
    video.discard()
    assert os.listdir(tmp_path) == []


def test_an_encoding_failure_is_an_error_without_a_file(tmp_path):
    video = video_file(tmp_path / "a.mp4", size=(16, 16), preset="nonsense")
    with pytest.raises(OutputError, match=r"cannot write .*a\.mp4: "):
        write_all(video, [surface(i) for i in range(3)])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_full_disk_is_an_error_without_a_file(tmp_path, suffix):
    rng = np.random.default_rng(0)
    with small_disk(tmp_path / "disk") as disk:
        video = video_file(disk.folder / f"a.{suffix}", quality=1)
        with pytest.raises(OutputError, match=rf"cannot write .*a\.{suffix}: the disk is full"):
            write_all(video, (surface(i, rng) for i in range(300)))
        assert os.listdir(disk.folder) == []


def test_copied_packets_are_unchanged(tmp_path, test_data):
    uri = str(test_data / "videos" / "ahmetozlu_pedestrian.mp4")  # B frames
    with av.open(uri) as source:
        wanted = [(bytes(p), p.pts * p.time_base) for p in source.demux(video=0) if p.size]
    file = AtomicFile(tmp_path / "a.mp4")
    file.begin()
    copy_packets(uri, file, float(min(at for _, at in wanted)), float(max(at for _, at in wanted)))
    with av.open(str(tmp_path / "a.mp4")) as back:
        copies = [(bytes(p), p.pts * p.time_base) for p in back.demux(video=0) if p.size]
    assert [data for data, _ in copies] == [data for data, _ in wanted]
    start = copies[0][1] - wanted[0][1]
    assert all(abs(a - b - start) < Fraction(1, 10_000) for (_, a), (_, b) in zip(copies, wanted, strict=True))


def test_a_copied_range_starts_at_a_keyframe_and_ends_in_time(tmp_path, test_data):
    uri = str(test_data / "videos" / "bench_1080p_h264.mp4")  # 25 fps, a keyframe every 50
    file = AtomicFile(tmp_path / "a.mkv")
    file.begin()
    copy_packets(uri, file, 2.5, 4.5)
    with av.open(str(tmp_path / "a.mkv")) as back:
        packets = [p for p in back.demux(video=0) if p.size]
    assert packets[0].is_keyframe
    assert 60 <= len(packets) <= 68
    with av.open(str(tmp_path / "a.mkv")) as back:
        assert next(back.decode(video=0)).key_frame


def packets_of(path):
    with av.open(str(path)) as source:
        return [(bytes(p), p.pts, p.dts) for p in source.demux(video=0) if p.size]


def copied(path, source, first_s=0.0, last_s=1e9, **options):
    file = AtomicFile(path)
    file.begin()
    copy_packets(str(source), file, first_s, last_s, **options)
    return path


STREAMS = {
    "closed": {"preset": "medium", "g": "25", "bf": "2", "sc_threshold": "0"},
    "pyramid": {"preset": "medium", "x264-params": "keyint=25:bframes=7:b-adapt=0:scenecut=0:b-pyramid=normal"},
    "plain": {"g": "25", "bf": "0"},
}


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("kind", STREAMS)
def test_a_copy_from_matroska_has_every_packet(tmp_path, kind, suffix):
    """Matroska has no decoding times, and FFmpeg cannot tell those of the first packets."""
    source = write(tmp_path / "given.mkv", frames=100, options=STREAMS[kind])
    wanted = packets_of(source)
    assert (None in [dts for *_, dts in wanted]) == (kind != "plain")
    path = copied(tmp_path / f"a.{suffix}", source)
    copies = packets_of(path)
    assert [data for data, *_ in copies] == [data for data, *_ in wanted]
    assert [float(at) for at in times(path)] == pytest.approx([n / 25 for n in range(100)])
    if suffix == "mp4":
        decoded = [dts for *_, dts in copies]
        assert all(b > a for a, b in itertools.pairwise(decoded))
        assert all(dts <= pts for _, pts, dts in copies)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_a_copy_of_few_packets_without_decoding_times_is_written(tmp_path, frames):
    source = write(tmp_path / "given.mkv", frames=frames, options=STREAMS["closed"])
    assert len(times(copied(tmp_path / "a.mp4", source))) == frames


@pytest.mark.parametrize("container", ["mp4", "mkv", "ts"])
@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize(("first", "last"), [(30, 41), (25, 25), (24, 50), (0, 7), (49, 99)])
def test_a_copied_range_includes_its_first_and_last_packet(tmp_path, kind, container, first, last):
    source = write(tmp_path / f"given.{container}", frames=100, options=STREAMS[kind])
    start_s = float(times(source)[0])
    path = copied(tmp_path / "a.mp4", source, start_s + first / 25, start_s + last / 25)
    every = sorted(pts for _, pts, _ in packets_of(source))
    order = [every.index(pts) for _, pts, _ in packets_of(source)]  # frame numbers in the order of the file
    begin = order.index(first // 25 * 25)
    wanted = [data for data, *_ in packets_of(source)][begin : order.index(last) + 1]
    copies = [data for data, *_ in packets_of(path)]
    if container == "ts":
        assert len(copies) >= len(wanted)
    else:
        assert copies[: len(wanted)] == wanted
    spare = len(copies) - len(wanted)
    assert spare == 0 if kind == "plain" else 0 <= spare <= 12, "those decoded before the last one is shown"
    shown = [round(float(at) * 25) for at in times(path)]
    offset = shown[0] - first // 25 * 25
    assert set(range(first // 25 * 25, last + 1)) <= {n - offset for n in shown}


def test_a_copy_starts_at_the_first_keyframe_by_default(tmp_path):
    def packet(pts, keyframe):
        return SimpleNamespace(pts=pts, dts=pts, is_keyframe=keyframe)

    stream = [packet(n, n in (3, 6, 9)) for n in range(12)]
    assert [p.pts for p in from_keyframe(stream, 0)] == list(range(3, 12))
    assert [p.pts for p in from_keyframe(stream, 6)] == list(range(6, 12))
    assert [p.pts for p in from_keyframe(stream, 8)] == list(range(6, 12))
    assert [p.pts for p in from_keyframe(stream, 99)] == list(range(9, 12))
    assert list(from_keyframe(stream[:3], 1)) == []


def test_a_copy_of_negative_times_starts_at_zero(tmp_path):
    first = write(tmp_path / "first.nut", frames=90, rate=30, options={"bf": "0"})
    negative = shifted(tmp_path / "given.mp4", first, -2.0, movflags="frag_keyframe+empty_moov+delay_moov")
    for suffix in ("mp4", "mkv"):
        path = copied(tmp_path / f"a.{suffix}", negative, -2.0, 0.9)
        assert [float(at) for at in times(path)] == pytest.approx([n / 30 for n in range(88)], abs=0.001)
        assert all(pts == dts for _, pts, dts in packets_of(path)), "without B frames, both are shifted alike"


@pytest.mark.parametrize(("stream", "width"), [(None, 320), (0, 64), (1, 320)])
def test_a_copy_uses_the_stream_of_the_source(tmp_path, stream, width):
    source = two_streams(tmp_path / "two.mkv", [(64, 48), (320, 240)])
    with av.open(str(copied(tmp_path / "a.mp4", source, stream=stream))) as back:
        assert back.streams.video[0].width == width


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("given.avi", {"bf": "3", "preset": "medium"}, "has no presentation times, which encoder: copy requires"),
        ("given.h264", {"bf": "0"}, "has no presentation times, which encoder: copy requires"),
    ],
)
def test_a_video_without_presentation_times_is_refused(tmp_path, name, options, message):
    source = write(tmp_path / name, frames=30, options=options)
    with pytest.raises(OutputError, match=rf"cannot write .*a\.mp4: .*{name} {message}; set encoder: cpu"):
        copied(tmp_path / "out" / "a.mp4", source)
    assert os.listdir(tmp_path / "out") == []


def test_a_missing_stream_is_refused(tmp_path):
    source = write(tmp_path / "given.mp4")
    with pytest.raises(OutputError, match=r"cannot write .*stream must be 0, as it has 1 video stream, got 4"):
        copied(tmp_path / "out" / "a.mp4", source, stream=4)
    assert os.listdir(tmp_path / "out") == []


def with_container_aspect(path, source, aspect):
    """Copy a video; only the container of the copy has the pixel aspect ratio."""
    with av.open(str(source)) as opened, av.open(str(path), "w") as output:
        stream = output.add_stream_from_template(opened.streams.video[0])
        stream.codec_context.sample_aspect_ratio = aspect
        for packet in opened.demux(video=0):
            if packet.size:
                packet.stream = stream
                output.mux(packet)
    return path


@pytest.mark.parametrize("by", ["copy", "clip"])
def test_the_pixel_aspect_ratio_of_the_container_is_copied(tmp_path, by):
    source = with_container_aspect(tmp_path / "in.mp4", write(tmp_path / "a.mp4", frames=5), Fraction(4, 3))
    path = tmp_path / "out.mp4"
    if by == "copy":
        copied(path, source)
    else:
        packets = packets_in_ring(source)
        clip = Clip(path, packets[0], {})
        for packet in packets:
            clip.write(packet)
        clip.finish()
    with av.open(str(path)) as back:
        assert back.streams.video[0].sample_aspect_ratio == Fraction(4, 3)


@pytest.fixture
def frames_at_rename(monkeypatch):
    """The number of readable frames of each file when it gets its name."""
    counts = []
    replace = os.replace

    def count_and_replace(part, path):
        with av.open(str(part)) as back:
            counts.append(sum(1 for _ in back.decode(video=0)))
        replace(part, path)

    monkeypatch.setattr(os, "replace", count_and_replace)
    return counts


@pytest.mark.parametrize("by", ["video", "copy"])
def test_a_file_is_renamed_after_its_last_byte(tmp_path, frames_at_rename, by):
    """An mp4 says at its end where its frames are: one that is named before cannot be read."""
    if by == "video":
        write_all(video_file(tmp_path / "a.mp4"), [surface(i) for i in range(30)])
    else:
        copied(tmp_path / "a.mp4", write(tmp_path / "given.mp4", frames=30))
    assert frames_at_rename == [30]
    assert len(times(tmp_path / "a.mp4")) == 30


def test_a_failed_copy_leaves_no_file(tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    file = AtomicFile(tmp_path / "out" / "a.mp4")
    file.begin()
    with pytest.raises(OutputError, match="cannot write"):
        copy_packets(str(tmp_path / "text.mp4"), file, 0, 1)
    assert os.listdir(tmp_path / "out") == []


def test_derived_decoding_times_never_exceed_presentation_times():
    packets = [SimpleNamespace(pts=pts, dts=None) for pts in (0, 5, 3)]
    assert list(_backfill_dts(packets, 9, 2)) == packets
    assert [packet.dts for packet in packets] == [-1, 1, 3]


def packets_in_ring(path):
    ring = PacketRing(("record",), limit_bytes=1 << 30, guard=threading.Lock())
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        ring.begin(stream)
        for packet in source.demux(stream):
            if packet.size:
                ring.put(packet)
    return ring.packets(0, 9999)


@pytest.fixture(scope="module", params=["libx264", "libx265", "mpeg4", "libvpx-vp9"])
def ring_packets(request, tmp_path_factory):
    """50 frames of each codec, B frames where it has them."""
    options = {"g": "10", "bf": "2"} if request.param.startswith("libx26") else {"g": "10"}
    path = write(tmp_path_factory.mktemp("clips") / "a.mkv", frames=50, codec=request.param, options=options)
    return packets_in_ring(path)


def test_a_clip_has_the_frames_between_its_first_and_newest(ring_packets, tmp_path):
    """This alone decides whether an event's frame is in the clip."""
    first, last = [k for k in ring_packets if k.keyframe][2:4]
    clip = Clip(tmp_path / "a.mkv", first, {})
    assert [k.number for k in ring_packets if clip.contains(k)] == [first.number]
    newest = first.pts
    for packet in ring_packets:
        if first.number <= packet.number < last.number and clip.write(packet):
            newest = max(newest, packet.pts)
            inside = [k for k in ring_packets if first.pts <= k.pts <= newest]
            assert [k for k in ring_packets if clip.contains(k)] == inside
            assert [k for k in ring_packets if clip.may_end_before(k)] == [k for k in ring_packets if k.pts > newest]
    clip.finish()
    with av.open(str(tmp_path / "a.mkv")) as back:
        assert len([k for k in ring_packets if clip.contains(k)]) == sum(1 for _ in back.decode(video=0)) == 10


def test_a_clip_reports_its_length_and_frame_times(ring_packets, tmp_path):
    first = [k for k in ring_packets if k.keyframe][2]
    clip = Clip(tmp_path / "a.mkv", first, {})
    assert clip.duration_s == 0
    shown = sorted(ring_packets, key=lambda k: k.pts)
    begin = shown.index(first)
    longest = 0
    assert [round(clip.offset_s(k), 3) for k in shown] == [round(max(0, i - begin) * 0.04, 3) for i in range(50)]
    for packet in ring_packets[first.number :]:
        if clip.write(packet):
            longest = max(longest, shown.index(packet) - begin + 1)
            assert clip.duration_s == pytest.approx(longest * 0.04, abs=0.001)
    assert longest == 30
    clip.discard()


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_clip_is_renamed_after_its_last_byte(ring_packets, tmp_path, frames_at_rename, suffix):
    clip = Clip(tmp_path / f"a.{suffix}", ring_packets[0], {})
    assert all(clip.write(packet) for packet in ring_packets)
    clip.finish()
    assert frames_at_rename == [50]


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_clip_plays_from_its_first_frame(ring_packets, suffix, tmp_path):
    first = [k for k in ring_packets if k.keyframe][2]
    path = tmp_path / "x" / f"c.{suffix}"
    clip = Clip(path, first, {"title": "gate crossed"})
    written = [k for k in ring_packets if k.number >= first.number and clip.write(k)]
    assert not path.exists()
    clip.finish()
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]
    with av.open(str(path)) as back:
        frames = [(round(float(f.time), 3), f.key_frame) for f in back.decode(video=0)]
        assert back.metadata["title"] == "gate crossed"
    assert len(frames) == len(written) == clip.packets
    assert frames[0][1]
    assert frames[0][0] <= (0.1 if suffix == "mkv" else 0.0), "mkv has no negative decoding times: it begins later"
    assert [round(at - frames[0][0], 2) for at, _ in frames] == [round(i * 0.04, 2) for i in range(len(frames))]
    assert clip.offset_s(first) == 0
    assert clip.bytes == sum(len(k.data) for k in written)


def test_frames_before_the_first_keyframe_are_dropped(test_data, tmp_path):
    packets = packets_in_ring(test_data / "videos" / "bench_1080p_hevc_opengop.mp4")
    keyframe = [k for k in packets if k.keyframe][1]
    leading = [k for k in packets if k.number > keyframe.number and k.pts < keyframe.pts]
    assert leading, "an open GOP has frames that refer to what is before its keyframe"
    clip = Clip(tmp_path / "a.mp4", keyframe, {})
    taken = [clip.write(k) for k in packets if keyframe.number <= k.number < keyframe.number + 40]
    clip.finish()
    assert taken.count(False) == len(leading)
    with av.open(str(tmp_path / "a.mp4")) as back:
        frames = list(back.decode(video=0))
        assert len(frames) == taken.count(True)
        assert not any(frame.is_corrupt for frame in frames)


def test_a_discarded_clip_leaves_no_file(ring_packets, tmp_path):
    clip = Clip(tmp_path / "a.mkv", ring_packets[0], {})
    clip.write(ring_packets[0])
    clip.discard()
    assert list(tmp_path.iterdir()) == []


def test_an_impossible_folder_is_reported(ring_packets, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        Clip(tmp_path / "file" / "a.mkv", ring_packets[0], {})


def test_a_codec_unsupported_by_the_container_is_refused(test_data, tmp_path):
    packets = packets_in_ring(next((test_data / "videos" / "codec").glob("*vp8*")))
    with pytest.raises(OutputError, match="cannot write"):  # noqa: PT012 the header is written with the first packet
        clip = Clip(tmp_path / "a.mp4", packets[0], {})
        clip.write(packets[0])
    assert list(tmp_path.iterdir()) == []


def test_a_partial_clip_of_a_running_writer_is_not_removed(ring_packets, tmp_path):
    clip = Clip(tmp_path / "a.mkv", ring_packets[0], {})
    part = tmp_path / ".a.mkv.part"
    look = f"from pathlib import Path; from streamkit.io.outputs import sweep; print(sweep(Path({str(part)!r})))"
    for _ in range(2):
        seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
        assert seen.stdout.strip() == "False"
        assert not sweep(part)
        assert part.exists()
        clip.write(ring_packets[0])
    clip.finish()
    part.touch()
    assert sweep(part)
    assert [path.name for path in tmp_path.iterdir()] == ["a.mkv"]
    assert ring_packets[-1].pts > 1 * TICKS_PER_S
