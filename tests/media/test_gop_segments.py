import hashlib
import threading
import time
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest
from support.clips import REFRESH, X264, X265, resized, shifted, write
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.core.tasks import OrderedExecutor
from streamkit.media import gop_segments, nv_sessions
from streamkit.media.av_decoder import CONCEALED, UNDECODABLE
from streamkit.media.decode import open_decoder
from streamkit.media.demux import Demuxer
from streamkit.media.frames import DecodedFrame
from streamkit.media.gop_segments import GopSegment, SegmentCutter, SegmentDecoder, SegmentPacket, decoder_count
from streamkit.media.reader import VideoReader
from streamkit.media.selective_decode import SKIPPED, UNWANTED
from streamkit.media.surfaces import SurfacePool
from streamkit.runtime.execution.ordered_executor import ThreadedExecutor

CPU = Device()


@pytest.fixture
def short(monkeypatch):
    """Cut at every keyframe."""
    monkeypatch.setattr(gop_segments, "_SHORTEST", 1)


def cut(path):
    """The pieces as (times of what is shown, times of what is hidden), the packets of the rest, and what was told."""
    demuxer = Demuxer(str(path))
    reasons = []
    pieces = []
    rest = 0
    for piece in SegmentCutter(demuxer.packets(), demuxer, reasons.append):
        shown = [segment_packet.packet.pts for segment_packet in piece.packets if not segment_packet.hidden]
        pieces.append((shown, [segment_packet.packet.pts for segment_packet in piece.packets if segment_packet.hidden]))
        rest += sum(1 for _ in piece.rest)
    return pieces, rest, reasons


def packets(path):
    return [(packet.pts, packet.is_keyframe) for packet in Demuxer(str(path)).packets()]


def test_closed_gops_are_split_unchanged(tmp_path, short):
    pieces, rest, reasons = cut(write(tmp_path / "a.mp4", frames=50, options={"g": "10", "bf": "2"}))
    assert [len(shown) for shown, _ in pieces] == [10] * 5
    assert all(hidden == [] for _, hidden in pieces)
    assert (rest, reasons) == (0, [])


@pytest.mark.parametrize(("codec", "options"), [("libx264", X264), ("libx265", X265)])
def test_leading_pictures_belong_to_the_previous_segment(tmp_path, short, codec, options):
    path = write(tmp_path / "a.mp4", 128, 96, 60, codec=codec, options=options)
    pieces, rest, reasons = cut(path)
    keyframes = [pts for pts, key in packets(path) if key]
    assert len(pieces) == len(keyframes) > 3
    assert (rest, reasons) == (0, [])
    assert sorted(pts for shown, _ in pieces for pts in shown) == sorted(pts for pts, _ in packets(path))
    for (shown, hidden), (after, _), keyframe in zip(pieces, pieces[1:], keyframes[1:], strict=False):
        assert max(shown) < keyframe == min(after)  # each has the frames before its successor's first
        assert not hidden or keyframe in hidden
    assert sum(bool(hidden) for _, hidden in pieces) >= 2  # it does have leading frames


def test_short_gops_are_joined(tmp_path):
    pieces, _, _ = cut(write(tmp_path / "a.mp4", frames=100, options={"g": "5", "bf": "0"}))
    assert [len(shown) for shown, _ in pieces] == [35, 35, 30]


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("one.mp4", {"options": {"g": "1000"}}, "no keyframe to cut at"),
        ("bare.h264", {"muxer": "h264", "options": {"g": "10"}}, "its frames have no times"),
        ("refresh.ts", {"options": REFRESH}, "no keyframe to cut at"),
    ],
)
def test_videos_that_cannot_be_split_are_not_split(tmp_path, name, options, why, short):
    pieces, rest, reasons = cut(write(tmp_path / name, 128, 96, 60, **options))
    assert len(pieces) == 1
    assert len(pieces[0][0]) + rest == 60
    assert reasons == [f"by one decoder: {reasons[0].partition(': ')[2]}"]
    assert why in reasons[0]


def test_new_parameters_end_the_splitting(tmp_path, short):
    path = resized(tmp_path, ".ts")
    pieces, rest, reasons = cut(path)
    assert len(pieces[0][0]) + rest == 20
    assert reasons == ["by one decoder: its parameters change"]


def test_an_endless_gop_is_a_single_segment(tmp_path, monkeypatch, short):
    monkeypatch.setattr(gop_segments, "_LONGEST", 30)
    path = write(tmp_path / "a.mp4", frames=100, options={"x264-params": "keyint=300:bframes=0"}, first=0)
    pieces, rest, reasons = cut(path)
    assert [len(shown) for shown, _ in pieces] == [30]
    assert rest == 70
    assert reasons == ["by one decoder: no keyframe to cut at follows after 30 frames"]


def test_a_large_gop_is_a_single_segment(tmp_path, monkeypatch, short):
    path = write(tmp_path / "a.mp4", frames=100, options={"x264-params": "keyint=300:bframes=0"}, first=0)
    demuxer = Demuxer(str(path))
    sizes = [packet.size for packet in demuxer.packets()]
    demuxer.close()
    monkeypatch.setattr(gop_segments, "_LONGEST_BYTES", sum(sizes[:40]))  # reached, not passed, by the 40th
    pieces, rest, reasons = cut(path)
    assert [len(shown) for shown, _ in pieces] == [40]
    assert rest == 60
    assert reasons == ["by one decoder: no keyframe to cut at follows after 40 frames"]


def test_the_error_that_ended_the_packets_is_raised_last(tmp_path, short):
    demuxer = Demuxer(str(write(tmp_path / "a.mp4", frames=40, options={"g": "10", "bf": "0"})))

    def broken():
        for number, packet in enumerate(demuxer.packets()):
            if number == 25:
                raise SourceError("cannot be read on")
            yield packet

    cutting = SegmentCutter(broken(), demuxer, print)
    assert [len(piece.packets) for piece in cutting] == [10, 10, 5]
    with pytest.raises(SourceError, match="cannot be read on"):
        cutting.raise_error()


@pytest.mark.parametrize(("late", "pieces"), [(36, [10, 30, 10]), (37, [10, 10, 20, 10])])
def test_leading_pictures_are_recognized_up_to_16_packets_later(tmp_path, short, late, pieces):
    """A late one forbids a cut at 20. One that 16 others precede is not looked for, but it forbids the cut at 30."""
    demuxer = Demuxer(str(write(tmp_path / "a.mp4", frames=50, options={"g": "10", "bf": "0"})))
    packets = list(demuxer.packets())
    assert [n for n, packet in enumerate(packets) if packet.is_keyframe] == [0, 10, 20, 30, 40]
    packets[late].pts = packets[20].pts - 1
    assert [len(piece.packets) for piece in SegmentCutter(packets, demuxer, pytest.fail)] == pieces
    demuxer.close()


class Scripted:
    """A decoder that gives for each packet, a name, what is written down for it: frames, by their times, and what it
    counts. In its second turn each gives a frame at 9 s; hidden ones give none, and count."""

    def __init__(self, counters, script):
        self.counters = counters
        self.script = script
        self.turns = []

    def restart(self, demuxer):
        self.turns.append([])

    def decode(self, packet, *, hidden=False):
        self.turns[-1].append(f"({packet})" if hidden else packet)
        outputs = self.script.get(packet, ()) if len(self.turns) == 1 else [9.0] if packet else []
        for name in [CONCEALED, UNDECODABLE] if hidden else [name for name in outputs if isinstance(name, str)]:
            self.counters.add(name)
        return [] if hidden else [DecodedFrame(at, 64, 48, None) for at in outputs if not isinstance(at, str)]


@pytest.mark.parametrize(
    ("script", "replays", "results"),
    [
        ({"I2": [0.5], "P3": [CONCEALED]}, True, [([0.5], {}), ([], {CONCEALED: 1})]),
        ({"P3": [0.5], "P4": [0.54]}, True, [([0.5], {}), ([0.54], {})]),
        ({"P4": [0.5], "P5": [UNDECODABLE]}, True, [([0.5], {}), ([], {UNDECODABLE: 1})]),
        ({None: [0.5, 0.54]}, True, [([0.5, 0.54], {})]),
        ({"I2": [CONCEALED], "P3": [0.5]}, True, [([0.5], {})]),
        ({"I2": [CONCEALED, 0.5]}, True, None),
        ({"I2": [UNDECODABLE], "P3": [0.5]}, True, None),
        ({"I2": ["something else"], "P3": [0.5]}, True, None),
        ({"P3": [0.54]}, True, None),
        ({"P4": [0.54]}, True, None),
        ({}, True, None),
        ({"I2": [CONCEALED, 0.5]}, False, [([0.5], {CONCEALED: 1})]),
        ({"I2": [UNDECODABLE], "P3": [0.5]}, False, [([], {UNDECODABLE: 1}), ([0.5], {})]),
        ({"P3": [0.54]}, False, [([0.54], {})]),
        ({}, False, []),
    ],
)
def test_a_segment_with_a_damaged_keyframe_is_decoded_after_the_previous(script, replays, results):
    decoders = []

    def opened(counters):
        decoders.append(Scripted(counters, script))
        return SimpleNamespace(stream=stream, info=SimpleNamespace(average_rate=25.0), decode_times=False), decoders[0]

    stream = SimpleNamespace(time_base=Fraction(1, 100))
    piece = GopSegment(
        [SegmentPacket("I2"), SegmentPacket("P3")], 50, [SegmentPacket("I0"), SegmentPacket("P1")], iter(["P4", "P5"])
    )
    decoded = [
        ([frame.pts_s for frame in frames], dict(counts))
        for frames, counts in SegmentDecoder(opened, replays=replays)(piece)
    ]
    if results is not None:
        assert decoders[0].turns == [["I2", "P3", "P4", "P5", None]]
        assert decoded == results
    else:
        assert decoders[0].turns[1:] == [["(I0)", "(P1)", "I2", "P3", "P4", "P5", None]]
        assert decoded == [([9.0], {})] * 4


@pytest.mark.parametrize(("codec", "options"), [("libx264", X264), ("libx265", X265)])
def test_a_segment_alone_gives_its_frames(tmp_path, short, codec, options):
    path = write(tmp_path / "a.mp4", 128, 96, frames=60, codec=codec, options=options)
    pool = SurfacePool(CPU)

    def opened(counters):
        demuxer = Demuxer(str(path))
        return demuxer, open_decoder(demuxer, CPU, pool, counters)

    decoders = [SegmentDecoder(opened, replays=True) for _ in range(2)]
    demuxer = Demuxer(str(path))
    cutting = list(SegmentCutter(demuxer.packets(), demuxer, print))
    backwards = [list(decoders[n % 2](piece)) for n, piece in enumerate(reversed(cutting))]
    frames = [frame for results in reversed(backwards) for frames, _ in results for frame in frames]
    whole = open_decoder(demuxer := Demuxer(str(path)), CPU, pool, Counters())
    expected = [frame for packet in [*demuxer.packets(), None] for frame in whole.decode(packet)]
    assert [frame.pts_s for frame in frames] == [frame.pts_s for frame in expected]
    assert all((a.surface.data == b.surface.data).all() for a, b in zip(frames, expected, strict=True))
    assert not any(counts for results in backwards for _, counts in results)
    for decoder in decoders:
        decoder.close()


SMALL = [
    "ahmetozlu_pedestrian.mp4",
    "carnd_test_video.mp4",
    "vtest_480x360.mp4",
    "codec/av1_video.mkv",
    "codec/bt2020_10bit.mp4",
    "codec/bt601_limited_range.mp4",
    "codec/bt709_full_range.mp4",
    "codec/discard_first_keyframe.mp4",
    "codec/h264_10bits.mp4",
    "codec/h265_video.mp4",
    "codec/nasa_13013.mp4",
    "codec/test_non_zero_start.mp4",
    "codec/testsrc2_av1_10bit.mp4",
    "codec/testsrc2_h265.mp4",
    "codec/testsrc2_mpeg4.avi",
    "codec/testsrc2_vp8.webm",
    "codec/testsrc2_vp9.webm",
]
BIG = [
    "bench_1080p_h264.mp4",
    "bench_1080p_hevc.mp4",
    "bench_1080p_hevc_opengop.mp4",
    "car-detection.mp4",
    "one-by-one-person-detection.mp4",
]


def read(path, decoders, device=CPU, **part):
    """Numbers, times, sizes and hashes of all frames, the counts, the error, what was logged."""
    logged = collect()
    counters = Counters()
    reader = VideoReader(
        str(path),
        device,
        SurfacePool(device),
        counters,
        decoders=decoders,
        executor=ThreadedExecutor(device, 1) if decoders != 1 else None,
    )
    frames = []
    error = None
    try:
        for number, frame in reader.frames(**part):
            if device.kind == "cuda":
                frame.surface.ready.synchronize()
            pixels = frame.surface.data if device.kind == "cpu" else frame.surface.data.get()
            digest = hashlib.blake2b(np.ascontiguousarray(pixels), digest_size=8).digest()
            frames.append((number, *frame[:3], digest))
    except SourceError as trouble:
        error = str(trouble)
    reader.close()
    apart = ("decoders made", "decoders reused", SKIPPED, UNWANTED)  # one decoder is spared what several are not
    counts = {name: n for name, n in counters.values.items() if name not in apart}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead/")]
    return frames, counts, error, logged


def same(path, device=CPU, **part):
    alone = read(path, 1, device, **part)
    many = read(path, 3, device, **part)
    assert many[:3] == alone[:3]
    return many


@pytest.fixture(params=[32, 2], ids=["long pieces", "short pieces"])
def pieces_of(request, monkeypatch):
    monkeypatch.setattr(gop_segments, "_SHORTEST", request.param)
    return request.param


@pytest.mark.parametrize("name", SMALL)
def test_several_decoders_give_the_frames_of_a_single_one(test_data, pieces_of, name):
    frames, counts, error, logged = same(test_data / "videos" / name)
    assert len(frames) >= 10
    assert (counts, error) == ({}, None)
    assert len(logged) <= 1


def test_open_gops_are_decoded_at_full_size(test_data):
    frames, counts, error, logged = same(test_data / "videos" / "bench_1080p_hevc_opengop.mp4", end_s=4.4)  # two joints
    assert (len(frames), counts, error, logged) == (110, {}, None, [])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("open.mp4", {"options": X264}),
        ("open.ts", {"options": X264}),
        ("open.mp4", {"codec": "libx265", "options": X265}),
        ("open.ts", {"codec": "libx265", "options": X265}),
        ("closed.mkv", {"options": {"g": "10", "bf": "3"}}),
        ("vp9.webm", {"codec": "libvpx-vp9", "options": {"g": "10"}}),
        ("mjpeg.mkv", {"codec": "mjpeg", "pix_fmt": "yuvj420p"}),
        ("refresh.ts", {"options": REFRESH}),
        ("bare.h264", {"muxer": "h264", "options": {"g": "10"}}),
        ("turned.mp4", {"options": {"g": "10"}, "rotation": 90}),
        ("vfr.mkv", {"options": {"g": "10", "bf": "2"}, "ticks": [n * n + 7 * n for n in range(80)]}),
    ],
)
def test_all_kinds_of_videos_are_decoded(tmp_path, pieces_of, name, options):
    frames, counts, error, _ = same(write(tmp_path / name, 128, 96, 80, **options))
    assert (len(frames), counts, error) == (80, {}, None)


@pytest.mark.parametrize("suffix", [".ts", ".h264"])
def test_a_size_change_within_the_video_is_decoded(tmp_path, pieces_of, suffix):
    frames, *_ = same(resized(tmp_path, suffix))
    assert [frame[2] for frame in frames] == [64] * 10 + [96] * 10


@pytest.mark.parametrize("part", [{"start_s": 1.1}, {"start_s": 0.5, "end_s": 1.7}, {"end_s": 0.9}, {"start_s": 9}])
@pytest.mark.parametrize(("codec", "options"), [("libx264", X264), ("libx265", X265)])
def test_a_part_of_the_video_is_decoded(tmp_path, pieces_of, part, codec, options):
    path = write(tmp_path / "a.mp4", 128, 96, 80, codec=codec, options=options)
    same(path, **part)


def test_loops_use_the_same_decoders(tmp_path, monkeypatch):
    monkeypatch.setattr(gop_segments, "_SHORTEST", 2)
    path = write(tmp_path / "a.mp4", frames=60, options={"g": "10"})
    opened = []
    monkeypatch.setattr(
        "streamkit.media.reader.Demuxer", lambda *arguments, **named: opened.append(1) or Demuxer(*arguments, **named)
    )
    reader = VideoReader(str(path), CPU, SurfacePool(CPU), Counters(), decoders=2, executor=ThreadedExecutor(CPU, 1))
    for _ in range(4):
        assert [number for number, _ in reader.frames()] == list(range(60))
    reader.close()
    assert len(opened) <= 1 + 3 + 2  # the first turn's, each further turn's, and one for each decoder


@pytest.mark.parametrize("taken", [1, 30, 70])
def test_closing_early_releases_the_decoders(tmp_path, monkeypatch, taken):
    monkeypatch.setattr(gop_segments, "_SHORTEST", 2)
    path = write(tmp_path / "a.mp4", frames=200, options={"g": "10", "bf": "2"})
    pool = SurfacePool(CPU)
    reader = VideoReader(str(path), CPU, pool, Counters(), decoders=3, executor=ThreadedExecutor(CPU, 1))
    frames = reader.frames()
    assert [next(frames)[0] for _ in range(taken)] == list(range(taken))
    frames.close()
    assert [n for n, _ in reader.frames(end_s=0.2)] == [0, 1, 2, 3, 4]  # and it can be read again
    reader.close()
    assert pool.held == {}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead/")]


def test_decoded_surfaces_are_bounded(tmp_path, monkeypatch):
    path = write(tmp_path / "a.mp4", frames=400, options={"g": "100", "bf": "0"})
    pool = SurfacePool(CPU, limit=4 * 5 * 9 * 64 * 72)  # of which a quarter is for waiting: 9 for each of 3 + 2
    reader = VideoReader(str(path), CPU, pool, Counters(), decoders=3, executor=ThreadedExecutor(CPU, 1))
    peak = 0
    for _ in reader.frames():
        peak = max(peak, sum(pool.held.values()))
    assert 9 < peak <= 5 * 10
    reader.close()
    assert pool.allocated <= 5 * 12 * 64 * 72


def test_a_small_pool_is_enough(tmp_path):
    """Each decoder holds a step of frames beside those that wait."""
    path = write(tmp_path / "a.mp4", frames=400, options={"g": "40", "bf": "0"})
    pool = SurfacePool(CPU, limit=100 * 64 * 72)
    reader = VideoReader(str(path), CPU, pool, Counters(), decoders=7, executor=ThreadedExecutor(CPU, 1))
    for number, _ in reader.frames():
        if number in (0, 100):
            time.sleep(0.5)  # until all decoders wait
    reader.close()
    assert number == 399


@pytest.mark.parametrize("error", [SourceError("cannot be decoded further"), MemoryError("full")])
def test_frames_before_an_error_come_first(error):
    def decoder(segment):
        for number in range(5):
            yield [number], Counter({CONCEALED: 1} if number == 4 else {})
        raise error

    results = gop_segments._in_steps(decoder, 3, GopSegment([]))
    assert next(results) == ([0, 1, 2], Counter())
    assert next(results) == ([3, 4], Counter({CONCEALED: 1}))
    with pytest.raises(type(error)):
        next(results)


def damaged(path, to, every):
    """Overwrite the slice headers of some keyframes in an mp4 of H.264."""
    data = bytearray(path.read_bytes())
    with av.open(str(path)) as source:
        places = [(p.pos, p.size) for p in source.demux(source.streams.best("video")) if p.size and p.is_keyframe]
    for place, size in places[1::every]:
        end = place + size
        while place < end:
            length = int.from_bytes(data[place : place + 4], "big")
            if data[place + 4] & 31 in (1, 5):
                data[place + 6 : place + 20] = bytes(14)
            place += 4 + length
    to.write_bytes(data)
    return to


@pytest.mark.parametrize("skipped", [13, 14, 15])
def test_leading_frames_that_an_edit_list_hides_are_not_shown(tmp_path, short, skipped):
    """The video begins among the frames that follow the second keyframe and are shown before it."""
    whole = write(tmp_path / "whole.mp4", 128, 96, 60, options=X264)
    path = shifted(tmp_path / "a.mp4", whole, -skipped / 25, avoid_negative_ts="disabled")
    with av.open(str(path)) as container:
        flags = [(packet.is_keyframe, packet.is_discard) for packet in container.demux(video=0) if packet.size]
    second = [place for place, (is_keyframe, _) in enumerate(flags) if is_keyframe][1]
    assert any(is_discard for _, is_discard in flags[second + 1 : second + 4]) == (skipped > 13)
    frames, *_ = same(path)
    assert len(frames) == 60 - skipped


def stretch(path, whole, first, last=None):
    """The bytes of a file with some packets of another one."""
    with av.open(str(whole)) as source, av.open(str(path), "w") as output:
        packets = [packet for packet in source.demux(video=0) if packet.size]
        stream = output.add_stream_from_template(source.streams.video[0])
        for packet in packets[first:last]:
            packet.stream = stream
            output.mux_one(packet)
    return path.read_bytes()


def test_decreasing_times_of_leading_frames_change_nothing(tmp_path, short):
    """A recording joined to a part of itself: its leading frames are earlier than what was shown."""
    whole = write(tmp_path / "a.ts", 128, 96, 60, options=X264)
    keyframes = [place for place, (_, is_keyframe) in enumerate(packets(whole)) if is_keyframe]
    path = tmp_path / "joined.ts"
    begin = stretch(tmp_path / "b.ts", whole, 0, keyframes[2])
    path.write_bytes(begin + stretch(tmp_path / "c.ts", whole, keyframes[1]))
    frames, *_ = same(path)
    assert len(frames) > keyframes[2] + 30


@pytest.mark.parametrize("name", ["vtest_480x360.mp4", "codec/nasa_13013.mp4"])
def test_damaged_keyframes_are_counted_equally(test_data, tmp_path, name):
    path = damaged(test_data / "videos" / name, tmp_path / "bad.mp4", 2)
    alone = read(path, 1)
    many = read(path, 3)
    assert "is damaged" in alone[2]
    assert many[1:3] == alone[1:3]
    # one decoder shows the last frame before such a keyframe too late
    assert [frame[1] for frame in many[0]] == sorted(frame[1] for frame in alone[0])


def test_flipped_bytes_are_counted_equally(test_data, tmp_path):
    data = bytearray((test_data / "videos" / "vtest_480x360.mp4").read_bytes())
    for i in range(data.find(b"mdat") + 100, len(data), 29973):
        data[i] ^= 0xFF
    path = tmp_path / "flip.mp4"
    path.write_bytes(data)
    alone = read(path, 1)
    many = read(path, 3)
    assert alone[1]["decode errors concealed"] > 10
    assert many[1:3] == alone[1:3]
    assert [frame[:4] for frame in many[0]] == [frame[:4] for frame in alone[0]]


def test_a_truncated_file_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(gop_segments, "_SHORTEST", 2)
    path = write(tmp_path / "a.mkv", frames=100, options={"g": "10", "bf": "0"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    frames, _, error, _ = same(path)
    assert 20 < len(frames) < 95
    assert "ends early" in error


@pytest.mark.parametrize(
    ("options", "logged"),
    [
        ({"options": {"g": "1000"}}, "is decoded by one decoder: no keyframe to cut at after its first 32 frames"),
        ({"codec": "mpeg4"}, "is decoded by one decoder: mpeg4 video cannot be cut at keyframes"),
    ],
)
def test_missing_gain_is_reported_once_if_requested(tmp_path, options, logged):
    path = write(tmp_path / "a.mp4", frames=120, **options)
    assert read(path, 3)[3] == [f"{path} {logged}"]
    assert read(path, "auto")[3] == []


def info(**changes):
    return SimpleNamespace(
        **{
            "codec": "h264",
            "live": False,
            "frames": 10_000,
            "duration_s": 400.0,
            "average_rate": 25.0,
            "chroma": 420,
            "bit_depth": 8,
            "width": 640,
            "height": 360,
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("wanted", "changes", "sources", "count"),
    [
        (5, {}, 1, 5),
        (5, {"codec": "mpeg4"}, 1, 1),
        (5, {"live": True}, 1, 1),
        ("auto", {}, 1, 8),
        ("auto", {}, 3, 2),
        ("auto", {}, 30, 1),
        ("auto", {"frames": 350}, 1, 3),
        ("auto", {"frames": 20}, 1, 1),
        ("auto", {"frames": None, "duration_s": 20.0}, 1, 5),
        ("auto", {"frames": None, "duration_s": None}, 1, 1),
    ],
)
def test_the_number_of_decoders_is_chosen(wanted, changes, sources, count):
    executor = OrderedExecutor()
    executor.cores = 8
    executor.sources = sources
    assert decoder_count(wanted, info(**changes), CPU, executor) == count


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *BIG])
def test_several_nvdec_sessions_give_the_frames_of_a_single_one(test_data, pieces_of, name):
    frames, counts, error, logged = same(test_data / "videos" / name, Device("cuda"))
    assert len(frames) >= 10
    assert error is None
    assert set(counts) <= {"frames decoded on the cpu"}
    assert len(set(logged)) <= 2


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["open.mp4", "open.ts"])
@pytest.mark.parametrize(("codec", "options"), [("libx264", X264), ("libx265", X265)])
def test_nvdec_decodes_open_gops(tmp_path, pieces_of, name, codec, options):
    path = write(tmp_path / name, 320, 192, 120, codec=codec, options=options)
    for part in ({}, {"start_s": 2.1}, {"end_s": 1.5}):
        frames, counts, error, logged = same(path, Device("cuda"), **part)
        assert (counts, error) == ({}, None)
        assert not logged or ("end_s" in part and "no keyframe to cut at" in logged[0])  # what is left is short
        assert [frame[:4] for frame in frames] == [frame[:4] for frame in read(path, 1, **part)[0]]


@pytest.mark.gpu
def test_nvdec_auto_uses_every_engine(test_data):
    demuxer = Demuxer(str(test_data / "videos" / "vtest_480x360.mp4"))
    executor = OrderedExecutor()
    assert decoder_count("auto", demuxer.info, Device("cuda"), executor) >= 1
    executor.sources = 100
    assert decoder_count("auto", demuxer.info, Device("cuda"), executor) == 1


@pytest.mark.gpu
def test_nvdec_decoders_are_reused_for_the_next_file(test_data):
    nv_sessions.clear()
    device = Device("cuda")
    path = str(test_data / "videos" / "bench_1080p_h264.mp4")
    created_counts = []
    for _ in range(3):
        reader = VideoReader(
            path, device, SurfacePool(device), counters := Counters(), decoders=4, executor=ThreadedExecutor(device, 1)
        )
        assert sum(1 for _ in reader.frames()) == 499
        reader.close()
        created_counts.append(counters["decoders made"])
    assert 1 <= created_counts[0] <= 4
    assert sum(created_counts) <= 4
    nv_sessions.clear()
