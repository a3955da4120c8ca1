"""Stand-ins for CuPy and PyNvVideoCodec, on the host: what NvDecoder does with them can be tested without a GPU.

The decoder behaves as NVDEC was seen to: it wants Annex B, owns two output buffers that it overwrites, takes the first
picture size for good, and keeps its last pictures until an empty packet comes.
"""

import ctypes
from enum import IntEnum
from types import SimpleNamespace

import av
import numpy as np


class DeviceArray(np.ndarray):
    """A host array whose `data` has a `ptr`, as CuPy's has."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class Event:
    def __init__(self, **options):
        self.recorded = False

    def record(self, stream):
        self.recorded = True


class Stream:
    ptr = 7

    def __init__(self, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def synchronize(self):
        pass

    def wait_event(self, event):
        assert event.recorded


class Device:
    def __init__(self, index):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def use(self):
        pass


def _copy(to, source, size, kind, stream):
    ctypes.memmove(to, source, size)


cupy = SimpleNamespace(
    ndarray=DeviceArray,
    uint8=np.uint8,
    empty=lambda shape, dtype: np.empty(shape, dtype).view(DeviceArray),
    cuda=SimpleNamespace(
        Device=Device,
        Stream=Stream,
        Event=Event,
        driver=SimpleNamespace(ctxGetCurrent=lambda: 1),
        runtime=SimpleNamespace(
            memcpyAsync=_copy,
            memcpyDeviceToDevice=3,
            memGetInfo=lambda: (1 << 33, 1 << 34),
            setDevice=lambda index: None,
        ),
    ),
)


class _Frame:
    def __init__(self, pts, base, shape):
        self._pts = pts
        self._base = base
        self.shape = shape

    def getPTS(self):
        return self._pts

    def GetPtrToPlane(self, plane):
        rows, columns = self.shape
        return self._base + plane * (rows * 2 // 3 * columns)


class Codec(IntEnum):
    MPEG4 = 2
    H264 = 4
    HEVC = 8
    VP9 = 10
    AV1 = 11


def query(device, codec, bits):
    """What NVDEC says that it decodes."""
    return {
        "supported": int(codec != Codec.AV1 and bits == 8),
        "num_decoder_engines": 7,
        "width_max": 8192,
        "height_max": 8192,
        "width_min": 48,
        "height_min": 16,
        "mb_num_max": 262144,
    }


REFUSED = (
    "HandleVideoSequence : Error code : 2 Error Type : m_api.cuvidCreateDecoder(&m_hDecoder, &videoDecodeCreateInfo) "
    "returned error 2 at NvDecoder.cpp:430"
)
"""The text of PyNvVideoCodec where an H200 refused the 287th session."""


class FakeSession:
    created = 0
    limit = 10**6  # how many have a decoder at once
    open_count = 0

    def __init__(self, codec, **options):
        type(self).created += 1
        assert options["usedevicememory"] is True
        assert options["cudastream"] == Stream.ptr
        self._context = av.CodecContext.create(codec.name.lower(), "r")
        self._has_decoder = False
        self._buffers: list[np.ndarray] = []
        self._turn = 0

    def __del__(self):
        type(self).open_count -= self._has_decoder

    def Decode(self, packet):
        if not self._has_decoder:
            if type(self).open_count >= type(self).limit:
                raise RuntimeError(REFUSED)
            type(self).open_count += 1
            self._has_decoder = True
        if packet.bsl == 0:
            frames = self._context.decode(None)
            self._context.flush_buffers()
        else:
            payload = ctypes.string_at(packet.bsl_data, packet.bsl)
            assert payload[:3] == b"\0\0\1" or payload[:4] == b"\0\0\0\1", "not Annex B"
            sent = av.Packet(payload)
            sent.pts = sent.dts = packet.pts
            frames = self._context.decode(sent)
        return [self._out(frame) for frame in frames]

    def _out(self, frame):
        picture = frame.reformat(format="nv12").to_ndarray()
        if not self._buffers:
            self._buffers = [np.empty_like(picture) for _ in range(8)]
        buffer = self._buffers[self._turn % len(self._buffers)]
        self._turn += 1
        rows = min(buffer.shape[0], picture.shape[0])
        columns = min(buffer.shape[1], picture.shape[1])
        buffer[:] = 0
        buffer[:rows, :columns] = picture[:rows, :columns]
        return _Frame(frame.pts, buffer.ctypes.data, buffer.shape)


class PacketData:
    bsl_data = bsl = pts = decode_flag = 0


nvc = SimpleNamespace(
    PacketData=PacketData,
    cudaVideoCodec=Codec,
    CreateDecoder=lambda gpuid, codec, **options: FakeSession(codec, **options),
    VideoPacketFlag=SimpleNamespace(ENDOFPICTURE=4),
    DisplayDecodeLatencyType=SimpleNamespace(LOW=1),
)
