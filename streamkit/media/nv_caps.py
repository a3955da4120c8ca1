# SPDX-License-Identifier: Apache-2.0
"""Capabilities of the GPU's decoder engines (NVDEC)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

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
    module = nv_module()
    if isinstance(module, str):
        return module
    caps = capabilities(device, codec, bits)
    if not caps.get("supported", 1) or not caps.get("num_decoder_engines", 1) or not caps.get("width_max", 1):
        return f"NVDEC of this GPU does not decode {codec} with {bits} bits"
    low, high = (caps.get("width_min", 0), caps.get("height_min", 0)), (caps["width_max"], caps["height_max"])
    if not (low[0] <= width <= high[0] and low[1] <= height <= high[1]):
        return f"NVDEC supports {codec} from {low[0]}x{low[1]} to {high[0]}x{high[1]}, got {width}x{height}"
    if width // 16 * (height // 16) > caps.get("mb_num_max", 1 << 62):
        return f"NVDEC supports {codec} frames of up to {caps['mb_num_max']} macroblocks, {width}x{height} has more"
    return None


@cache
def capabilities(device: int, codec: str, bits: int = 8) -> dict[str, int]:
    """NVDEC's capabilities for 4:2:0 frames of a codec; cached, as the query creates a CUDA context.

    Raises:
        RuntimeError: PyNvVideoCodec does not load.
    """
    module = nv_module()
    if isinstance(module, str):
        raise RuntimeError(module)
    try:
        with primary_context(device):
            return dict(
                module.GetDecoderCaps(
                    gpuid=device,
                    codec=getattr(module.cudaVideoCodec, CODECS[codec]),
                    chromaformat=module.cudaVideoChromaFormat(_CHROMA_420),
                    bitdepth=bits,
                )
            )
    except Exception as error:  # its own exception types; all mean that there is no answer
        return {"supported": 0, "width_max": 0, "height_max": 0, "error": str(error)}  # type: ignore[dict-item]


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
