# SPDX-License-Identifier: Apache-2.0
"""A Parquet file that is written by row groups and appears when it is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamkit.core.errors import needs
from streamkit.io.outputs import AtomicWriter

_ENCODED = ["key", "source", "frame", "pts_s", "stage", "label", "class_id", "track_id", "kind", "error"]


def arrow(why: str = "streamkit batch", extra: str = "batch") -> Any:
    """Return the module `pyarrow`. Raises MissingPackage, which names `why` and the install extra `extra`."""
    with needs("pyarrow", extra, why):
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    return pyarrow


class TableFile(AtomicWriter):
    """A Parquet file that appears under its name when it is complete, after syncing it to the disk.

    Args:
        path: the final name.
        schema: Arrow schema of its rows.
    """

    def __init__(self, path: Path, schema: Any) -> None:
        import pyarrow.parquet as pq

        encoded = [name for name in _ENCODED if name in schema.names]
        super().__init__(path, lambda part: pq.ParquetWriter(part, schema, compression="zstd", use_dictionary=encoded))

    def write(self, table: Any) -> None:
        """Write one row group. Raises OutputError."""
        with self.out() as writer:
            writer.write_table(table, row_group_size=max(1, len(table)))
