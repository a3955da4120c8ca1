import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
from support import fake_gpu
from support.clips import X264, X265, resized, write
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.media import gop_segments, nv_caps, nv_report, nv_sessions
from streamkit.media.demux import Demuxer
from streamkit.media.frame_sampling import FrameSampler
from streamkit.media.nv_decoder import NvDecoder
from streamkit.media.reader import VideoReader
from streamkit.media.received_packet import ReceivedPacket
from streamkit.media.selective_decode import SKIPPED, UNWANTED
from streamkit.media.surfaces import SurfacePool
from streamkit.runtime.execution.ordered_executor import ThreadedExecutor
from streamkit.runtime.multiprocess.child_generator import ChildGenerator

CPU = Device()
GPU = Device("cuda")


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_gpu.cupy)
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", fake_gpu.nvc)
    monkeypatch.setattr("streamkit.ops.cuda.driver._calls", lambda: None)
    monkeypatch.setattr(nv_caps, "_query", fake_gpu.query)
    monkeypatch.setattr(nv_caps, "_caps", {})
    nv_sessions.clear()
    monkeypatch.setattr(nv_sessions, "_used", nv_sessions.Counter())
    monkeypatch.setattr(nv_sessions, "_first_packets", {})
    monkeypatch.setattr(nv_sessions, "_learned", {})
    fake_gpu.FakeSession.created = 0
    yield fake_gpu
    nv_sessions.clear()


def read(path, device, loops=1, **options):
    """Numbers, times, sizes and copies of the pixels of all frames; the counts; what was logged."""
    logged = collect()
    counters = Counters()
    pool = SurfacePool(device, poison=device is CPU)
    reader = VideoReader(str(path), device, pool, counters, **options)
    frames = []
    for _ in range(loops):
        for number, frame in reader.frames():
            frames.append((number, frame.pts_s, frame.width, frame.height, np.array(frame.surface.data)))
            if device is GPU and frame.surface.ready is not None:
                assert frame.surface.ready.recorded
    decoder = reader._decoder
    reader.close()
    return frames, dict(counters.values), logged, decoder


def collected(reader, marked):
    """Read it to its end; the numbers of the frames that are marked as damaged go into `marked`."""
    for number, frame in reader.frames():
        if frame.damaged:
            marked.append(number)


def same(first, second):
    assert [p[:4] for p in first] == [p[:4] for p in second]
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a[4], b[4])


@pytest.mark.parametrize(
    "name",
    [
        "ahmetozlu_pedestrian.mp4",
        "codec/discard_first_keyframe.mp4",
        "codec/test_non_zero_start.mp4",
        "codec/nasa_13013.mp4",
    ],
)
def test_nvdec_gives_the_frames_of_ffmpeg(fake, test_data, name):
    host, *_ = read(test_data / "videos" / name, CPU)
    device, counts, logged, decoder = read(test_data / "videos" / name, GPU)
    assert isinstance(decoder, NvDecoder)
    same(device, host)
    assert (counts, logged) == ({"decoders made": 1}, [])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("h264.mp4", {"options": {"bf": "2"}}),
        ("h264.mkv", {"options": {"bf": "2"}}),
        ("bare.h264", {"muxer": "h264", "options": {"bf": "2"}}),
        ("mpeg4.avi", {"codec": "mpeg4", "options": {"bf": "2"}}),
        ("h264.avi", {"options": {"preset": "medium", "bf": "3", "g": "10"}}),
        ("h264.asf", {"options": {"preset": "medium", "bf": "3", "g": "10"}}),
    ],
)
def test_all_containers_are_decoded(fake, tmp_path, name, options):
    path = write(tmp_path / name, 64, 48, 30, **options)
    same(read(path, GPU)[0], read(path, CPU)[0])


@pytest.mark.parametrize("suffix", [".h264", ".ts"])
def test_a_new_size_gets_a_new_session(fake, tmp_path, suffix):
    path = resized(tmp_path, suffix)
    device, counts, logged, _ = read(path, GPU)
    assert [p[2:4] for p in device] == [(64, 48)] * 10 + [(96, 80)] * 10
    same(device, read(path, CPU)[0])
    assert fake.FakeSession.created == 2
    assert (counts, logged) == ({"decoders made": 2}, [])


def test_loops_use_a_single_session(fake, tmp_path):
    path = write(tmp_path / "a.mp4", frames=10)
    device, *_ = read(path, GPU, loops=3)
    assert [p[0] for p in device] == list(range(10)) * 3
    assert fake.FakeSession.created == 1


def test_a_seek_after_an_unfinished_loop_works(fake, tmp_path):
    path = write(tmp_path / "a.mp4", frames=50, options={"g": "10", "bf": "2"})
    reader = VideoReader(str(path), GPU, SurfacePool(GPU), Counters())
    first = reader.frames()
    assert [next(first)[0] for _ in range(5)] == [0, 1, 2, 3, 4]
    first.close()
    assert [n for n, _ in reader.frames(start_s=1.0, end_s=1.2)] == [25, 26, 27, 28, 29]
    reader.close()


def test_a_failing_session_is_counted_and_decoding_resumes_at_a_keyframe(fake, tmp_path, monkeypatch):
    path = write(tmp_path / "a.mp4", frames=30, options={"g": "10", "bf": "0"})
    decode = fake.FakeSession.Decode
    calls = []

    def sometimes(self, packet):
        calls.append(packet)
        if len(calls) == 5:
            raise RuntimeError("cuvidDecodePicture failed")
        return decode(self, packet)

    monkeypatch.setattr(fake.FakeSession, "Decode", sometimes)
    reader = VideoReader(str(path), GPU, SurfacePool(GPU), counters := Counters())
    with pytest.raises(SourceError, match="damaged"):
        list(reader.frames())
    assert counters["packets not decodable"] == 1
    assert fake.FakeSession.created == 2


def test_a_damaged_packet_marks_its_frame(fake, tmp_path):
    path = write(tmp_path / "a.mp4", frames=20, options={"bf": "2", "g": "10"})

    def spoil(packet):
        packet.is_corrupt = packet.pts == 7 * packet.duration

    for device in (CPU, GPU):
        counters = Counters()
        pool = SurfacePool(device)
        marked = []
        reader = VideoReader(str(path), device, pool, counters, on_packet=spoil)
        with pytest.raises(SourceError, match=r"is damaged: 1 frame was lost or concealed$") as caught:
            collected(reader, marked)
        reader.close()
        assert (marked, caught.value.damaged, counters["decode errors concealed"]) == ([7], 1, 1)


def test_damage_reported_by_nvdec_marks_the_output_frame(fake, tmp_path, monkeypatch):
    path = write(tmp_path / "a.mp4", frames=20, options={"bf": "0", "tune": "zerolatency"})
    decode = fake.FakeSession.Decode

    def reports(session, packet):
        frames = decode(session, packet)
        if any(frame.getPTS() == 5 * 512 for frame in frames):
            nv_report.damaged.append(threading.get_ident())
        return frames

    monkeypatch.setattr(fake.FakeSession, "Decode", reports)
    counters = Counters()
    reader = VideoReader(str(path), GPU, SurfacePool(GPU), counters, low_delay=True)
    marked = []
    with pytest.raises(SourceError, match="1 frame was lost"):
        collected(reader, marked)
    reader.close()
    assert (marked, counters["decode errors concealed"]) == ([5], 1)


def test_a_session_is_reused_for_the_next_file_of_its_kind(fake, tmp_path):
    first = write(tmp_path / "one.mp4", frames=20, options={"bf": "2"})
    other = write(tmp_path / "other.mp4", frames=20, options={"bf": "2"}, first=7)
    larger = write(tmp_path / "larger.mp4", 96, 80, frames=20, options={"bf": "2"})
    counts = []
    for path in (first, other, larger, first, larger):
        device, counted, _, _ = read(path, GPU)
        same(device, read(path, CPU)[0])
        counts.append(counted)
    new_session = {"decoders made": 1}
    reused = {"decoders reused": 1}
    assert counts == [new_session, reused, new_session, reused, reused]


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_a_prepared_session_decodes_another_video(fake, tmp_path, codec):
    first = write(tmp_path / "one.mp4", frames=20, options={"bf": "2"}, codec=codec)
    other = write(tmp_path / "other.mp4", frames=20, options={"bf": "2"}, first=7, codec=codec)
    reader = VideoReader(str(first), GPU, SurfacePool(GPU), Counters())
    frames = reader.frames()
    next(frames)
    (sample,) = nv_sessions.samples()
    assert sample.number == 1
    frames.close()
    reader.close()
    nv_sessions.clear()
    assert nv_sessions.make_ahead(sample, fake.nvc)
    device, counted, _, _ = read(other, GPU)
    same(device, read(other, CPU)[0])
    assert counted == {"decoders reused": 1}
    assert fake.FakeSession.created == 2


def test_a_session_left_early_is_drained_for_the_next_file(fake, tmp_path):
    path = write(tmp_path / "a.mp4", frames=30, options={"bf": "2"})
    reader = VideoReader(str(path), GPU, SurfacePool(GPU), Counters())
    frames = reader.frames()
    assert next(frames)[0] == 0
    frames.close()
    reader.close()
    same(read(path, GPU)[0], read(path, CPU)[0])
    assert fake.FakeSession.created == 1


def test_a_failed_session_is_not_reused(fake, tmp_path, monkeypatch):
    path = write(tmp_path / "a.mp4", frames=10, options={"bf": "0"})

    def fails(self, packet):
        raise RuntimeError("cuvidDecodePicture failed")

    with monkeypatch.context() as patch:
        patch.setattr(fake.FakeSession, "Decode", fails)
        with pytest.raises(SourceError):
            read(path, GPU)
    sessions = fake.FakeSession.created
    assert nv_sessions.idle_count() == 0
    same(read(path, GPU)[0], read(path, CPU)[0])
    assert fake.FakeSession.created == sessions + 1


def test_a_seek_provides_the_session_with_parameters(fake, tmp_path):
    path = write(tmp_path / "a.mp4", 128, 96, 80, options=X264)
    host = [n for n, _ in VideoReader(str(path), CPU, SurfacePool(CPU), Counters()).frames(start_s=2.0)]
    reader = VideoReader(str(path), GPU, SurfacePool(GPU), Counters())
    assert [n for n, _ in reader.frames(start_s=2.0)] == host == list(range(50, 80))
    reader.close()


@pytest.mark.parametrize("name", ["open.mp4", "open.ts"])
@pytest.mark.parametrize("shortest", [2, 32])
def test_a_file_is_decoded_by_several_sessions(fake, tmp_path, monkeypatch, name, shortest):
    monkeypatch.setattr(gop_segments, "_SHORTEST", shortest)
    path = write(tmp_path / name, 128, 96, 120, options=X264)
    device, counts, logged, _ = read(path, GPU, decoders=3, executor=ThreadedExecutor(GPU, 1))
    same(device, read(path, CPU)[0])
    assert 1 <= counts.pop("decoders made") <= 3
    assert (counts, logged) == ({}, [])


@pytest.mark.parametrize(("codec", "options"), [("libx264", X264), ("libx265", X265)])
def test_a_file_read_by_another_process_is_decoded(fake, tmp_path, monkeypatch, codec, options):
    path = write(tmp_path / "a.mp4", 128, 96, 160, codec=codec, options=options)
    keyframes = []
    av_packet = ReceivedPacket.av_packet
    monkeypatch.setattr(
        ReceivedPacket, "av_packet", lambda packet: keyframes.append(packet.is_keyframe) or av_packet(packet)
    )
    executor = ThreadedExecutor(GPU, 1, process=ChildGenerator)
    device, counts, logged, _ = read(path, GPU, loops=2, decoders=3, executor=executor, in_subprocess=True)
    same(device, read(path, CPU, loops=2)[0])
    assert 1 <= counts.pop("decoders made") <= 3
    assert (counts, logged) == ({}, [])
    assert keyframes  # FFmpeg's filter gets keyframes, and nothing else
    assert all(keyframes)


@pytest.mark.parametrize(
    ("format_", "reason"),
    [
        (("av1", 420, 8, 640, 360), "does not decode av1"),
        (("h264", 444, 8, 640, 360), "4:4:4"),
        (("h264", 420, 10, 640, 360), "10 bits"),
        (("h264", 420, 8, 641, 360), "odd"),
        (("h264", 420, 8, 16, 16), "from 48x16"),
        (("prores", 422, 10, 640, 360), "does not support prores"),
        (("h264", 420, 8, 640, 360), None),
        (("h264", 420, 8, 8192, 8192), None),  # as many macroblocks as it decodes
    ],
)
def test_formats_supported_by_nvdec_are_recognized(fake, format_, reason):
    why = nv_caps.unsupported(0, *format_)
    assert why is None if reason is None else reason in why


def test_a_driver_without_nvdec_decodes_nothing(fake, monkeypatch):
    def query(*_):
        raise OSError("libnvcuvid.so.1: cannot open shared object file")

    monkeypatch.setattr(nv_caps, "_query", query)
    assert nv_caps.unsupported(0, "h264", 420, 8, 640, 360) == (
        "the driver has no library for NVDEC (libnvcuvid.so.1: cannot open shared object file); "
        "a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
    )
    monkeypatch.setattr(nv_caps, "_query", lambda *_: 1 / 0)
    assert nv_caps.unsupported(0, "h264", 420, 8, 640, 360) == (
        "NVDEC does not say what it decodes: ZeroDivisionError: division by zero"
    )
    monkeypatch.setattr(nv_caps, "_query", fake_gpu.query)
    assert nv_caps.unsupported(0, "h264", 420, 8, 640, 360) is None, "a failure is not kept"


def test_capabilities_are_queried_once_for_many_sources(fake, monkeypatch):
    questions = []

    def query(*question):
        questions.append(question)
        threading.Event().wait(0.05)  # the driver
        return fake_gpu.query(*question)

    monkeypatch.setattr(nv_caps, "_query", query)
    threads = [threading.Thread(target=nv_caps.capabilities, args=(0, "hevc", 8)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert questions == [(0, fake_gpu.Codec.HEVC, 8)]


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("codec", ["h264", "hevc", "av1", "vp9", "vp8", "mpeg4", "mpeg2video"])
def test_driver_and_pynvvideocodec_report_equal_capabilities(codec, bits):
    import PyNvVideoCodec as nvc

    number = getattr(nvc.cudaVideoCodec, nv_caps.CODECS[codec])
    with nv_caps.primary_context(0):
        caps = nvc.GetDecoderCaps(gpuid=0, codec=number, chromaformat=nvc.cudaVideoChromaFormat(1), bitdepth=bits)
    reported = nv_caps.capabilities(0, codec, bits)
    assert reported == {name: caps[name] for name in reported}


def test_the_rotation_is_read_from_the_keyframe(fake, tmp_path):
    path = write(tmp_path / "a.mp4", 64, 48, 3, rotation=90)
    decoder = NvDecoder(Demuxer(str(path)), GPU, SurfacePool(GPU), Counters(), None)
    form = decoder._inspect_keyframe(next(decoder._demuxer.packets()))
    assert (form.width, form.height, form.orientation, form.bits, form.chroma) == (64, 48, (270, False), 8, 420)


def pixel_aspects(path, device):
    reader = VideoReader(str(path), device, SurfacePool(device), Counters())
    aspects = [frame.pixel_aspect for _, frame in reader.frames()]
    reader.close()
    return aspects


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_the_pixel_aspect_ratio_comes_from_the_stream(fake, tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}", 64, 48, 4, pixel_aspect=Fraction(2))
    assert pixel_aspects(path, CPU) == pixel_aspects(path, GPU) == [2, 2, 2, 2]


def test_a_quarter_turn_rotates_the_pixels(fake, tmp_path):
    path = write(tmp_path / "a.mp4", 64, 48, 3, rotation=90, pixel_aspect=Fraction(4, 3))
    assert pixel_aspects(path, CPU) == [Fraction(3, 4)] * 3
    decoder = NvDecoder(Demuxer(str(path)), GPU, SurfacePool(GPU), Counters(), None)
    assert decoder._inspect_keyframe(next(decoder._demuxer.packets())).pixel_aspect == Fraction(3, 4)


def test_a_changing_pixel_aspect_ratio_is_followed(fake, tmp_path):
    parts = [
        write(tmp_path / f"{i}.h264", frames=3, muxer="h264", options={"bf": "0"}, pixel_aspect=aspect).read_bytes()
        for i, aspect in enumerate((Fraction(16, 15), Fraction(64, 45)))
    ]
    path = tmp_path / "both.h264"
    path.write_bytes(b"".join(parts))
    expected = [Fraction(16, 15)] * 3 + [Fraction(64, 45)] * 3
    assert pixel_aspects(path, CPU) == pixel_aspects(path, GPU) == expected


@pytest.mark.gpu
@pytest.mark.parametrize(("rotation", "aspect"), [(0, Fraction(4, 3)), (90, Fraction(3, 4))])
def test_nvdec_keeps_the_pixel_aspect_ratio(tmp_path, rotation, aspect):
    path = write(tmp_path / "a.mp4", 256, 192, 3, rotation=rotation, pixel_aspect=Fraction(4, 3))
    assert pixel_aspects(path, GPU) == [aspect] * 3


def thinned(path, device, **part):
    """Numbers, times and samples of what is taken; the sizes and times of the packets that reached the decoder."""
    counters = Counters()
    reader = VideoReader(str(path), device, SurfacePool(device, poison=device is CPU), counters)
    decode = reader._decoder.decode
    sent = []

    def noted(packet, **how):
        if packet is not None:
            sent.append((packet.pts, packet.size))
        return decode(packet, **how)

    reader._decoder.decode = noted
    every = part.pop("every", 1)
    taken = FrameSampler(every, None)
    frames = [
        (n, p.pts_s, p.width, p.height, np.array(p.surface.data))
        for n, p in reader.frames(sampler=FrameSampler(every, None), **part)
        if taken.accepts(n, p.pts_s)
    ]
    reader.close()
    return frames, sent, counters


@pytest.mark.parametrize(
    "part", [{"keyframes": True}, {"every": 7}, {"every": 30}, {"start_s": 1.1, "every": 3}], ids=str
)
@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("closed.mp4", "libx264", {"g": "10", "bf": "3", "preset": "medium"}),
        ("open.mp4", "libx264", X264),
        ("open.ts", "libx264", X264),
        ("hevc.mp4", "libx265", X265),
        ("hevc.ts", "libx265", X265),
        ("mpeg4.avi", "mpeg4", {"g": "10", "bf": "2"}),
    ],
)
def test_both_decoders_get_the_same_packets(fake, tmp_path, name, codec, options, part):
    path = write(tmp_path / name, 128, 96, 70, codec=codec, options=options)
    host, to_host, counts = thinned(path, CPU, **part)
    device, to_device, device_counts = thinned(path, GPU, **part)
    same(device, host)
    assert to_device == to_host
    assert 2 <= len(host) <= len(to_host) < 70
    for name in (SKIPPED, UNWANTED):
        assert device_counts[name] == counts[name]
    assert fake.FakeSession.created == 1


def test_a_session_stays_open_between_keyframes(fake, tmp_path):
    path = write(tmp_path / "a.mp4", 64, 48, 50, options={"g": "10", "bf": "2"})
    frames, sent, counters = thinned(path, GPU, keyframes=True)
    assert [n for n, *_ in frames] == [0, 10, 20, 30, 40]
    assert len(sent) == 5
    assert counters["decoders made"] == fake.FakeSession.created == 1


def test_sessions_are_created_sequentially(fake, tmp_path, monkeypatch):
    path = write(tmp_path / "clip.mp4", 64, 48, 6)
    decode = fake_gpu.FakeSession.Decode
    lock = threading.Lock()
    creating = [0]
    peak = [0]

    def slow(self, packet):
        if self.__dict__.setdefault("started", False):
            return decode(self, packet)
        self.started = True
        with lock:
            creating[0] += 1
            peak[0] = max(peak[0], creating[0])
        threading.Event().wait(0.05)  # the driver creates the decoder
        with lock:
            creating[0] -= 1
        return decode(self, packet)

    monkeypatch.setattr(fake_gpu.FakeSession, "Decode", slow)
    threads = [threading.Thread(target=read, args=(path, GPU)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fake_gpu.FakeSession.created >= 2, "the sessions of readers that run beside each other"
    assert peak == [1]


@pytest.fixture
def scarce(fake, monkeypatch):
    """A GPU that opens two sessions at once."""
    monkeypatch.setattr(fake.FakeSession, "limit", fake.FakeSession.open_count + 2)
    return fake


def opened(path, counters=None):
    """A reader of a video on the GPU that has given its first frame, its frames, and its counts."""
    counters = Counters() if counters is None else counters
    reader = VideoReader(str(path), GPU, SurfacePool(GPU), counters, low_delay=True)
    frames = reader.frames()
    try:
        next(frames)
    except SourceError:
        reader.close()
        raise
    return reader, frames, counters


def test_a_source_above_the_session_limit_fails_with_the_reason(scarce, tmp_path):
    path = write(tmp_path / "a.mp4", frames=20, options={"bf": "0"})
    first = opened(path)
    second = opened(path)
    counters = Counters()
    for attempt in range(2):
        with pytest.raises(SourceError) as caught:
            opened(path, counters)
        assert str(caught.value) == (
            "NVDEC of GPU 0 opens no further decoder: 2 of this process are open, and a GPU has a limited number for "
            "all; read fewer sources on it"
        )
        assert caught.value.cause == "codec"
        assert scarce.FakeSession.created == 3, f"attempt {attempt}: the driver is not asked again"
        assert counters[nv_sessions.REFUSED] == 1
    for reader, frames, counters in (first, second):
        assert len(list(frames)) == 19, "the others go on"
        assert counters["packets not decodable"] == 0
        reader.close()


def test_a_source_reuses_the_session_of_an_ended_source(scarce, tmp_path):
    path = write(tmp_path / "a.mp4", frames=20, options={"bf": "0"})
    larger = write(tmp_path / "b.mp4", 96, 80, frames=20, options={"bf": "0"})
    first = opened(path)
    second = opened(path)
    with pytest.raises(SourceError, match="opens no further decoder"):
        opened(larger)
    first[1].close()
    first[0].close()
    third = opened(larger)  # of another size: the idle session makes room
    assert third[2]["decoders made"] == 1
    with pytest.raises(SourceError, match="opens no further decoder"):
        opened(larger)
    for reader, frames, _ in (second, third):
        frames.close()
        reader.close()


def test_idle_sessions_make_room_when_the_driver_refuses_one(scarce, tmp_path):
    sizes = [(64, 48), (96, 80), (128, 96)]
    for width, height in sizes:
        path = write(tmp_path / f"{width}.mp4", width, height, frames=5, options={"bf": "0"})
        assert len(read(path, GPU)[0]) == 5
    assert nv_sessions.idle_count() == 2


def test_a_refusal_by_the_driver_is_retried_later(scarce, tmp_path, monkeypatch):
    path = write(tmp_path / "a.mp4", frames=20, options={"bf": "0"})
    open_now = [opened(path), opened(path)]
    with pytest.raises(SourceError, match="opens no further decoder"):
        opened(path)
    monkeypatch.setattr(scarce.FakeSession, "limit", scarce.FakeSession.limit + 1)  # another program has ended
    with pytest.raises(SourceError, match="opens no further decoder"):
        opened(path)
    count, learned_s = nv_sessions._learned[0]
    monkeypatch.setitem(nv_sessions._learned, 0, (count, learned_s - 61.0))
    open_now.append(opened(path))
    for reader, frames, _ in open_now:
        frames.close()
        reader.close()


def test_full_memory_and_exhausted_sessions_are_distinguished(scarce, tmp_path, monkeypatch):
    monkeypatch.setattr(scarce.FakeSession, "limit", scarce.FakeSession.open_count)
    monkeypatch.setattr(fake_gpu.cupy.cuda.runtime, "memGetInfo", lambda: (1 << 10, 1 << 34))
    path = write(tmp_path / "a.mp4", frames=20, options={"bf": "0"})
    counters = Counters()
    with pytest.raises(SourceError, match=r"the memory of GPU 0 is full \(0 MiB free\)"):
        opened(path, counters)
    assert not counters[nv_sessions.REFUSED]
