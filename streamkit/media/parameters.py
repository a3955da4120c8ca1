"""Extracts the bytes of a keyframe that determine frame size and format, by codec.

NVDEC silently keeps the old size when a stream changes it. So its caller compares these bytes from keyframe to
keyframe; if they differ, FFmpeg decodes that one keyframe to find the new format. Bytes that differ without a change of
format cost one such decode, no more.

Sources: ITU-T H.264 7.3.1 and H.265 7.3.1.2 (NAL units, Annex B), ISO/IEC 14496-2 6.2 (MPEG-4), 13818-2 6.2 (MPEG-2),
RFC 6386 9.1 (VP8), the VP9 bitstream specification 6.2 and the AV1 one 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_START = b"\0\0\1"


def parameters(codec: str, data: bytes) -> bytes:
    """The bytes that determine the format; empty if the packet does not contain them.

    Args:
        codec: FFmpeg's name of the codec.
        data: a packet, in Annex B form for H.264 and HEVC.
    """
    find = _FINDERS.get(codec)
    return find(data) if find else b""


def units(data: bytes) -> Iterator[bytes]:
    """Yield the units between start codes."""
    at = data.find(_START)
    while at >= 0:
        end = data.find(_START, at + 3)
        yield data[at + 3 : end].rstrip(b"\0") if end >= 0 else data[at + 3 :]
        at = end


def _h264(data: bytes) -> bytes:
    found = []
    for unit in units(data):
        kind = unit[0] & 31 if unit else 0
        if kind in (1, 5):  # a slice: parameters come before
            break
        if kind == 7:
            found.append(unit)
    return b"".join(found)


def _hevc(data: bytes) -> bytes:
    found = []
    for unit in units(data):
        kind = unit[0] >> 1 & 63 if unit else 0
        if unit and kind < 32:  # a slice
            break
        if kind == 33:
            found.append(unit)
    return b"".join(found)


def _mpeg4(data: bytes) -> bytes:
    return b"".join(unit for unit in units(data[:4096]) if unit and 0x20 <= unit[0] <= 0x2F)


def _mpeg12(data: bytes) -> bytes:
    return b"".join(unit[:4] for unit in units(data[:4096]) if unit and unit[0] == 0xB3)


def _vp8(data: bytes) -> bytes:
    return data[6:10] if len(data) >= 10 and not data[0] & 1 else b""


def _vp9(data: bytes) -> bytes:
    # frame marker and profile; in a keyframe the sync code, colour and size follow
    return data[:9] if len(data) >= 9 and data[1:4] == b"\x49\x83\x42" else b""


def _av1(data: bytes) -> bytes:
    at = 0
    while at < len(data):
        kind, extended, sized = data[at] >> 3 & 15, data[at] >> 2 & 1, data[at] >> 1 & 1
        at += 1 + extended
        size, shift = len(data) - at, 0
        if sized:
            size = 0
            while at < len(data):
                byte = data[at]
                at += 1
                size |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
        if kind == 1:  # sequence header
            return data[at : at + size]
        at += size
    return b""


_FINDERS: dict[str, Callable[[bytes], bytes]] = {
    "h264": _h264,
    "hevc": _hevc,
    "mpeg4": _mpeg4,
    "mpeg1video": _mpeg12,
    "mpeg2video": _mpeg12,
    "vp8": _vp8,
    "vp9": _vp9,
    "av1": _av1,
}
