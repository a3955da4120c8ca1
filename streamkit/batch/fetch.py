"""Provides a file of an archive as a local path."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from streamkit.batch import remote
from streamkit.batch.job import VideoFile
from streamkit.core.errors import OutputError, SourceError
from streamkit.media.source_errors import check_file
from streamkit.media.uris import is_path, local_path, mask

_PREFIX = ".fetch-"


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
        place = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
    except OSError as error:
        raise OutputError(f"{folder}: no file can be copied there: {error.strerror}") from error
    try:
        path = _copy_place(place, file)
        _copy(file, path)
        yield path
    finally:
        shutil.rmtree(place, ignore_errors=True)


def sweep(folder: Path) -> int:
    """Remove copies that killed processes left in a folder; return their number. No run may use the folder."""
    left = list(folder.glob(f"{_PREFIX}*"))
    for place in left:
        shutil.rmtree(place, ignore_errors=True)
    return len(left)


def _copy_place(place: Path, file: VideoFile) -> Path:
    return place / PurePosixPath(file.uri).name  # some formats are known by their ending alone


def _copy(file: VideoFile, path: Path) -> None:
    with remote.told_as_source(file.uri):
        system, there = remote.open_system(file.uri)
        try:
            system.get_file(there, str(path))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise OutputError(f"{path.parent.parent}: no file can be copied there: {error.strerror}") from error
            raise
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise SourceError(
            f"{mask(file.uri)} has {size:,} bytes, and had {file.size:,} when it was found: it has changed, or the "
            "connection broke off",
            cause="lost",
        )
