# SPDX-License-Identifier: Apache-2.0
"""The index of recordings around the clock: a list of their files that is made from them, and follows them.

The files are the truth, and any process may write, mark, move or remove them. So the index has a database of its own,
which may be removed at any time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from streamkit.core.errors import SourceError, StreamkitError, describe
from streamkit.core.logs import LogOnce
from streamkit.emit.segment_file import open_private
from streamkit.io.segment_files import RecordedFile, SegmentFolder
from streamkit.media.segment_reader import SegmentContent, read_content
from streamkit.serve.store import segment_table
from streamkit.serve.store.segment_table import RecordedDay, RecordedSegment

logger = logging.getLogger(__name__)

NAME = "recordings.db"
_VERSION = 2
_END_S = 253_402_300_799.0  # the year 9999
_REFRESH_S = 1.0
_BATCH = 500


class RecordingsUnreadable(StreamkitError):
    """The index cannot be read at present; the message says why."""


class RecordingIndex:
    """The index of the recordings in some folders. Thread-safe.

    Args:
        data: the server's data folder.
        clock: monotonic time in seconds.
        sees: whether the sender of a request may see a source; of others, nothing is there.
    """

    def __init__(
        self,
        data: Path,
        clock: Callable[[], float] = time.monotonic,
        sees: Callable[[str], bool] = lambda source: True,
    ) -> None:
        self._sees = sees
        self.path = data / NAME
        self._clock = clock
        self._lock = threading.Lock()
        self._folders: list[SegmentFolder] = []
        self._open: dict[Path, tuple[int, SegmentContent]] = {}
        self._refreshed_s = -_REFRESH_S
        self._prepared = False
        self._warn = LogOnce(logger.warning)

    def follow(self, folders: Sequence[Path]) -> None:
        """Set the folders, those of archives as well."""
        absolute = [folder.absolute() for folder in folders]
        with self._lock:
            if absolute != [folder.root for folder in self._folders]:
                self._folders = [SegmentFolder(folder) for folder in absolute]
                self._prepared = False
                self._refreshed_s = -_REFRESH_S

    @property
    def following(self) -> bool:
        """Whether there are folders of recordings."""
        return bool(self._folders)

    def refresh(self, *, now: bool = False) -> None:
        """Take the changes of the files, at most once a second unless `now` is set. Raises RecordingsUnreadable."""
        with self._lock:
            if not now and self._clock() - self._refreshed_s < _REFRESH_S:
                return
            with self._connected() as connection:
                self._take_changes(connection)
            self._refreshed_s = self._clock()

    # ---------------------------------------------------------------------------------------------------- reading
    # Each of these raises RecordingsUnreadable.

    def days(self) -> list[RecordedDay]:
        """What is there of each source and day."""
        self.refresh()
        with self._connected() as connection:
            days = segment_table.recorded_days(connection)
        return [day for day in days if self._sees(day.source)]

    def segments(self, source: str, from_s: float, to_s: float) -> list[RecordedSegment]:
        """The files of a source that overlap a period, oldest first, with the one that is being written."""
        if not self._sees(source):
            return []
        self.refresh()
        with self._connected() as connection:
            complete = segment_table.find_segments(connection, source, from_s, to_s)
        starts = {segment.start_ms for segment in complete}
        unfinished = [
            segment
            for segment in self._unfinished(source)
            if segment.start_s < to_s and segment.end_s > from_s and segment.start_ms not in starts
        ]
        return sorted([*complete, *unfinished], key=lambda segment: segment.start_ms)

    def has_any(self, source: str) -> bool:
        """Whether anything is recorded of a source, whoever asks."""
        self.refresh()
        with self._connected() as connection:
            return segment_table.last_before(connection, source, _END_S) is not None

    def before(self, source: str, time_s: float) -> RecordedSegment | None:
        """The last file that begins at or before a time."""
        if not self._sees(source):
            return None
        self.refresh()
        with self._connected() as connection:
            last = segment_table.last_before(connection, source, time_s)
        candidates = [segment for segment in self._unfinished(source) if segment.start_s <= time_s]
        if last is not None:
            candidates.append(last)
        return max(candidates, key=lambda segment: segment.start_ms, default=None)

    def after(self, source: str, time_s: float) -> RecordedSegment | None:
        """The first file that begins at or after a time."""
        if not self._sees(source):
            return None
        self.refresh()
        with self._connected() as connection:
            first = segment_table.first_after(connection, source, time_s)
        candidates = [segment for segment in self._unfinished(source) if segment.start_s >= time_s]
        if first is not None:
            candidates.append(first)
        return min(candidates, key=lambda segment: segment.start_ms, default=None)

    # ---------------------------------------------------------------------------------------------------- inside

    def _take_changes(self, connection: sqlite3.Connection) -> None:
        changed = [(folder, day) for folder in self._folders for day in folder.refresh()]
        followed = {day for folder in self._folders for day in folder.days}
        gone = segment_table.folders(connection) - followed if changed or not self._prepared else set()
        self._prepared = True
        for folder, day in changed:
            self._add_new(connection, day, folder.segments_of(day))
        removed = [(day, _complete(folder.segments_of(day))) for folder, day in changed]
        removed += [(day, {}) for day in gone]
        counterparts: set[Path] = set()
        with connection:
            for day, files in removed:
                if names := segment_table.names_in(connection, day) - files.keys():
                    segment_table.remove_segments(connection, day, names)
                    counterparts.add(day)
        for day in counterparts:  # a copy in the other folder may be left
            for folder in self._folders:
                for other in folder.days:
                    if other != day and other.name == day.name:
                        self._add_new(connection, other, folder.segments_of(other))

    def _add_new(self, connection: sqlite3.Connection, day: Path, files: list[RecordedFile]) -> None:
        indexed = segment_table.names_in(connection, day)
        new = [file for file in files if file.complete and file.path.name not in indexed]
        for first in range(0, len(new), _BATCH):
            with connection:
                for file in new[first : first + _BATCH]:
                    if not segment_table.move_segment(connection, file):
                        segment_table.add_segment(connection, file, self._content(file))

    def _content(self, file: RecordedFile) -> SegmentContent | None:
        try:
            return read_content(file.path)
        except (OSError, SourceError) as error:
            self._warn(f"a recorded file is not shown: {file.path}: {describe(error)}")
            return None

    def _unfinished(self, source: str) -> list[RecordedSegment]:
        """The files of a source that are being written, as far as they are written now."""
        segments = []
        with self._lock:
            files = [file for folder in self._folders for file in folder.open_files() if file.source == source]
        for file in files:
            with contextlib.suppress(OSError, SourceError):  # it is complete now, or has no fragment yet
                size = file.path.stat().st_size
                read_before = self._open.get(file.path)
                if read_before is None or read_before[0] != size:
                    read_before = self._open[file.path] = size, read_content(file.path)
                content = read_before[1]
                if content.fragments:
                    end_ms = file.start_ms + content.duration_ms
                    segments.append(RecordedSegment(0, file.path, source, file.start_ms, end_ms, size, False, content))
        if len(self._open) > 10_000:
            self._open.clear()
        return segments

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """A connection; a file that is damaged or of another version is made again."""
        try:
            try:
                connection = self._connect()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # locked, or the disk is full: the file is whole
                    raise
                self._remove()
                connection = self._connect()
            with contextlib.closing(connection):
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise RecordingsUnreadable(f"{self.path} cannot be read or written: {describe(error)}") from None

    def _connect(self) -> sqlite3.Connection:
        os.close(open_private(self.path, os.O_RDWR))
        connection = sqlite3.connect(self.path, timeout=5.0, check_same_thread=False)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"version {version}")
            if version == 0:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(segment_table.SCHEMA)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        self._warn(f"{self.path} is damaged or of another version: it is made again from the recordings")
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._folders = [SegmentFolder(folder.root) for folder in self._folders]
        self._prepared = False


def _complete(files: list[RecordedFile]) -> dict[str, RecordedFile]:
    return {file.path.name: file for file in files if file.complete}
