"""Rewrites H.264 and HEVC packets for NVDEC: NAL units after start codes instead of after their lengths.

FFmpeg's bitstream filter does this for every packet and inserts the parameter sets of keyframes. It releases the GIL
three times per packet, which costs more than the work with dozens of threads. Between keyframes only the lengths must
be replaced, in place; this module does that.

Sources: ISO/IEC 14496-15, 5.3.3 (`avcC`) and 8.3.3 (`hvcC`); start codes: ITU-T H.264 and H.265, annex B.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_NUMBER = struct.Struct(">I")  # a unit's length, and as long as a start code
_START, _LENGTH = 1, _NUMBER.size


class AnnexB:
    """Rewrites packets into its own buffer; each packet overwrites the previous one.

    Attributes:
        address: address of the last packet's bytes.
    """

    def __init__(self) -> None:
        self.address = 0
        self._buffer = memoryview(b"")

    def rewrite(self, packet: Any) -> bool:
        """Rewrite a packet to `address`, with the same size; return False if its lengths are inconsistent."""
        size = packet.size
        if size > len(self._buffer):
            array = np.empty(2 * size, np.uint8)
            self.address, self._buffer = array.ctypes.data, memoryview(array)  # type: ignore[arg-type]
        buffer, at = self._buffer, 0
        buffer[:size] = memoryview(packet)
        while at + _LENGTH < size:
            length: int = _NUMBER.unpack_from(buffer, at)[0]
            _NUMBER.pack_into(buffer, at, _START)
            at += _LENGTH + length
        return bool(at == size)


def rewriter(codec: str, extradata: bytes | None) -> AnnexB | None:
    """Create a rewriter for a stream with four-byte lengths; None if FFmpeg's filter must be used.

    Args:
        codec: FFmpeg's name of the codec.
        extradata: codec parameters from the container, or None.
    """
    where = {"h264": 4, "hevc": 21}.get(codec)
    if where is None or not extradata or len(extradata) <= where or extradata[0] != 1:
        return None
    return AnnexB() if extradata[where] & 3 == _LENGTH - 1 else None
