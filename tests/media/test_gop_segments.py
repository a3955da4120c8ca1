from fractions import Fraction
from types import SimpleNamespace

import pytest
from support.clips import REFRESH, X264, X265, resized, write

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.media import gop_segments
from streamkit.media.av_decoder import CONCEALED, UNDECODABLE
from streamkit.media.decode import open_decoder
from streamkit.media.demux import Demuxer
from streamkit.media.frames import DecodedFrame
from streamkit.media.gop_segments import GopSegment, SegmentCutter, SegmentDecoder, SegmentPacket
from streamkit.media.surfaces import SurfacePool

CPU = Device()


@pytest.fixture
def short(monkeypatch):
    """Cut at every keyframe."""
    monkeypatch.setattr(gop_segments, "_SHORTEST", 1)


def cut(path):
    """The pieces as (times of what is shown, times of what is hidden), the packets of the rest, and what was told."""
    demuxer, told = Demuxer(str(path)), []
    found, rest = [], 0
    for piece in SegmentCutter(demuxer.packets(), demuxer, told.append):
        shown = [given.packet.pts for given in piece.packets if not given.hidden]
        found.append((shown, [given.packet.pts for given in piece.packets if given.hidden]))
        rest += sum(1 for _ in piece.rest)
    return found, rest, told


def packets(path):
    return [(packet.pts, packet.is_keyframe) for packet in Demuxer(str(path)).packets()]


def test_closed_gops_are_cut_as_they_are(tmp_path, short):
    found, rest, told = cut(write(tmp_path / "a.mp4", frames=50, options={"g": "10", "bf": "2"}))
    assert [len(shown) for shown, _ in found] == [10] * 5
    assert all(hidden == [] for _, hidden in found)
    assert (rest, told) == (0, [])


@pytest.mark.parametrize(("codec", "options"), [("libx264", X264), ("libx265", X265)])
def test_leading_pictures_go_to_the_piece_before(tmp_path, short, codec, options):
    path = write(tmp_path / "a.mp4", 128, 96, 60, codec=codec, options=options)
    found, rest, told = cut(path)
    keyframes = [pts for pts, key in packets(path) if key]
    assert len(found) == len(keyframes) > 3
    assert (rest, told) == (0, [])
    assert sorted(pts for shown, _ in found for pts in shown) == sorted(pts for pts, _ in packets(path))
    for (shown, hidden), (after, _), keyframe in zip(found, found[1:], keyframes[1:], strict=False):
        assert max(shown) < keyframe == min(after)  # each has the pictures before its successor's first
        assert not hidden or keyframe in hidden
    assert sum(bool(hidden) for _, hidden in found) >= 2  # it does have leading pictures


def test_short_gops_are_put_together(tmp_path):
    found, _, _ = cut(write(tmp_path / "a.mp4", frames=100, options={"g": "5", "bf": "0"}))
    assert [len(shown) for shown, _ in found] == [35, 35, 30]


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("one.mp4", {"options": {"g": "1000"}}, "no keyframe to cut at"),
        ("bare.h264", {"muxer": "h264", "options": {"g": "10"}}, "its frames have no times"),
        ("refresh.ts", {"options": REFRESH}, "no keyframe to cut at"),
    ],
)
def test_what_is_not_cut(tmp_path, name, options, why, short):
    found, rest, told = cut(write(tmp_path / name, 128, 96, 60, **options))
    assert len(found) == 1
    assert len(found[0][0]) + rest == 60
    assert told == [f"by one decoder: {told[0].partition(': ')[2]}"]
    assert why in told[0]


def test_new_parameters_end_the_cutting(tmp_path, short):
    path = resized(tmp_path, ".ts")
    found, rest, told = cut(path)
    assert len(found[0][0]) + rest == 20
    assert told == ["by one decoder: its parameters change"]


def test_a_gop_without_end_is_one_piece(tmp_path, monkeypatch, short):
    monkeypatch.setattr(gop_segments, "_LONGEST", 30)
    path = write(tmp_path / "a.mp4", frames=100, options={"x264-params": "keyint=300:bframes=0"}, first=0)
    found, rest, told = cut(path)
    assert [len(shown) for shown, _ in found] == [30]
    assert rest == 70
    assert told == ["by one decoder: from 30 frames on there is no keyframe to cut at"]


def test_a_gop_of_many_bytes_is_one_piece(tmp_path, monkeypatch, short):
    path = write(tmp_path / "a.mp4", frames=100, options={"x264-params": "keyint=300:bframes=0"}, first=0)
    demuxer = Demuxer(str(path))
    sizes = [packet.size for packet in demuxer.packets()]
    demuxer.close()
    monkeypatch.setattr(gop_segments, "_LONGEST_BYTES", sum(sizes[:40]))  # reached, not passed, by the 40th
    found, rest, told = cut(path)
    assert [len(shown) for shown, _ in found] == [40]
    assert rest == 60
    assert told == ["by one decoder: from 40 frames on there is no keyframe to cut at"]


def test_what_ended_the_packets_is_kept_for_the_end(tmp_path, short):
    demuxer = Demuxer(str(write(tmp_path / "a.mp4", frames=40, options={"g": "10", "bf": "0"})))

    def broken():
        for number, packet in enumerate(demuxer.packets()):
            if number == 25:
                raise SourceError("cannot be read on")
            yield packet

    cutting = SegmentCutter(broken(), demuxer, print)
    assert [len(piece.packets) for piece in cutting] == [10, 10, 5]
    assert str(cutting.trouble) == "cannot be read on"


@pytest.mark.parametrize(("late", "pieces"), [(36, [10, 30, 10]), (37, [10, 10, 20, 10])])
def test_a_picture_shown_before_a_keyframe_is_seen_up_to_16_pictures_behind_it(tmp_path, short, late, pieces):
    """A late one forbids a cut at 20. One that 16 others precede is not looked for, but it forbids the cut at 30."""
    demuxer = Demuxer(str(write(tmp_path / "a.mp4", frames=50, options={"g": "10", "bf": "0"})))
    packets = list(demuxer.packets())
    assert [n for n, packet in enumerate(packets) if packet.is_keyframe] == [0, 10, 20, 30, 40]
    packets[late].pts = packets[20].pts - 1
    assert [len(piece.packets) for piece in SegmentCutter(packets, demuxer, pytest.fail)] == pieces
    demuxer.close()


class Scripted:
    """A decoder that gives for each packet, a name, what is written down for it: pictures, by their times, and what it
    counts. In its second turn each gives a picture at 9 s; hidden ones give none, and count."""

    def __init__(self, counters, script):
        self.counters, self.script, self.turns = counters, script, []

    def restart(self, demuxer):
        self.turns.append([])

    def decode(self, packet, *, hidden=False):
        self.turns[-1].append(f"({packet})" if hidden else packet)
        found = self.script.get(packet, ()) if len(self.turns) == 1 else [9.0] if packet else []
        for name in [CONCEALED, UNDECODABLE] if hidden else [name for name in found if isinstance(name, str)]:
            self.counters.add(name)
        return [] if hidden else [DecodedFrame(at, 64, 48, None) for at in found if not isinstance(at, str)]


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
def test_a_piece_whose_keyframe_does_not_come_out_whole_is_decoded_behind_the_one_before(script, replays, results):
    made = []

    def opened(counters):
        made.append(Scripted(counters, script))
        return SimpleNamespace(stream=stream, info=SimpleNamespace(average_rate=25.0), decode_times=False), made[0]

    stream = SimpleNamespace(time_base=Fraction(1, 100))
    piece = GopSegment(
        [SegmentPacket("I2"), SegmentPacket("P3")], 50, [SegmentPacket("I0"), SegmentPacket("P1")], iter(["P4", "P5"])
    )
    found = [
        ([one.pts_s for one in pictures], dict(counts))
        for pictures, counts in SegmentDecoder(opened, replays=replays)(piece)
    ]
    if results is not None:
        assert made[0].turns == [["I2", "P3", "P4", "P5", None]]
        assert found == results
    else:
        assert made[0].turns[1:] == [["(I0)", "(P1)", "I2", "P3", "P4", "P5", None]]
        assert found == [([9.0], {})] * 4


@pytest.mark.parametrize(("codec", "options"), [("libx264", X264), ("libx265", X265)])
def test_a_piece_alone_gives_its_pictures(tmp_path, short, codec, options):
    path = write(tmp_path / "a.mp4", 128, 96, frames=60, codec=codec, options=options)
    pool = SurfacePool(CPU)

    def opened(counters):
        demuxer = Demuxer(str(path))
        return demuxer, open_decoder(demuxer, CPU, pool, counters, print)

    decoders = [SegmentDecoder(opened, replays=True) for _ in range(2)]
    demuxer = Demuxer(str(path))
    cutting = list(SegmentCutter(demuxer.packets(), demuxer, print))
    backwards = [list(decoders[n % 2](piece)) for n, piece in enumerate(reversed(cutting))]
    found = [picture for results in reversed(backwards) for pictures, _ in results for picture in pictures]
    whole = open_decoder(demuxer := Demuxer(str(path)), CPU, pool, Counters(), print)
    want = [picture for packet in [*demuxer.packets(), None] for picture in whole.decode(packet)]
    assert [picture.pts_s for picture in found] == [picture.pts_s for picture in want]
    assert all((a.surface.data == b.surface.data).all() for a, b in zip(found, want, strict=True))
    assert not any(counts for results in backwards for _, counts in results)
    for decoder in decoders:
        decoder.close()
