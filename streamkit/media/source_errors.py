# SPDX-License-Identifier: Apache-2.0
"""Error messages for sources that cannot be read, with the reason and the fix."""

from __future__ import annotations

import codecs
import errno
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Generic, TypeVar

from streamkit.core.errors import SourceError
from streamkit.media.mp4_boxes import boxes
from streamkit.media.source_resolver import BARRED, no_media_reason
from streamkit.media.uris import device_path, has_late_login, is_device, is_path, local_path, login_hint, mask, scheme

T = TypeVar("T")

_SERVER: dict[str, tuple[str, str | None]] = {
    "HTTPUnauthorizedError": ("the server requires a user name and password, or rejects them (401)", "auth"),
    "HTTPForbiddenError": ("the server forbids access (403)", "auth"),
    "HTTPNotFoundError": ("the server has no such address (404)", "not_found"),
    "HTTPBadRequestError": ("the server rejects the request as invalid (400)", "refused"),
    "HTTPTooManyRequestsError": ("the server reports too many requests (429)", "refused"),
    "HTTPOtherClientError": ("the server rejects the request (4xx)", "refused"),
    "HTTPServerError": ("the server failed (5xx)", "refused"),
    "ProtocolNotFoundError": ("this FFmpeg does not support the protocol", None),  # so a retry would not help
}
"""Descriptions of FFmpeg's errors, and their causes in one word."""
_CODEC_ERRORS = frozenset({"InvalidDataError", "DecoderNotFoundError", "PatchWelcomeError"})
_BOXES = frozenset({b"ftyp", b"mdat", b"free", b"skip", b"wide", b"moov", b"moof", b"styp", b"sidx", b"uuid"})


class DeferredError(Generic[T]):
    """Iterates over items up to a SourceError, which is raised by `raise_error` once the items are processed."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = items
        self._error: SourceError | None = None

    def __iter__(self) -> Iterator[T]:
        """Yield the items before the error."""
        try:
            yield from self._items
        except SourceError as error:
            self._error = error

    def raise_error(self) -> None:
        """Raise the error that ended the items, if there is one."""
        if self._error is not None:
            raise self._error


def cannot_open(uri: str, error: Exception, *, late: bool = False) -> SourceError:
    """The error for a source that cannot be opened; `late` means that its timeout has passed."""
    if is_path(uri):
        words, cause = _file_cause(local_path(uri), error)
        return SourceError(f"{mask(uri)}: {words}", cause=cause)
    words, cause = _network_cause(error, late)
    if scheme(uri) == "srt" and type(error).__name__ == "ProtocolNotFoundError":
        words = "the FFmpeg of this PyAV is built without SRT; install a PyAV whose FFmpeg has libsrt"
    elif is_device(uri):
        words, cause = _device_cause(device_path(uri), error)
    elif isinstance(error, OSError) and error.errno == errno.EIO:
        words = "the host does not exist, or its name cannot be resolved now"
        cause = "not_found"
    if has_late_login(uri):
        words = f"{words}; {login_hint(uri)}"
    return SourceError(f"{mask(uri)}: {words}", cause=cause)


def check_file(path: str) -> None:
    """Reject a path that is neither a file nor a folder: opening a named pipe would wait for a writer.

    Raises:
        SourceError: it is a pipe, a socket or a device.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # opening it raises an error with the reason
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "named pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
        raise SourceError(f"{mask(path)}: this is a {what}, not a video file", cause="no_video")


def not_a_video(uri: str, error: Exception, file: IO[bytes]) -> SourceError:
    """The error for an open file in which FFmpeg finds no video."""
    size = file.seek(0, os.SEEK_END)
    words, cause = ("the file is empty", "empty") if not size else _stream_cause(file, size) or _unreadable(error)
    return SourceError(f"{mask(uri)}: {words}", cause=cause)


def _unreadable(error: Exception) -> tuple[str, str]:
    return f"this is not a video that FFmpeg can read ({_text_of(error)})", "no_video"


def cannot_read(uri: str, error: Exception, *, late: bool = False) -> SourceError:
    """The error for a source that opened but cannot be read further."""
    words, cause = _network_cause(error, late)
    if is_path(uri):
        return SourceError(f"{mask(uri)} cannot be read further: {words}")
    return SourceError(
        f"{mask(uri)} cannot be read further: {words}", cause="timeout" if cause == "timeout" else "lost"
    )


def _device_cause(path: str, error: Exception) -> tuple[str, str | None]:
    if not os.path.exists(path):
        return f"there is no such device; {_devices()}", "not_found"
    if not os.access(path, os.R_OK | os.W_OK):
        return "no permission to use it; on most systems the user must be in the group video", "auth"
    if isinstance(error, OSError) and error.errno == errno.EBUSY:
        return "the device is in use by another program", "refused"
    return f"not a V4L2 capture device, or not with these settings ({_text_of(error)})", None


def _devices() -> str:
    devices = sorted(str(path) for path in Path("/dev").glob("video*"))
    return f"there are {', '.join(devices)}" if devices else "this machine has no /dev/video*"


def _file_cause(path: str, error: Exception) -> tuple[str, str | None]:
    """Description of what is wrong with a file, and the cause in one word."""
    file = Path(path)
    try:
        if (nothing := no_media_reason(path)) is not None:
            return nothing, "permission" if nothing == BARRED else "no_video"
        if file.is_dir():
            return "this is a folder, not a video", "no_video"
        if not file.exists():
            leads = f": the link points to {os.readlink(file)}, which does not exist" if file.is_symlink() else ""
            return f"there is no such file{leads}", "missing"
        if not os.access(file, os.R_OK):
            return "no permission to read it", "permission"
        if file.is_file() and not file.stat().st_size:
            return "the file is empty", "empty"
        if file.is_file():
            with file.open("rb") as stream:
                return _stream_cause(stream, file.stat().st_size) or _unreadable(error)
    except PermissionError:
        return "no permission to read it", "permission"
    except OSError as trouble:
        return trouble.strerror or str(trouble), None
    return _text_of(error), None


def _stream_cause(stream: IO[bytes], size: int) -> tuple[str, str] | None:
    """Description and cause from a file's first bytes and an mp4's boxes."""
    stream.seek(0)
    start = stream.read(4096)
    if b"\0" not in start and _is_text(start):
        return "this is a text file, not a video", "no_video"

    def read(begin: int, end: int) -> bytes:
        stream.seek(begin)
        return stream.read(end - begin)

    kinds = {box.kind for box in itertools.takewhile(lambda box: box.kind in _BOXES, boxes(read, size))}
    if kinds & {b"ftyp", b"mdat"} and not kinds & {b"moov", b"moof"}:
        words = "its index is missing (moov atom not found): the file is truncated, or is still being written"
        return words, "truncated"
    return None


def _is_text(start: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be truncated
    except UnicodeDecodeError:
        return False
    return True


def _network_cause(error: Exception, late: bool) -> tuple[str, str | None]:
    """Description of a network error, and the cause in one word."""
    name = type(error).__name__
    if name in _SERVER:
        return _SERVER[name]
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens at this host and port", "refused"
    if late or isinstance(error, TimeoutError) or name == "ExitError":
        return "no answer in time", "timeout"
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN):
        return f"{_text_of(error)}: the network has no route to it now", "refused"
    if isinstance(error, (ConnectionError, EOFError)) or (isinstance(error, OSError) and error.errno == errno.EIO):
        return f"the connection was lost ({_text_of(error)})", "lost"
    return _text_of(error), "codec" if name in _CODEC_ERRORS else "lost"


def _text_of(error: Exception) -> str:
    """FFmpeg's error text, with its last log line if PyAV kept it."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    log = getattr(error, "log", None)
    return mask(f"{text}: {log[2].strip()}" if log else str(text))
