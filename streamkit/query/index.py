# SPDX-License-Identifier: Apache-2.0
"""The index of a data set: all its tables in one DuckDB file.

A query over thousands of Parquet files would spend its time on opening them. The index is made by the first query and
brought up to date by each later one: a part that was added, written again or removed since is found by its mark. It is
written beside the old one and replaces it when it is complete, so a reader never sees half of it. It can be deleted at
any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamkit.batch.parts import FILES
from streamkit.core.errors import ConfigError, OutputError, needs
from streamkit.io.outputs import fsync_folders, writing
from streamkit.io.parquet_file import arrow
from streamkit.query.dataset_location import TABLES, DatasetLocation

NAME = "index.duckdb"
_FORMAT = 2
"""A number that changes with the tables below; an index of another one is made again."""
_PART = ".index-"
_ABANDONED_S = 3600.0
_AT_ONCE = 2000  # files in a step: bounds memory, and how long the progress stands still
_TRIES = 3

_FIX = "make sure that its disk has space and can be written, or copy the data set to another disk"
_CLOSED = {"enable_external_access": "false"}  # an index may come with a data set from elsewhere, and name files

_ABOUT = "CREATE TABLE index_about (format INTEGER, pipeline TEXT)"
_PARTS = "CREATE TABLE index_parts (key TEXT, mark TEXT)"
_FRAMES = """
CREATE TABLE frames (
    key TEXT, source TEXT, frame INTEGER, pts_s DOUBLE, counts MAP(TEXT, INTEGER), objects INTEGER, width INTEGER,
    height INTEGER, error TEXT, damaged BOOLEAN, facts TEXT
)"""
# frames of files that were processed before every pipeline had a table of frames
_FRAMES_OF_OBJECTS = """
INSERT INTO new_frames BY NAME
SELECT key, any_value(source) AS source, frame, any_value(pts_s) AS pts_s, count(label) AS objects,
    any_value(width) AS width, any_value(height) AS height, false AS damaged
FROM (
    SELECT key, source, frame, pts_s, coalesce(label, '') AS label FROM new_objects
    UNION ALL SELECT key, source, frame, pts_s, NULL FROM new_events
) JOIN (SELECT key, width, height FROM new_files) USING (key)
WHERE key NOT IN (SELECT key FROM new_frames) GROUP BY key, frame"""
_COUNTED_FRAMES = """
INSERT INTO frames BY NAME
SELECT f.*, coalesce(c.counts, MAP {}) AS counts
FROM new_frames f LEFT JOIN (
    SELECT key, frame, histogram(coalesce(label, class_id::TEXT)) AS counts FROM new_objects GROUP BY key, frame
) c USING (key, frame)
ORDER BY key, frame"""

_TRACKS = """
CREATE TABLE tracks (
    key TEXT, source TEXT, stage TEXT, label TEXT, track_id BIGINT, frame INTEGER, pts_s DOUBLE, begin_s DOUBLE,
    end_s DOUBLE, embedding FLOAT[]
)"""
# the last vector of a track is that of its best view
_EMBEDDED_TRACKS = """
INSERT INTO tracks BY NAME
SELECT key, any_value(source) AS source, stage, mode(label) AS label, track_id,
    max(frame) FILTER (embedding IS NOT NULL) AS frame, max(pts_s) FILTER (embedding IS NOT NULL) AS pts_s,
    min(pts_s) AS begin_s, max(pts_s) AS end_s, arg_max(embedding, frame) FILTER (embedding IS NOT NULL) AS embedding
FROM new_objects WHERE track_id IS NOT NULL GROUP BY key, stage, track_id
HAVING count(embedding) > 0 ORDER BY key, stage, track_id"""


def duckdb() -> Any:
    """Return the module `duckdb`. Raises MissingPackage."""
    with needs("duckdb", "query", "streamkit query"):
        import duckdb
    return duckdb


def index_of(dataset: DatasetLocation, on_progress: Callable[[int, int], None] = lambda done, all_: None) -> Path:
    """The index of a data set, up to date.

    Args:
        dataset: the data set.
        on_progress: called with the number of files that were added, and that are to be added.

    Raises:
        ConfigError: a table cannot be read.
        OutputError: the index cannot be written.
        MissingPackage: duckdb or pyarrow is not installed.
    """
    duckdb(), arrow()
    path = _place(dataset)
    for last in (*[False] * (_TRIES - 1), True):
        now = dataset.marks(FILES)
        before = _marks(path, dataset.pipeline)
        if now == before:
            return path
        try:
            with _building(path, None if before is None else path) as part:
                _update(part, dataset, before, now, on_progress)
            return path
        except FileNotFoundError:  # a run of batch has removed a part meanwhile, to write it again
            if last:
                raise ConfigError(f"{dataset.address} changes while it is read; try again") from None
    raise AssertionError


def _place(dataset: DatasetLocation) -> Path:
    """The index's path: in the data set; in the user's cache if nothing can be written there."""
    if dataset.folder is not None and os.access(dataset.folder, os.W_OK):
        return dataset.folder / NAME
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digits = hashlib.sha256(dataset.address.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Path(user) / "streamkit" / "index" / f"{digits}.duckdb"


def _marks(path: Path, pipeline: str) -> dict[str, str] | None:
    """The mark of each file that an index has; None if it is missing, of another pipeline, or unreadable."""
    if not path.is_file():
        return None
    try:
        with duckdb().connect(str(path), read_only=True, config=_CLOSED) as database:
            if database.execute("SELECT format, pipeline FROM index_about").fetchall() != [(_FORMAT, pipeline)]:
                return None
            return dict(database.execute("SELECT key, mark FROM index_parts").fetchall())
    except duckdb().Error:  # of another version of DuckDB, or damaged
        return None


@contextmanager
def _building(path: Path, old: Path | None) -> Iterator[Path]:
    """A new index, which begins as a copy of an old one and takes its name when the block ends."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        folder = Path(tempfile.mkdtemp(prefix=_PART, suffix=".part", dir=path.parent))
    try:
        part = folder / path.name
        with writing(path):
            if old is not None:
                shutil.copyfile(old, part)
        yield part
        with writing(path):
            with part.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(part, path)
        fsync_folders([path.parent])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what killed queries have left."""
    for left in folder.glob(f"{_PART}*.part"):
        files = [left, *left.glob("*")]
        if all(time.time() - file.stat().st_mtime > _ABANDONED_S for file in files):
            shutil.rmtree(left, ignore_errors=True)


def _update(
    path: Path,
    dataset: DatasetLocation,
    before: dict[str, str] | None,
    now: dict[str, str],
    on_progress: Callable[[int, int], None],
) -> None:
    old = before or {}
    schemas = {table: dataset.schema(table) for table in TABLES}
    parts = {table: dataset.marks(table).keys() for table in TABLES if table != FILES} | {FILES: now.keys()}
    added = sorted(key for key in now if old.get(key) != now[key])
    removed = [key for key in old if old[key] != now.get(key)]
    try:
        with duckdb().connect(str(path), config=_CLOSED) as database:
            database.execute("SET enable_progress_bar = false")
            if before is None:
                _create(database, dataset.pipeline, schemas)
            for table in (*TABLES, *(["tracks"] if _has_tracks(schemas) else []), "index_parts"):
                database.execute(f"DELETE FROM {table} WHERE key IN (SELECT unnest(?))", [removed])
            for first in range(0, len(added), _AT_ONCE):
                on_progress(first, len(added))
                keys = added[first : first + _AT_ONCE]
                there = {table: [key for key in keys if key in parts[table]] for table in parts}
                _add(database, dataset, schemas, there)
                marks = [now[key] for key in keys]
                database.execute("INSERT INTO index_parts SELECT unnest(?), unnest(?)", [keys, marks])
            database.execute("CHECKPOINT")
    except arrow().ArrowInvalid as error:
        raise ConfigError(f"{dataset.address}: a table is damaged, and batch repairs it: {error}") from error
    except (duckdb().IOException, duckdb().TransactionException, duckdb().FatalException) as error:
        index_path = path.parent.parent / path.name
        cause = " ".join(str(error).split())
        raise OutputError(f"cannot write {index_path}: {cause}; {_FIX}") from error


def _has_tracks(schemas: dict[str, Any]) -> bool:
    """Whether objects have tracks and embeddings."""
    return {"track_id", "embedding"} <= set(schemas["objects"].names)


def _create(database: Any, pipeline: str, schemas: dict[str, Any]) -> None:
    for text in (_ABOUT, _PARTS, _FRAMES, *([_TRACKS] if _has_tracks(schemas) else [])):
        database.execute(text)
    database.execute("INSERT INTO index_about VALUES (?, ?)", [_FORMAT, pipeline])
    for table in TABLES:
        if table != "frames":
            database.register("incoming", schemas[table].empty_table())
            database.execute(f"CREATE TABLE {table} AS SELECT * FROM incoming")
            database.unregister("incoming")


def _add(database: Any, dataset: DatasetLocation, schemas: dict[str, Any], keys: dict[str, list[str]]) -> None:
    """Add the rows of some files."""
    for table, schema in schemas.items():
        parts = dataset.parts(table, keys[table], schema)
        database.register("incoming", parts.reader())
        try:
            database.execute(f"CREATE OR REPLACE TEMP TABLE new_{table} AS SELECT * FROM incoming")
        except duckdb().Error as error:
            raise parts.error or error from error
        database.unregister("incoming")
        if table != "frames":
            database.execute(f"INSERT INTO {table} SELECT * FROM new_{table}")
    database.execute(_FRAMES_OF_OBJECTS)
    database.execute(_COUNTED_FRAMES)
    if _has_tracks(schemas):
        database.execute(_EMBEDDED_TRACKS)
