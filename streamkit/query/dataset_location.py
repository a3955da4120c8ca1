"""The place of a data set: a folder, or an address of fsspec, and what is in it."""

from __future__ import annotations

from collections.abc import Mapping
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
            found = self._system.ls(f"{self._root}/{table}", detail=True, refresh=True)
        named = ((str(info["name"]).rpartition("/")[2], info) for info in found)
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

    def reader(self, table: str, keys: list[str], schema: Any) -> Any:
        """An Arrow reader over these parts of a table. It raises OSError or ArrowInvalid while it reads."""
        import pyarrow.dataset

        paths = [f"{self._root}/{table}/{key}{_SUFFIX}" for key in keys]
        found = pyarrow.dataset.dataset(paths, schema, format="parquet", filesystem=self._system)
        return found.scanner(batch_readahead=4, fragment_readahead=8).to_reader()

    def _manifest(self, where: str) -> dict[str, Any]:
        path = f"{self._root}/{MANIFEST}"
        with raised_as(ConfigError, self.address):
            if not self._system.exists(path):
                raise ConfigError(f"{mask(where)} is no data set: it has no {MANIFEST}; give the --out of a batch run")
            text = self._system.cat_file(path).decode("utf-8", "replace")
        return parse_manifest(text, f"{mask(where)}/{MANIFEST}")
