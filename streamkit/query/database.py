# SPDX-License-Identifier: Apache-2.0
"""Runs queries on the index of a data set: read-only, without access to anything else, with labels that exist."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.errors import ConfigError
from streamkit.core.text import nearest
from streamkit.query.index import duckdb
from streamkit.query.parsed_query import ParsedQuery

_SETTINGS = {  # after the folder for temporary files
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
    "enable_progress_bar": False,  # it is printed on standard output
    "TimeZone": "UTC",
    "lock_configuration": True,
}
_READS = ("SELECT", "EXPLAIN")
_SHOWN = 12
_WHERE = "SELECT source, frame, pts_s, counts, key FROM frames WHERE (\n{}\n) ORDER BY source, key, frame"
_TRACKS_LIKE = """
CREATE OR REPLACE TEMP VIEW tracks AS
SELECT * EXCLUDE embedding, round(list_inner_product(embedding, {vector})::DOUBLE, 4) AS likeness
FROM {index}.main.tracks"""
_LIKE = """
SELECT source, label, track_id, likeness, frame, pts_s, begin_s, end_s, key FROM tracks
SEMI JOIN (SELECT key, frame FROM frames WHERE (\n{where}\n)) USING (key, frame)
ORDER BY likeness DESC, key, track_id {limit}"""
FRAMES_WITHOUT_ROWS = """
SELECT count(*) FROM files WHERE status = 'done' AND frames > (SELECT count(*) FROM frames WHERE frames.key = files.key)
"""


class Rows:
    """The result of a query, read once.

    Attributes:
        columns: the names of the columns.
    """

    def __init__(self, reader: Any, cursor: Any) -> None:
        self._reader, self._cursor = reader, cursor
        self.schema = reader.schema
        self.columns: list[str] = list(reader.schema.names)

    def batches(self) -> Iterator[Any]:
        """Yield the rows as Arrow record batches. Raises ConfigError if the query fails on a value."""
        while True:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return
            except Exception as error:  # DuckDB's errors come through Arrow's stream
                raise ConfigError(f"the query failed: {_text(error)}") from error
            yield batch

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as Python values; a map is a dict."""
        import pyarrow.types

        maps = [pyarrow.types.is_map(field.type) for field in self.schema]
        for batch in self.batches():
            columns = [
                [None if value is None else dict(value) for value in column.to_pylist()]
                if is_map
                else column.to_pylist()
                for column, is_map in zip(batch.columns, maps, strict=True)
            ]
            yield from zip(*columns, strict=True)


class Database:
    """The tables of a data set; a context manager.

    Args:
        index: the path of its index.
        labels: the classes of the pipeline's models.
    """

    def __init__(self, index: Path, labels: Sequence[str]) -> None:
        self._database = duckdb().connect(str(index), read_only=True)
        self._temporary = tempfile.TemporaryDirectory(prefix="streamkit-")  # what does not fit in memory
        for name, value in {"temp_directory": self._temporary.name, **_SETTINGS}.items():
            self._database.execute(f"SET {name} = '{value}'")
        found = self._database.execute(
            "SELECT DISTINCT coalesce(label, class_id::TEXT) AS name FROM objects ORDER BY name"
        )
        self._vector: np.ndarray | None = None
        self.labels: tuple[str, ...] = tuple(dict.fromkeys([*labels, *(label for (label,) in found.fetchall())]))

    def query(self, sql: str) -> Rows:
        """Run one SELECT.

        Raises:
            ConfigError: it is wrong, does more than read, or names a label that the data set does not know.
        """
        duck = duckdb()
        try:
            statements = self._database.extract_statements(sql)
            kinds = [str(one.type).rpartition(".")[2] for one in statements]
            if len(kinds) != 1 or kinds[0] not in _READS:
                raise ConfigError(f"a query reads only: write one SELECT, got {', '.join(kinds) or 'nothing'}")
            parsed = ParsedQuery(self._database, sql)
            self._check_labels(parsed.labels)
            cursor = self._database.cursor()  # its result may still be read when other queries run
            if self._vector is not None:
                cursor.execute(self._tracks_like(self._vector))
            return Rows(_reader(cursor.sql(parsed.sql)), cursor)
        except duck.Error as error:
            raise ConfigError(f"the query is wrong: {_text(error)}{self._hint(str(error))}") from error

    def where(self, condition: str) -> Rows:
        """The frames for which a condition over the columns of `frames` holds. Raises ConfigError."""
        return self.query(_WHERE.format(condition))

    def like(self, vector: np.ndarray, sql: str | None, where: str | None, limit: int) -> Rows:
        """Rank tracks by the cosine similarity of their best view.

        Args:
            vector: (d,) float32 of length 1.
            sql: a SELECT, for which the table `tracks` has the column `likeness`; by default the tracks in their order.
            where: a condition for the frame of the best view.
            limit: how many tracks, 0 for all.

        Raises:
            ConfigError: the query is wrong, or the data set has no tracks with embeddings.
        """
        if not self.fetch("SELECT 1 FROM duckdb_tables() WHERE table_name = 'tracks'"):
            raise ConfigError("this data set has embeddings, but no tracks: put embed below a tracker; run batch again")
        lengths = self.fetch("SELECT DISTINCT len(embedding) FROM tracks")
        if any(length != len(vector) for (length,) in lengths):
            raise ConfigError(f"the data set has vectors of {lengths[0][0]} values, and the card makes {len(vector)}")
        self._vector = vector
        text = _LIKE.format(where=where or "true", limit=f"LIMIT {limit}" if limit else "")
        return self.query(text if sql is None else sql)

    def _tracks_like(self, vector: np.ndarray) -> str:
        ((name,),) = self.fetch("SELECT current_database()")
        values = ", ".join(f"{value:.9g}" for value in vector.tolist())
        return _TRACKS_LIKE.format(index=f'"{name}"', vector=f"[{values}]::FLOAT[]")

    def fetch(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query of this package."""
        rows: list[tuple[Any, ...]] = self._database.execute(sql, list(values)).fetchall()
        return rows

    def table(self, sql: str, *values: Any) -> Any:
        """The rows of a query of this package as an Arrow table."""
        return _reader(self._database.sql(sql, params=list(values))).read_all()

    def keep(self, name: str, rows: Any) -> None:
        """Make an Arrow table readable under a name."""
        self._database.register(name, rows)

    def close(self) -> None:
        """Close the index."""
        self._database.close()
        self._temporary.cleanup()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_labels(self, labels: Sequence[str]) -> None:
        for label in labels:
            if label not in self.labels:
                raise ConfigError(f"there is no label {label!r} in this data set{self._known(label)}")

    def _known(self, label: str) -> str:
        near = nearest(label.lower(), self.labels)
        more = f" and {len(self.labels) - _SHOWN} more" if len(self.labels) > _SHOWN else ""
        known = f"there are {', '.join(self.labels[:_SHOWN])}{more}" if self.labels else "it has none"
        return f"; did you mean {near!r}? ({known})" if near else f"; {known}"

    def _hint(self, text: str) -> str:
        """What to write instead of a label without quotes."""
        found = re.search(r'Referenced column "([^"]+)" not found', text)
        if found and found[1] in self.labels:
            return f"; a label is text: write count_of('{found[1]}')"
        return ""


def _reader(relation: Any) -> Any:
    import pyarrow

    return pyarrow.RecordBatchReader.from_stream(relation)


def _text(error: BaseException) -> str:
    """DuckDB's message on one line, without its drawing of the place."""
    text = str(error).partition("\n\nLINE ")[0].partition("\n\n^")[0]
    return " ".join(text.split())
