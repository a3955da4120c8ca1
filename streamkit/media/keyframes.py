"""Detects keyframes at which decoding can start independently of earlier frames, and frames that no other refers to.

A container's keyframe flag promises less: in H.264 it may mark the start of a refresh that takes many frames, and an
index may mark any frame. So the bytes are parsed (ITU-T H.264 7.3 and D.1.8, H.265 7.3.1.2 and 7.4.2.2; MPEG-4 visual,
ISO/IEC 14496-2, 6.2.5; MPEG-2 video, H.262, 6.2.3; VP8, RFC 6386, 9.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamkit.media.parameters import parameters, units

CUTTABLE = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "mjpeg"})
"""Codecs whose keyframes need nothing from before them, leading frames aside."""

_I_SLICES = (2, 7)
_OLD = frozenset({"mpeg4", "mpeg1video", "mpeg2video", "h263", "flv1", "msmpeg4v2", "msmpeg4v3", "wmv1", "wmv2"})
"""Codecs whose keyframes refer to nothing and whose frames behind them to nothing before, B frames aside."""
_RECOVERY_POINT = 6


class Keyframes:
    """Parses the keyframes of one stream.

    Args:
        stream: an `av.VideoStream`.
        codec: FFmpeg's name of its codec.
    """

    def __init__(self, stream: Any, codec: str) -> None:
        self._codec = codec
        extradata = bytes(stream.codec_context.extradata or b"")
        self._prefix = prefix_size(codec, extradata)
        self._intra = stream.codec_context.codec.intra_only
        self._layers = _hevc_layers(extradata, self._prefix) if codec == "hevc" else 0

    def enters(self, packet: Any, *, flushed: bool = False) -> bool:
        """Whether decoding can start at this `av.Packet`, which the container marks as a keyframe.

        Args:
            packet: the keyframe.
            flushed: whether all earlier frames will have been shown, so that the keyframe may discard the others.
        """
        if self._intra or self._codec in _OLD:
            return True
        if self._codec == "h264":
            return self._h264_enters(packet)
        if self._codec == "hevc":
            return self._hevc_enters(packet, flushed)
        if self._codec in ("vp8", "vp9"):
            return bool(parameters(self._codec, bytes(packet)))
        return self._codec in CUTTABLE

    def resets(self, packet: Any) -> bool:
        """Whether all frames before this keyframe are shown before it, and all later ones after it."""
        if self._codec in ("h264", "hevc"):
            kinds = (5,) if self._codec == "h264" else (19, 20)
            return any(kind in kinds for kind, _ in self._units(packet))
        return self._codec not in _OLD

    def shows(self, packet: Any) -> bool:
        """Whether a packet has a frame to show; in VP8 some are for reference only."""
        return self._codec != "vp8" or bool(memoryview(packet)[0] & 0x10)

    def disposable(self, packet: Any) -> bool:
        """Whether no other frame refers to this one, so that a decoder can skip it."""
        if self._intra:
            return True
        if self._codec == "h264":
            return any(kind == 1 and not unit[0] & 0x60 for kind, unit in self._units(packet))
        if self._codec == "hevc":  # others of a higher layer might refer to one whose type says that its own do not
            last = next(((kind, unit) for kind, unit in self._units(packet) if kind < 32), None)
            return last is not None and last[0] < 16 and not last[0] & 1 and last[1][1] & 7 == self._layers
        if self._codec == "mpeg4":
            data = bytes(packet)  # one that holds two frames is kept
            place = data.find(b"\0\0\1\xb6")
            return 0 <= place < len(data) - 4 and data[place + 4] >> 6 == 2 and data.count(b"\0\0\1\xb6") == 1
        if self._codec in ("mpeg1video", "mpeg2video"):
            data = bytes(packet)
            place = data.find(b"\0\0\1\0")
            return 0 <= place < len(data) - 5 and data[place + 5] >> 3 & 7 == 3
        return False

    def headers(self, packet: Any) -> bytes:
        """The parameter sets in a keyframe's packet."""
        if self._codec == "av1":
            return parameters("av1", bytes(packet))
        kinds = {"h264": (7, 8), "hevc": (32, 33, 34)}.get(self._codec, ())
        return b"".join(unit for kind, unit in self._units(packet) if kind in kinds) if kinds else b""

    def _units(self, packet: Any) -> Iterator[tuple[int, bytes]]:
        """Yield NAL units with their types, up to and including the first slice."""
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

    def _hevc_enters(self, packet: Any, flushed: bool) -> bool:
        for kind, unit in self._units(packet):
            if kind < 32:
                # one that throws away what was not shown yet must find it in its decoder
                throws_away = kind != 21 and len(unit) > 2 and unit[2] & 0x40
                return 16 <= kind <= 21 and (flushed or not throws_away)
        return False


def prefix_size(codec: str, extradata: bytes) -> int | None:
    """Size in bytes of the length before each NAL unit in this stream's packets; None for Annex B."""
    if codec == "h264" and len(extradata) > 6 and extradata[0] == 1:
        return (extradata[4] & 3) + 1
    if codec == "hevc" and len(extradata) > 22 and (extradata[0] or extradata[1] or extradata[2] > 1):
        return (extradata[21] & 3) + 1
    return None


def _hevc_layers(extradata: bytes, prefix: int | None) -> int:
    """Number of temporal layers of an HEVC stream; 0 if unknown."""
    if prefix is not None:
        return extradata[21] >> 3 & 7
    found = {(unit[2] >> 1 & 7) + 1 for unit in units(extradata) if len(unit) > 2 and unit[0] >> 1 & 63 == 33}
    return found.pop() if len(found) == 1 else 0


def annexb_headers(codec: str, extradata: bytes) -> bytes:
    """The parameter sets in an H.264 or HEVC stream's extradata, in Annex B form; empty if FFmpeg's filter adds them.

    The filter adds those of HEVC before every keyframe, but those of H.264 only before IDR frames.

    Args:
        codec: FFmpeg's name of the codec.
        extradata: in Annex B form already, or an `avcC` box (ISO/IEC 14496-15 5.3.3.1).
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
    """Whether an SEI unit has a recovery point from which every shown frame is correct."""
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
    """Parses Exp-Golomb numbers at the start of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._text = "".join(f"{byte:08b}" for byte in data[:16])
        self._at = 0

    def number(self) -> int:
        """The next number; -1 at the end of the bytes."""
        one = self._text.find("1", self._at)
        end = 2 * one - self._at + 1
        if one < 0 or end > len(self._text):
            return -1
        value = int(self._text[one:end], 2) - 1
        self._at = end
        return value
