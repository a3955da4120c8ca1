# SPDX-License-Identifier: Apache-2.0
"""Parses packets: entry points, disposable frames, parameter sets; and rewrites them for NVDEC.

A container's keyframe flag promises less: in H.264 it may mark the start of a refresh that takes many frames, and an
index may mark any frame. So the bytes are parsed (ITU-T H.264 7.3 and D.1.8, H.265 7.3.1.2 and 7.4.2.2; MPEG-4 visual,
ISO/IEC 14496-2, 6.2; MPEG-2 video, H.262, 6.2; VP8, RFC 6386, 9.1; the VP9 bitstream specification, 6.2, and the AV1
one, 5.3; `avcC` and `hvcC`: ISO/IEC 14496-15, 5.3.3 and 8.3.3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

CUTTABLE = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "mjpeg"})
"""Codecs whose keyframes, except for leading frames, need no earlier data."""

_I_SLICES = (2, 7)
_OLD = frozenset({"mpeg4", "mpeg1video", "mpeg2video", "h263", "flv1", "msmpeg4v2", "msmpeg4v3", "wmv1", "wmv2"})
"""Codecs in which neither keyframes nor the frames after them, except for B frames, refer to earlier frames."""
MPEG4_PICTURE = b"\0\0\1\xb6"
"""The start code of a picture in MPEG-4 visual."""
_RECOVERY_POINT = 6
_START_CODE = b"\0\0\1"
_NUMBER = struct.Struct(">I")  # a unit's length, and as long as a start code
_START = 1
_LENGTH = _NUMBER.size


class PacketParser:
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

    def is_random_access(self, packet: Any, *, flushed: bool = False) -> bool:
        """Whether decoding can start at this `av.Packet`, which the container marks as a keyframe.

        Args:
            packet: the keyframe.
            flushed: whether all earlier frames will have been shown, so that the keyframe may discard the others.
        """
        if self._intra or self._codec in _OLD:
            return True
        if self._codec == "h264":
            return self._is_h264_random_access(packet)
        if self._codec == "hevc":
            return self._is_hevc_random_access(packet, flushed)
        if self._codec in ("vp8", "vp9"):
            return bool(sequence_header(self._codec, bytes(packet)))
        return self._codec in CUTTABLE

    def is_idr(self, packet: Any) -> bool:
        """Whether all frames before this keyframe are shown before it, and all later ones after it."""
        if self._codec in ("h264", "hevc"):
            kinds = (5,) if self._codec == "h264" else (19, 20)
            return any(kind in kinds for kind, _ in self._units(packet))
        if self._codec == "mpeg4":  # in packed video, the only kind without presentation times
            return bytes(packet).count(MPEG4_PICTURE) == 1
        return self._codec not in _OLD

    def is_shown(self, packet: Any) -> bool:
        """Whether a packet has a frame to show; in VP8 some are for reference only."""
        return self._codec != "vp8" or bool(memoryview(packet)[0] & 0x10)

    def is_disposable(self, packet: Any) -> bool:
        """Whether no other frame refers to this one, so that a decoder can skip it."""
        if self._intra:
            return True
        if self._codec == "h264":
            return any(kind == 1 and not unit[0] & 0x60 for kind, unit in self._units(packet))
        if self._codec == "hevc":  # frames of higher layers may refer to a frame that its own layer does not refer to
            last = next(((kind, unit) for kind, unit in self._units(packet) if kind < 32), None)
            return last is not None and last[0] < 16 and not last[0] & 1 and last[1][1] & 7 == self._layers
        if self._codec == "mpeg4":
            payload = bytes(packet)  # a packet of two frames is not disposable
            place = payload.find(MPEG4_PICTURE)
            return 0 <= place < len(payload) - 4 and payload[place + 4] >> 6 == 2 and payload.count(MPEG4_PICTURE) == 1
        if self._codec in ("mpeg1video", "mpeg2video"):
            payload = bytes(packet)
            place = payload.find(b"\0\0\1\0")
            return 0 <= place < len(payload) - 5 and payload[place + 5] >> 3 & 7 == 3
        return False

    def parameter_sets(self, packet: Any) -> bytes:
        """The parameter sets in a keyframe's packet."""
        if self._codec == "av1":
            return sequence_header("av1", bytes(packet))
        kinds = {"h264": (7, 8), "hevc": (32, 33, 34)}.get(self._codec, ())
        return b"".join(unit for kind, unit in self._units(packet) if kind in kinds) if kinds else b""

    def _units(self, packet: Any) -> Iterator[tuple[int, bytes]]:
        return nal_units(self._codec, bytes(packet), self._prefix)

    def _is_h264_random_access(self, packet: Any) -> bool:
        exact = False
        for kind, unit in self._units(packet):
            if kind == 5:
                return True
            if kind == 6:
                exact = exact or _recovers_at_once(unit[1:])
            elif kind == 1:
                _, slice_type, *_ = [*_exp_golomb(unit[1:]), -1, -1]
                return exact and slice_type in _I_SLICES
        return False

    def _is_hevc_random_access(self, packet: Any, flushed: bool) -> bool:
        for kind, unit in self._units(packet):
            if kind < 32:
                # if it discards frames not yet shown, these must be in the decoder
                discards = kind != 21 and len(unit) > 2 and unit[2] & 0x40
                return 16 <= kind <= 21 and (flushed or not discards)
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
    layer_counts = {(unit[2] >> 1 & 7) + 1 for unit in units(extradata) if len(unit) > 2 and unit[0] >> 1 & 63 == 33}
    return layer_counts.pop() if len(layer_counts) == 1 else 0


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
    headers = b""
    at = 5
    for mask in (31, 255):  # SPS, PPS
        count = extradata[at] & mask if at < len(extradata) else 0
        at += 1
        for _ in range(count):
            size = int.from_bytes(extradata[at : at + 2], "big")
            headers += b"\0\0\0\1" + extradata[at + 2 : at + 2 + size]
            at += 2 + size
    return headers


def sequence_header(codec: str, data: bytes) -> bytes:
    """The bytes of a keyframe that determine frame size and format; empty if the packet does not contain them.

    NVDEC silently keeps the old size when a stream changes it. So its caller compares these bytes from keyframe to
    keyframe; if they differ, FFmpeg decodes that one keyframe to find the new format. Bytes that differ without a
    change of format cost one such decode, no more.

    Args:
        codec: FFmpeg's name of the codec.
        data: a packet, in Annex B form for H.264 and HEVC.
    """
    match codec:
        case "h264" | "hevc":
            wanted = 7 if codec == "h264" else 33
            return b"".join(unit for kind, unit in nal_units(codec, data) if kind == wanted)
        case "mpeg4":
            return b"".join(unit for unit in units(data[:4096]) if unit and 0x20 <= unit[0] <= 0x2F)
        case "mpeg1video" | "mpeg2video":
            return b"".join(unit[:4] for unit in units(data[:4096]) if unit and unit[0] == 0xB3)
        case "vp8":
            return data[6:10] if len(data) >= 10 and not data[0] & 1 else b""
        case "vp9":  # frame marker and profile; in a keyframe the sync code, color and size follow
            return data[:9] if len(data) >= 9 and data[1:4] == b"\x49\x83\x42" else b""
        case "av1":
            return _av1_sequence_header(data)
    return b""


def units(data: bytes) -> Iterator[bytes]:
    """Yield the units between start codes."""
    at = data.find(_START_CODE)
    while at >= 0:
        end = data.find(_START_CODE, at + 3)
        yield data[at + 3 : end].rstrip(b"\0") if end >= 0 else data[at + 3 :]
        at = end


def nal_units(codec: str, data: bytes, prefix: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield NAL units with their types, up to and including the first slice; `prefix` as from `prefix_size`."""
    for unit in units(data) if prefix is None else _prefixed(data, prefix):
        if unit:
            kind = unit[0] & 31 if codec == "h264" else unit[0] >> 1 & 63
            yield kind, unit
            if kind < 32 if codec == "hevc" else 1 <= kind <= 5:
                return


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
        kind, at = _sei_number(sei, at)
        size, at = _sei_number(sei, at)
        if kind == _RECOVERY_POINT:
            return next(_exp_golomb(sei[at:]), -1) == 0
        at += size
    return False


def _sei_number(sei: bytes, at: int) -> tuple[int, int]:
    """Decode a payload type or size at `at`: bytes of 255 and a last one. Return it and the next position."""
    value = 0
    while sei[at : at + 1] == b"\xff":
        value = value + 255
        at = at + 1
    return value + (sei[at] if at < len(sei) else 0), at + 1


def _exp_golomb(data: bytes) -> Iterator[int]:
    """Yield the Exp-Golomb numbers at the start of some bytes."""
    text = "".join(f"{byte:08b}" for byte in data[:16])
    at = 0
    while (marker := text.find("1", at)) >= 0 and (end := 2 * marker - at + 1) <= len(text):
        yield int(text[marker:end], 2) - 1
        at = end


def _av1_sequence_header(data: bytes) -> bytes:
    at = 0
    while at < len(data):
        kind = data[at] >> 3 & 15
        extended = data[at] >> 2 & 1
        sized = data[at] >> 1 & 1
        at += 1 + extended
        size = len(data) - at
        shift = 0
        if sized:
            size = 0
            while at < len(data):
                byte = data[at]
                at += 1
                size |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
        if kind == 1:
            return data[at : at + size]
        at += size
    return b""


class AnnexB:
    """Rewrites H.264 and HEVC packets for NVDEC: NAL units after start codes instead of after their lengths.

    FFmpeg's bitstream filter does this for every packet and inserts the parameter sets of keyframes. It releases the
    GIL three times per packet, which costs more than the work with dozens of threads. Between keyframes only the
    lengths must be replaced, in place, in this object's own buffer; each packet overwrites the previous one.

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
            self._buffer = memoryview(np.empty(2 * size, np.uint8))  # type: ignore[arg-type]
            self.address = address_of(self._buffer)
        self._buffer[:size] = memoryview(packet)
        return start_codes(self._buffer[:size])


def start_codes(data: memoryview) -> bool:
    """Replace the four-byte lengths of a packet's NAL units by start codes; change nothing if they are inconsistent.

    Args:
        data: the bytes of the packet, writable.

    Returns:
        Whether they were consistent.
    """
    size = len(data)
    at = 0
    places = []
    while at + _LENGTH < size:
        places.append(at)
        length: int = _NUMBER.unpack_from(data, at)[0]
        at += _LENGTH + length
    if at != size:
        return False
    for place in places:
        _NUMBER.pack_into(data, place, _START)
    return True


def address_of(buffer: memoryview) -> int:
    """The address of a buffer's first byte."""
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def rewriter(codec: str, extradata: bytes | None) -> AnnexB | None:
    """Create a rewriter for a stream with four-byte lengths; None if FFmpeg's filter must be used.

    Args:
        codec: FFmpeg's name of the codec.
        extradata: codec parameters from the container, or None.
    """
    return AnnexB() if prefix_size(codec, extradata or b"") == _LENGTH else None
