"""A Parquet file that is written by row groups and appears when it is complete."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from streamkit.core.errors import OutputError, needs
from streamkit.io.outputs import PartFile, output_error

_ENCODED = ["key", "source", "frame", "pts_s", "stage", "label", "class_id", "track_id", "kind", "error"]


def arrow(why: str = "run.py batch", extra: str = "batch") -> Any:
    """Return the module `pyarrow`. Raises MissingPackage, which names `why` and the install extra `extra`."""
    with needs("pyarrow", extra, why):
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    return pyarrow


class TableFile:
    """A Parquet file that appears under its name when it is complete, after syncing it to the disk.

    As a context manager it is finished on success and discarded on errors.

    Args:
        path: the final name.
        schema: Arrow schema of its rows.
    """

    def __init__(self, path: Path, schema: Any) -> None:
        self._file, self._schema = PartFile(path), schema
        self._writer: Any = None
        self._broken: OutputError | None = None

    def write(self, table: Any) -> None:
        """Write one row group. Raises OutputError; after an error, every call raises it again."""
        if self._broken is not None:
            raise self._broken
        import pyarrow.parquet as pq

        try:
            if self._writer is None:
                part = self._file.begin()
                encoded = [name for name in _ENCODED if name in self._schema.names]
                self._writer = pq.ParquetWriter(part, self._schema, compression="zstd", use_dictionary=encoded)
            self._writer.write_table(table, row_group_size=max(1, len(table)))
        except OSError as error:
            raise self._failed(error) from error

    @property
    def size_bytes(self) -> int:
        """Bytes on the disk so far."""
        return self._file.part.stat().st_size if self._writer is not None else 0

    def finish(self, name: str | None = None) -> None:
        """Complete the file; without rows, no file is created. For `name` see `WholeFile.finish`."""
        if self._broken is not None:
            raise self._broken
        if self._writer is None:
            return
        try:
            self._writer.close()
        except OSError as error:
            raise self._failed(error) from error
        self._writer = None
        self._file.finish(name)

    def discard(self) -> None:
        """Discard the file."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        try:
            with contextlib.suppress(OSError):  # the disk is full, which is already reported
                writer.close()
        finally:
            self._file.discard()

    def _failed(self, error: OSError) -> OutputError:
        self._broken = output_error(self._file.path, error)
        self.discard()
        return self._broken

    def __enter__(self) -> TableFile:
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        self.discard() if kind is not None else self.finish()
