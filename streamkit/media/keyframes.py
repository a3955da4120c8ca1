"""Which keyframes decoding can really begin at, as if nothing had been before them.

A container's keyframe flag promises less: H.264's may be the beginning of a refresh that takes many pictures, and an
index may flag any picture. So the bytes are looked at (ITU-T H.264 7.3 and D.1.8, H.265 7.3.1.2 and 7.4.2.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamkit.media.parameters import parameters, units

CUTTABLE = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "mjpeg"})
"""Codecs whose keyframes need nothing from before them, leading pictures aside."""

_I_SLICES = (2, 7)
_RECOVERY_POINT = 6


class Keyframes:
    """Reads the keyframes of one stream.

    Args:
        stream: an `av.VideoStream`.
        codec: FFmpeg's name of its codec.
    """

    def __init__(self, stream: Any, codec: str) -> None:
        self._codec = codec
        self._prefix = prefix_size(codec, bytes(stream.codec_context.extradata or b""))

    def enters(self, packet: Any) -> bool:
        """Whether decoding can begin at this `av.Packet`, which the container calls a keyframe."""
        if self._codec == "h264":
            return self._h264_enters(packet)
        if self._codec == "hevc":
            return self._hevc_enters(packet)
        if self._codec in ("vp8", "vp9"):
            return bool(parameters(self._codec, bytes(packet)))
        return self._codec in CUTTABLE

    def headers(self, packet: Any) -> bytes:
        """The parameter sets that a keyframe brings with it."""
        if self._codec == "av1":
            return parameters("av1", bytes(packet))
        kinds = {"h264": (7, 8), "hevc": (32, 33, 34)}.get(self._codec, ())
        return b"".join(unit for kind, unit in self._units(packet) if kind in kinds) if kinds else b""

    def _units(self, packet: Any) -> Iterator[tuple[int, bytes]]:
        """NAL units with their types, up to the first slice, that one included."""
        data = bytes(packet)
        for unit in units(data) if self._prefix is None else _prefixed(data, self._prefix):
            if unit:
                kind = unit[0] & 31 if self._codec == "h264" else unit[0] >> 1 & 63
                yield kind, unit
                if kind < 32 if self._codec == "hevc" else 1 <= kind <= 5:
                    return

    def _h264_enters(self, packet: Any) -> bool:
        exact = False
        for kind, unit in self._units(packet):
            if kind == 5:
                return True
            if kind == 6:
                exact = exact or _recovers_at_once(unit[1:])
            elif kind == 1:
                bits = _Bits(unit[1:])
                bits.number()  # first_mb_in_slice
                return exact and bits.number() in _I_SLICES
        return False

    def _hevc_enters(self, packet: Any) -> bool:
        for kind, unit in self._units(packet):
            if kind < 32:
                # one that throws away what was not shown yet must find it in its decoder
                throws_away = kind != 21 and len(unit) > 2 and unit[2] & 0x40
                return 16 <= kind <= 21 and not throws_away
        return False


def prefix_size(codec: str, extradata: bytes) -> int | None:
    """Bytes of the length before each NAL unit in this stream's packets; None where they are in Annex B form."""
    if codec == "h264" and len(extradata) > 6 and extradata[0] == 1:
        return (extradata[4] & 3) + 1
    if codec == "hevc" and len(extradata) > 22 and (extradata[0] or extradata[1] or extradata[2] > 1):
        return (extradata[21] & 3) + 1
    return None


def annexb_headers(codec: str, extradata: bytes) -> bytes:
    """The parameter sets of an H.264 or HEVC stream's extradata in Annex B form; empty where FFmpeg's filter has them.

    That filter puts HEVC's before every keyframe, but H.264's only before those that reset everything.

    Args:
        codec: FFmpeg's name.
        extradata: in that form already, or an `avcC` box (ISO/IEC 14496-15 5.3.3.1).
    """
    if codec not in ("h264", "hevc"):
        return b""
    if prefix_size(codec, extradata) is None:
        return extradata
    if codec == "hevc":
        return b""
    found, at = b"", 5
    for mask in (31, 255):  # SPS, PPS
        count, at = extradata[at] & mask if at < len(extradata) else 0, at + 1
        for _ in range(count):
            size = int.from_bytes(extradata[at : at + 2], "big")
            found += b"\0\0\0\1" + extradata[at + 2 : at + 2 + size]
            at += 2 + size
    return found


def _prefixed(data: bytes, size: int) -> Iterator[bytes]:
    at = 0
    while at + size < len(data):
        length = int.from_bytes(data[at : at + size], "big")
        yield data[at + size : at + size + length]
        at += size + length


def _recovers_at_once(sei: bytes) -> bool:
    """Whether an SEI unit has a recovery point of which every picture shown from now on is right."""
    at = 0
    while at + 2 < len(sei):
        kind = size = 0
        while at < len(sei) and sei[at] == 255:
            kind, at = kind + 255, at + 1
        kind, at = kind + (sei[at] if at < len(sei) else 0), at + 1
        while at < len(sei) and sei[at] == 255:
            size, at = size + 255, at + 1
        size, at = size + (sei[at] if at < len(sei) else 0), at + 1
        if kind == _RECOVERY_POINT:
            return at < len(sei) and _Bits(sei[at:]).number() == 0
        at += size
    return False


class _Bits:
    """Exp-Golomb numbers at the beginning of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._text = "".join(f"{byte:08b}" for byte in data[:16])
        self._at = 0

    def number(self) -> int:
        """The next one; -1 where the bytes end."""
        one = self._text.find("1", self._at)
        end = 2 * one - self._at + 1
        if one < 0 or end > len(self._text):
            return -1
        value = int(self._text[one:end], 2) - 1
        self._at = end
        return value
