# SPDX-License-Identifier: Apache-2.0
"""Detects encrypted video, which decoders would take for damaged video.

Common Encryption (`cenc`, `cbcs`; ISO/IEC 23001-7) in MP4, encryption in WebM, and scrambled MPEG transport streams
(ISO/IEC 13818-1, 2.4.3.3).
"""

from __future__ import annotations

from typing import Any

from streamkit.core.errors import SourceError
from streamkit.media.uris import mask

_TS_PACKET = 188
_SYNC = b"\x47"
_SCRAMBLED = 0xC0
SEARCHED_BYTES = 20_000 * _TS_PACKET
_WEBM_KEY = "enc_key_id"  # FFmpeg's metadata of an encrypted track


def encryption_error(uri: str) -> SourceError:
    """The error for encrypted video at an address or path."""
    return SourceError(f"{mask(uri)}: the video is encrypted, and cannot be read; decrypt it first", cause="codec")


def is_encrypted_track(stream: Any) -> bool:
    """Whether the header marks an `av.VideoStream` as encrypted."""
    return _WEBM_KEY in stream.metadata


def is_encrypted(packet: Any) -> bool:
    """Whether an `av.Packet` is encrypted, as far as its container tells."""
    return bool(packet.has_sidedata("encryption_info"))


def is_scrambled(start: bytes, pid: int) -> bool:
    """Whether the video of a transport stream is scrambled: FFmpeg finds no packets of it then.

    Args:
        start: the first `SEARCHED_BYTES` of the file.
        pid: the stream's packet identifier.
    """
    for at in range(0, len(start) - _TS_PACKET + 1, _TS_PACKET):
        header = start[at : at + 4]
        if header[:1] != _SYNC:
            return False
        if (header[1] & 0x1F) << 8 | header[2] == pid and header[3] & _SCRAMBLED:
            return True
    return False
