# SPDX-License-Identifier: Apache-2.0
"""Capabilities of the GPU's decoder engines (NVDEC)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamkit.core.errors import describe
from streamkit.core.text import install_command

CODECS = {
    "h264": "H264",
    "hevc": "HEVC",
    "vp8": "VP8",
    "vp9": "VP9",
    "av1": "AV1",
    "mpeg4": "MPEG4",
    "mpeg2video": "MPEG2",
    "mpeg1video": "MPEG1",
}
"""FFmpeg's name of a codec and NVDEC's."""

_CHROMA_420 = 1  # cudaVideoChromaFormat_420


def nv_module() -> Any | str:
    """The module PyNvVideoCodec, or the reason why it cannot be used."""
    try:
        import PyNvVideoCodec
    except ImportError as error:
        return f"the package PyNvVideoCodec cannot be imported ({error}); {install_command('gpu')}"
    except Exception as error:  # its import opens the driver's libraries, and may raise anything
        return f"PyNvVideoCodec does not load: {' '.join(str(error).split())[:200]}"
    return PyNvVideoCodec


def unsupported(device: int, codec: str, chroma: int, bits: int, width: int, height: int) -> str | None:
    """The reason why NVDEC of GPU `device` cannot decode such frames to NV12; None if it can.

    Args:
        device: the GPU's index.
        codec: FFmpeg's name of the codec.
        chroma: 420, 422, 444 or 400.
        bits: bits per luma sample.
        width: in pixels.
        height: in pixels.
    """
    if codec not in CODECS:
        return f"NVDEC does not support {codec}"
    if chroma != 420:
        return f"NVDEC does not decode {codec} with {_CHROMA_WORDS.get(chroma, 'this')} chroma to NV12"
    if width % 2 or height % 2:
        return f"the size {width}x{height} is odd"
    try:
        caps = capabilities(device, codec, bits)
    except RuntimeError as error:
        return str(error)
    if not caps.get("supported", 1) or not caps.get("num_decoder_engines", 1) or not caps.get("width_max", 1):
        return f"NVDEC of this GPU does not decode {codec} with {bits} bits"
    low = (caps.get("width_min", 0), caps.get("height_min", 0))
    high = (caps["width_max"], caps["height_max"])
    if not (low[0] <= width <= high[0] and low[1] <= height <= high[1]):
        return f"NVDEC supports {codec} from {low[0]}x{low[1]} to {high[0]}x{high[1]}, got {width}x{height}"
    if width // 16 * (height // 16) > caps.get("mb_num_max", 1 << 62):
        return f"NVDEC supports {codec} frames of up to {caps['mb_num_max']} macroblocks, {width}x{height} has more"
    return None


class _Caps(ctypes.Structure):
    """`CUVIDDECODECAPS` of NVIDIA's Video Codec SDK, in `cuviddec.h`."""

    _fields_ = (
        ("codec", ctypes.c_int),
        ("chroma", ctypes.c_int),
        ("bits_above_8", ctypes.c_uint),
        ("reserved_1", ctypes.c_uint * 3),
        ("supported", ctypes.c_ubyte),
        ("num_decoder_engines", ctypes.c_ubyte),
        ("output_formats", ctypes.c_ushort),
        ("width_max", ctypes.c_uint),
        ("height_max", ctypes.c_uint),
        ("mb_num_max", ctypes.c_uint),
        ("width_min", ctypes.c_ushort),
        ("height_min", ctypes.c_ushort),
        ("histograms", ctypes.c_ubyte),
        ("counter_bits", ctypes.c_ubyte),
        ("histogram_bins_max", ctypes.c_ushort),
        ("reserved_3", ctypes.c_uint * 10),
    )


_asking = threading.Lock()
_caps: dict[tuple[int, str, int], dict[str, int]] = {}
_ANSWERS = "supported", "num_decoder_engines", "width_max", "height_max", "mb_num_max", "width_min", "height_min"


def capabilities(device: int, codec: str, bits: int) -> dict[str, int]:
    """NVDEC's capabilities for 4:2:0 frames of a codec, by the names of PyNvVideoCodec; cached. Thread-safe.

    Asks the driver, which takes 10 to 75 ms. PyNvVideoCodec's `GetDecoderCaps` creates a CUDA context for its question,
    and holds the GIL for 0.4 s (H200, with MPS).

    Raises:
        RuntimeError: PyNvVideoCodec does not load, or the driver has no answer for now.
    """
    key = device, codec, bits
    with _asking:  # many sources begin at once, and would all ask
        if key not in _caps:
            module = nv_module()
            if isinstance(module, str):
                raise RuntimeError(module)
            try:
                _caps[key] = _query(device, int(getattr(module.cudaVideoCodec, CODECS[codec])), bits)
            except OSError as error:
                hint = "a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
                raise RuntimeError(f"the driver has no library for NVDEC ({error}); {hint}") from None
            except Exception as error:  # no memory, for example: the next source asks again
                raise RuntimeError(f"NVDEC does not say what it decodes: {describe(error)}") from None
        return _caps[key]


def _query(device: int, codec: int, bits: int) -> dict[str, int]:
    """Ask the driver. Makes the device's primary CUDA context current.

    Args:
        device: the GPU's index.
        codec: NVDEC's number of the codec.
        bits: bits per luma sample.

    Raises:
        OSError: the driver has no library for NVDEC.
        RuntimeError: it has no answer.
    """
    import cupy

    library = ctypes.CDLL("libnvcuvid.so.1")
    cupy.cuda.runtime.setDevice(device)
    cupy.cuda.runtime.free(0)  # before CUDA 12, the device alone has no context yet
    caps = _Caps(codec=codec, chroma=_CHROMA_420, bits_above_8=bits - 8)
    if code := library.cuvidGetDecoderCaps(ctypes.byref(caps)):
        raise RuntimeError(f"error {code} of cuvidGetDecoderCaps")
    return {name: getattr(caps, name) for name in _ANSWERS}


@contextmanager
def primary_context(device: int) -> Iterator[None]:
    """Make the device's primary CUDA context current again after the block.

    Some calls of PyNvVideoCodec leave another context current, or none. CuPy's kernels belong to the primary context:
    under another one their launches fail with CUDA_ERROR_INVALID_HANDLE.
    """
    import cupy

    try:
        yield
    finally:
        cupy.cuda.runtime.setDevice(device)


_CHROMA_WORDS = {400: "no", 422: "4:2:2", 444: "4:4:4"}
