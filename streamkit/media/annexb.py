"""Packets of H.264 and HEVC as NVDEC reads them: units behind start codes, not behind their lengths.

FFmpeg's filter does it for every packet with keyframes' parameter sets put in; it lets the interpreter's lock go three
times a packet, which among dozens of threads costs more than the work. Between keyframes only the lengths have to be
replaced, in place, and that is done here.

Layouts: ISO/IEC 14496-15, 5.3.3 (`avcC`) and 8.3.3 (`hvcC`); start codes: ITU-T H.264 and H.265, annex B.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_NUMBER = struct.Struct(">I")  # a unit's length, and as long as a start code
_START, _LENGTH = 1, _NUMBER.size


class AnnexB:
    """Rewrites packets into a buffer of its own, which the next one overwrites.

    Attributes:
        address: where the last packet's bytes are.
    """

    def __init__(self) -> None:
        self.address = 0
        self._buffer = memoryview(b"")

    def rewrite(self, packet: Any) -> bool:
        """Bring a packet's bytes to `address`, as many as they were; False where its lengths do not add up."""
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
    """A rewriter for a stream whose units stand behind lengths of four bytes; None where FFmpeg's filter has to do it.

    Args:
        codec: FFmpeg's name.
        extradata: what the container says of the stream, or None.
    """
    where = {"h264": 4, "hevc": 21}.get(codec)
    if where is None or not extradata or len(extradata) <= where or extradata[0] != 1:
        return None
    return AnnexB() if extradata[where] & 3 == _LENGTH - 1 else None
