# SPDX-License-Identifier: Apache-2.0
"""Bytes that an HTTP address answers with: still images that are polled, and what FFmpeg does not recognize.

FFmpeg's own HTTP client fetches them, with the credentials and proxies of any other stream.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping

from streamkit.core.errors import SourceError
from streamkit.media.uris import mask

_MAX_IMAGE_BYTES = 64_000_000
_START_BYTES = 4096
_JPEG = b"\xff\xd8\xff"
_PLAYLIST = b"#EXTM3U"
_SHOWN_CHARACTERS = 60


def fetch_image(uri: str, options: Mapping[str, str], timeout_s: float) -> bytes:
    """Fetch the whole answer of an address.

    Args:
        uri: the address.
        options: FFmpeg's options for opening it.
        timeout_s: maximum silence of the server, in seconds.

    Raises:
        SourceError: the answer is too large for an image.
        OSError, ValueError, av.FFmpegError: it cannot be fetched.
    """
    parts: list[bytes] = []
    size = 0
    try:
        for part in _answer(uri, options, timeout_s):
            parts.append(part)
            size += len(part)
            if size > _MAX_IMAGE_BYTES:
                limit = f"{_MAX_IMAGE_BYTES / 1e6:g} MB"
                raise SourceError(f"{mask(uri)}: its image is larger than {limit}, or never ends", cause="codec")
    except OSError as error:
        # FFmpeg's error for an answer whose end only the end of the connection marks; a decoder notices what is missing
        if error.errno != errno.EIO or not parts:
            raise
    return b"".join(parts)


def content_problem(uri: str, options: Mapping[str, str], timeout_s: float) -> str | None:
    """Why FFmpeg does not recognize what an address answers with, and the fix; None if unknown.

    The arguments are those of `fetch_image`.
    """
    import av

    start = b""
    try:
        for part in _answer(uri, options, timeout_s):
            start += part
            if len(start) >= _START_BYTES:
                break
    except (OSError, ValueError, av.FFmpegError):
        pass
    return describe_start(start)


def describe_start(start: bytes) -> str | None:
    """Why FFmpeg does not recognize a stream that begins with these bytes, and the fix; None if unknown."""
    if start.startswith(_JPEG):
        return (
            "the server sends JPEG images one after the other, without boundaries between them; set the camera to "
            "multipart (multipart/x-mixed-replace), or use its address of single images, which is polled"
        )
    head, _, body = start.partition(b"\r\n\r\n" if b"\r\n\r\n" in start else b"\n\n")
    if body.startswith(_JPEG) and not head.lstrip().startswith(b"--"):
        return (
            "the server sends an image before the first boundary of its multipart stream, so that FFmpeg does not "
            "recognize it; update the camera's firmware, or use its address of single images, which is polled"
        )
    if body.startswith(_JPEG) and b"content-type" not in head.lower():
        return (
            "the parts of the server's multipart stream have no Content-Type, so that FFmpeg does not recognize them; "
            "update the camera's firmware, or use its address of single images, which is polled"
        )
    if start and b"\0" not in start and not start.startswith(_PLAYLIST):
        text = " ".join(re.sub(r"<[^>]*>", " ", start.decode("utf-8", "replace")).split())
        if text and text.isprintable():
            what = "a web page" if b"<html" in start.lower() else "text"
            return f"the server answers with {what}, not with a video: {mask(text[:_SHOWN_CHARACTERS])!r}"
    return None


def _answer(uri: str, options: Mapping[str, str], timeout_s: float) -> Iterator[bytes]:
    """Yield the answer of an address in parts."""
    import av

    timeout = timeout_s, timeout_s
    with av.open(uri, format="data", options=dict(options), timeout=timeout) as container:
        for packet in container.demux():
            if packet.size:
                yield bytes(packet)
