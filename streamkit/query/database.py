# SPDX-License-Identifier: Apache-2.0
"""Runs queries on the index of a data set: read-only, without access to anything else, with labels that exist."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.errors import ConfigError
from streamkit.core.text import nearest
from streamkit.query.index import duckdb
from streamkit.query.parsed_query import ParsedQuery
from streamkit.runtime.execution.future import PeriodicTimer

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
_CHECK_EVERY_S = 0.1
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


class QuestionTimer:
    """Interrupts a query that takes longer than its limit.

    Args:
        limit_s: the time that DuckDB may take for the query, in seconds.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = self._left_s = limit_s
        self._over = False

    @contextmanager
    def running(self, cursor: Any) -> Iterator[None]:
        """Count the time of the block, in which a cursor computes.

        Raises:
            ConfigError: the limit is reached.
        """
        if math.isinf(self._limit_s):
            yield
            return
        start_s = time.monotonic()

        def check() -> None:
            if time.monotonic() - start_s >= self._left_s:
                self._over = True
                cursor.interrupt()

        try:
            with PeriodicTimer(_CHECK_EVERY_S, check):
                yield
        except Exception:
            if self._over:
                raise ConfigError(
                    f"the query took longer than {self._limit_s:g} s: select less, or give it more time, such as "
                    "--timeout 1h"
                ) from None
            raise
        finally:
            self._left_s -= time.monotonic() - start_s


class Rows:
    """The result of a query, read once.

    Args:
        reader: reads the rows in batches.
        cursor: computes them.
        timer: limits the time that this takes.

    Attributes:
        columns: the names of the columns.
    """

    def __init__(self, reader: Any, cursor: Any, timer: QuestionTimer) -> None:
        self._reader = reader
        self._cursor = cursor
        self._timer = timer
        self.schema = reader.schema
        self.columns: list[str] = list(reader.schema.names)

    def batches(self) -> Iterator[Any]:
        """Yield the rows as Arrow record batches. Raises ConfigError if the query fails on a value, or takes long."""
        while True:
            try:
                with self._timer.running(self._cursor):
                    batch = self._reader.read_next_batch()
            except (StopIteration, ConfigError) as end:
                if isinstance(end, ConfigError):
                    raise
                return
            except Exception as error:  # DuckDB's errors come through Arrow's stream
                raise ConfigError(f"the query failed: {_text(error)}") from error
            yield batch

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as Python values; a map is a dict.

        Raises:
            ConfigError: the query fails, or a date is before the year 1 or after 9999.
        """
        for batch in self.batches():
            columns = [_python_values(name, column) for name, column in zip(self.columns, batch.columns, strict=True)]
            yield from zip(*columns, strict=True)


def _python_values(name: str, column: Any) -> list[Any]:
    """The values of a column; raise ConfigError if Python has no such date."""
    import pyarrow.types

    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise ConfigError(
            f"the column {name} has a date before the year 1 or after 9999 ({error}); select it as text: {name}::TEXT"
        ) from None
    if pyarrow.types.is_map(column.type):
        return [None if pairs is None else dict(pairs) for pairs in values]
    return values


class Database:
    """The tables of a data set; a context manager.

    Args:
        index: the path of its index.
        labels: the classes of the pipeline's models.
        timeout_s: how long one query of a user may take, in seconds.
    """

    def __init__(self, index: Path, labels: Sequence[str], timeout_s: float = math.inf) -> None:
        self._timeout_s = timeout_s
        self._database = duckdb().connect(str(index), read_only=True)
        self._temporary = tempfile.TemporaryDirectory(prefix="streamkit-")  # what does not fit in memory
        for name, value in {"temp_directory": self._temporary.name, **_SETTINGS}.items():
            self._database.execute(f"SET {name} = '{value}'")
        label_rows = self._database.execute(
            "SELECT DISTINCT coalesce(label, class_id::TEXT) AS name FROM objects ORDER BY name"
        )
        self._vector: np.ndarray | None = None
        self.labels: tuple[str, ...] = tuple(dict.fromkeys([*labels, *(label for (label,) in label_rows.fetchall())]))

    def query(self, sql: str) -> Rows:
        """Run one SELECT.

        Raises:
            ConfigError: it is wrong, does more than read, takes too long, or names a label that the data set does not
                know.
        """
        duck = duckdb()
        try:
            statements = self._database.extract_statements(sql)
            kinds = [str(statement.type).rpartition(".")[2] for statement in statements]
            if len(kinds) != 1 or kinds[0] not in _READS:
                raise ConfigError(f"a query reads only: write one SELECT, got {', '.join(kinds) or 'nothing'}")
            parsed = ParsedQuery(self._database, sql)
            self._check_labels(parsed.labels)
            cursor = self._database.cursor()  # its result may still be read when other queries run
            if self._vector is not None:
                cursor.execute(self._tracks_like(self._vector))
            timer = QuestionTimer(self._timeout_s)
            with timer.running(cursor):
                reader = _reader(cursor.sql(parsed.sql))
            return Rows(reader, cursor, timer)
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
                raise ConfigError(f"there is no label {label!r} in this data set{self._label_hint(label)}")

    def _label_hint(self, label: str) -> str:
        near = nearest(label.lower(), self.labels)
        more = f" and {len(self.labels) - _SHOWN} more" if len(self.labels) > _SHOWN else ""
        choices = f"there are {', '.join(self.labels[:_SHOWN])}{more}" if self.labels else "it has none"
        return f"; did you mean {near!r}? ({choices})" if near else f"; {choices}"

    def _hint(self, text: str) -> str:
        """What to write instead of a label without quotes."""
        match = re.search(r'Referenced column "([^"]+)" not found', text)
        if match and match[1] in self.labels:
            return f"; a label is text: write count_of('{match[1]}')"
        return ""


def _reader(relation: Any) -> Any:
    import pyarrow

    return pyarrow.RecordBatchReader.from_stream(relation)


def _text(error: BaseException) -> str:
    """DuckDB's message on one line, without its drawing of the place."""
    text = str(error).partition("\n\nLINE ")[0].partition("\n\n^")[0]
    return " ".join(text.split())
