import functools
from contextlib import closing
from dataclasses import replace

import av
import numpy as np
import pytest
from av.video.frame import PictureType
from support.clips import REFRESH, X264, X265, resized, write

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.media import selective_decode
from streamkit.media.av_decoder import CONCEALED, UNDECODABLE, AvDecoder
from streamkit.media.av_decoder import SKIPPED as BEFORE_KEYFRAME
from streamkit.media.bitstream import PacketParser
from streamkit.media.demux import Demuxer
from streamkit.media.frame_sampling import FrameSampler
from streamkit.media.reader import VideoReader
from streamkit.media.selective_decode import FrameNumbering
from streamkit.media.surfaces import SurfacePool

CPU = Device()
GPU = Device("cuda")
B3 = {"preset": "medium", "g": "10", "bf": "3", "b-pyramid": "none", "sc_threshold": "0"}
PYRAMID = {"preset": "medium", "x264-params": "keyint=20:bframes=7:b-adapt=0:scenecut=0:b-pyramid=normal"}
SPARSE = {"preset": "medium", "x264-params": "keyint=16:bframes=1:b-adapt=0:scenecut=0:open-gop=1"}
CLIPS = {
    "closed.mp4": {"options": B3},
    "pyramid.mkv": {"options": PYRAMID},
    "open.mp4": {"options": X264},
    "open.ts": {"options": X264},
    "sparse.mp4": {"options": SPARSE},
    "refresh.ts": {"options": REFRESH},
    "hevc.mp4": {"codec": "libx265", "options": {"x265-params": "log-level=none:keyint=16:bframes=4:open-gop=0"}},
    "open-hevc.mp4": {"codec": "libx265", "options": X265},
    "open-hevc.ts": {"codec": "libx265", "options": X265},
    "a.avi": {"codec": "mpeg4", "options": {"g": "10", "bf": "2"}},
    "h264.avi": {"options": B3},
    "b.mp4": {"codec": "mpeg4", "options": {"g": "10", "bf": "2"}},
    "a.mpg": {"codec": "mpeg2video", "options": {"g": "10", "bf": "2"}},
    "a.webm": {"codec": "libvpx-vp9", "options": {"g": "10", "deadline": "realtime", "cpu-used": "8"}},
    "altref.webm": {"codec": "libvpx", "options": {"g": "10", "auto-alt-ref": "1", "lag-in-frames": "8"}},
    "intra.mkv": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "bare.h264": {"muxer": "h264", "options": {"bf": "2", "g": "10"}},
}
PARTS = [
    {"every": 2},
    {"every": 3},
    {"every": 7},
    {"every": 45},
    {"fps": 3.0},
    {"every": 2, "fps": 5.0},
    {"start_s": 1.1},
    {"start_s": 1.1, "every": 5},
    {"end_s": 0.7},
    {"start_s": 0.55, "end_s": 1.3, "every": 2},
    {"start_s": 2.3, "fps": 4},
]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    paths = {}

    def get(name):
        if name not in paths:
            paths[name] = write(folder / name, 128, 96, 70, **CLIPS[name])
        return paths[name]

    return get


def read(path, device=CPU, *, every=1, fps=None, keep=True, threads=1, **part):
    """The frames that are taken, with number, time, size and samples; and what was counted."""
    counters = Counters()
    reader = VideoReader(str(path), device, SurfacePool(device, poison=device is CPU), counters, threads=threads)
    sampler = FrameSampler(every, fps) if every > 1 or fps else None
    taken = FrameSampler(every, fps)
    frames = []
    for number, frame in reader.frames(sampler=sampler, **part):
        if taken.accepts(number, frame.pts_s):
            if frame.surface.ready is not None and device.kind == "cuda":
                frame.surface.ready.synchronize()
            frames.append((number, *frame[:3], as_host(frame.surface.data) if keep else None))
    reader.close()
    return frames, dict(counters.values)


def as_host(data):
    return data.get() if hasattr(data, "get") else np.array(data)


@functools.cache
def decoded(path):
    """All frames of a clip."""
    return read(path)[0]


def of_all(path, *, every=1, fps=None, start_s=0.0, end_s=None):
    """The same, from all frames, each of which is decoded."""
    everything = decoded(path)
    zero = Demuxer(str(path)).info.start_s
    sampler = FrameSampler(every, fps)
    begin = zero + start_s - 1e-6 if start_s else -1.0
    end = np.inf if end_s is None else zero + end_s - 1e-6
    return [frame for frame in everything if begin <= frame[1] < end and sampler.accepts(frame[0], frame[1])]


def same(frames, wanted):
    assert [frame[:4] for frame in frames] == [frame[:4] for frame in wanted]
    for frame, expected in zip(frames, wanted, strict=True):
        np.testing.assert_array_equal(frame[4], expected[4])


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("name", CLIPS)
def test_selected_frames_equal_those_of_a_full_decode(clip, name, part):
    same(read(clip(name), **part)[0], of_all(clip(name), **part))


@pytest.mark.parametrize("name", CLIPS)
def test_keyframes_equal_those_of_a_full_decode(clip, name):
    every, _ = read(clip(name))
    frames, counts = read(clip(name), keyframes=True)
    numbers = [frame[0] for frame in frames]
    expected = {"refresh.ts": [0], "intra.mkv": list(range(70))}.get(name)
    assert numbers == expected if expected else numbers[0] == 0 and 3 < len(numbers) < 16
    same(frames, [every[n] for n in numbers])
    assert counts.get(selective_decode.SKIPPED, 0) >= 70 - len(frames)
    assert selective_decode.UNWANTED not in counts


@pytest.mark.parametrize("name", ["closed.mp4", "open.mp4", "open-hevc.ts", "intra.mkv"])
def test_keyframes_of_a_part_are_decoded(clip, name):
    every, _ = read(clip(name), keyframes=True)
    frames, _ = read(clip(name), keyframes=True, start_s=0.9, end_s=2.0)
    zero = every[0][1]
    same(frames, [frame for frame in every if 0.9 - 1e-6 <= frame[1] - zero < 2.0 - 1e-6])
    thin, _ = read(clip(name), keyframes=True, fps=1.0)
    assert 2 <= len(thin) < len(every)
    same(thin, [frame for frame in every if frame[0] in {t[0] for t in thin}])


@pytest.mark.parametrize("name", ["closed.mp4", "open-hevc.mp4", "a.avi"])
def test_decoding_threads_do_not_change_frames(clip, name):
    same(read(clip(name), threads=3, every=7)[0], of_all(clip(name), every=7))
    same(read(clip(name), threads=3, keyframes=True)[0], read(clip(name), keyframes=True)[0])


def test_gops_without_a_selected_frame_are_not_decoded(clip):
    frames, counts = read(clip("closed.mp4"), every=30)
    assert [frame[0] for frame in frames] == [0, 30, 60]  # all three are keyframes
    assert counts == {selective_decode.SKIPPED: 67}


def test_unreferenced_frames_are_not_decoded(clip):
    _, counts = read(clip("closed.mp4"), every=10)
    assert selective_decode.UNWANTED not in counts
    _, counts = read(clip("pyramid.mkv"), every=19)
    assert (
        0
        < counts[selective_decode.UNWANTED]
        < 40
        < counts[selective_decode.SKIPPED] + counts[selective_decode.UNWANTED]
    )


@pytest.mark.parametrize(("name", "keyframe"), [("open.mp4", 0), ("sparse.mp4", 32), ("open-hevc.mp4", 32)])
def test_decoding_starts_at_the_last_valid_h264_entry_point(clip, name, keyframe):
    """There are keyframes at 16 and 32, and nothing refers to odd frames. In open.mp4 even ones lead: H.264 numbers
    the references, so none may be left out."""
    demuxer = Demuxer(str(clip(name)))
    packets = list(demuxer.packets())
    shown = sorted(packet.pts for packet in packets)
    numbers = [shown.index(packet.pts) for packet in packets]
    steps = []

    class Noting:
        def decode(self, packet, **how):
            steps.append("empty" if packet is None else shown.index(packet.pts))
            return []

        def restart(self, demuxer):
            steps.append("restart")

    skips = selective_decode.SelectiveDecoder(Noting(), demuxer, Counters())
    list(skips.frames(FrameNumbering(packets, demuxer, lambda number, pts_s, alone: number in (0, 45))))
    needed = [n for n in numbers[1 : numbers.index(45)] if n >= keyframe and n % 2 == 0]
    assert steps == [0, *(["empty", "restart"] if keyframe else []), *needed, 45, "empty"]
    demuxer.close()


def test_each_frame_is_counted_once(clip):
    for name in CLIPS:
        if name not in ("bare.h264", "altref.webm", "a.mpg", "h264.avi"):
            frames, counts = read(clip(name), every=4)
            assert len(frames) + sum(counts.values()) == 70, name


def test_nothing_is_read_after_the_end(clip):
    demuxers = []
    reader = VideoReader(str(clip("closed.mp4")), CPU, SurfacePool(CPU), Counters())
    demuxers.append(reader._demuxer)
    assert len(list(reader.frames(end_s=0.8))) == 20
    assert demuxers[0].packets_read < 30
    assert [n for n, _ in reader.frames(end_s=0.08)] == [0, 1]
    reader.close()


def test_waiting_packets_are_limited(clip, monkeypatch):
    monkeypatch.setattr(selective_decode, "_LONGEST", 5)
    same(read(clip("pyramid.mkv"), every=60)[0], of_all(clip("pyramid.mkv"), every=60))


@pytest.mark.parametrize("bound", ["_LONGEST", "_LONGEST_BYTES"])
def test_packets_that_a_selected_frame_may_need_are_limited(clip, monkeypatch, bound):
    """Up to the bound, in packets and in bytes, nothing is decoded; one packet more, and all that waits is."""
    demuxer = Demuxer(
        str(write(clip("closed.mp4").with_name("long.mp4"), 128, 96, 60, options={"g": "600", "bf": "0"}))
    )
    packets = list(demuxer.packets())
    assert len(packets) == 60
    monkeypatch.setattr(
        selective_decode, bound, 20 if bound == "_LONGEST" else sum(packet.size for packet in packets[1:21])
    )
    decoded = []

    class Noting:
        def decode(self, packet, **how):
            decoded.append(packet)
            return []

        def restart(self, demuxer):
            raise AssertionError

    skips = selective_decode.SelectiveDecoder(Noting(), demuxer, Counters())
    held = []
    numbering = FrameNumbering(packets, demuxer, lambda number, pts_s, alone: number == 0)
    for numbered_packet in numbering:
        list(skips._process(numbered_packet, numbering))
        assert skips._deferred_bytes == sum(packet.size for packet, _ in skips._deferred)
        held.append(len(skips._deferred))
    assert held[:21] == list(range(21))  # packets 1 to 20 wait
    assert held[21] == 0
    assert [id(packet) for packet in decoded[:22]] == [id(packet) for packet in packets[:22]]
    if bound == "_LONGEST":
        assert held == [0, *range(1, 21), *range(21), *range(18)]


def test_a_size_change_is_decoded(tmp_path):
    path = resized(tmp_path, ".ts")
    same(read(path, every=4)[0], of_all(path, every=4))
    assert [frame[2:4] for frame in read(path, keyframes=True)[0]] == [(64, 48), (96, 80)]


@pytest.mark.parametrize("part", [{"every": 3}, {"keyframes": True}, {"start_s": 0.2}])
def test_a_truncated_video_is_reported(tmp_path, part):
    whole = write(tmp_path / "a.mkv", 128, 96, 100, options={"g": "10"}).read_bytes()
    (tmp_path / "b.mkv").write_bytes(whole[: len(whole) * 6 // 10])
    with pytest.raises(SourceError, match=r"ends early: .* of 4\.0 s could be read") as caught:
        read(tmp_path / "b.mkv", **part)
    assert caught.value.cause == "truncated"


def test_damage_to_a_reference_frame_is_reported(tmp_path, test_data):
    data = bytearray((test_data / "videos" / "vtest_480x360.mp4").read_bytes())
    for place in range(data.find(b"mdat") + 100, len(data), 9973):
        data[place] ^= 0xFF
    (tmp_path / "a.mp4").write_bytes(data)
    with pytest.raises(SourceError, match="is damaged") as caught:
        read(tmp_path / "a.mp4", every=20, keep=False)
    assert caught.value.cause == "damaged"


@pytest.fixture
def damaged_clip(tmp_path):
    """40 frames, a keyframe every 20; the data of frame 5 alone are overwritten."""
    path = write(tmp_path / "a.mp4", 128, 96, 40, options={"g": "20", "bf": "0", "sc_threshold": "0"})
    with av.open(str(path)) as source:
        places = [(packet.pos, packet.size) for packet in source.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    place, size = places[5]
    data[place + 20 : place + size] = bytes(size - 20)
    path.write_bytes(data)
    return path


def test_damage_to_an_unselected_reference_frame_is_counted(damaged_clip):
    """Frame 5 is decoded for frame 10 and never comes out; its damage is in what comes out."""
    counters = Counters()
    with closing(VideoReader(str(damaged_clip), CPU, SurfacePool(CPU), counters)) as reader:
        numbers = []
        with pytest.raises(SourceError, match="is damaged: 1 frame was lost or concealed") as caught:
            numbers.extend(number for number, _ in reader.frames(sampler=FrameSampler(10, None)))
    assert caught.value.cause == "damaged"
    assert numbers == [0, 10, 20, 30]
    assert counters[CONCEALED] + counters[UNDECODABLE] == 1
    assert counters[selective_decode.UNWANTED] == 18


def test_damage_to_an_unneeded_frame_is_not_counted(damaged_clip):
    frames, counts = read(damaged_clip, every=20)
    assert [frame[0] for frame in frames] == [0, 20]
    assert counts == {selective_decode.SKIPPED: 38}


@pytest.mark.parametrize(("how", "counted"), [({}, 1), ({"unwanted": True}, 1), ({"hidden": True}, 0)])
def test_damage_is_counted_for_needed_frames(damaged_clip, how, counted):
    counters = Counters()
    demuxer = Demuxer(str(damaged_clip))
    decoder = AvDecoder(demuxer, CPU, SurfacePool(CPU), counters)
    times = []
    for number, packet in enumerate([*demuxer.packets(), None]):
        times += [frame.pts_s for frame in decoder.decode(packet, **(how if number == 5 else {}))]
    decoder.close()
    demuxer.close()
    assert counters[CONCEALED] == counted
    assert [round(pts_s * 25) for pts_s in times] == [n for n in range(40) if n != 5 or not how]


@pytest.mark.parametrize("live", [True, False])
def test_a_live_decoder_waits_for_a_keyframe_after_damage(tmp_path, live):
    """What refers to a frame that is lost would be gray; a file's frames are counted as damaged, and come."""
    path = write(tmp_path / "a.mp4", 128, 96, 60, options={"g": "20", "bf": "0", "sc_threshold": "0"})
    demuxer = Demuxer(str(path))
    counters = Counters()
    demuxer.info = replace(demuxer.info, live=live)
    decoder = AvDecoder(demuxer, CPU, SurfacePool(CPU), counters, low_delay=True)
    numbers = []
    for number, packet in enumerate([*demuxer.packets(), None]):
        if number == 25:
            packet.update(b"\xff" * packet.size)
        numbers += [round(frame.pts_s * 25) for frame in decoder.decode(packet)]
    decoder.close()
    demuxer.close()
    assert counters[UNDECODABLE] == 1
    assert numbers == [*range(25), *range(40 if live else 26, 60)]
    assert counters[BEFORE_KEYFRAME] == (14 if live else 0)


def test_no_frame_is_independent_without_an_entry_point(tmp_path):
    path = write(tmp_path / "a.ts", 128, 96, 60, options=REFRESH)
    demuxer = Demuxer(str(path))
    packets = [packet for packet in demuxer.packets() if not packet.is_keyframe]
    numbering = FrameNumbering(packets, demuxer, lambda number, pts_s, alone: True)
    assert {numbered_packet.alone for numbered_packet in numbering} == {False}


def numbered(path, **options):
    demuxer = Demuxer(str(path))
    numbers = []

    def wants(number, pts_s, alone):
        numbers.append(number)
        return alone

    pts_and_numbers = [
        (numbered_packet.packet.pts, numbered_packet.number)
        for numbered_packet in FrameNumbering(demuxer.packets(), demuxer, wants, **options)
    ]
    demuxer.close()
    assert numbers == sorted(numbers)
    return pts_and_numbers


@pytest.mark.parametrize("name", ["plain.mp4", "closed.mp4", "pyramid.mkv", "open.ts"])
def test_a_packet_waits_for_its_number_as_short_as_possible(clip, tmp_path, name):
    """A number is certain with the first packet that is decoded no earlier than the frame is shown."""
    path = write(tmp_path / name, 128, 96, 70, options={"bf": "0"}) if name == "plain.mp4" else clip(name)
    demuxer = Demuxer(str(path))
    sent = []

    def counted():
        for packet in demuxer.packets():
            sent.append(packet)
            yield packet

    numbered = FrameNumbering(counted(), demuxer, lambda number, pts_s, alone: True)
    ready = [(numbered_packet.packet, len(sent), numbered_packet.number) for numbered_packet in numbered]
    assert [number for *_, number in sorted(ready, key=lambda entry: entry[0].pts)] == list(range(70))
    came = [(packet, after) for packet, after, _ in ready]
    highest = -(10**9)
    horizon = []
    for packet in sent:
        highest = highest if packet.dts is None else max(highest, packet.dts)
        horizon.append(highest)
    due = 0
    for (packet, after), place in zip(came, range(70), strict=True):
        assert packet is sent[place], "in the order they came"
        enough = next((n + 1 for n, reached in enumerate(horizon) if reached >= packet.pts), 70)
        due = max(due, enough, place + 1)
        assert after == due
    if name == "plain.mp4":
        assert [after for _, after in came] == list(range(1, 71)), "without B frames none waits"
    demuxer.close()


@pytest.mark.parametrize("name", ["open.mp4", "open-hevc.ts", "a.avi", "a.webm"])
def test_numbers_follow_the_display_order(clip, name):
    pts_and_numbers = numbered(clip(name))
    assert [number for _, number in sorted(pts_and_numbers)] == list(range(70))
    continued = numbered(clip(name), first=7, since_s=0.0)
    assert [number for _, number in sorted(continued) if number >= 0][:3] == [7, 8, 9]


def test_unreferenced_frames_are_recognized(tmp_path):
    def kinds(name, codec, options):
        demuxer = Demuxer(str(write(tmp_path / name, 128, 96, 40, codec=codec, options=options)))
        parser = PacketParser(demuxer.stream, demuxer.info.codec)
        return [parser.is_disposable(packet) for packet in demuxer.packets()]

    def types(path):
        with av.open(str(path)) as container:
            return [PictureType(f.pict_type) for f in container.decode(video=0)].count(PictureType.B)

    assert sum(kinds("a.mp4", "libx264", B3)) == types(tmp_path / "a.mp4") > 10
    assert sum(kinds("p.mp4", "libx264", {**B3, "bf": "0"})) == 0
    assert sum(kinds("m.mp4", "mpeg4", {"bf": "2"})) == types(tmp_path / "m.mp4") > 10
    for name in ("h.mp4", "h.ts"):
        assert 10 < sum(kinds(name, "libx265", X265)) < types(tmp_path / name)  # some B frames are references
    assert sum(kinds("v.webm", "libvpx-vp9", {})) == 0


def test_loops_of_keyframes_count_all_frames(tmp_path):
    from streamkit.core.stage import Context
    from streamkit.stages.sources.source import VideoSource

    path = write(tmp_path / "a.mp4", frames=45, options={"g": "20", "bf": "2"})
    source = VideoSource(uri=str(path), keyframes=True, loop=2)
    source.context = Context(id="cam")
    frames = list(source.frames())
    assert [frame.index for frame in frames] == [0, 20, 40, 45, 65, 85]
    assert [frame.pts_s for frame in frames] == pytest.approx([n / 25 for n in (0, 20, 40, 45, 65, 85)])


@pytest.mark.gpu
@pytest.mark.parametrize("part", [{"keyframes": True}, {"every": 7}, {"start_s": 1.1, "fps": 6.0}], ids=str)
@pytest.mark.parametrize("name", [name for name in CLIPS if name not in ("a.mpg", "intra.mkv")])
def test_gpu_and_cpu_give_equal_frames(clip, name, part):
    host, counted = read(clip(name), **part)
    device, counts = read(clip(name), GPU, **part)
    assert [frame[:4] for frame in device] == [frame[:4] for frame in host]
    for kind in (selective_decode.SKIPPED, selective_decode.UNWANTED):
        assert counts.get(kind, 0) == counted.get(kind, 0)
    for on_host, on_device in zip(device, host, strict=True):
        if name in ("a.avi", "b.mp4"):  # MPEG-4's inverse transform is not laid down bit by bit
            assert np.abs(on_host[4].astype(int) - on_device[4]).mean() <= 1
        else:
            np.testing.assert_array_equal(on_host[4], on_device[4])


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["bench_1080p_h264.mp4", "bench_1080p_hevc.mp4", "bench_1080p_hevc_opengop.mp4"])
def test_gpu_and_cpu_give_equal_keyframes_of_real_videos(test_data, name):
    path = test_data / "videos" / name
    same(read(path, GPU, keyframes=True)[0], read(path, keyframes=True)[0])


def test_a_packet_without_a_time_belongs_to_the_previous(clip):
    demuxer = Demuxer(str(clip("closed.mp4")))
    packets = list(demuxer.packets())
    for place in (3, 12, 13, 40):  # as second fields come
        packets[place].pts = packets[place].dts = None
    numbers = []

    def wants(number, pts_s, alone):
        numbers.append(number)
        return number % 5 == 0

    numbered_packets = list(FrameNumbering(packets, demuxer, wants))
    assert [id(numbered_packet.packet) for numbered_packet in numbered_packets] == [id(packet) for packet in packets]
    assert [
        place
        for place, numbered_packet in enumerate(numbered_packets)
        if numbered_packet.number == -1 and not numbered_packet.wanted
    ] == [3, 12, 13, 40]
    assert sorted(
        numbered_packet.number for numbered_packet in numbered_packets if numbered_packet.number != -1
    ) == list(range(66))
    assert numbers == list(range(66))

    reached = []

    class Noting:
        def decode(self, packet, **how):
            reached.append(packet)
            return []

        def restart(self, demuxer):
            pass

    skips = selective_decode.SelectiveDecoder(Noting(), demuxer, Counters())
    assert list(skips.frames(FrameNumbering(packets, demuxer, lambda number, pts_s, alone: True))) == []
    assert reached == [*packets, None]
    assert skips.missing == 66
