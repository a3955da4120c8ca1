# SPDX-License-Identifier: Apache-2.0
"""Writes the result of a query: a table on the terminal, CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import datetime
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson

from streamkit.core.errors import ConfigError
from streamkit.core.text import printable
from streamkit.io.outputs import AtomicWriter
from streamkit.io.parquet_file import arrow

FORMATS = ("table", "csv", "json", "parquet")
_SHOWN_ROWS = 50
_WIDE = 1000
_HELD_ROWS = 4096

Row = tuple[Any, ...]


class ResultWriter(Protocol):
    """Takes the rows of a result in order."""

    def add(self, row: Row) -> None:
        """Take a row."""

    def finish(self) -> None:
        """Write what is left; there are no more rows."""


def format_of(requested: str | None, out: Path | None) -> str:
    """The format of a result: the given one, or that of the file's suffix, or a table. Raises ConfigError."""
    suffix = "" if out is None else out.suffix.lower().lstrip(".")
    form = requested or (suffix if suffix in FORMATS[1:] else "table" if out is None else "")
    if not form:
        raise ConfigError(f"--out {out}: give --format csv, json or parquet, or a file with that suffix")
    if form == "table" and out is not None:
        raise ConfigError(f"--out {out}: a table is for the terminal; give --format csv, json or parquet")
    if form == "parquet" and out is None:
        raise ConfigError("--format parquet needs a file: add --out FILE.parquet")
    return form


@contextmanager
def opened(form: str, out: Path | None, schema: Any, limit: int | None) -> Iterator[ResultWriter]:
    """The writer of a result; a file appears under its name when the block ends without an error.

    Args:
        form: one of `FORMATS`.
        out: the file; None for standard output.
        schema: the Arrow schema of the result.
        limit: how many rows a table shows; None for 50, 0 for all.

    Raises:
        OutputError: the file cannot be written.
    """
    if form == "table":
        table = _Table(schema.names, _SHOWN_ROWS if limit is None else limit)
        yield table
        table.finish()
    elif form == "parquet":
        assert out is not None
        with AtomicWriter(out, lambda part: arrow().parquet.ParquetWriter(part, schema)) as file:
            parquet = _Parquet(file, schema)
            yield parquet
            parquet.finish()
    else:
        kind = _Csv if form == "csv" else _Json
        if out is None:
            text = kind(schema.names, _to_stdout)
            yield text
            text.finish()
            return
        with AtomicWriter(out, lambda part: part.open("wb")) as file:

            def write(data: bytes) -> None:
                with file.out() as opened_file:
                    opened_file.write(data)

            text = kind(schema.names, write)
            yield text
            text.finish()


def _to_stdout(data: bytes) -> None:
    out: BinaryIO = sys.stdout.buffer
    out.write(data)


class _Table:
    """A table on the terminal."""

    def __init__(self, names: Sequence[str], max_rows: int) -> None:
        from rich.table import Table

        self._table = Table()
        self._max_rows = max_rows
        self._rows = 0
        for name in names:
            self._table.add_column(printable(name, one_line=True), overflow="fold")

    def add(self, row: Row) -> None:
        if not self._max_rows or self._rows < self._max_rows:
            from rich.text import Text

            self._table.add_row(*(Text(printable(shown(value), one_line=True)) for value in row))
        self._rows += 1

    def finish(self) -> None:
        from rich.console import Console

        console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
        console.print(self._table)
        rows = f"{self._rows:,} row{'' if self._rows == 1 else 's'}"
        more = bool(self._max_rows) and self._rows > self._max_rows
        console.print(f"{rows}, of which the first {self._max_rows:,} are shown; --limit 0 shows all" if more else rows)


class _Csv:
    """Text with a header."""

    def __init__(self, names: Sequence[str], write: Callable[[bytes], None]) -> None:
        self._write = write
        self._text = io.StringIO(newline="")
        self._csv = csv.writer(self._text)
        self._csv.writerow(names)

    def add(self, row: Row) -> None:
        self._csv.writerow(["" if value is None else _cell(value) for value in row])
        if self._text.tell() > 1 << 16:
            self.finish()

    def finish(self) -> None:
        self._write(self._text.getvalue().encode("utf-8", "backslashreplace"))
        self._text.seek(0)
        self._text.truncate()


class _Json:
    """An array of objects, one a line."""

    def __init__(self, names: Sequence[str], write: Callable[[bytes], None]) -> None:
        self._names = names
        self._write = write
        self._rows = 0

    def add(self, row: Row) -> None:
        self._write((b",\n" if self._rows else b"[\n") + _dumps(dict(zip(self._names, row, strict=True))))
        self._rows += 1

    def finish(self) -> None:
        self._write(b"\n]\n" if self._rows else b"[]\n")


class _Parquet:
    """A Parquet file with the types of the result."""

    def __init__(self, file: AtomicWriter, schema: Any) -> None:
        self._file = file
        self._schema = schema
        self._rows = list[dict[str, Any]]()

    def add(self, row: Row) -> None:
        self._rows.append(
            {
                name: list(value.items()) if isinstance(value, dict) and self._is_map(name) else value
                for name, value in zip(self._schema.names, row, strict=True)
            }
        )
        if len(self._rows) >= _HELD_ROWS:
            self.finish()

    def finish(self) -> None:
        with self._file.out() as writer:
            writer.write_table(arrow().Table.from_pylist(self._rows, self._schema))
        self._rows = []

    def _is_map(self, name: str) -> bool:
        return bool(arrow().types.is_map(self._schema.field(name).type))


def shown(value: Any) -> str:
    """A value as text for a person: the counts of a frame as `car 2, person 1`."""
    if value is None:
        return ""
    if isinstance(value, dict) and all(isinstance(count, int) for count in value.values()):
        return ", ".join(f"{name} {count:,}" for name, count in value.items())
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(_cell(value))


def _cell(value: Any) -> Any:
    """A value for a cell of CSV: nested values as JSON."""
    if isinstance(value, (dict, list)):
        return _dumps(value).decode()
    return value.isoformat(sep=" ") if isinstance(value, datetime.datetime) else value


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
