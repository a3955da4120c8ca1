import contextlib
import io
import sys
import types
from fractions import Fraction
from typing import ClassVar

import av
import pytest
from support.nv12 import moving_square, planar, psnr

from streamkit.core.data import Color, Surface
from streamkit.core.errors import DeviceError, MissingPackage
from streamkit.io.outputs import AtomicFile
from streamkit.media.encode import TIME_BASE, Encoding
from streamkit.media.encoders import NvEncoder, _is_keyframe, check_nvenc
from streamkit.media.mux import VideoWriter

W = 160
H = 120


class FakeNvenc:
    """PyNvVideoCodec's encoder as its samples use it, with x264 inside: Annex B, no B frames, a delay of two."""

    broken = False
    context = "primary of 0"  # the one that is current

    def __init__(self, width, height, layout, use_cpu_buffer, **options):
        FakeNvenc.context = "its own"
        if FakeNvenc.broken:
            raise RuntimeError("nvEncOpenEncodeSessionEx failed\nerror 2")
        assert (layout, use_cpu_buffer, options["codec"]) == ("NV12", False, "h264")
        self.codec = av.CodecContext.create("libx264", "w")
        self.codec.width = width
        self.codec.height = height
        self.codec.pix_fmt = "nv12"
        self.codec.time_base = Fraction(1, 1000)
        self.codec.options = {"preset": "ultrafast", "tune": "zerolatency", "crf": "15"}
        self.codec.gop_size = options.get("gop", 250)
        self.late = []
        self.count = 0

    def Encode(self, planes, picture):
        luma, chroma = (plane.__cuda_array_interface__ for plane in planes.cuda())
        address = luma["data"][0]
        rows, columns, _ = luma["shape"]
        assert chroma["data"][0] == address + rows * columns
        assert (chroma["shape"], chroma["strides"]) == ((rows // 2, columns // 2, 2), (columns, 2, 1))
        pixels = FakeSurface.memory[address]
        frame = av.VideoFrame.from_ndarray(pixels, format="nv12")
        frame.pts = self.count
        self.count += 1
        data = b"".join(bytes(packet) for packet in self.codec.encode(frame))
        self.late.append({"data": data, "timestamp": picture.inputTimeStamp, "picture_type": 0})
        ready = self.late[:-2]
        self.late = self.late[-2:]
        return ready

    def EndEncode(self):
        return self.late


class FakeSurface(Surface):
    """A surface whose pixels lie at an address, as on a device."""

    memory: ClassVar[dict] = {}

    def __init__(self, pixels, color):
        address = pixels.ctypes.data
        FakeSurface.memory[address] = pixels
        super().__init__(pixels, color)
        holder = types.SimpleNamespace(ptr=address)
        self.data = types.SimpleNamespace(shape=pixels.shape, data=holder)


@pytest.fixture
def nvenc(monkeypatch):
    module = types.ModuleType("PyNvVideoCodec")
    module.CreateEncoder = FakeNvenc
    module.NV_ENC_PIC_PARAMS = lambda: types.SimpleNamespace(inputTimeStamp=0)
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", module)
    runtime = types.SimpleNamespace(setDevice=lambda index: setattr(FakeNvenc, "context", f"primary of {index}"))
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)))
    monkeypatch.setattr(FakeNvenc, "broken", False)
    return FakeNvenc


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_the_bitstream_of_nvenc_is_muxed_into_a_file(tmp_path, nvenc, suffix):
    path = tmp_path / f"a.{suffix}"
    color = Color("bt601", True)
    file = AtomicFile(path)
    file.begin()
    coder = NvEncoder(Encoding(gop=5), W, H, color, Fraction(25), 0)
    assert nvenc.context == "primary of 0"
    video = VideoWriter(file, coder)
    times = [i * TIME_BASE.denominator // 25 + (i > 6) * 1_000_000 + 40_000_000 for i in range(12)]
    for i, ticks in enumerate(times):
        video.write(FakeSurface(moving_square(i), color), ticks)
        assert len(coder._pending) <= 2, "surfaces that the encoder has done with are let go"
    video.finish()
    assert not coder._pending
    with av.open(str(path)) as back:
        stream = back.streams.video[0]
        keys = [packet.is_keyframe for packet in back.demux(video=0) if packet.size]
        context = stream.codec_context
        assert (int(context.color_primaries), int(context.colorspace), int(context.color_range)) == (6, 6, 2)
    with av.open(str(path)) as back:
        frames = list(back.decode(video=0))
    assert [i for i, key in enumerate(keys) if key] == [0, 5, 10]
    assert len(frames) == 12
    worst = max(abs(f.pts * f.time_base - t * TIME_BASE) for f, t in zip(frames, times, strict=True))
    assert worst <= (Fraction(1, 2000) if suffix == "mkv" else 0)
    for i, frame in enumerate(frames):
        assert psnr(frame.to_ndarray(format=frame.format.name), planar(moving_square(i))) > 36


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_file_of_nvenc_has_the_pixel_aspect_ratio(tmp_path, nvenc, suffix):
    file = AtomicFile(tmp_path / f"a.{suffix}")
    file.begin()
    video = VideoWriter(file, NvEncoder(Encoding(), W, H, Color(), Fraction(25), 0, Fraction(2)))
    for i in range(3):
        video.write(FakeSurface(moving_square(i), Color()), i * TIME_BASE.denominator // 25)
    video.finish()
    with av.open(str(file.path)) as back:
        assert back.streams.video[0].sample_aspect_ratio == 2


def test_a_heading_in_an_error_of_nvenc_is_left_out(monkeypatch, nvenc):
    def create(*_args, **_options):
        raise RuntimeError("PyNvEncoderCaps :\n")

    monkeypatch.setattr(sys.modules["PyNvVideoCodec"], "CreateEncoder", create)
    with pytest.raises(DeviceError, match="cuda:1 cannot encode h264; set encoder: cpu"):
        check_nvenc("h264", 1)


def test_nvenc_availability_is_checked(monkeypatch, nvenc):
    check_nvenc("h264", 0)
    assert nvenc.context == "primary of 0"
    monkeypatch.setattr(nvenc, "broken", True)
    with pytest.raises(
        DeviceError, match=r"cuda:1 cannot encode h264 \(nvEncOpenEncodeSessionEx failed\); set encoder"
    ):
        check_nvenc("h264", 1)
    assert nvenc.context == "primary of 1"
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", None)
    with pytest.raises(MissingPackage, match=r"encoder: nvenc needs the package PyNvVideoCodec.*\[gpu\]"):
        check_nvenc("h264", 0)


@pytest.mark.parametrize(("codec", "library"), [("h264", "libx264"), ("hevc", "libx265")])
def test_keyframes_are_recognized_by_their_units(codec, library):
    coder = av.CodecContext.create(library, "w")
    coder.width = W
    coder.height = H
    coder.pix_fmt = "yuv420p"
    coder.time_base = Fraction(1, 25)
    coder.options = {"preset": "ultrafast", "x265-params": "log-level=none:keyint=4"} if codec == "hevc" else {}
    coder.gop_size = 4
    packets = []
    for i in range(9):
        frame = av.VideoFrame.from_ndarray(planar(moving_square(i)), format="yuv420p")
        frame.pts = i
        packets += coder.encode(frame)
    packets += coder.encode(None)
    assert sum(packet.is_keyframe for packet in packets) == 3
    for packet in packets:
        assert _is_keyframe(bytes(packet), codec) == packet.is_keyframe
    with av.open(io.BytesIO(b"".join(map(bytes, packets))), format=codec) as bare:
        assert sum(1 for _ in bare.decode(video=0)) == 9


@pytest.mark.gpu
@pytest.mark.parametrize("codec", ["h264", "hevc", "mp3"])
def test_probing_nvenc_leaves_the_cuda_context(codec):
    import cupy

    cupy.cuda.runtime.setDevice(0)
    before = cupy.cuda.driver.ctxGetCurrent()
    with contextlib.suppress(DeviceError):
        check_nvenc(codec, 0)
    assert cupy.cuda.driver.ctxGetCurrent() == before


@pytest.mark.gpu
def test_nvenc_encodes(tmp_path):
    import cupy

    try:
        check_nvenc("h264", 0)
    except DeviceError as error:
        pytest.skip(str(error))
    file = AtomicFile(tmp_path / "a.mp4")
    file.begin()
    video = VideoWriter(file, NvEncoder(Encoding(), 640, 480, Color(), Fraction(25), 0))
    for i in range(30):
        video.write(Surface(cupy.asarray(moving_square(i, 640, 480)), Color()), i * TIME_BASE.denominator // 25)
    video.finish()
    with av.open(str(file.path)) as back:
        frames = list(back.decode(video=0))
    assert len(frames) == 30
    assert psnr(frames[9].to_ndarray(format="yuv420p"), planar(moving_square(9, 640, 480))) > 30
