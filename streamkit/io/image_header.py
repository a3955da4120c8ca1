# SPDX-License-Identifier: Apache-2.0
"""Size of an image by its file's header, before a decoder allocates memory for the pixels.

PNG (ISO 15948), JPEG (ITU-T T.81), BMP, TIFF 6.0 and BigTIFF, WebP (RFC 9649). Other formats are rejected: OpenCV
detects formats by content, not by name, and supports some whose headers are not checked here.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

_WHOLE = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
"""`struct` formats of TIFF's integer types."""
_MAX_TAGS = 4096
_MAX_SEGMENTS = 100_000


def image_size(file: BinaryIO) -> tuple[int, int] | None:
    """Return width and height in pixels as stored, before EXIF rotation; None if the header is unknown or broken.

    Args:
        file: opened for reading in binary, seekable.
    """
    try:
        head = _read(file, 0, 30)
        if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
            return _positive(*struct.unpack(">II", head[16:24]))
        if head.startswith(b"\xff\xd8"):
            return _jpeg(file)
        if head.startswith(b"BM"):
            return _bmp(head)
        if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            return _tiff(file, "<" if head.startswith(b"II") else ">", big=b"+" in head[:4])
        if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
            return _webp(head)
    except (struct.error, EOFError):  # truncated
        pass
    return None


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _positive(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if width > 0 and height > 0 else None


def _bmp(head: bytes) -> tuple[int, int] | None:
    if struct.unpack_from("<I", head, 14)[0] == 12:  # OS/2's
        return _positive(*struct.unpack_from("<HH", head, 18))
    width, height = struct.unpack_from("<ii", head, 18)
    return _positive(width, abs(height))  # negative: the rows are stored from top to bottom


def _webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X" and len(head) == 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        mark, bits = struct.unpack_from("<BI", head, 20)
        return None if mark != 0x2F else (1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", head, 26)
        return _positive(width & 0x3FFF, height & 0x3FFF)
    return None


def _jpeg(file: BinaryIO) -> tuple[int, int] | None:
    """Return the size in the frame header; earlier segments are skipped."""
    offset = 2
    for _ in range(_MAX_SEGMENTS):
        prefix, marker, length = struct.unpack(">BBH", _read(file, offset, 4))
        if prefix != 0xFF:
            return None
        if marker == 0xFF:  # a fill byte
            offset += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", _read(file, offset + 5, 4))
            return _positive(width, height)
        elif marker in (0x01, *range(0xD0, 0xD8)):  # these have no length
            offset += 2
        elif marker in (0xD9, 0xDA):  # the end, or pixels before any size
            return None
        else:
            offset += 2 + max(2, length)
    return None


def _tiff(file: BinaryIO, order: str, *, big: bool) -> tuple[int, int] | None:
    """Return the size in the first directory; the largest if a tag is repeated."""
    where, count_form, entry_form, value_at = ("Q", "Q", "HHQ", 12) if big else ("I", "H", "HHI", 8)
    (directory,) = struct.unpack(order + where, _read(file, 8 if big else 4, struct.calcsize(order + where)))
    counted = struct.calcsize(order + count_form)
    (entries,) = struct.unpack(order + count_form, _read(file, directory, counted))
    step = 20 if big else 12
    sizes = {256: 0, 257: 0}
    for i in range(min(entries, _MAX_TAGS)):
        entry = _read(file, directory + counted + i * step, step)
        tag, kind, _ = struct.unpack_from(order + entry_form, entry)
        if tag in sizes and kind in _WHOLE:
            sizes[tag] = max(sizes[tag], struct.unpack_from(order + _WHOLE[kind], entry, value_at)[0])
    return _positive(sizes[256], sizes[257])
