# SPDX-License-Identifier: Apache-2.0
"""Output paths with `{source}`, files that appear when they are complete, and readable write errors."""

from __future__ import annotations

import atexit
import bisect
import contextlib
import errno
import fcntl
import os
import re
import struct
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Self

from streamkit.core.errors import OutputError

_OTHER_DISK = "free some space, or set a path on another disk"
_OWN_FOLDER = "change its rights, or set a path in a folder that you can write"
_REASONS = {
    errno.ENOSPC: ("the disk is full", _OTHER_DISK),
    errno.EDQUOT: ("the disk quota is used up", _OTHER_DISK),
    errno.EACCES: ("no permission to write there", _OWN_FOLDER),
    errno.EPERM: ("no permission to write there", _OWN_FOLDER),
    errno.EROFS: ("the file system is read-only", "set a path on another disk"),
    errno.EISDIR: ("it is a folder", "set the path of a file, such as one in that folder"),
    errno.ENOENT: ("its folder does not exist and cannot be created", "set a path in a folder that exists"),
    errno.EPIPE: ("its reader has gone away", ""),
    errno.EIO: ("Input/output error", "check that disk, or set a path on another disk"),
    errno.EFBIG: ("the file would be larger than the file system allows", "set a path on another disk"),
    errno.ENAMETOOLONG: ("the name is too long", "set a shorter path"),
}
"""Of each error number, the cause and the fix."""
CACHE_FIX = "set XDG_CACHE_HOME to a folder that has space and can be written"


def check_path(path: str, placeholders: Sequence[str] = ("source",)) -> None:
    """Check that a path names a file and has no other placeholders than these; raise ValueError."""
    if not path or path.endswith("/"):
        raise ValueError(f"path must name a file, got {path!r}")
    if "\0" in path:
        raise ValueError(f"path cannot hold a zero character, got {path!r}")
    for name in re.findall(r"\{(\w*)\}", path):
        if name not in placeholders:
            choices = ", ".join(f"{{{placeholder}}}" for placeholder in placeholders)
            only = f"placeholder {choices} only" if len(placeholders) == 1 else f"placeholders {choices}"
            raise ValueError(f"path knows the {only}, got {{{name}}} in {path!r}")


def fill_path(template: str, source: str) -> str:
    """Return the path of one source's output: `{source}` becomes the source's id.

    An id may contain `/`, which makes subfolders, but it may not lead out of the template's folder. In a network
    address its blanks become `%20`.

    Raises:
        OutputError: it would.
    """
    if "{source}" in template and (source.startswith("/") or ".." in source.split("/")):
        raise OutputError(f"the source id {source!r} leads out of the folder of {template}; give the source another id")
    return template.replace("{source}", source.replace(" ", "%20") if "://" in template else source)


class WrittenOutputs:
    """Lists the files and folders that a run has written.

    A template with other placeholders than `{source}` stands for the folder above the first placeholder. A file is
    listed if it is new or has changed; a folder if it holds a file. The numbered and timed files of `tagged_path` count
    too.

    Args:
        templates: the paths, before anything is written.
        sources: the ids of the sources.
    """

    def __init__(self, templates: Iterable[str], sources: Iterable[str]) -> None:
        self._before = {path: _version(path) for path in _outputs(templates, sources)}

    def paths(self, templates: Iterable[str], sources: Iterable[str]) -> list[str]:
        """Return what these templates and sources, which may be others than before, have written so far, in order."""
        return [
            path
            for path in _outputs(templates, sources)
            if (_holds_file(path) if os.path.isdir(path) else _version(path) != self._before.get(path))
        ]


def _holds_file(folder: str) -> bool:
    """Whether there is a complete file in a folder or below it; true if the folder may not be listed."""
    unreadable: list[OSError] = []
    names = (name for _, _, names in os.walk(folder, onerror=unreadable.append) for name in names)
    return any(not name.endswith(".part") for name in names) or bool(unreadable)


def _outputs(templates: Iterable[str], sources: Iterable[str]) -> list[str]:
    """The existing files and folders of these templates, for these sources."""
    ids = list(sources)
    paths = dict.fromkeys(
        fill_path(template, source) for template in templates for source in (ids if "{source}" in template else [""])
    )
    existing: dict[str, None] = {}
    names_in: dict[str, list[str]] = {}  # sorted; a folder may hold a file of each of 10,000 sources
    for path in paths:
        if "{" in path:
            path = os.path.dirname(path.partition("{")[0]) or "."
        if os.path.exists(path):
            existing[path] = None
        folder, name = os.path.split(path)
        if folder not in names_in:
            names_in[folder] = sorted(names_of(folder or "."))
        existing.update((os.path.join(folder, tagged), None) for tagged in _tagged(name, names_in[folder]))
    return list(existing)


def names_of(folder: str | Path) -> list[str]:
    """Return the names in a folder; none if it does not exist or cannot be read, though files may be written there."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _tagged(name: str, names: list[str]) -> Iterator[str]:
    """The sorted names that `tagged_path` may have made of a file's name."""
    stem, suffix = os.path.splitext(name)
    for at in range(bisect.bisect_left(names, f"{stem}-"), len(names)) if suffix else ():
        if not names[at].startswith(f"{stem}-"):
            break
        if names[at].endswith(suffix):
            yield names[at]


def _version(path: str) -> tuple[int, ...]:
    """What differs between a file and one that replaces or extends it."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


def output_error(path: str | Path, error: BaseException, fix: str = "") -> OutputError:
    """Return a one-line error with the path, the cause and the fix; `fix` replaces the general one."""
    cause, general_fix = _cause_and_fix(Path(path), error)
    fix = fix or general_fix
    return OutputError(f"cannot write {path}: {cause}" + (f"; {fix}" if fix else ""))


def _cause_and_fix(path: Path, error: BaseException) -> tuple[str, str]:
    number = getattr(error, "errno", None) or 0
    if number in (errno.ENOTDIR, errno.EEXIST):
        parts = (path, *path.parents)
        file = next((part for part in parts if os.path.exists(part) and not os.path.isdir(part)), path)
        return "a part of the path is a file where a folder is needed", f"rename {file}, or set another path"
    if number == errno.ENOENT and os.path.isdir(path.parent):  # as in /proc
        return "its folder takes no new files", "set a path in another folder"
    if number in _REASONS:
        return _REASONS[number]
    return getattr(error, "strerror", None) or " ".join(str(error).split()), ""


@contextlib.contextmanager
def writing(path: str | Path, fix: str = "") -> Iterator[None]:
    """Raise an OSError of the block as an OutputError that names the path; for `fix` see `output_error`."""
    try:
        yield
    except OSError as error:
        raise output_error(path, error, fix) from error


def write_cache_file(path: Path, content: bytes) -> None:
    """Write a whole file that can be made again: of threads and processes that write it at once, the last wins.

    Raises:
        OutputError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    with writing(path, CACHE_FIX):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def in_use_error(path: Path) -> OutputError:
    """Return the error for a file that another run is writing."""
    return OutputError(f"cannot write {path}: another run is writing it; wait until that run ends, or set another path")


def shortened(text: str, limit_bytes: int) -> str:
    """Return a part of a file name, cut to a number of bytes in UTF-8; the end of a cut text is its checksum."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit_bytes:
        return text
    return f"{data[: limit_bytes - 9].decode('utf-8', 'ignore')}_{zlib.crc32(data):08x}"


def tagged_path(path: Path, tag: str) -> Path:
    """Return the path with `-tag` after its stem: `out/gate.mp4` becomes `out/gate-2.mp4`."""
    return path.with_name(f"{path.stem}-{tag}{path.suffix}")


def unused_path(path: Path, tag: str = "") -> Path:
    """Return `path`, with `-tag` if given, and with `-2`, `-3`, ... as long as that name is taken.

    Raises:
        OutputError: the name cannot be checked: it is too long, or the disk or share does not respond.
    """
    candidate = first = tagged_path(path, tag) if tag else path
    for number in count(2):
        with writing(candidate):
            if not (candidate.exists() or _claimed(candidate)):
                break
        candidate = tagged_path(first, str(number))
    return candidate


class ReportFile:
    """A report or profile file, checked to be writable before the run it describes.

    The file is complete or absent, however often it is written; a pipe or device is written to directly, at the end.

    Raises:
        OutputError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: AtomicFile | None = None
        if not path.exists() or path.is_file() or path.is_dir():
            self._file = AtomicFile(path)
            self._file.begin()
            atexit.register(self._file.discard)  # if the run does not reach its end

    def __call__(self, text: str, *, last: bool = True) -> None:
        """Write the file, repeatedly as more is known, until the `last` time. Raises OutputError."""
        if not last and self._file is None:
            return
        with writing(self._path):
            (self._path if self._file is None else self._file.part).write_text(text, encoding="utf-8")
        if self._file is not None:
            self._file.finish()
            if not last:
                self._file.begin()


def discard_all() -> None:
    """Remove the part files of this process, for an immediate exit; raises nothing and never waits."""
    for _ in range(3):  # other threads may begin or finish a file meanwhile
        try:
            files = list(_claims.values())
        except RuntimeError:
            continue
        for file in files:
            _unlink(file)
        return


def _unlink(file: AtomicFile) -> None:
    if not _owned(file):  # it is complete or was never ours, and another run may be writing the next one
        return
    with contextlib.suppress(OSError):
        file.part.unlink()


_claims: weakref.WeakValueDictionary[str, AtomicFile] = weakref.WeakValueDictionary()
growing: weakref.WeakSet[Any] = weakref.WeakSet()
"""Locked files that other outputs append to; each has a method `release`."""


def _claimed(path: Path) -> bool:
    return os.path.abspath(path) in _claims


def _owned(file: AtomicFile) -> bool:
    return _claims.get(os.path.abspath(file.path)) is file


_LOCKED_BYTE = 1 << 62
"""Beyond every file: with mandatory locks, such as those of SMB, no other handle can write a locked byte."""
_TRIES = 10
_ABANDONED_S = 60.0


def open_locked(path: str | Path, flags: int) -> int:
    """Open a file and lock it; also for the `opener` of `open`. See `lock`.

    Raises:
        BlockingIOError: another handle, of any process, holds the lock.
        OSError: it cannot be opened.
    """
    for _ in range(_TRIES):
        handle = os.open(path, flags, 0o666)
        try:
            lock(handle)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # it was renamed between opening and locking
    raise BlockingIOError


def lock(handle: int) -> bool:
    """Prevent other runs from writing this file while the handle is open.

    Returns:
        False if the file system or the system has no such locks.

    Raises:
        BlockingIOError: another handle, of any process, holds the lock.
    """
    order = getattr(fcntl, "F_OFD_SETLK", None)  # bound to this handle: closing other handles does not release it
    if order is None:
        return False
    try:
        fcntl.fcntl(handle, order, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise BlockingIOError from error
        return False
    return True


def sweep(part: Path) -> bool:
    """Remove an abandoned part file, as a crash leaves it.

    A file that any process is writing is locked and stays. Without locks, a file that changed within the last minute
    stays, too.

    Returns:
        Whether it was removed.

    Raises:
        OSError: it cannot be opened or removed.
    """
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        handle = os.open(part, os.O_RDWR)
        try:
            locked = lock(handle)
            about = os.fstat(handle)
            # between opening and locking, its writer may have renamed it, and another writer started the next one
            if os.path.samestat(about, os.stat(part)) and (locked or time.time() - about.st_mtime > _ABANDONED_S):
                os.unlink(part)
                return True
        finally:
            os.close(handle)
    return False


def _forked() -> None:
    """In a forked process, release the parent's files, so that they are not locked when the parent is gone."""
    for file in [*_claims.values(), *growing]:
        file.release()
    _claims.clear()


os.register_at_fork(after_in_child=_forked)


class AtomicFile:
    """A file that appears under its name when it is complete.

    Until then it is `.NAME.part` in the same folder, so a crash leaves nothing under the final name; the next run
    overwrites the part file of a crash. Two outputs of one process cannot have the same name, nor can those of two
    concurrent runs: the part file is locked, if the file system supports locks.

    Args:
        path: the final name.
        must_be_new: reject an existing name instead of replacing it.
        unique: give the part file a unique name, which no other process writes.
    """

    def __init__(self, path: str | Path, *, must_be_new: bool = False, unique: bool = False) -> None:
        self.path = Path(path)
        tag = f".{os.urandom(4).hex()}" if unique else ""
        self.part = self.path.with_name(f".{self.path.name}{tag}.part")
        self._must_be_new = must_be_new
        self._handle: weakref.finalize[[int], AtomicFile] | None = None

    def begin(self) -> Path:
        """Create the folder and an empty part file; return the part file's path.

        Raises:
            OutputError: the folder cannot be created or written, the name is taken, or another run is writing it.
        """
        if _claimed(self.path):
            raise OutputError(f"cannot write {self.path}: another output of this run writes it; give it another path")
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "")
            if self._must_be_new and self.path.exists():
                reason = "it exists, and if_exists is fail; remove it, or set if_exists to overwrite"
                raise OutputError(f"cannot write {self.path}: {reason}")
            try:
                handle = self._open_part()
            except BlockingIOError:
                raise in_use_error(self.path) from None
            self._handle = weakref.finalize(self, os.close, handle)
            os.ftruncate(handle, 0)
        _claims[os.path.abspath(self.path)] = self
        return self.part

    def _open_part(self) -> int:
        for _ in range(_TRIES - 1):
            with contextlib.suppress(FileNotFoundError):  # another process has removed the folder, which was empty
                self.path.parent.mkdir(parents=True, exist_ok=True)
                return open_locked(self.part, os.O_RDWR | os.O_CREAT)
        return open_locked(self.part, os.O_RDWR | os.O_CREAT)

    def write(self, data: bytes) -> None:
        """Write the whole file: begin, write and finish it. Raises OutputError."""
        part = self.begin()
        try:
            part.write_bytes(data)
        except OSError as error:
            self.discard()
            raise output_error(self.path, error) from error
        self.finish()

    def finish(self, name: str | None = None) -> None:
        """Rename the part file, which must be closed, to its final name, after syncing it to the disk.

        Args:
            name: the name in its folder, if it was not known before.

        Raises:
            OutputError: the disk rejects it; then the part file is removed.
        """
        try:
            with self.part.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(self.part, self.path if name is None else self.path.with_name(name))
        except OSError as error:
            self.discard()
            raise output_error(self.path, error) from error
        _claims.pop(os.path.abspath(self.path), None)
        self.release()

    def discard(self) -> None:
        """Remove the part file, if possible; a file under the final name stays."""
        _unlink(self)
        if _owned(self):
            del _claims[os.path.abspath(self.path)]
        self.release()

    def abandon(self) -> None:
        """Leave the part file, as a crash does, for whoever can use what is in it."""
        if _owned(self):
            del _claims[os.path.abspath(self.path)]
        self.release()

    def release(self) -> None:
        """Release the lock on the part file."""
        if self._handle is not None:
            self._handle()


class AtomicWriter:
    """Writes an `AtomicFile` with a unique part file; after an error, every use raises that error again.

    As a context manager it is finished on success and discarded on errors.

    Args:
        path: the final name.
        open_: opens the part file; returns an object with a method `close`.

    Attributes:
        broken: the error that has ended it, if any.
    """

    def __init__(self, path: Path, open_: Callable[[Path], Any]) -> None:
        self._file = AtomicFile(path, unique=True)
        self._open = open_
        self._out: Any = None
        self.broken: OutputError | None = None

    @contextlib.contextmanager
    def out(self) -> Iterator[Any]:
        """Yield what `open_` returned on first use; an error of the block discards the file. Raises OutputError."""
        if self.broken is not None:
            raise self.broken
        try:
            if self._out is None:
                self._out = self._open(self._file.begin())
            yield self._out
        except OSError as error:
            self.broken = output_error(self._file.path, error)
            self.discard()
            raise self.broken from error

    @property
    def size_bytes(self) -> int:
        """Bytes on the disk so far."""
        return self._file.part.stat().st_size if self._out is not None else 0

    def finish(self, name: str | None = None) -> None:
        """Complete the file; if nothing was written, no file is created. For `name` see `AtomicFile.finish`."""
        if self._out is None and self.broken is None:
            return
        with self.out() as out:
            out.close()
        self._out = None
        self._file.finish(name)

    def discard(self) -> None:
        """Discard the file."""
        out = self._out
        self._out = None
        try:
            with contextlib.suppress(OSError):  # the disk is full, which is already reported
                if out is not None:
                    out.close()
        finally:
            self._file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        self.discard() if kind is not None else self.finish()


def fsync_folders(folders: Iterable[Path]) -> None:
    """Sync the names in these folders to the disk, so that they survive a power cut. Raises OutputError."""
    for folder in folders:
        with writing(folder):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
