# SPDX-License-Identifier: Apache-2.0
"""The output folder of a data set: its pipeline, its lock, and which files are done."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from streamkit.batch.identity import differences, pipeline_key
from streamkit.batch.parts import FILES, FOLDERS, MERGED, all_parts, is_complete, row_path, temporary_files, unlink
from streamkit.batch.tables import files_schema
from streamkit.core.errors import ConfigError
from streamkit.io.outputs import AtomicFile, fsync_folders, writing
from streamkit.io.parquet_file import arrow

MANIFEST = "streamkit.json"
LOCK = ".streamkit.lock"
SCHEMA = "streamkit-dataset/1"
_SHOWN = 6


def manifest(out: Path) -> dict[str, Any]:
    """The content of a folder's `streamkit.json`: `pipeline`, the key, and `identity`.

    Raises:
        ConfigError: it does not exist, or is not streamkit's.
    """
    path = out / MANIFEST
    try:
        return _manifest(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not the description of a data set: {error}") from error


@lru_cache(maxsize=8)
def _manifest(path: Path, changed_ns: int) -> dict[str, Any]:
    return parse_manifest(path.read_text(encoding="utf-8"), str(path))


def parse_manifest(text: str, name: str) -> dict[str, Any]:
    """The content of a `streamkit.json`; `name` is its path or address. See `manifest`."""
    try:
        description = json.loads(text)
        if description["schema"] != SCHEMA:
            raise ValueError(f"its schema is {description['schema']!r}, and this version writes {SCHEMA!r}")
        return {"pipeline": str(description["pipeline"]), "identity": dict(description["identity"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{name} is not the description of a data set: {error}") from error


class FileRow(NamedTuple):
    """What a file's row in the table of files says.

    Attributes:
        status: done or failed; "" if the row cannot be read.
        path: path of the video; "" likewise.
        parts_bytes: total size of its parts; None if the row does not have it.
    """

    status: str = ""
    path: str = ""
    parts_bytes: int | None = None


Seen = dict[str, tuple[tuple[int, int], FileRow]]
"""By key, the inode and modification time of the row's file, and the row."""


def statuses(out: Path, seen: Seen | None = None) -> dict[str, str]:
    """`done` or `failed` of every file that has a row, by key; only reads, and needs no lock.

    An unreadable row is ignored: rows appear only when they are complete, so only a damaged disk makes one.

    Args:
        out: the folder.
        seen: cache of rows from earlier calls; updated.
    """
    seen = {} if seen is None else seen
    if not (out / FILES).is_dir():
        return {}
    status_by_key: dict[str, str] = {}
    for entry in sorted(os.scandir(out / FILES), key=lambda entry: entry.name):
        key, dot, ending = entry.name.rpartition(".")
        if dot and ending == "parquet" and not key.startswith("."):
            about = entry.stat()
            mark = about.st_ino, about.st_mtime_ns
            if key not in seen or seen[key][0] != mark:
                seen[key] = mark, _row(entry.path)
            if status := seen[key][1].status:
                status_by_key[key] = status
    return status_by_key


def _row(path: str) -> FileRow:
    """Read a row from the file's column statistics, which is faster than reading the table."""
    try:
        about = arrow().parquet.read_metadata(path)
        names = files_schema().names
        if not about.num_rows:
            return FileRow()
        statistics = (about.row_group(0).column(names.index(name)).statistics for name in FileRow._fields)
        status, place, size = (
            column.min if column is not None and column.has_min_max else None for column in statistics
        )
        return FileRow(str(status), str(place or ""), None if size is None else int(size))
    except (OSError, ValueError):
        return FileRow()


class Folder:
    """The folder, held by this process until `close`; also a context manager.

    Args:
        out: the folder; created if it does not exist.
        identity: the pipeline's, from `pipeline_identity`.
        overwrite: if the folder belongs to another pipeline, remove its results and start over. With the same
            pipeline it has no effect, so that an interrupted run with it continues like any other.

    Attributes:
        pipeline: the key of the pipeline, for `file_key`.
        swept: number of incomplete files that an earlier run had left and that were removed.
        broken: keys of files that were done, but whose parts are no longer whole; they count as not done.

    Raises:
        ConfigError: it is no data set, belongs to another pipeline, or another run uses it. It is unchanged then.
        OutputError: it cannot be written.
    """

    def __init__(self, out: Path, identity: Mapping[str, Any], *, overwrite: bool = False) -> None:
        arrow()
        self.out = out
        self.identity = dict(identity)
        self.pipeline = pipeline_key(identity)
        self.swept = 0
        self.broken = list[str]()
        self._seen: Seen = {}
        self._lock: BinaryIO | None = None
        self._check(overwrite)
        try:
            with writing(out):
                out.mkdir(parents=True, exist_ok=True)
                self._lock = _locked(out)
                self._check(overwrite)  # once more: another run may have written to it meanwhile
                self._begin()
        except BaseException:
            self.close()
            raise

    def done(self) -> set[str]:
        """Keys of the files that are done."""
        return {key for key, status in statuses(self.out, self._seen).items() if status == "done"}

    def failed(self) -> set[str]:
        """Keys of the files that failed."""
        return {key for key, status in statuses(self.out, self._seen).items() if status == "failed"}

    def clear(self, key: str) -> None:
        """Remove a file's row and then all its parts. Raises OutputError."""
        unlink([row_path(self.out, key), *(path for other, path in all_parts(self.out) if other == key)])

    def paths(self) -> dict[str, str]:
        """The path of each file that has a row, by key."""
        return {key: self._seen[key][1].path for key in statuses(self.out, self._seen)}

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------------

    def _check(self, overwrite: bool) -> None:
        """Refuse a folder that this run must not write to. Raises ConfigError."""
        if not self.out.is_dir():
            if self.out.exists():
                raise ConfigError(f"{self.out} is a file; --out needs a folder")
            return
        with writing(self.out):
            names = set(os.listdir(self.out)) - {LOCK, "lost+found"}
        names = {name for name in names if not (name.startswith(".") and name.endswith(".part"))}
        if not names:
            return
        if MANIFEST not in names:
            raise ConfigError(
                f"{self.out} is not empty and no data set (it has {_some(sorted(names))}, and no {MANIFEST}); "
                "give --out an empty folder"
            )
        before = manifest(self.out)
        if before["pipeline"] != self.pipeline and not overwrite:
            changed = differences(before["identity"], self.identity) or ["the description was changed"]
            raise ConfigError(
                f"{self.out} is the data set of another pipeline: {_some(changed, '; ')}. "
                "Give another --out, or --overwrite to discard the results and start over"
            )

    def _begin(self) -> None:
        """Make the folder this pipeline's, and remove incomplete results."""
        path = self.out / MANIFEST
        if not path.exists() or manifest(self.out)["pipeline"] != self.pipeline:
            self._wipe()  # if killed before the next lines, the folder still belongs to the other pipeline
            text = json.dumps({"schema": SCHEMA, "pipeline": self.pipeline, "identity": self.identity}, indent=1)
            file = AtomicFile(path, unique=True)
            file.begin().write_text(text + "\n", encoding="utf-8")
            file.finish()
            fsync_folders([self.out])
        (self.out / FILES).mkdir(exist_ok=True)
        status_by_key = statuses(self.out, self._seen)
        self.broken = self._no_longer_whole(status_by_key)
        unlink(row_path(self.out, key) for key in self.broken)  # before their parts, as in `clear`
        status_by_key = {key: status for key, status in status_by_key.items() if key not in self.broken}
        stray = [part for key, part in all_parts(self.out) if status_by_key.get(key) != "done"]
        whole = [part for name in (MANIFEST, MERGED) for part in self.out.glob(f".{name}.*.part")]
        unreadable = [
            path for path in (self.out / FILES).glob("*.parquet") if path.stem not in {*status_by_key, "empty"}
        ]
        left = [*temporary_files(self.out), *whole, *unreadable]
        self.swept = len(stray) + len(left)
        unlink([*left, *stray])

    def _no_longer_whole(self, status_by_key: Mapping[str, str]) -> list[str]:
        """Files with a part that was truncated, changed or removed since they were done."""
        sizes: Counter[str] = Counter()
        damaged = set()
        for key, path in all_parts(self.out):
            if status_by_key.get(key) == "done":
                sizes[key] += path.stat().st_size
                if not is_complete(path):
                    damaged.add(key)
        done = (key for key, status in status_by_key.items() if status == "done")
        return [key for key in done if key in damaged or self._seen[key][1].parts_bytes not in (None, sizes[key])]

    def _wipe(self) -> None:
        for name in (FILES, *FOLDERS):  # the rows first: without them no file counts as done
            if (self.out / name).is_dir():
                shutil.rmtree(self.out / name)
        (self.out / MERGED).unlink(missing_ok=True)


def _locked(out: Path) -> BinaryIO:
    """Lock a folder as long as the returned file is open; the system releases the lock if this process dies."""
    file = (out / LOCK).open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        who = file.read(200).decode("utf-8", "replace").strip()
        file.close()
        raise ConfigError(
            f"another run writes into {out}{f' ({who})' if who else ''}; wait until it ends, or give another --out"
        ) from None
    except OSError:
        file.close()
        raise
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    file.flush()
    return file


def _some(words: list[str], between: str = ", ") -> str:
    more = len(words) - _SHOWN
    return between.join(words[:_SHOWN]) + (f"{between}and {more} more" if more > 0 else "")
