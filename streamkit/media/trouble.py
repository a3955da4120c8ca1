"""Why a source cannot be read, in words that a user can act on."""

from __future__ import annotations

import codecs
import os
import struct
from pathlib import Path

from streamkit.media.find import nothing_in
from streamkit.media.uris import is_path, local_path, mask

_HTTP = {
    "HTTPUnauthorizedError": "the server wants a user and a password, or refuses these (401)",
    "HTTPForbiddenError": "the server forbids access (403)",
    "HTTPNotFoundError": "the server has no such address (404)",
    "HTTPBadRequestError": "the server calls the request bad (400)",
    "HTTPTooManyRequestsError": "the server says there are too many requests (429)",
    "HTTPOtherClientError": "the server refuses the request (4xx)",
    "HTTPServerError": "the server failed (5xx)",
    "ProtocolNotFoundError": "this FFmpeg does not know the protocol",
}
_BOXES = frozenset({b"ftyp", b"mdat", b"free", b"skip", b"wide", b"moov", b"moof", b"styp", b"sidx", b"uuid"})


def cannot_open(uri: str, error: Exception) -> str:
    """The text for a source that does not open."""
    return f"{mask(uri)}: {_file_cause(local_path(uri), error) if is_path(uri) else _network_cause(error)}"


def cannot_read(uri: str, error: Exception) -> str:
    """The text for a source that opened and cannot be read on."""
    return f"{mask(uri)} cannot be read on: {_network_cause(error)}"


def _file_cause(path: str, error: Exception) -> str:
    file = Path(path)
    try:
        if (nothing := nothing_in(path)) is not None:
            return nothing
        if file.is_dir():
            return "this is a folder, not a video"
        if not file.exists():
            return "there is no such file"
        if not os.access(file, os.R_OK):
            return "no permission to read it"
        if file.is_file() and not file.stat().st_size:
            return "the file is empty"
        if file.is_file():
            return _content_cause(file) or f"this is not a video that FFmpeg can read ({_said(error)})"
    except OSError as trouble:
        return trouble.strerror or str(trouble)
    return _said(error)


def _content_cause(file: Path) -> str | None:
    """What the first bytes and an mp4's boxes tell."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(4096)
        if b"\0" not in start and _is_text(start):
            return "this is not a video but a text"
        found, place = set(), 0
        while place + 8 <= size:
            stream.seek(place)
            header = stream.read(16)
            length, kind = struct.unpack(">I4s", header[:8])
            if kind not in _BOXES:
                break
            found.add(kind)
            if length == 1 and len(header) == 16:
                length = struct.unpack(">Q", header[8:])[0]
            if length < 8:
                break
            place += length
    if found & {b"ftyp", b"mdat"} and not found & {b"moov", b"moof"}:
        return "its index is missing (moov atom not found): the file was cut short, or is still being written"
    return None


def _is_text(start: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def _network_cause(error: Exception) -> str:
    name = type(error).__name__
    if name in _HTTP:
        return _HTTP[name]
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens at this host and port"
    if isinstance(error, TimeoutError) or name == "ExitError":
        return "no answer in time"
    return _said(error)


def _said(error: Exception) -> str:
    """FFmpeg's own words, its log's last line included where PyAV kept it."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    log = getattr(error, "log", None)
    return mask(f"{text}: {log[2].strip()}" if log else str(text))
