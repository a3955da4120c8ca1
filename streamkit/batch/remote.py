# SPDX-License-Identifier: Apache-2.0
"""Remote files: finds them with fsspec, reports why it cannot, and reads them by ranges, or from a local copy."""

from __future__ import annotations

import errno
import itertools
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from streamkit.batch.job import VideoFile, printable
from streamkit.core.addresses import check_characters
from streamkit.core.errors import ConfigError, MissingPackage, OutputError, SourceError, StreamkitError, describe
from streamkit.media.source_errors import check_file
from streamkit.media.source_resolver import VIDEOS
from streamkit.media.uris import is_live, is_path, local_path, mask, scheme
from streamkit.runtime.execution.future import Stopped, side_by_side

_EXTRAS = {"s3": ("s3fs", "s3"), "s3a": ("s3fs", "s3")}
_VERSIONS = (
    "ETag",
    "etag",
    "md5Hash",
    "content_md5",
    "Content-MD5",
    "LastModified",
    "last_modified",
    "Last-Modified",
    "updated",
    "mtime",
    "created",
)
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound")
_SET_CREDENTIALS = (
    "credentials are missing; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of ~/.aws"
)
_UNREACHABLE = ("EndpointConnectionError", "ConnectTimeoutError", "ConnectionClosedError", "ClientConnectorError")
_AT_ONCE = 16
"""Files whose metadata is requested at the same time."""
_COPY_PREFIX = ".fetch-"
_BLOCK_BYTES = 1 << 20
_BLOCKS = 8
"""Blocks of a file in memory: a container may alternate between distant places, such as its index and its data."""


def find(pattern: str) -> Iterator[VideoFile]:
    """The files at an address: one file, all video files below a folder, or the matches of a pattern.

    Raises:
        ConfigError: it cannot be listed; the text gives the cause, without secrets.
        MissingPackage: fsspec, or its package for this kind of address, is not installed.
    """
    with raised_as(ConfigError, pattern):
        system, path = open_system(pattern)
        wild = is_wild(path)
        root = "/".join(before_wildcard(path.split("/"))) if wild else path
        if wild:
            listing = system.glob(path, detail=True)
            if not listing and not system.exists(_bucket(path)):
                raise FileNotFoundError(_bucket(path))
        else:
            info = system.info(path)
            if info["type"] == "file":
                listing = {path: info}
                root = path.rpartition("/")[0]
            else:
                listing = system.find(path, detail=True)
        ending = PurePosixPath(path).suffix.lower() if wild else ""
        chosen = {
            name: info
            for name, info in listing.items()
            if info["type"] == "file"
            and (PurePosixPath(name).suffix.lower() in VIDEOS or (wild and ending not in ("", ".*")) or name == path)
        }
        for name, info in _with_info(system, chosen).items():
            below = name.removeprefix(root).lstrip("/") or PurePosixPath(name).name
            size = info.get("size")
            yield VideoFile(
                system.unstrip_protocol(name), printable(below), None if size is None else int(size), _version(info)
            )


def _with_info(system: Any, listing: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add each file's own metadata if the listing has only names, as over HTTP."""
    complete = dict(listing)
    left = deque(name for name, info in listing.items() if info.get("size") is None)

    def ask(over: Stopped) -> None:
        with suppress(IndexError):  # none is left
            while not over():
                name = left.popleft()
                with suppress(Exception):  # each file system has its own errors; the file fails when it is processed
                    complete[name] = dict(system.info(name))

    with side_by_side(*[ask] * min(_AT_ONCE - 1, len(left) - 1)) as over:
        ask(over)
    return complete


def open_system(uri: str) -> tuple[Any, str]:
    """The file system of fsspec for an address, and the path in it.

    Raises:
        ConfigError: no file system has this scheme, or the address contains a password.
        MissingPackage: a package is missing.
    """
    word = scheme(uri)
    try:
        check_characters(uri, blanks=word not in ("http", "https"))  # the keys of stores are not percent-encoded
    except ValueError as error:
        raise ConfigError(f"{word}://...: the address {error}") from None
    if is_live(uri) or word in ("hls", "test"):
        raise ConfigError(f"{mask(uri)}: batch processes files; put a {word}:// address under sources: in a YAML")
    if (shown := mask(uri, partitions=True)) != uri:
        raise ConfigError(
            f"{shown}: remove the password, and everything else shown as ***, because the data set stores addresses; "
            "fsspec reads passwords from the environment or from its configuration"
        )
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingPackage("fsspec", "batch", f"reading {word}://") from None
    try:
        system, path = url_to_fs(uri)
    except ImportError as error:
        if word in _EXTRAS:
            raise MissingPackage(*_EXTRAS[word], f"reading {word}://") from None
        raise ConfigError(f"{word}:// needs a package: {describe(error)}") from None
    except ValueError as error:
        from fsspec import available_protocols

        if word in available_protocols():
            raise
        raise ConfigError(
            f"{mask(uri)}: there is no scheme {word}://; there are s3, gs, abfs, sftp, http and the others of fsspec"
        ) from error
    return system, str(path)


@contextmanager
def raised_as(kind: type[ConfigError] | type[SourceError], uri: str) -> Iterator[None]:
    """Raise the errors of a file system as ConfigError, before a run starts, or as SourceError of one file."""
    try:
        yield
    except StreamkitError:
        raise
    except Exception as error:  # each file system has its own types
        text, cause = explained(error)
        text = f"{mask(uri)}: {text}"
        raise (SourceError(text, cause=cause) if kind is SourceError else ConfigError(text)) from None


def explained(error: BaseException) -> tuple[str, str]:
    """What went wrong, for a user, and as a word of `SourceError.CAUSES`."""
    name = type(error).__name__
    text = mask(describe(error))
    if name in _NO_CREDENTIALS:
        return _SET_CREDENTIALS, "permission"
    if isinstance(error, PermissionError):
        return f"access is denied ({text}); check the credentials", "permission"
    if isinstance(error, FileNotFoundError):
        return f"there is no such bucket, folder or file ({text})", "missing"
    if isinstance(error, (TimeoutError, ConnectionError)) or name in _UNREACHABLE:
        return f"the server cannot be reached ({text})", "lost"
    return text, "lost"


def _version(info: dict[str, Any]) -> str:
    return next((str(info[name]).strip('"') for name in _VERSIONS if info.get(name)), "")


def _bucket(path: str) -> str:
    """The bucket or server of a path."""
    server, between, below = path.rpartition("://")
    return server + between + below.strip("/").split("/")[0]


def is_wild(pattern: str) -> bool:
    """Whether a pattern, or a part of it, has a wildcard."""
    return any(character in pattern for character in "*?[")


def before_wildcard(parts: Iterable[str]) -> list[str]:
    """The parts of a pattern before the first with a wildcard."""
    return list(itertools.takewhile(lambda part: not is_wild(part), parts))


# ------------------------------------------------------------------------------------------------------------ reading


@contextmanager
def opened(file: VideoFile, folder: Path) -> Iterator[tuple[str, RangeFile | None]]:
    """A path to read a file from; with an open file in place of the path if it is remote and its server sends ranges.

    If the server does not, the path is that of a temporary copy; see `local`.

    Raises:
        SourceError: the file cannot be read, has changed since it was found, or is a pipe or device.
        OutputError: a copy cannot be written.
    """
    remote = None if is_path(file.uri) else _opened_by_ranges(file)
    if remote is None:
        with local(file, folder) as path:
            yield str(path), None
        return
    try:
        yield remote.name, remote
    finally:
        remote.close()


class RangeFile:
    """A remote file that is read by ranges, with a read-ahead cache; FFmpeg reads it like a local file.

    A failed read ends the file for FFmpeg; read within `checked`, which raises the error.

    Args:
        uri: the address.
        file: the file as fsspec opens it.

    Attributes:
        name: the last part of the address: some formats are recognized by their extension only.
    """

    def __init__(self, uri: str, file: Any) -> None:
        self.name = PurePosixPath(uri).name
        self._uri = uri
        self._file = file
        self._error: SourceError | None = None

    def read(self, size: int = -1) -> bytes:
        """Read bytes; none at the end and after an error. Never raises: PyAV prints errors that follow each other."""
        if self._error is None:
            try:
                with raised_as(SourceError, self._uri):
                    return bytes(self._file.read(size))
            except SourceError as error:
                self._error = error
        return b""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position; return it."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """The position."""
        return int(self._file.tell())

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Raise the error of a read that failed, in place of what the block makes of the missing bytes."""
        try:
            yield
        except SourceError:
            if self._error is not None:
                raise self._error from None
            raise
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End reading ahead."""
        with suppress(Exception):  # a failed prefetch, or each file system's own errors
            self._file.close()


def open_ranges(uri: str, block_bytes: int = _BLOCK_BYTES) -> Any:
    """A file of fsspec that is read in blocks, the next one in the background.

    Raises:
        SourceError: it cannot be opened.
    """
    with raised_as(SourceError, uri):
        system, path = open_system(uri)
        system.invalidate_cache()  # otherwise the size and ETag are those of an earlier listing
        return system.open(
            path, "rb", block_size=block_bytes, cache_type="background", cache_options={"maxblocks": _BLOCKS}
        )


def _opened_by_ranges(file: VideoFile) -> RangeFile | None:
    """The open file; None if its server sends only whole files."""
    stream = open_ranges(file.uri)
    size = getattr(stream, "size", None)
    try:
        if size is not None:
            _check_size(file, size)
            _check_etag(file, stream)
            with raised_as(SourceError, file.uri):
                if not size or _ends_readable(stream, size):
                    return RangeFile(file.uri, stream)
    except BaseException:
        stream.close()
        raise
    stream.close()
    return None


def _ends_readable(stream: Any, size: int) -> bool:
    """Whether the last byte can be read without those before it; the block with it is cached, and often needed."""
    try:
        stream.seek(size - 1)
        last = bytes(stream.read(1))
        stream.seek(0)
    except (ValueError, NotImplementedError):  # of fsspec: the server answers with the whole file
        return False
    return len(last) == 1


def _check_size(file: VideoFile, size: int) -> None:
    if file.size is not None and size != file.size:
        raise SourceError(
            f"{mask(file.uri)} has {size:,} bytes, and had {file.size:,} when it was found: it has changed, or the "
            "connection broke off",
            cause="lost",
        )


def _check_etag(file: VideoFile, stream: Any) -> None:
    now = str((getattr(stream, "details", None) or {}).get("ETag") or "").strip('"')
    if now and file.version and now != file.version:
        raise SourceError(f"{mask(file.uri)} has changed since it was found: its ETag is another one", cause="lost")


@contextmanager
def local(file: VideoFile, folder: Path) -> Iterator[Path]:
    """The path of a file: its own, or that of a temporary copy.

    Args:
        file: the file.
        folder: where to put a copy; created if needed. A killed process leaves its copies there, for `sweep`.

    Raises:
        SourceError: the file cannot be read, has changed since it was found, or is a pipe or device.
        OutputError: the copy cannot be written.
    """
    if is_path(file.uri):
        check_file(local_path(file.uri))
        yield Path(local_path(file.uri))
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=_COPY_PREFIX, dir=folder))
    except OSError as error:
        raise OutputError(f"{folder}: no file can be copied there: {error.strerror}") from error
    try:
        path = _copy_path(place, file)
        _copy(file, path)
        yield path
    finally:
        shutil.rmtree(place, ignore_errors=True)


def sweep(folder: Path) -> int:
    """Remove copies that killed processes left in a folder; return their number. No run may use the folder."""
    left = list(folder.glob(f"{_COPY_PREFIX}*"))
    for place in left:
        shutil.rmtree(place, ignore_errors=True)
    return len(left)


def _copy_path(folder: Path, file: VideoFile) -> Path:
    return folder / PurePosixPath(file.uri).name  # some formats are recognized by their extension only


def _copy(file: VideoFile, path: Path) -> None:
    with raised_as(SourceError, file.uri):
        system, there = open_system(file.uri)
        try:
            system.get_file(there, str(path))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise OutputError(f"{path.parent.parent}: no file can be copied there: {error.strerror}") from error
            raise
    _check_size(file, path.stat().st_size)
