# SPDX-License-Identifier: Apache-2.0
"""The place of a data set: a folder, or an address of fsspec, and what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamkit.batch.folder import MANIFEST, parse_manifest
from streamkit.batch.parts import FILES
from streamkit.batch.remote import open_system, raised_as
from streamkit.batch.tables import DatasetTables, files_schema
from streamkit.core.errors import ConfigError
from streamkit.io.parquet_file import arrow
from streamkit.media.uris import is_path, local_path, mask

TABLES = (FILES, "objects", "events", "frames")
_MARKS = ("size", "ETag", "etag", "mtime", "ino", "LastModified", "last_modified", "updated")
_SUFFIX = ".parquet"


class PartReader:
    """Reads parts of a table with bounded memory.

    Args:
        paths: the Parquet files; may be none.
        schema: Arrow schema of the table.
        system: the file system of fsspec.

    Attributes:
        error: the error that ended the reading, OSError or ArrowInvalid: DuckDB raises one of its own in its place.
    """

    def __init__(self, paths: list[str], schema: Any, system: Any) -> None:
        self._paths = paths
        self._schema = schema
        self._system = system
        self.error: Exception | None = None

    def reader(self) -> Any:
        """The rows as an Arrow reader."""
        return arrow().RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[Any]:
        import pyarrow.dataset

        try:
            if self._paths:
                dataset = pyarrow.dataset.dataset(self._paths, self._schema, format="parquet", filesystem=self._system)
                yield from dataset.scanner(batch_readahead=4, fragment_readahead=8).to_batches()
        except Exception as error:
            self.error = error
            raise


class DatasetLocation:
    """A data set that is read.

    Args:
        where: its folder, or an address such as `s3://bucket/archive`.

    Attributes:
        folder: its folder; None for an address.
        address: its absolute path or its address.
        pipeline: identifies its pipeline.
        identity: of its pipeline, see `pipeline_identity`.

    Raises:
        ConfigError: it is no data set, or it cannot be read.
        MissingPackage: an address needs a package that is not installed.
    """

    def __init__(self, where: str) -> None:
        self.folder = Path(local_path(where)).expanduser().absolute() if is_path(where) else None
        self.address = where.rstrip("/") if self.folder is None else str(self.folder)
        with raised_as(ConfigError, self.address):
            self._system, self._root = open_system(self.address)
            self._system.invalidate_cache()
            if not self._system.isdir(self._root):
                raise ConfigError(f"{mask(where)}: there is no such folder; give the --out of a batch run")
        about = self._manifest(where)
        self.pipeline: str = about["pipeline"]
        self.identity: Mapping[str, Any] = about["identity"]
        if "parquet" not in self.identity.get("formats", ["parquet"]):
            raise ConfigError(f"{mask(where)} has no tables: run batch with --format parquet")

    def marks(self, table: str) -> dict[str, str]:
        """A text for each part of a table, by key, that changes whenever the part is written again."""
        with raised_as(ConfigError, self.address):
            if not self._system.isdir(f"{self._root}/{table}"):
                return {}
            file_infos = self._system.ls(f"{self._root}/{table}", detail=True, refresh=True)
        named = ((str(info["name"]).rpartition("/")[2], info) for info in file_infos)
        return {
            name.removesuffix(_SUFFIX): "/".join(str(info[mark]) for mark in _MARKS if mark in info)
            for name, info in named
            if name.endswith(_SUFFIX) and name[0] != "." and name != f"empty{_SUFFIX}"
        }

    def schema(self, table: str) -> Any:
        """The Arrow schema of a table."""
        if table == FILES:
            return files_schema()
        path = f"{self._root}/{table}/empty{_SUFFIX}"
        with raised_as(ConfigError, self.address):
            if not self._system.exists(path):
                return DatasetTables().schemas()[table]
            with self._system.open(path, "rb") as file:
                return arrow().parquet.read_schema(file)

    def parts(self, table: str, keys: list[str], schema: Any) -> PartReader:
        """These parts of a table."""
        paths = [f"{self._root}/{table}/{key}{_SUFFIX}" for key in keys]
        return PartReader(paths, schema, self._system)

    def _manifest(self, where: str) -> dict[str, Any]:
        path = f"{self._root}/{MANIFEST}"
        with raised_as(ConfigError, self.address):
            if not self._system.exists(path):
                raise ConfigError(f"{mask(where)} is no data set: it has no {MANIFEST}; give the --out of a batch run")
            text = self._system.cat_file(path).decode("utf-8", "replace")
        return parse_manifest(text, f"{mask(where)}/{MANIFEST}")
