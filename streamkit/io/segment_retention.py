# SPDX-License-Identifier: Apache-2.0
"""Which files of a recording around the clock are kept, for how long, and in which of two folders."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.core.logs import LogOnce
from streamkit.io.outputs import AtomicFile
from streamkit.io.retention import MIN_FREE_BYTES, free_bytes, removing_alone
from streamkit.io.segment_files import RecordedFile, SegmentFolder, marked_path

logger = logging.getLogger(__name__)

_MOVES_SHARE = 4
"""How many times the duration of a move passes before the next one, so that moves never hold up the recording."""
_AGE_EVERY_S = 60.0
_ROOM_LEFT = 0.995
"""Of the limit of size, to which it is emptied, so that files need not be sorted for each one."""


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """What is kept; None for no limit.

    Attributes:
        keep_s: for how long files are kept, in seconds.
        keep_events_s: for how long files around events are kept, if longer.
        size_bytes: size of all files in both folders; the oldest go first, those around events last.
        min_free_bytes: free space of the disk for which the oldest files are removed; None removes none for that.
        archive: the second folder.
        archive_after_s: the age at which files are moved there.
    """

    keep_s: float | None = None
    keep_events_s: float | None = None
    size_bytes: int | None = None
    min_free_bytes: int | None = None
    archive: Path | None = None
    archive_after_s: float = 0.0


class SegmentRetention:
    """Removes and moves the files of a recording. Several processes may do so in the same folders.

    Args:
        root: the folder.
        limits: what is kept.
        counters: for removed and moved files.
        clock: seconds since 1970.
    """

    def __init__(
        self, root: Path, limits: SegmentLimits, counters: Counters, clock: Callable[[], float] = time.time
    ) -> None:
        self._limits = limits
        self._counters = counters
        self._clock = clock
        self._warn = LogOnce(logger.warning)
        self._main = SegmentFolder(root)
        self._archive = None if limits.archive is None else SegmentFolder(limits.archive)
        self._next_move_s = 0.0
        self._aged_s = -_AGE_EVERY_S  # wall clock of the last look at the age of files

    @property
    def root(self) -> Path:
        """The folder that is written to."""
        return self._main.root

    def open_files(self) -> list[RecordedFile]:
        """The files that are being written, or that a crash left."""
        self._main.refresh()
        return self._main.open_files()

    def latest(self) -> dict[str, RecordedFile]:
        """The latest complete file of each source."""
        self._refresh()
        return {file.source: file for file in sorted(self._segments(), key=lambda file: file.end_s)}

    def tidy(self) -> None:
        """Remove what is too old or too much."""
        self._refresh()
        limits = self._limits
        if limits.keep_s is None and limits.size_bytes is None:
            return
        with removing_alone(self.root):
            now_s = self._clock()
            if limits.keep_s is not None and abs(now_s - self._aged_s) >= _AGE_EVERY_S:
                self._aged_s = now_s
                for file in self._segments():
                    if file.end_s < now_s - self._keep_s(file):
                        self._remove(file, "over age")
            if limits.size_bytes is not None:
                self._shrink(limits.size_bytes)
        self._refresh()

    def _keep_s(self, file: RecordedFile) -> float:
        keep_s = self._limits.keep_s or 0.0
        return max(keep_s, self._limits.keep_events_s or 0.0) if file.event else keep_s

    def _shrink(self, limit_bytes: int) -> None:
        """Remove the oldest files, those around events last, if all are larger than the limit."""
        self._refresh()
        total = self._main.size_bytes + (0 if self._archive is None else self._archive.size_bytes)
        if total <= limit_bytes:
            return
        for file in self._oldest_first(self._segments()):
            if total <= limit_bytes * _ROOM_LEFT:
                break
            if self._remove(file, "over size"):
                total -= file.bytes

    def room(self) -> bool:
        """Whether there is room for more, after removing the oldest files if that is allowed."""
        least = self._limits.min_free_bytes
        if self._free() >= (MIN_FREE_BYTES if least is None else least):
            return True
        if least is None:
            return False
        with removing_alone(self.root):
            self._refresh()
            for file in self._oldest_first(file for file in self._main.segments() if file.complete):
                if self._free() >= least:
                    break
                self._remove(file, "disk full")
        return self._free() >= least

    def full(self) -> str:
        """The message that there is no room."""
        least = self._limits.min_free_bytes
        least_mb = (MIN_FREE_BYTES if least is None else least) / 1e6
        return (
            f"recording pauses: less than {least_mb:,.0f} MB are free under {self.root}; it resumes when there is room"
        )

    def _free(self) -> int:
        free = free_bytes(self.root)
        return 1 << 62 if free is None else free  # its errors are reported on writing

    def move_due(self) -> None:
        """Move one file to the second folder if it is old enough, and the last move was not just now."""
        limits = self._limits
        began_s = time.monotonic()
        if self._archive is None or limits.archive is None or began_s < self._next_move_s:
            return
        self._main.refresh()
        before_s = self._clock() - limits.archive_after_s
        file = next((file for file in self._main.segments() if file.complete and file.end_s < before_s), None)
        if file is None:
            self._next_move_s = began_s + 5.0
            return
        moved = self._move(file, limits.archive / file.path.relative_to(self.root))
        took_s = time.monotonic() - began_s
        self._next_move_s = began_s + (took_s * (1 + _MOVES_SHARE) if moved else 30.0)

    def _move(self, file: RecordedFile, target: Path) -> bool:
        try:
            with removing_alone(self.root):
                _move_file(file.path, target)
        except FileNotFoundError:  # another process has moved or removed it
            return True
        except (OSError, OutputError) as error:
            self._counters.add("segments not moved to the archive")
            self._warn(f"recordings stay in {self.root}, as they cannot be moved to {self._limits.archive}: {error}")
            return False
        self._counters.add("segments moved to the archive")
        _remove_empty(file.path.parent)
        return True

    def mark(self, path: Path) -> None:
        """Mark a complete file as one around an event, also if it was moved meanwhile."""
        folders = [self.root] if self._limits.archive is None else [self.root, self._limits.archive]
        for folder in folders:
            file = folder / path.relative_to(self.root)
            with contextlib.suppress(OSError):  # it was moved or removed meanwhile
                os.rename(file, marked_path(file))
                self._counters.add("segments kept for events")
                return

    def _refresh(self) -> None:
        self._main.refresh()
        if self._archive is not None:
            self._archive.refresh()

    def _segments(self) -> Iterator[RecordedFile]:
        folders = [self._main] if self._archive is None else [self._archive, self._main]
        for folder in folders:
            yield from (file for file in folder.segments() if file.complete)

    @staticmethod
    def _oldest_first(files: Iterator[RecordedFile]) -> list[RecordedFile]:
        return sorted(files, key=lambda file: (file.event, file.start_ms))

    def _remove(self, file: RecordedFile, cause: str) -> bool:
        try:
            file.path.unlink()
        except FileNotFoundError:
            return True
        except OSError as error:
            self._counters.add("segments not removed")
            self._warn(f"cannot remove {file.path}: {error.strerror}")
            return False
        self._counters.add(f"segments removed: {cause}")
        _remove_empty(file.path.parent)
        return True


def _move_file(path: Path, target: Path) -> None:
    """Move a file; over file systems it is copied, synced and renamed before it is removed here.

    Raises:
        OSError: it is not there, or cannot be removed.
        OutputError: it cannot be written there.
    """
    size = path.stat().st_size
    if not (target.is_file() and target.stat().st_size == size):  # a crash came between copying and removing
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            return
        copy = AtomicFile(target)
        copy.begin()
        try:
            shutil.copyfile(path, copy.part)
        except BaseException:
            copy.discard()
            raise
        copy.finish()
    path.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it contains other files
        folder.rmdir()
