# SPDX-License-Identifier: Apache-2.0
"""The table of recorded files, with the place and time of each fragment in them."""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamkit.io.segment_files import RecordedFile
from streamkit.media.segment_reader import Fragment, SegmentContent

SCHEMA = """
CREATE TABLE IF NOT EXISTS segments (
    id INTEGER PRIMARY KEY AUTOINCREMENT, folder TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL,
    start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, bytes INTEGER NOT NULL, event INTEGER NOT NULL,
    codec TEXT NOT NULL, codecs TEXT NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL, cause TEXT NOT NULL,
    init_bytes INTEGER NOT NULL, scale INTEGER NOT NULL, shift INTEGER NOT NULL, fragments BLOB NOT NULL,
    UNIQUE (source, start_ms)
);
CREATE INDEX IF NOT EXISTS segments_by_folder ON segments (folder, name);
"""

_COLUMNS = (
    "id, folder, name, source, start_ms, end_ms, bytes, event, codec, codecs, width, height, cause, init_bytes, scale, "
    "shift, fragments"
)
_CONTENT = ("codec", "codecs", "width", "height", "cause", "init_bytes", "scale", "shift", "fragments")
_CONTENT_UPDATE = ", ".join(f"{name} = excluded.{name}" for name in _CONTENT)
_KEYFRAME = 1 << 63
_LONGEST_MS = 3_600_000  # no file is longer, so a search need not begin earlier


@dataclass(frozen=True, slots=True)
class RecordedSegment:
    """A recorded file and what is in it; `id` is 0 while it is being written."""

    id: int
    path: Path
    source: str
    start_ms: int
    end_ms: int
    bytes: int
    event: bool
    content: SegmentContent

    @property
    def start_s(self) -> float:
        """Wall clock of its first frame, in seconds since 1970."""
        return self.start_ms / 1000

    @property
    def end_s(self) -> float:
        """Wall clock of its end, in seconds since 1970."""
        return self.end_ms / 1000

    def fragment_s(self, place: int) -> float:
        """Wall clock of the first frame of a fragment."""
        return self.start_s + self.content.fragments[place].time / self.content.scale


@dataclass(frozen=True, slots=True)
class RecordedDay:
    """How much of a source is there of a day."""

    source: str
    day: str
    recorded_s: float
    first_ms: int
    last_ms: int
    bytes: int


def add_segment(connection: sqlite3.Connection, file: RecordedFile, content: SegmentContent | None) -> None:
    """Add a file, or take its new path; without content it is unreadable."""
    shown = content or SegmentContent(0, 0, 0, "", "", 0, 0, "", ())
    connection.execute(
        f"INSERT INTO segments ({_COLUMNS}) VALUES (NULL, {', '.join('?' * 16)}) "
        "ON CONFLICT (source, start_ms) DO UPDATE SET folder = excluded.folder, name = excluded.name, "
        "end_ms = excluded.end_ms, bytes = excluded.bytes, event = excluded.event, " + _CONTENT_UPDATE,
        (
            str(file.path.parent),
            file.path.name,
            file.source,
            file.start_ms,
            file.start_ms + file.duration_ms,
            file.bytes,
            file.event,
            shown.codec,
            shown.codecs,
            shown.width,
            shown.height,
            shown.cause,
            shown.init_bytes,
            shown.scale,
            shown.shift,
            _packed(shown.fragments),
        ),
    )


def move_segment(connection: sqlite3.Connection, file: RecordedFile) -> bool:
    """Take the new path of a file that was marked or moved; return False if it is a new or another one."""
    changed = connection.execute(
        "UPDATE segments SET folder = ?, name = ?, event = ? WHERE source = ? AND start_ms = ? AND bytes = ? "
        "AND end_ms = ?",
        (
            str(file.path.parent),
            file.path.name,
            file.event,
            file.source,
            file.start_ms,
            file.bytes,
            file.start_ms + file.duration_ms,
        ),
    )
    return changed.rowcount > 0


def names_in(connection: sqlite3.Connection, folder: Path) -> set[str]:
    """The names of the files of a folder."""
    rows = connection.execute("SELECT name FROM segments WHERE folder = ?", (str(folder),))
    return {name for (name,) in rows}


def folders(connection: sqlite3.Connection) -> set[Path]:
    """The folders that have files."""
    return {Path(folder) for (folder,) in connection.execute("SELECT DISTINCT folder FROM segments")}


def remove_segments(connection: sqlite3.Connection, folder: Path, names: set[str]) -> None:
    """Remove files of a folder."""
    connection.executemany(
        "DELETE FROM segments WHERE folder = ? AND name = ?", [(str(folder), name) for name in names]
    )


def find_segments(connection: sqlite3.Connection, source: str, from_s: float, to_s: float) -> list[RecordedSegment]:
    """The readable files of a source that overlap a period, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM segments WHERE source = ? AND start_ms > ? AND start_ms < ? AND end_ms > ? "
        "AND codec != '' ORDER BY start_ms",
        (source, round(from_s * 1000) - _LONGEST_MS, round(to_s * 1000), round(from_s * 1000)),
    )
    return [_segment(*row) for row in rows]


def last_before(connection: sqlite3.Connection, source: str, time_s: float) -> RecordedSegment | None:
    """The last readable file that begins at or before a time."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM segments WHERE source = ? AND start_ms <= ? AND codec != '' "
        "ORDER BY start_ms DESC LIMIT 1",
        (source, round(time_s * 1000)),
    ).fetchone()
    return None if row is None else _segment(*row)


def first_after(connection: sqlite3.Connection, source: str, time_s: float) -> RecordedSegment | None:
    """The first readable file that begins at or after a time."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM segments WHERE source = ? AND start_ms >= ? AND codec != '' ORDER BY start_ms LIMIT 1",
        (source, round(time_s * 1000)),
    ).fetchone()
    return None if row is None else _segment(*row)


def recorded_days(connection: sqlite3.Connection) -> list[RecordedDay]:
    """What is there of each source and day in UTC; a file counts for the day on which it begins."""
    rows = connection.execute(
        "SELECT source, date(start_ms / 1000, 'unixepoch') AS day, SUM(end_ms - start_ms) / 1000.0, MIN(start_ms), "
        "MAX(end_ms), SUM(bytes) FROM segments WHERE codec != '' GROUP BY source, day ORDER BY source, day"
    )
    return [RecordedDay(*row) for row in rows]


def _packed(fragments: Sequence[Fragment]) -> bytes:
    """Position and time of each fragment, and of the end, as little-endian numbers; the highest bit marks keyframes."""
    words = array("Q")
    for fragment in fragments:
        words.extend((fragment.start, fragment.time | (_KEYFRAME if fragment.keyframe else 0)))
    if fragments:
        words.extend((fragments[-1].end, fragments[-1].time + fragments[-1].duration))
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def _unpacked(packed: bytes) -> tuple[Fragment, ...]:
    words = array("Q")
    words.frombytes(packed)
    if sys.byteorder == "big":
        words.byteswap()
    starts = words[::2]
    times = words[1::2]
    return tuple(
        Fragment(
            starts[place],
            starts[place + 1],
            times[place] & ~_KEYFRAME,
            (times[place + 1] & ~_KEYFRAME) - (times[place] & ~_KEYFRAME),
            bool(times[place] & _KEYFRAME),
        )
        for place in range(len(starts) - 1)
    )


def _segment(
    id_: int,
    folder: str,
    name: str,
    source: str,
    start_ms: int,
    end_ms: int,
    size_bytes: int,
    event: int,
    codec: str,
    codecs: str,
    width: int,
    height: int,
    cause: str,
    init_bytes: int,
    scale: int,
    shift: int,
    fragments: bytes,
) -> RecordedSegment:
    content = SegmentContent(init_bytes, scale, shift, codec, codecs, width, height, cause, _unpacked(fragments))
    return RecordedSegment(id_, Path(folder, name), source, start_ms, end_ms, size_bytes, bool(event), content)
