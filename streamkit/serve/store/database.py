# SPDX-License-Identifier: Apache-2.0
"""The SQLite file of the store: its tables, its size, and its lock. Only its owner may read it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from streamkit.core.errors import OutputError
from streamkit.emit.segment_file import open_private
from streamkit.serve.store.count_table import SCHEMA as COUNTS_SCHEMA
from streamkit.serve.store.push_table import SCHEMA as PUSH_SCHEMA
from streamkit.serve.store.review_table import SCHEMA as REVIEW_SCHEMA

NAME = "serve.db"
VERSION = 1
BUSY_S = 2.0
"""Seconds for which a write waits while another program has locked the file."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time_s REAL NOT NULL, source TEXT NOT NULL, stage TEXT NOT NULL,
    kind TEXT NOT NULL, frame INTEGER NOT NULL, pts_s REAL NOT NULL, track_id INTEGER, label TEXT, data TEXT NOT NULL,
    words TEXT NOT NULL, image INTEGER, clip TEXT, clip_s REAL, snapshot TEXT
);
CREATE INDEX IF NOT EXISTS events_by_time ON events (time_s, source);
CREATE INDEX IF NOT EXISTS events_by_source ON events (source, number);
CREATE INDEX IF NOT EXISTS events_by_stage ON events (stage, kind, number);
CREATE INDEX IF NOT EXISTS events_by_label ON events (label, number) WHERE label IS NOT NULL;
CREATE TABLE IF NOT EXISTS images (id INTEGER PRIMARY KEY, jpeg BLOB NOT NULL);
CREATE VIRTUAL TABLE IF NOT EXISTS event_words USING fts5 (words, content='events', content_rowid='number');
CREATE TRIGGER IF NOT EXISTS event_added AFTER INSERT ON events BEGIN
    INSERT INTO event_words (rowid, words) VALUES (new.number, new.words);
END;
CREATE TRIGGER IF NOT EXISTS event_removed AFTER DELETE ON events BEGIN
    INSERT INTO event_words (event_words, rowid, words) VALUES ('delete', old.number, old.words);
END;
CREATE TABLE IF NOT EXISTS masks (number INTEGER PRIMARY KEY, hidden TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, source TEXT NOT NULL, label TEXT NOT NULL, UNIQUE (name, source, label)
);
CREATE TABLE IF NOT EXISTS samples (
    series INTEGER NOT NULL, step_s INTEGER NOT NULL, at_s INTEGER NOT NULL, n INTEGER NOT NULL, total REAL NOT NULL,
    PRIMARY KEY (series, step_s, at_s)
) WITHOUT ROWID;
"""


class ServeDatabase:
    """The file. It is locked as long as it is open: event numbers of two servers would clash.

    Args:
        folder: the data folder; created if needed.

    Raises:
        OutputError: the folder cannot be written, another server uses it, or the file is no database of this version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / NAME
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = open_private(folder / "lock", os.O_RDWR)
            os.close(open_private(self.path, os.O_RDWR))
            self.path.chmod(0o600)
        except OSError as error:
            raise OutputError(
                f"cannot write the data folder {folder}: {error.strerror or error}; give another one with --data"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise OutputError(
                f"the data folder {folder} is used by another server; give each server its own with --data"
            ) from None
        try:
            self._prepare()
        except (sqlite3.Error, OutputError) as error:
            self.close()
            if isinstance(error, OutputError):
                raise
            raise OutputError(f"cannot use {self.path}: {error}; repair or remove the file") from None

    def _prepare(self) -> None:
        with contextlib.closing(self.connect()) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise OutputError(f"{self.path} was written by a newer version of streamkit; give another --data")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA + COUNTS_SCHEMA + REVIEW_SCHEMA + PUSH_SCHEMA)
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def connect(self) -> sqlite3.Connection:
        """A connection that may write. Raises sqlite3.Error."""
        connection = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that only reads, and sees one state of the file. Raises sqlite3.Error."""
        with contextlib.closing(self.connect()) as connection:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("BEGIN")
            yield connection

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def used_bytes(connection: sqlite3.Connection) -> int:
    """Size of what the file holds, in bytes, without free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)
