"""`video`: every frame at its time, by the encoder that is there, and no half file under the name."""

import signal
import subprocess
import sys
import types
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from support.clips import two_streams
from support.clips import write as clip
from support.videos import frame, names, sink, surface, times, write_all

import streamkit
from streamkit.core.data import Color, Device, Frame, Surface
from streamkit.core.errors import DeviceError, OutputError
from streamkit.core.stage import Context, RuntimeContext
from streamkit.io.outputs import AtomicFile
from streamkit.media import encode
from streamkit.media import encoders as module
from streamkit.media.encode import TIME_BASE
from streamkit.media.mux import LONGEST_GAP
from streamkit.stages.video.video import Video


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_video_is_written(tmp_path, codec, suffix):
    path = tmp_path / "cam" / f"street.{suffix}"
    out = sink(path, codec=codec)
    pts = [Fraction(2) + Fraction(i * 512 + (i % 3) * 40, 12_800) for i in range(40)]
    for i, at in enumerate(pts):
        out.write(frame(i, float(at)))
    assert names(path.parent) == [f".street.{suffix}.part"]
    out.end("street")
    out.close()
    assert names(path.parent) == [f"street.{suffix}"]
    times_s = times(path)
    allowed = Fraction(1, 2000) if suffix == "mkv" else Fraction(1, 5_000_000)
    assert len(times_s) == 40
    assert max(abs(a - b) for a, b in zip(times_s, pts, strict=True)) <= allowed
    with av.open(str(path)) as back:
        context = back.streams.video[0].codec_context
        assert context.name == codec
        assert (int(context.colorspace), int(context.color_range)) == (6, 1)
        luma = [int(f.to_ndarray()[5, 5]) for f in back.decode(video=0)]
    assert max(abs(a - (30 + (i * 7) % 180)) for i, a in enumerate(luma)) <= 3
    assert out.logged == []


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_pixels_that_are_not_square_stay_so(tmp_path, codec, suffix):
    source = clip(tmp_path / "in.mp4", 60, 80, 5, pixel_aspect=Fraction(2))
    stages = {"video": {"path": f"{tmp_path}/out.{suffix}", "codec": codec}}
    for _ in streamkit.run(str(source), stages=stages):
        pass
    with av.open(str(tmp_path / f"out.{suffix}")) as back:
        stream = back.streams.video[0]
        assert (stream.width, stream.height) == (60, 80)
        assert (stream.sample_aspect_ratio, stream.display_aspect_ratio) == (2, Fraction(3, 2))


def test_a_new_pixel_aspect_ratio_begins_a_new_file(tmp_path):
    out = sink(tmp_path / "a.mp4")
    for i in range(8):
        out.write(frame(i, pixel_aspect=Fraction(16, 15) if i < 5 else Fraction(64, 45)))
    out.close()
    aspects = {}
    for name in names(tmp_path):
        with av.open(str(tmp_path / name)) as back:
            aspects[name] = back.streams.video[0].sample_aspect_ratio, sum(1 for _ in back.decode(video=0))
    assert aspects == {"a.mp4": (Fraction(16, 15), 5), "a-2.mp4": (Fraction(64, 45), 3)}


def test_the_frame_rate_is_that_of_the_source(tmp_path):
    for rate, expected in ((30, 30), (Fraction(30000, 1001), Fraction(30000, 1001)), (10, 10)):
        out = sink(tmp_path / "a.mp4")
        for i in range(12):
            out.write(frame(i, float(i / rate)))
        out.close()
        with av.open(str(tmp_path / "a.mp4")) as back:
            assert back.streams.video[0].average_rate == pytest.approx(float(expected), rel=1e-3)


def test_a_single_frame_is_a_video_and_no_frame_is_no_file(tmp_path):
    out = sink(tmp_path / "one.mp4")
    out.write(frame(0, 1.5))
    out.close()
    assert times(tmp_path / "one.mp4") == [Fraction(3, 2)]
    (tmp_path / "none.mp4").write_bytes(b"old")
    sink(tmp_path / "none.mp4").close()
    assert (tmp_path / "none.mp4").read_bytes() == b"old"
    assert names(tmp_path) == ["none.mp4", "one.mp4"]


def test_failed_and_late_frames_are_counted(tmp_path):
    out = sink(tmp_path / "a.mp4")
    for written in (
        frame(0),
        frame(1, error="detect failed"),
        frame(2, surface=None),
        frame(3),
        frame(4, 0.04),
        frame(5),
    ):
        out.write(written)
    out.close()
    assert times(tmp_path / "a.mp4") == [0, Fraction(3, 25), Fraction(5, 25)]
    assert out.context.counters["frames not in the video: no pixels"] == 2
    assert out.context.counters["frames not in the video: timestamp not increasing"] == 1


def test_a_picture_of_odd_size_is_padded(tmp_path):
    out = sink(tmp_path / "a.mp4")
    for i in range(3):
        out.write(frame(i, size=(63, 47), surface=surface(i, 64, 48)))
    out.close()
    with av.open(str(tmp_path / "a.mp4")) as back:
        assert (back.streams.video[0].width, back.streams.video[0].height) == (64, 48)


def test_codec_none_writes_nothing(tmp_path):
    out = sink(tmp_path / "deep" / "a.mp4", encoder="none")
    out.write(frame(0))
    out.close()
    assert names(tmp_path) == []


def test_copy_takes_the_packets(tmp_path, test_data):
    uri = str(test_data / "videos" / "ahmetozlu_pedestrian.mp4")
    with av.open(uri) as source:
        wanted = sum(1 for packet in source.demux(video=0) if packet.size)
        last = float(source.streams.video[0].duration * source.streams.video[0].time_base)
    out = Video(path=str(tmp_path / "a.mp4"), encoder="copy")
    out.context = Context(runtime=RuntimeContext(addresses={"street": uri}))
    out.open()
    out.write(frame(0, 0.0))
    out.write(frame(1, last))
    out.close()
    assert len(times(tmp_path / "a.mp4")) == wanted
    out.context.runtime.addresses["street"] = "rtsp://camera"
    out.open()
    out.write(frame(0, 0.0))
    with pytest.raises(OutputError, match="copy works for files only"):
        out.close()


def test_copy_takes_the_stream_that_the_source_took(tmp_path):
    uri = str(two_streams(tmp_path / "two.mkv", [(64, 48), (320, 240)]))
    for streams, width in (({}, 320), ({"street": 0}, 64)):
        out = Video(path=str(tmp_path / "a.mp4"), encoder="copy")
        out.context = Context(runtime=RuntimeContext(addresses={"street": uri}, streams=streams))
        out.open()
        out.write(frame(0, 0.0))
        out.write(frame(9, 0.36))
        out.close()
        with av.open(str(tmp_path / "a.mp4")) as back:
            assert back.streams.video[0].width == width
            assert len(times(tmp_path / "a.mp4")) == 10


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_video_that_begins_below_zero_begins_at_zero(tmp_path, suffix):
    out = sink(tmp_path / f"a.{suffix}")
    for i in range(30):
        out.write(frame(i, -0.4 + i / 25))
    out.close()
    times_s = [float(at) for at in times(tmp_path / f"a.{suffix}")]
    assert times_s == pytest.approx([i / 25 for i in range(30)], abs=0.001)
    assert out.logged == ["street begins at -0.400 s: in its video file, this is 0 s"]


def test_the_parts_of_a_video_that_begins_below_zero_share_one_clock(tmp_path):
    out = sink(tmp_path / "a.mp4")
    for i in range(20):
        size = (64, 48) if i < 10 else (96, 80)
        out.write(frame(i, -0.4 + i / 25, size=size, surface=surface(i, *size)))
    out.close()
    assert [float(at) for at in times(tmp_path / "a.mp4")] == pytest.approx([i / 25 for i in range(10)])
    assert [float(at) for at in times(tmp_path / "a-2.mp4")] == pytest.approx([i / 25 for i in range(10, 20)])


def test_a_video_that_begins_late_stays_late(tmp_path):
    out = sink(tmp_path / "a.mp4")
    for i in range(10):
        out.write(frame(i, 1.2 + i / 25))
    out.close()
    assert float(times(tmp_path / "a.mp4")[0]) == pytest.approx(1.2)
    assert out.logged == []


def test_copy_without_packets_is_reported_at_open(tmp_path):
    with pytest.raises(OutputError, match="copy needs the addresses"):
        sink(tmp_path / "a.mp4", encoder="copy")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "a.avi"}, "must end in .mp4 or .mkv"),
        ({"path": "{x}.mp4"}, "placeholder"),
        ({"path": "a.mp4", "quality": 20, "bitrate": 1000}, "exclude each other"),
        ({"path": "a.mp4", "preset": "quick"}, "preset must be one of ultrafast"),
        ({"path": "a.mp4", "preset": "p4", "encoder": "cpu"}, "preset must be one of ultrafast"),
        ({"path": "a.mp4", "segment": 0.1}, "at least 1s"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Video(**options)


def test_options_of_a_yaml():
    from pydantic import ValidationError

    from streamkit.config.validate import model_of

    model = model_of(Video)
    assert model.validate_python({"path": "a.mp4", "bitrate": "4M", "segment": "10min"}) == {
        "path": "a.mp4",
        "bitrate": 4_000_000,
        "segment": 600.0,
    }
    assert model.validate_python({"path": "a", "bitrate": "1.5k"})["bitrate"] == 1500
    for bad in ({"bitrate": "4X"}, {"bitrate": 0}, {"quality": 52}, {"encoder": "gpu"}, {"gop": 0}):
        with pytest.raises(ValidationError):
            model.validate_python({"path": "a.mp4", **bad})


def test_nvenc_needs_a_gpu(tmp_path):
    with pytest.raises(DeviceError, match="encoder: nvenc needs frames on a GPU"):
        sink(tmp_path / "a.mp4", encoder="nvenc")
    assert names(tmp_path) == []


def without_nvenc(codec, device):
    raise DeviceError(f"the GPU cuda:{device} cannot encode {codec}; set encoder: cpu")


def test_auto_falls_back_with_a_message(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "check_nvenc", without_nvenc)
    out = sink(tmp_path / "a.mp4", Device("cuda", 1))
    assert out.logged == [
        "video is encoded on the CPU, frames are copied to the host: "
        "the GPU cuda:1 cannot encode h264; set encoder: cpu"
    ]
    for i in range(3):
        out.write(frame(i))
    out.close()
    assert len(times(tmp_path / "a.mp4")) == 3
    with pytest.raises(DeviceError, match="cannot encode"):
        sink(tmp_path / "b.mp4", Device("cuda", 1), encoder="nvenc")
    assert names(tmp_path) == ["a.mp4"]


@pytest.mark.parametrize("encoder", ["auto", "nvenc"])
def test_nvenc_is_used_if_available(tmp_path, monkeypatch, encoder):
    encodings = []

    def nvenc(encoding, width, height, color, rate, device, pixel_aspect):
        encodings.append((encoding.codec, width, height, rate, device, pixel_aspect))
        return encode.CpuEncoder(encoding, width, height, color, rate, 1, None)

    monkeypatch.setattr(module, "check_nvenc", lambda codec, device: None)
    monkeypatch.setattr(module, "NvEncoder", nvenc)
    out = sink(tmp_path / "a.mp4", Device("cuda", 2), encoder=encoder)
    for i in range(3):
        out.write(frame(i, pixel_aspect=Fraction(2)))
    out.close()
    assert encodings == [("h264", 64, 48, 25, 2, 2)]
    assert out.logged == []


def test_an_impossible_folder_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a part of the path is a file"):
        sink(tmp_path / "file" / "a.mp4")
    (tmp_path / "old.mp4").touch()
    with pytest.raises(OutputError, match="it exists"):
        sink(tmp_path / "old.mp4", if_exists="fail")


def test_after_an_error_every_frame_fails_and_no_file_is_left(tmp_path, monkeypatch):
    out = sink(tmp_path / "a.mp4")
    for i in range(3):
        out.write(frame(i))

    def full(packet):
        raise OSError(28, "No space left on device")

    out._video._container = types.SimpleNamespace(mux_one=full, close=lambda: None)
    with pytest.raises(OutputError, match=r"a\.mp4: the disk is full"):
        write_all(out, range(3, 200))
    with pytest.raises(OutputError, match="the disk is full"):
        out.write(frame(300))
    out.close()
    assert names(tmp_path) == []


SCRIPT = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from support.videos import frame, sink
out = sink({path!r})
for i in range(100):
    out.write(frame(i))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_parts_that_a_killed_run_left_are_removed_at_the_next_start(tmp_path):
    left = [
        ".gate.mp4.part",
        ".gate-2.mp4.part",
        ".gate-20260102T030405Z.mp4.part",
        ".gate-20260102T030405Z-3.mp4.part",
    ]
    others = [".gate-north.mp4.part", ".gate.mkv.part", ".yard-2.mp4.part", "gate-2.mp4"]
    for name in (*left, *others):
        (tmp_path / name).write_bytes(b"half a video")
    written = AtomicFile(tmp_path / "gate-3.mp4")
    written.begin()
    out = sink(tmp_path / "gate.mp4")
    assert names(tmp_path) == sorted([".gate.mp4.part", ".gate-3.mp4.part", *others])
    assert out.context.counters["unfinished videos removed"] == 4
    out.close()
    assert names(tmp_path) == sorted([".gate-3.mp4.part", *others])
    written.discard()


def test_a_crash_leaves_no_file_of_the_final_name(tmp_path):
    path = tmp_path / "a.mp4"
    script = SCRIPT.format(tests=str(Path(__file__).parents[2]), path=str(path))
    completed = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert completed.returncode == -signal.SIGKILL
    assert names(tmp_path) == [".a.mp4.part"]
    out = sink(path)
    out.write(frame(0))
    out.close()
    assert names(tmp_path) == ["a.mp4"]


def test_a_real_video_is_written_unchanged(tmp_path, test_data):
    source = test_data / "videos" / "ahmetozlu_pedestrian.mp4"
    out = sink(tmp_path / "a.mp4", quality=14)
    pictures = []
    pts = []
    with av.open(str(source)) as file:
        for i, decoded in enumerate(file.decode(video=0)):
            if i == 40:
                break
            pixels = decoded.reformat(format="nv12").to_ndarray()
            pictures.append(pixels)
            pts.append(decoded.pts * decoded.time_base)
            size = (decoded.width, decoded.height)
            out.write(Frame("s", i, float(pts[-1]), *size, surface=Surface(pixels, Color())))
    out.close()
    assert max(abs(a - b) for a, b in zip(times(tmp_path / "a.mp4"), pts, strict=True)) < Fraction(1, 1_000_000)
    with av.open(str(tmp_path / "a.mp4")) as back:
        for decoded, pixels in zip(back.decode(video=0), pictures, strict=True):
            error = np.mean((decoded.reformat(format="nv12").to_ndarray().astype(float) - pixels) ** 2)
            assert 10 * np.log10(255**2 / max(error, 1e-9)) > 36


NOON = 1785585600.0  # 2026-08-01T12:00:00Z


@pytest.mark.parametrize(
    ("codec", "suffix", "step_s"),
    [
        ("h264", "mp4", 9.0),
        ("h264", "mp4", 11.0),
        ("hevc", "mkv", 80.0),
        ("h264", "mkv", 370.0),
        ("hevc", "mp4", 380.0),
    ],
)
def test_frames_far_apart_are_all_in_the_file(tmp_path, codec, suffix, step_s):
    """A time lapse: with B frames the times of decoding and showing differ by several frames."""
    out = sink(tmp_path / f"a.{suffix}", codec=codec)
    for i in range(20):
        out.write(frame(i, i * step_s))
    out.close()
    times_s = sorted(at for name in names(tmp_path) for at in times(tmp_path / name))
    assert times_s == [i * int(step_s) for i in range(20)]
    assert len(names(tmp_path)) == (1 if step_s < 373 else 20)


@pytest.mark.parametrize(
    ("before", "gap_s", "files"), [(1, 370, 1), (1, 400, 2), (2, 90, 1), (3, 94, 2), (40, 90, 1), (40, 370, 2)]
)
def test_a_gap_too_long_for_a_file_starts_another(tmp_path, before, gap_s, files):
    out = sink(tmp_path / "a.mp4")
    written_s = [Fraction(i, 25) for i in range(before)]
    written_s += [written_s[-1] + gap_s + Fraction(i, 25) for i in range(12)]
    for i, at in enumerate(written_s):
        out.write(frame(i, float(at)))
    out.close()
    times_s = sorted(at for name in names(tmp_path) for at in times(tmp_path / name))
    assert [float(at) for at in times_s] == pytest.approx([float(at) for at in written_s], abs=1e-6)
    assert len(names(tmp_path)) == files


@pytest.mark.parametrize(("more", "files"), [(0, 1), (1, 2)])
def test_the_longest_gap_of_a_file(tmp_path, more, files):
    out = sink(tmp_path / "a.mp4")
    for i, ticks in enumerate((0, LONGEST_GAP, 2 * LONGEST_GAP + more)):
        out.write(frame(i, float(ticks * TIME_BASE)))
    out.close()
    assert len(names(tmp_path)) == files
    assert sum(len(times(tmp_path / name)) for name in names(tmp_path)) == 3


def test_only_a_cameras_file_has_a_date(tmp_path):
    for path, time_s in ((tmp_path / "file.mp4", None), (tmp_path / "gate.mp4", NOON)):
        out = sink(path)
        for i in range(3):
            out.write(frame(i, 5 + i / 25, time_s=time_s and time_s + i / 25))
        out.close()
    dates = {}
    for name in names(tmp_path):
        with av.open(str(tmp_path / name)) as back:
            dates[name] = back.metadata.get("creation_time")
        first = times(tmp_path / name)[0]
        assert first == (5 if name == "file.mp4" else 0)
    assert dates == {"file.mp4": None, "gate-20260801T120000Z.mp4": "2026-08-01T12:00:00.000000Z"}
