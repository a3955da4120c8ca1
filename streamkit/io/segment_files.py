# SPDX-License-Identifier: Apache-2.0
"""Files of a recording around the clock: their names, which say all that a list needs, and what is in the folders.

A file is `SOURCE/2026-11-28/20261128T130000.123Z_60.040s.mp4` in the recording's folder: day and time are UTC, then
comes the duration. `_event` before the suffix marks files around events. A file that is being written, or that a crash
left, is `.20261128T130000.123Z.mp4.part`.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from streamkit.io.outputs import fill_path

_NAME = re.compile(r"(\d{8}T\d{6}\.\d{3})Z_(\d{1,7}\.\d{3})s(_event)?\.mp4")
_OPEN = re.compile(r"\.(\d{8}T\d{6}\.\d{3})Z\.mp4\.part")
_SETTLED_NS = 1_000_000_000  # a folder may change again within a tick of its modification time
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A file of a recording.

    Attributes:
        path: where it is.
        source: id of the source.
        start_ms: wall clock of its first frame, in milliseconds since 1970.
        duration_ms: its duration in milliseconds; 0 while it is written.
        event: whether it is kept as one around an event.
        complete: whether it is complete; a crash leaves it incomplete.
        bytes: its size.
    """

    path: Path
    source: str
    start_ms: int
    duration_ms: int
    event: bool
    complete: bool
    bytes: int

    @property
    def start_s(self) -> float:
        """Wall clock of its first frame, in seconds since 1970."""
        return self.start_ms / 1000

    @property
    def end_s(self) -> float:
        """Wall clock of its end, in seconds since 1970."""
        return (self.start_ms + self.duration_ms) / 1000


def segment_path(folder: Path, source: str, start_ms: int) -> Path:
    """The path of a file that is about to be written, without its duration.

    Raises:
        OutputError: the source's id leads out of the folder.
    """
    start = datetime.fromtimestamp(start_ms // 1000, UTC)
    of_source = Path(fill_path(f"{folder}/{{source}}", source))
    return of_source / f"{start:%Y-%m-%d}" / f"{start:%Y%m%dT%H%M%S}.{start_ms % 1000:03d}Z.mp4"


def complete_name(path: Path, duration_ms: int, *, event: bool) -> str:
    """The name that a file gets when it is complete."""
    mark = "_event" if event else ""
    return f"{path.stem}_{duration_ms // 1000}.{duration_ms % 1000:03d}s{mark}.mp4"


def marked_path(path: Path) -> Path:
    """The path of a complete file once it is marked as one around an event."""
    return path.with_name(f"{path.stem.removesuffix('_event')}_event.mp4")


def read_name(path: Path, source: str, size_bytes: int) -> RecordedFile | None:
    """What a file's name says; None if it is no file of a recording."""
    if match := _NAME.fullmatch(path.name):
        duration_ms = int(match[2].replace(".", ""))
        return _segment(path, source, match[1], duration_ms, bool(match[3]), True, size_bytes)
    if match := _OPEN.fullmatch(path.name):
        return _segment(path, source, match[1], 0, False, False, size_bytes)
    return None


def _segment(
    path: Path, source: str, start: str, duration_ms: int, event: bool, complete: bool, size_bytes: int
) -> RecordedFile | None:
    try:
        moment = datetime.strptime(f"{start[:15]}+0000", "%Y%m%dT%H%M%S%z")
    except ValueError:  # such as the 31st of February
        return None
    start_ms = int(moment.timestamp()) * 1000 + int(start[16:])
    return RecordedFile(path, source, start_ms, duration_ms, event, complete, size_bytes)


@dataclass(slots=True)
class _Day:
    source: str
    changed_ns: int
    listed_ns: int
    segments: dict[str, RecordedFile]
    unfinished: list[RecordedFile]

    def current(self, changed_ns: int) -> bool:
        """Whether the list is that of a folder with this modification time."""
        settled = changed_ns < self.listed_ns - _SETTLED_NS
        return settled and changed_ns == self.changed_ns and not self.unfinished


class SegmentFolder:
    """The files of one folder of recordings. It lists again only the days whose files have changed.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._days: dict[Path, _Day] = {}

    def refresh(self) -> list[Path]:
        """List what has changed; return the folders of days that have.

        A folder that cannot be read counts as empty.
        """
        days = dict(self._day_folders())
        changed = [folder for folder in self._days if folder not in days]
        for folder in changed:
            del self._days[folder]
        return changed + [folder for folder, source in days.items() if self._refresh_day(folder, source)]

    @property
    def days(self) -> list[Path]:
        """The folders of days."""
        return list(self._days)

    def open_files(self) -> list[RecordedFile]:
        """The files that are being written, or that a crash left."""
        return [file for day in self._days.values() for file in day.unfinished]

    def segments_of(self, day: Path) -> list[RecordedFile]:
        """The files of a day's folder; none if it is gone."""
        return list(self._days[day].segments.values()) if day in self._days else []

    def segments(self) -> list[RecordedFile]:
        """The files, oldest first."""
        files = (segment for day in self._days.values() for segment in day.segments.values())
        return sorted(files, key=lambda file: (file.start_ms, file.source, file.path))

    @property
    def size_bytes(self) -> int:
        """Size of all files in bytes."""
        return sum(file.bytes for day in self._days.values() for file in day.segments.values())

    def _day_folders(self) -> Iterator[tuple[Path, str]]:
        """Each folder of a day, with the id of its source."""
        for folder, names, _ in os.walk(self.root):
            days = [name for name in names if _DAY.fullmatch(name)]
            source = os.path.relpath(folder, self.root)
            yield from ((Path(folder, day), source) for day in days if source != ".")
            names[:] = sorted(set(names) - set(days))

    def _refresh_day(self, folder: Path, source: str) -> bool:
        """List a day's folder if it has changed; return whether it has."""
        before = self._days.get(folder)
        listed_ns = time.time_ns()
        try:
            changed_ns = folder.stat().st_mtime_ns
            if before is not None and before.current(changed_ns):
                return False
            with os.scandir(folder) as entries:
                listed = {} if before is None else before.segments
                files = {entry.name: _listed(entry, folder, source, listed) for entry in entries}
        except OSError:  # it was removed meanwhile, or the share does not respond
            return self._days.pop(folder, None) is not None
        segments = {name: file for name, file in files.items() if file is not None}
        unfinished = [file for file in segments.values() if not file.complete]
        self._days[folder] = _Day(source, changed_ns, listed_ns, segments, unfinished)
        return before is None or segments != before.segments


def _listed(entry: os.DirEntry[str], folder: Path, source: str, before: dict[str, RecordedFile]) -> RecordedFile | None:
    listed = before.get(entry.name)
    if listed is not None and listed.complete:
        return listed
    if _NAME.fullmatch(entry.name) or _OPEN.fullmatch(entry.name):
        with contextlib.suppress(OSError):  # it was renamed or removed meanwhile
            return read_name(folder / entry.name, source, entry.stat().st_size)
    return None
