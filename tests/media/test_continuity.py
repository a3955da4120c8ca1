"""Transport streams with gaps: what is really damaged is counted, and the frame concerned is marked.

The videos are encoded by FFmpeg and cut by transport packets. What is damaged is known by comparing every frame with
the whole recording's.
"""

import hashlib
import json
from contextlib import closing
from types import SimpleNamespace

import av
import numpy as np
import pytest

from streamkit.cli import cli
from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.media.continuity import ContinuityFilter
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import SurfacePool
from streamkit.ops.transfer import host_pixels

TS = 188
CODECS = {
    "libx264": {"bf": "2", "g": "10", "qp": "30", "preset": "veryfast", "sc_threshold": "0"},
    "mpeg2video": {"bf": "2", "g": "10", "qmin": "8", "qmax": "8", "sc_threshold": "1000000000"},
    "libx265": {
        "preset": "ultrafast",
        "x265-params": "log-level=none:keyint=10:min-keyint=10:scenecut=0:open-gop=0:qp=30:pools=1",
    },
}
DEVICES = [Device(), pytest.param(Device("cuda"), marks=pytest.mark.gpu)]


def read(path, device=None):
    """The digests of all frames, the numbers of those marked as damaged, how many a damaged file reports, counters."""
    device = device or Device()
    counters = Counters()
    digests = []
    marked = []
    reported = 0
    trouble = None
    with closing(VideoReader(str(path), device, SurfacePool(device), counters)) as reader:
        try:
            for number, frame in reader.frames():
                digests.append(hashlib.md5(bytes(host_pixels(frame.surface))).hexdigest())
                if frame.damaged:
                    marked.append(number)
        except SourceError as error:
            trouble = error
    if trouble is not None:
        reported = trouble.damaged
        assert trouble.cause == "damaged"
        assert f" is damaged: {reported} frame" in str(trouble)
    return digests, marked, reported, counters


def packets(path):
    """The transport packets, and the places of those of the video, frame by frame in the order of the file."""
    data = path.read_bytes()
    parts = [data[at : at + TS] for at in range(0, len(data), TS)]
    frames = []
    for place, part in enumerate(parts):
        if (part[1] & 0x1F) << 8 | part[2] == 256:
            if part[1] & 0x40:
                frames.append([])
            frames[-1].append(place)
    return parts, frames


@pytest.fixture(scope="module", params=CODECS)
def recording(request, tmp_path_factory):
    """A recording of 30 frames of noise, a keyframe every 10, several transport packets a frame."""
    path = tmp_path_factory.mktemp("ts") / f"{request.param}.ts"
    chance = np.random.default_rng(1)
    with av.open(str(path), "w") as output:
        stream = output.add_stream(request.param, rate=25, options=CODECS[request.param])
        stream.width = 128
        stream.height = 96
        stream.pix_fmt = "yuv420p"
        for _ in range(30):
            noise = chance.integers(0, 256, (96, 128, 3), np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(noise, format="rgb24")))
        output.mux(stream.encode())
    return path


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_joined_recordings_decode_completely_as_by_ffmpeg(recording, tmp_path, device):
    joined = tmp_path / "joined.ts"
    joined.write_bytes(recording.read_bytes() * 3)
    with av.open(str(joined)) as container:
        flagged = sum(packet.is_corrupt for packet in container.demux(video=0))
    assert flagged  # FFmpeg's flag alone would call the file damaged
    once = read(recording, device)
    assert len(set(once[0])) == 30
    assert once[1:3] == ([], 0)
    digests, marked, reported, counters = read(joined, device)
    assert (digests, marked, reported) == (once[0] * 3, [], 0)
    assert counters["decode errors concealed"] == 0


def test_joined_segments_with_continuous_times_are_complete(recording, tmp_path):
    """As `ffmpeg -f segment` writes them: each begins its continuity counters again."""
    parts = []
    with av.open(str(recording)) as source:
        stream = source.streams.video[0]
        output = None
        for packet in source.demux(stream):
            if not packet.size:
                continue
            if packet.is_keyframe:
                if output is not None:
                    output.close()
                parts.append(tmp_path / f"{len(parts)}.ts")
                output = av.open(str(parts[-1]), "w", options={"muxdelay": "0", "avoid_negative_ts": "disabled"})
                there = output.add_stream_from_template(stream)
            packet.stream = there
            output.mux(packet)
        output.close()
    assert len(parts) >= 3
    joined = tmp_path / "joined.ts"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    assert read(joined)[:3] == (read(recording)[0], [], 0)


@pytest.mark.parametrize("place", ["middle", "end"])
def test_an_incomplete_frame_is_marked_and_counted_once(recording, tmp_path, place):
    parts, frames = packets(recording)
    frame = frames[14]
    assert len(frame) > 3
    del parts[frame[len(frame) // 2] if place == "middle" else frame[-1]]
    path = tmp_path / "cut.ts"
    path.write_bytes(b"".join(parts))
    whole = read(recording)[0]
    (digests, marked, reported, counters) = read(path)
    assert len(digests) == 30
    differ = [i for i, (a, b) in enumerate(zip(digests, whole, strict=True)) if a != b]
    assert len(marked) == 1
    assert marked[0] in differ
    assert (reported, counters["decode errors concealed"]) == (1, 1)


def test_missing_frames_are_counted_and_the_next_frame_is_marked(recording, tmp_path):
    parts, frames = packets(recording)
    removed = {place for frame in frames[13:15] for place in frame}
    path = tmp_path / "lost.ts"
    path.write_bytes(b"".join(part for place, part in enumerate(parts) if place not in removed))
    digests, marked, reported, counters = read(path)
    assert len(digests) <= 28
    assert reported >= 1
    assert len(marked) == counters["decode errors concealed"] <= reported


def test_frames_missing_before_a_keyframe_are_counted_and_the_keyframe_is_valid(recording, tmp_path):
    parts, frames = packets(recording)
    with av.open(str(recording)) as container:
        key = [
            i
            for i, sized_packet in enumerate(p for p in container.demux(video=0) if p.size)
            if sized_packet.is_keyframe
        ][2]
    removed = {place for frame in frames[key - 3 : key] for place in frame}
    path = tmp_path / "lost.ts"
    path.write_bytes(b"".join(part for place, part in enumerate(parts) if place not in removed))
    digests, marked, reported, _ = read(path)
    good = 30 - key - 2  # but for the two that may be shown before the keyframe
    assert good >= 7
    assert good < len(digests) <= 27
    assert reported == 1
    assert digests[-good:] == read(recording)[0][-good:]
    assert not [number for number in marked if number >= len(digests) - good]


@pytest.mark.parametrize("place", ["middle", "end"])
def test_a_joined_recording_cut_within_a_frame_has_a_single_damaged_frame(recording, tmp_path, place):
    parts, frames = packets(recording)
    frame = frames[14]
    end = frame[len(frame) // 2] if place == "middle" else frame[-1]
    path = tmp_path / "joined.ts"
    path.write_bytes(b"".join(parts[:end]) + recording.read_bytes())
    whole = read(recording)[0]
    (digests, marked, reported, counters) = read(path)
    assert len(digests) == 15 + 30
    assert digests[-30:] == whole
    assert (len(marked), reported, counters["decode errors concealed"]) == (1, 1, 1)
    assert marked[0] < 15


def test_a_record_of_a_damaged_frame_is_marked(recording, tmp_path, capsys):
    parts, frames = packets(recording)
    del parts[frames[14][2]]
    path = tmp_path / "cut.ts"
    path.write_bytes(b"".join(parts))
    out = tmp_path / "{source}.jsonl"
    (tmp_path / "p.yaml").write_text(
        f"device: cpu\nsources: {{a: '{path}'}}\nstages: {{jsonl: {{path: '{out}'}}}}\n", encoding="utf-8"
    )
    assert cli.main(["run", str(tmp_path / "p.yaml")], standalone_mode=False) == 1
    records = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [frame_record["frame"] for frame_record in records if "damaged" in frame_record] == read(path)[1]
    assert [frame_record["damaged"] for frame_record in records if "damaged" in frame_record] == [True]
    assert "1 frame was lost or concealed" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------- the rules, exactly


def bytes_of(path):
    """Reads bytes of a file, as a demuxer does."""
    return lambda start, end: path.read_bytes()[start:end]


def packet(number, *, key=False, flagged=False, dts=True):
    return SimpleNamespace(
        number=number, dts=number if dts else None, pts=number, is_keyframe=key, is_corrupt=flagged, pos=None, size=1
    )


def settled(*sent, codec="h264", rate=25.0, tick_s=0.04):
    """The numbers of packets that come out flagged, how many gaps no packet carries; all come out, in order."""
    info = SimpleNamespace(codec=codec, average_rate=rate)
    gaps = ContinuityFilter(None, info, 256, tick_s)
    out = []
    for sent_packet in sent:
        out += gaps.filter(sent_packet)
    out += gaps.flush()
    assert out == list(sent)
    return [out_packet.number for out_packet in out if out_packet.is_corrupt], gaps.lost


def stream(*numbers, flagged=(), keys=()):
    return [packet(n, key=n in keys, flagged=n in flagged) for n in numbers]


def test_only_the_packet_at_a_gap_waits_for_the_next():
    gaps = ContinuityFilter(None, SimpleNamespace(codec="h264", average_rate=25.0), 256, 0.04)
    sent = stream(0, 1, 2, 3, 4, flagged=[1])
    assert [[out_packet.number for out_packet in gaps.filter(sent_packet)] for sent_packet in sent] == [
        [0],
        [1],
        [],
        [2, 3],
        [4],
    ]
    assert gaps.flush() == []


@pytest.mark.parametrize(
    ("sent", "marked", "lost"),
    [
        (stream(0, 1, 2, 3, 4), [], 0),
        (stream(0, 1, 2, 3, 4, flagged=[1]), [2], 0),  # the flag lies one packet early
        (stream(0, 1, 2, 3, 4, 5, flagged=[1, 2]), [2, 3], 0),
        (stream(0, 1, 2, 4, 5, flagged=[1]), [4], 0),  # 3 is missing: 4 refers to it
        (stream(0, 1, 2, 4, 5, flagged=[1], keys=[4]), [], 1),
        (stream(0, 1, 2, 27, 28, flagged=[1], keys=[27]), [], 1),  # 0.96 s missing
        (stream(0, 1, 2, 29, 30, flagged=[1], keys=[29]), [], 0),  # 1.04 s: another recording
        (stream(0, 1, 2, 29, 30, flagged=[1]), [29], 0),
        (stream(10, 11, 12, 0, 1, flagged=[11], keys=[0]), [], 0),  # time goes back: another recording
        (stream(10, 11, 12, 0, 1, flagged=[11]), [12], 0),
        (stream(10, 11, 12, 0, 1, 2, 3, flagged=[0]), [1], 0),  # a step back says nothing of how long a frame lasts
        (stream(0, 1, 2, 3, flagged=[1], keys=[3]), [], 0),  # a segment whose times go on
        (stream(0, 1, 2, flagged=[1]), [2], 0),  # nothing behind it tells
        (stream(0, 1, 2, flagged=[2]), [], 1),
        (stream(0, 2, 4, 6, 8, 10, flagged=[4]), [6], 0),  # two ticks a frame: nothing is missing
        (stream(0, 2, 4, 6, 8, 10, flagged=[4], keys=[8]), [], 0),
        (stream(0, 2, 4, 6, 10, 12, flagged=[4], keys=[10]), [], 1),
    ],
)
def test_flags_are_attributed_to_their_packet(sent, marked, lost):
    assert settled(*sent) == (marked, lost)


@pytest.mark.parametrize(("rate", "step_ms"), [(50.0, 20), (10.0, 100), (None, 40)])
def test_a_gap_above_one_and_a_half_frame_times_is_a_missing_frame(rate, step_ms):
    """Before any frame has been measured it lasts as long as the header says, or 1/25 s."""
    for between, marked in [(1.5 * step_ms - 1, step_ms), (1.5 * step_ms + 1, 2.5 * step_ms + 1)]:
        sent = stream(0, step_ms, step_ms + between, flagged=[0])
        assert settled(*sent, rate=rate, tick_s=0.001) == ([marked], 0)


def test_a_packet_without_a_time_is_at_the_gap():
    sent = [packet(0), packet(1, flagged=True), packet(2, dts=False), packet(3), packet(4)]
    assert settled(*sent) == ([2], 0)


@pytest.mark.parametrize("size", [188, 192, 204])
def test_missing_frame_ends_are_detected_for_other_codecs(tmp_path, size):
    def parts(counters, stuffed, pid=256):
        data_of_frame = b""
        for i, counter in enumerate(counters):
            flags = 0x30 if stuffed and i == len(counters) - 1 else 0x10
            data_of_frame += bytes([0x47, pid >> 8, pid & 0xFF, flags | counter]).ljust(size, b"x")
        return data_of_frame

    def cut_off(frame):
        path = tmp_path / "a.ts"
        path.write_bytes(parts([9], True, 17) + frame + parts([0], True))
        gaps = ContinuityFilter(bytes_of(path), SimpleNamespace(codec="hevc", average_rate=25.0), 256, 0.04)
        at_gap = packet(5)
        behind = packet(0, key=True)
        at_gap.pos = size
        behind.pos = size + len(frame)
        for fed_packet in (packet(4, flagged=True), at_gap, behind):
            gaps.filter(fed_packet)
        return at_gap.is_corrupt

    assert not cut_off(parts([14, 15, 0], True))
    assert cut_off(parts([14, 15, 0], False))
    assert cut_off(parts([14, 0], True))
    other = parts([3], False, 257)  # sound within the frame and behind it
    assert not cut_off(parts([14, 15], False) + other + parts([0], True) + other)
    none = bytes([0x47, 1, 0, 0x20]).ljust(size, b"x")  # no payload: the counter stands still
    assert not cut_off(parts([14], False) + none + parts([15], True))


@pytest.mark.parametrize("first", [0, 188])
@pytest.mark.parametrize("flags", [0x00, 0x40, 0x20, 0x60])
@pytest.mark.parametrize("whole", [True, False])
def test_frames_at_any_position_and_with_any_flags_are_checked(tmp_path, first, flags, whole):
    """The three bits in front of the packet identifier say where a frame begins, and no more."""
    begin = bytes([0x47, flags | 0x1E, 0xF1, 0x10 | 3]).ljust(188, b"x")
    end = bytes([0x47, 0x1E, 0xF1, (0x30 if whole else 0x10) | 4]).ljust(188, b"x")
    path = tmp_path / "a.ts"
    path.write_bytes(bytes(first) + begin + end)
    gaps = ContinuityFilter(bytes_of(path), SimpleNamespace(codec="hevc", average_rate=25.0), 0x1EF1, 0.04)
    at_gap = packet(5)
    behind = packet(0, key=True)
    at_gap.pos = first
    behind.pos = first + 376
    for fed_packet in (packet(4, flagged=True), at_gap, behind):
        gaps.filter(fed_packet)
    assert at_gap.is_corrupt is not whole


@pytest.mark.parametrize(("at", "behind_at"), [(None, 188), (0, None), (188, 188), (376, 188), (-1, 188)])
def test_a_frame_of_unknown_position_counts_as_complete(tmp_path, at, behind_at):
    path = tmp_path / "a.ts"
    path.write_bytes(bytes([0x47, 1, 0, 0x10]).ljust(188, b"x") * 3)
    gaps = ContinuityFilter(bytes_of(path), SimpleNamespace(codec="hevc", average_rate=25.0), 256, 0.04)
    at_gap = packet(5)
    behind = packet(0, key=True)
    at_gap.pos = at
    behind.pos = behind_at
    for fed_packet in (packet(4, flagged=True), at_gap, behind):
        gaps.filter(fed_packet)
    assert not at_gap.is_corrupt
