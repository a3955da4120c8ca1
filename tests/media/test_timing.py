"""A frame's time where the container tells only when packets are decoded, or tells nothing of what is below zero."""

import itertools
from contextlib import closing
from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest
from support.clips import packed, picture, shifted, write
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.stage import Context
from streamkit.media.av_decoder import AvDecoder
from streamkit.media.demux import Demuxer
from streamkit.media.reader import VideoReader
from streamkit.media.ring import PacketRing
from streamkit.media.surfaces import SurfacePool
from streamkit.media.timing import Timing
from streamkit.stages.sources.source import VideoSource

B_FRAMES = {"preset": "medium", "bf": "3", "g": "25", "sc_threshold": "0"}


def read(path, *, threads=1, ring=None, stream=None, **part):
    """Numbers, times and samples of a video's frames."""
    pool = SurfacePool(Device())
    with closing(
        VideoReader(str(path), Device(), pool, Counters(), threads=threads, ring=ring, stream=stream)
    ) as reader:
        return [(n, p.pts_s, np.array(p.surface.data), reader.packet_ref(p.pts_s)) for n, p in reader.frames(**part)]


def at(frames):
    return [(n, round(pts_s, 3)) for n, pts_s, *_ in frames]


@pytest.fixture(scope="module", params=["avi", "asf"])
def decode_times_only(request, tmp_path_factory):
    """50 frames with B frames in a container with decoding times only, and their pictures as FFmpeg decodes them."""
    path = write(tmp_path_factory.mktemp("clips") / f"a.{request.param}", frames=50, options=B_FRAMES)
    with av.open(str(path)) as back:
        decoded = list(back.decode(video=0))
    raw = [frame.pts for frame in decoded]
    assert raw != sorted(raw), "FFmpeg makes up presentation times that jump back"
    return path, [frame.to_ndarray(format="nv12") for frame in decoded]


@pytest.mark.parametrize("threads", [1, 3])
def test_times_increase_with_decoding_times_only(decode_times_only, threads):
    path, wanted = decode_times_only
    frames = read(path, threads=threads)
    assert at(frames) == [(n, n / 25) for n in range(50)]
    for frame, expected in zip(frames, wanted, strict=True):
        np.testing.assert_array_equal(frame[2], expected)


def test_parts_of_a_video_with_decoding_times_only_are_selected(decode_times_only):
    path, _ = decode_times_only
    assert at(read(path, start_s=1.2)) == [(n, n / 25) for n in range(30, 50)]
    assert at(read(path, start_s=0.4, end_s=0.8)) == [(n, n / 25) for n in range(10, 20)]
    assert at(read(path, keyframes=True)) == [(0, 0.0), (25, 1.0)]
    source = VideoSource(uri=str(path), every=7, start=1.0)
    source.context = Context(id="cam")
    assert [(f.index, round(f.pts_s, 3)) for f in source.frames()] == [(n, n / 25) for n in (28, 35, 42, 49)]


def test_a_video_with_decoding_times_only_can_end_at_any_frame(decode_times_only):
    path, wanted = decode_times_only
    for end in range(1, 51, 3):
        frames = read(path, end_s=end / 25)
        assert at(frames) == [(n, n / 25) for n in range(end)]
        for frame, expected in zip(frames, wanted[:end], strict=True):
            np.testing.assert_array_equal(frame[2], expected)


def test_gaps_in_time_are_preserved(tmp_path):
    """Also for keyframes, which come without the frames between them."""
    ticks = [40 * i + 1000 * (i >= 10) for i in range(50)]
    path = write(tmp_path / "a.asf", frames=50, options=B_FRAMES, ticks=ticks)
    numbers_and_times = at(read(path))
    times = [pts_s for _, pts_s in numbers_and_times]
    assert times[-1] == pytest.approx(2.96, abs=0.2)
    assert sorted(b - a for a, b in itertools.pairwise(times))[-1] > 0.9
    keyframes = at(read(path, keyframes=True))
    assert [n for n, _ in keyframes] == [0, 25]
    assert keyframes == [numbers_and_times[0], numbers_and_times[25]]


def test_a_packet_that_cannot_be_decoded_does_not_move_the_others(tmp_path):
    path = write(tmp_path / "a.avi", frames=50, options={**B_FRAMES, "g": "10"})
    demuxer = Demuxer(str(path))
    counters = Counters()
    times = []
    decoder = AvDecoder(demuxer, Device(), SurfacePool(Device()), counters)
    for place, packet in enumerate([*demuxer.packets(), None]):
        if place == 45:
            packet.update(b"\xff" * packet.size)
        times += [round(frame.pts_s * 25) for frame in decoder.decode(packet)]
    demuxer.close()
    assert counters["packets not decodable"] == 1
    assert times == [n for n in range(50) if n != 45]


def test_a_seek_discards_packets_read_ahead(tmp_path):
    path = write(tmp_path / "a.avi", frames=100, options={"bf": "0", "g": "10"})
    with closing(Demuxer(str(path))) as demuxer:
        assert demuxer.seek(2.0)
        assert next(demuxer.packets()).pts == 50
    with closing(Demuxer(str(path))) as demuxer:
        assert [packet.pts for packet in demuxer.packets()] == list(range(100)), "each packet once"
        assert demuxer.packets_read == 100


def test_packets_of_unknown_presentation_are_not_recorded(decode_times_only):
    path, _ = decode_times_only
    ring = PacketRing(("record",), limit_bytes=1 << 30)
    logged = collect()
    frames = read(path, ring=ring)
    assert [place for *_, place in frames] == [None] * 50
    assert ring.packets(0, 99) == []
    assert [text.partition(": ")[2] for text in logged] == [
        "clips cannot be recorded from it, nor its video shown live: its container has no presentation times"
    ]


def test_decoding_times_without_b_frames_equal_presentation_times(tmp_path):
    path = write(tmp_path / "a.avi", frames=50, options={"bf": "0", "g": "10"})
    with closing(Demuxer(str(path))) as demuxer:
        assert not demuxer.decode_times
        assert [packet.pts for packet in demuxer.packets()] == list(range(50))
    ring = PacketRing(("record",), limit_bytes=1 << 30)
    assert [place.number for *_, place in read(path, ring=ring)] == list(range(50))
    assert at(read(path, start_s=1.0))[:2] == [(25, 1.0), (26, 1.04)]


def test_times_of_other_codecs_in_avi_count_from_the_first_frame(tmp_path):
    path = write(tmp_path / "a.avi", frames=50, codec="mpeg4", options={"bf": "2", "g": "10"})
    frames = read(path)
    assert [pts_s for _, pts_s in at(frames)] == [round(frames[0][1] + n / 25, 3) for n in range(50)]
    assert read(path, start_s=1.0)[0][0] == 25


def test_an_open_gop_in_avi_has_fewer_usable_keyframes(tmp_path):
    """Where a keyframe is shown behind frames that follow it in the file, its number is not known: it is left out."""
    options = {**B_FRAMES, "x264-params": "open-gop=1:keyint=25:bframes=3:b-adapt=0"}
    path = write(tmp_path / "a.avi", frames=60, options=options)
    assert at(read(path)) == [(n, n / 25) for n in range(60)]
    assert at(read(path, keyframes=True)) == [(0, 0.0)]


@pytest.mark.parametrize("name", ["a.avi", "a.mp4", "a.mov"])
def test_frames_of_packed_video_are_in_display_order(tmp_path, name):
    """The times that the container, or FFmpeg, gives its packets run backwards: 0.04, 0.12, 0.08, 0.2, 0.16."""
    path = packed(tmp_path / name)
    frames = read(path)
    assert at(frames) == [(n, n / 25) for n in range(30)]
    for number, _, samples, _ in frames:
        assert abs(samples.astype(int) - picture(number).reformat(format="nv12").to_ndarray()).mean() < 4
    assert at(read(path, start_s=0.5)) == [(n, n / 25) for n in range(13, 30)]
    assert at(read(path, end_s=0.5)) == [(n, n / 25) for n in range(13)]
    assert at(read(path, keyframes=True)) == [(0, 0.0)], "others are shown after a frame that follows them"


def test_a_frame_that_the_encoder_of_packed_video_dropped_has_its_time(tmp_path):
    times = [pts_s for _, pts_s in at(read(packed(tmp_path / "a.avi", dropped=(5, 5, 9))))]
    missing = {5, 6, 11}
    assert times == [n / 25 for n in range(33) if n not in missing]


@pytest.mark.parametrize("options", [{}, {"every": 2}])
def test_a_source_reads_packed_video(tmp_path, options):
    source = VideoSource(uri=str(packed(tmp_path / "a.avi")), **options)
    source.context = Context(id="cam", counters=Counters())
    assert [round(frame.pts_s, 3) for frame in source.frames()] == [
        n / 25 for n in range(0, 30, options.get("every", 1))
    ]
    assert source.context.counters["timestamps out of order corrected"] == 0


def with_times(path, original, ticks):
    """The packets of a video without B frames, with other times in 1/1000 s."""
    with av.open(str(original)) as source, av.open(str(path), "w") as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux(video=0) if packet.size]
        for place, (packet, pts) in enumerate(zip(packets, ticks, strict=True)):
            packet.stream = stream
            packet.time_base = Fraction(1, 1000)
            packet.pts = pts
            packet.dts = min(pts, 40 * place)
            output.mux_one(packet)
    return path


@pytest.mark.parametrize(
    ("ticks", "times_ms", "corrected"),
    [
        ([0, 40, 80, 120, 160], [0, 40, 80, 120, 160], 0),
        ([0, 40, 120, 80, 160], [0, 40, 120, 160, 200], 2),  # a step after the frame before
        ([0, 40, 40, 40, 200], [0, 40, 80, 120, 200], 2),
        ([0, 10, 20, 20, 60], [0, 10, 20, 30, 60], 1),  # frames are closer than the rate says
        ([0, 40, 1000, 80, 1040], [0, 40, 1000, 1040, 1080], 2),
    ],
)
def test_times_that_step_back_are_corrected_and_counted(tmp_path, ticks, times_ms, corrected):
    path = with_times(tmp_path / "b.mkv", write(tmp_path / "a.mp4", frames=5, options={"bf": "0"}), ticks)
    counters = Counters()
    with closing(VideoReader(str(path), Device(), SurfacePool(Device()), counters)) as reader:
        reader.step_s = 0.04
        assert [round(frame.pts_s * 1000) for _, frame in reader.frames()] == times_ms
    assert counters["timestamps out of order corrected"] == corrected


def test_the_time_of_a_joined_recording_starts_again(tmp_path):
    """Rules, tracks and counts start again with it; two seconds back is no wrong time of a frame."""
    part = write(tmp_path / "a.ts", frames=50, options={"bf": "0"}).read_bytes()
    (tmp_path / "joined.ts").write_bytes(part + part)
    counters = Counters()
    with closing(VideoReader(str(tmp_path / "joined.ts"), Device(), SurfacePool(Device()), counters)) as reader:
        times_s = [frame.pts_s for _, frame in reader.frames()]
    assert times_s[:50] == times_s[50:]
    assert counters["timestamps out of order corrected"] == 0


def timing(*, decode_times=True):
    stream = SimpleNamespace(time_base=Fraction(1, 25))
    return Timing(SimpleNamespace(stream=stream, info=SimpleNamespace(average_rate=25.0), decode_times=decode_times))


def packet(dts, pts=None):
    return SimpleNamespace(pts=pts, dts=dts)


def test_the_nth_frame_has_the_nth_decoding_time():
    clock = timing()
    for dts in (0, 1, 5, 3, 9):
        clock.sent(packet(dts))
    assert [clock(None) for _ in range(5)] == [0.0, 0.04, 0.12, 0.2, 0.36]
    assert clock(None) == pytest.approx(0.4), "behind the last one a step each"


def test_a_packet_without_a_frame_consumes_its_time():
    clock = timing()
    for dts in range(4):
        clock.sent(packet(dts))
    clock.lost(packet(1))
    clock.lost(packet(77))  # never sent
    assert [clock(None) for _ in range(3)] == [0.0, 0.08, 0.12]
    clock.sent(packet(10))
    clock.lost()
    clock.sent(packet(20))
    assert clock(None) == 0.8


def test_times_increase_after_a_packet_without_a_frame():
    for order, lost in itertools.product(itertools.permutations(range(5)), range(5)):
        clock = timing()
        for dts in order:
            clock.sent(packet(dts))
        clock.lost(packet(lost))
        assert [clock(None) for _ in range(4)] == [dts / 25 for dts in range(5) if dts != lost], order


def test_missing_frames_do_not_stop_the_times():
    clock = timing()
    for dts in range(1000):
        clock.sent(packet(dts))
    assert clock(None) == (1000 - 128) / 25


def test_given_times_are_used():
    clock = timing(decode_times=False)
    clock.sent(packet(0))
    assert [clock(None), clock(None), clock(7), clock(None)] == pytest.approx([0.0, 0.04, 0.28, 0.32])
    clock = timing()
    clock.sent(packet(3, pts=9))
    assert clock(9) == 0.36
    assert clock(None) == pytest.approx(0.4)


FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+delay_moov"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """90 frames of 1/30 s, a keyframe every 10."""
    return write(tmp_path_factory.mktemp("clips") / "a.nut", frames=90, rate=30, options={"bf": "0", "g": "10"})


@pytest.mark.parametrize(
    ("name", "options", "begins_s"),
    [
        ("a.mp4", FRAGMENTS, -2.0),
        ("a.mkv", {"avoid_negative_ts": "disabled"}, -1 / 3),
        ("a.asf", {"avoid_negative_ts": "disabled"}, -1 / 3),
    ],
)
def test_negative_times_are_preserved(tmp_path, base, name, options, begins_s):
    path = shifted(tmp_path / name, base, begins_s, **options)
    frames = read(path)
    assert [n for n, *_ in frames] == list(range(90)), "a whole file is not called cut short"
    assert [pts_s for _, pts_s, *_ in frames] == pytest.approx([begins_s + n / 30 for n in range(90)], abs=0.005)
    for start_s, end_s, numbers in ((1.0, None, range(30, 90)), (0.5, 1.5, range(15, 45)), (2.5, None, range(75, 90))):
        part = read(path, start_s=start_s - 0.01, end_s=None if end_s is None else end_s - 0.01)
        assert [n for n, *_ in part] == list(numbers)
        assert [pts_s for _, pts_s, *_ in part] == [frames[n][1] for n in numbers]


def test_negative_times_with_b_frames_in_matroska_are_read(tmp_path):
    first = write(tmp_path / "first.mp4", frames=90, rate=30, options={**B_FRAMES, "g": "90"})
    path = shifted(tmp_path / "a.mkv", first, -0.5, avoid_negative_ts="disabled")
    times = [pts_s for _, pts_s, *_ in read(path)]
    assert len(times) == 90
    assert times == sorted(times)
    assert times[0] < 0
    assert max(b - a for a, b in itertools.pairwise(times)) < 0.05
