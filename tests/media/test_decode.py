import av
import numpy as np
import pytest
from support.clips import write
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import SurfacePool

VIDEOS = [
    "ahmetozlu_pedestrian.mp4",
    "bench_1080p_h264.mp4",
    "bench_1080p_hevc.mp4",
    "bench_1080p_hevc_opengop.mp4",
    "car-detection.mp4",
    "carnd_test_video.mp4",
    "one-by-one-person-detection.mp4",
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
BIG = [name for name in VIDEOS if "1080p" in name]
QUICK = [*(name for name in VIDEOS if name not in BIG), pytest.param(BIG[0], marks=pytest.mark.long)]


def ffmpeg_times(path):
    with av.open(str(path)) as container:
        stream = container.streams.best("video")
        stream.thread_type = "AUTO"
        return [float(frame.pts * frame.time_base) for frame in container.decode(stream)]


def read(path, device):
    logged = collect()
    counters = Counters()
    reader = VideoReader(str(path), device, SurfacePool(device), counters, threads=2)
    try:
        yield from (frame for _, frame in reader.frames())
    finally:
        reader.close()
    harmless = ("frames decoded on the cpu", "decoders made", "decoders reused")
    assert {n: c for n, c in counters.values.items() if n not in harmless} == {}
    assert len(logged) <= 1


def test_the_list_of_test_videos_is_complete(test_data):
    folder = test_data / "videos"
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == set(VIDEOS)


@pytest.mark.parametrize("name", QUICK)
def test_every_frame_has_the_time_of_ffmpeg(test_data, name):
    path = test_data / "videos" / name
    assert [frame.pts_s for frame in read(path, Device())] == ffmpeg_times(path)


def test_a_variable_frame_rate_is_preserved(tmp_path):
    ticks = [0, 40, 90, 100, 300, 301, 350, 1000]
    path = write(tmp_path / "vfr.mkv", frames=8, ticks=ticks, options={"bf": "2"})
    assert [p.pts_s for p in read(path, Device())] == [t / 1000 for t in ticks]


def test_frames_without_times_are_a_frame_time_apart(tmp_path):
    path = write(tmp_path / "bare.h264", frames=5, muxer="h264")
    assert [p.pts_s for p in read(path, Device())] == pytest.approx([0, 0.04, 0.08, 0.12, 0.16])


@pytest.mark.gpu
@pytest.mark.parametrize("name", VIDEOS)
def test_gpu_and_cpu_decode_equal_frames_at_equal_times(test_data, name):
    path = test_data / "videos" / name
    device = Device("cuda")
    exact = not name.endswith("mpeg4.avi")  # MPEG-4's inverse transform is not laid down bit by bit
    count = 0
    for number, (on_host, on_gpu) in enumerate(zip(read(path, Device()), read(path, device), strict=True)):
        assert on_gpu[:3] == on_host[:3]
        assert on_gpu.surface.color == on_host.surface.color
        count += 1
        if number % 7 == 0:
            on_gpu.surface.ready.synchronize()
            actual = on_gpu.surface.data.get()
            expected = on_host.surface.data
            if exact:
                np.testing.assert_array_equal(actual, expected)
            else:
                assert np.abs(actual.astype(int) - expected).mean() <= 1
    assert count > 0


@pytest.mark.gpu
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_gpu_and_cpu_rotate_equally(tmp_path, rotation, mirrored):
    path = write(tmp_path / "a.mp4", 128, 96, 5, rotation=rotation, mirrored=mirrored)
    for on_host, on_gpu in zip(read(path, Device()), read(path, Device("cuda")), strict=True):
        on_gpu.surface.ready.synchronize()
        assert on_gpu[:3] == on_host[:3]
        assert on_gpu.surface.color == on_host.surface.color
        np.testing.assert_array_equal(on_gpu.surface.data.get(), on_host.surface.data)


@pytest.mark.gpu
def test_the_gpu_decoder_accepts_a_new_size(tmp_path):
    options = {"bf": "0"}
    parts = [
        write(tmp_path / f"{i}.h264", *size, 10, muxer="h264", options=options, first=10 * i).read_bytes()
        for i, size in enumerate([(320, 240), (640, 368), (192, 160)])
    ]
    path = tmp_path / "all.h264"
    path.write_bytes(b"".join(parts))
    frames = list(read(path, Device("cuda")))
    assert [(p.width, p.height) for p in frames] == [(320, 240)] * 10 + [(640, 368)] * 10 + [(192, 160)] * 10
    for on_host, on_gpu in zip(read(path, Device()), frames, strict=True):
        on_gpu.surface.ready.synchronize()
        np.testing.assert_array_equal(on_gpu.surface.data.get(), on_host.surface.data)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("444.mp4", {"pix_fmt": "yuv444p"}, "4:4:4"),
        ("odd.mp4", {"width": 639, "height": 361, "pix_fmt": "yuv444p"}, "4:4:4"),
        ("small.mp4", {"width": 16, "height": 16}, "NVDEC supports h264 from"),
    ],
)
def test_streams_unsupported_by_nvdec_are_uploaded_and_reported_once(tmp_path, name, options, words):
    path = write(tmp_path / name, frames=6, **options)
    logged = collect()
    counters = Counters()
    device = Device("cuda")
    reader = VideoReader(str(path), device, SurfacePool(device), counters)
    frames = [p for _, p in reader.frames()]
    reader.close()
    assert len(logged) == 1
    assert words in logged[0]
    assert counters["frames decoded on the cpu"] == len(frames) == 6
    for on_host, on_gpu in zip(read(path, Device()), frames, strict=True):
        on_gpu.surface.ready.synchronize()
        np.testing.assert_array_equal(on_gpu.surface.data.get(), on_host.surface.data)


@pytest.mark.gpu
def test_retained_frames_are_not_overwritten(test_data):
    path = test_data / "videos" / "vtest_480x360.mp4"
    device = Device("cuda")
    reader = VideoReader(str(path), device, SurfacePool(device, poison=True), Counters())
    held = [frame for _, frame in zip(range(100), (p for _, p in reader.frames()), strict=False)]
    reader.close()
    for on_host, on_gpu in zip(read(path, Device()), held, strict=False):
        on_gpu.surface.ready.synchronize()
        np.testing.assert_array_equal(on_gpu.surface.data.get(), on_host.surface.data)
